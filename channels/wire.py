"""Frames as bytes, without I/O. Big-endian; a header of 48 bytes, then the payload.

::

    offset  bytes  field
         0      4  magic "CUTL"
         4      1  version
         5      1  type            WireType
         6      1  payload kind    PayloadKind of a DATA or SHARED frame, else 0
         7      1  zero
         8      4  channel         index into the run's topology; 0 where there is none
        12      8  incarnation     of the sender, as proved in its handshake
        20      8  first           sequence number of the first message of a DATA or SHARED frame, else 0
        28      4  count           messages in a DATA or SHARED frame, else 0
        32      4  length          of the payload; looked at before anything is allocated
        36      4  header check    low half of XXH3-64 of the 36 bytes above, looked at before the length is believed
        40      8  checksum        XXH3-64 of the payload, seeded with XXH3-64 of the 36 bytes above

    MARKER payload: snapshot_id u64, floor u64, written u64, aligned u8.   CREDIT payload: bytes granted u64.
    MEMORY payload: size u64.   SHARED payload, where a DATA frame's is: start u64, length u64, XXH3-64 u64.

The checksum finds damage, not forgery: who may speak at all is `channels.handshake`'s business.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from channels.limits import CONTROL_BYTES_MAX, FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX, READ_AHEAD_BYTES
from snapshot.channel.frame import Frame, Marker, PayloadKind
from snapshot.channel.record_batches import new_memory
from snapshot.errors import ChannelError

MAGIC = b"CUTL"
VERSION = 1

_PREFIX = struct.Struct("!4sBBBxIQQII")
_CHECKS = struct.Struct("!IQ")
#: Both at once, for reading.
_HEADER = struct.Struct("!4sBBBBIQQIIIQ")
_MARKER = struct.Struct("!QQQ?")
_CREDIT = struct.Struct("!Q")
_MEMORY = struct.Struct("!Q")
_PLACE = struct.Struct("!QQQ")

HEADER_BYTES = _HEADER.size
_PREFIX_BYTES = _PREFIX.size
assert _PREFIX_BYTES + _CHECKS.size == HEADER_BYTES

_LOW_HALF = 0xFFFF_FFFF


class WireType(IntEnum):
    """What a frame is. Sent on sockets: never renumber."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    VERDICT = 4
    DATA = 5
    MARKER = 6
    CREDIT = 7
    CONTROL = 8
    HEARTBEAT = 9
    MEMORY = 10  #: between workers of one host: the memory that comes with it holds what SHARED frames name
    SHARED = 11


#: For what happens with each frame: to get a member of an enum takes longer than to make a frame.
_DATA = WireType.DATA

Caps = Mapping[WireType, int]

#: The types that each kind of connection admits, with the longest payload of each.
HANDSHAKE_CAPS: Caps = {
    WireType.HELLO: HANDSHAKE_BYTES_MAX,
    WireType.CHALLENGE: HANDSHAKE_BYTES_MAX,
    WireType.PROOF: HANDSHAKE_BYTES_MAX,
    WireType.VERDICT: HANDSHAKE_BYTES_MAX,
}
DATA_CAPS: Caps = {
    WireType.DATA: FRAME_BYTES_MAX,
    WireType.MARKER: _MARKER.size,
    WireType.CREDIT: _CREDIT.size,
}
#: The same over a Unix socket.
LOCAL_DATA_CAPS: Caps = {**DATA_CAPS, WireType.MEMORY: _MEMORY.size, WireType.SHARED: _PLACE.size}
CONTROL_CAPS: Caps = {WireType.CONTROL: CONTROL_BYTES_MAX}
HEARTBEAT_CAPS: Caps = {WireType.HEARTBEAT: 0}


class WireFrame(msgspec.Struct, frozen=True, gc=False):
    """One frame, whatever its type. `payload` may be a read-only view of memory that nobody else writes to."""

    type: WireType
    channel: int
    incarnation: int
    payload: bytes | memoryview
    kind: int = 0
    first: int = 0
    message_count: int = 0


def header_of(frame: WireFrame) -> bytes:
    """The header that goes ahead of `frame.payload`."""
    numbers = (frame.channel, frame.incarnation, frame.first, frame.message_count, len(frame.payload))
    return _checked(_PREFIX.pack(MAGIC, VERSION, frame.type, frame.kind, *numbers), frame.payload)


def data_header(channel: int, incarnation: int, frame: Frame) -> bytes:
    """The header of `data_frame`, for a payload that is not large."""
    numbers = (channel, incarnation, frame.first, frame.count, len(frame.payload))
    return _checked(_PREFIX.pack(MAGIC, VERSION, _DATA, frame.kind, *numbers), frame.payload)


def _checked(prefix: bytes, payload: bytes | memoryview) -> bytes:
    seed = xxh3_64_intdigest(prefix)
    return prefix + _CHECKS.pack(seed & _LOW_HALF, xxh3_64_intdigest(payload, seed=seed))


def data_frame(channel: int, incarnation: int, frame: Frame) -> WireFrame:
    """A channel's frame for the wire.

    Raises
    ------
    ChannelError
        if it is larger than a receiver would take.
    """
    if len(frame.payload) > FRAME_BYTES_MAX:
        raise ChannelError(
            f"a frame of {len(frame.payload):,} bytes; at most {FRAME_BYTES_MAX:,} can be sent. "
            "Send smaller messages or batches."
        )
    return WireFrame(_DATA, channel, incarnation, frame.payload, frame.kind, frame.first, frame.count)


def marker_frame(channel: int, incarnation: int, marker: Marker) -> WireFrame:
    """A marker for the wire."""
    return WireFrame(WireType.MARKER, channel, incarnation, _MARKER.pack(*marker))


def credit_frame(channel: int, incarnation: int, granted_bytes: int) -> WireFrame:
    """A grant of credit for the wire."""
    return WireFrame(WireType.CREDIT, channel, incarnation, _CREDIT.pack(granted_bytes))


class SharedPlace(NamedTuple):
    """Where a payload lies in shared memory, and its XXH3-64."""

    start: int
    length: int
    checksum: int


def memory_frame(incarnation: int, size: int) -> WireFrame:
    """What goes ahead of all data: the memory whose descriptor came has so many bytes; 0: there is none."""
    return WireFrame(WireType.MEMORY, 0, incarnation, _MEMORY.pack(size))


def shared_frame(frame: WireFrame, place: SharedPlace) -> WireFrame:
    """What stands for the DATA frame `frame`."""
    return msgspec.structs.replace(frame, type=WireType.SHARED, payload=_PLACE.pack(*place))


def memory_size_of(wire: WireFrame) -> int:
    """The size that a MEMORY frame says. Raises ChannelError if the payload has another length."""
    size: int = _MEMORY.unpack(_exactly(wire, _MEMORY.size))[0]
    return size


def place_of(wire: WireFrame) -> SharedPlace:
    """The place that a SHARED frame names. Raises ChannelError if the payload has another length."""
    return SharedPlace(*_PLACE.unpack(_exactly(wire, _PLACE.size)))


def frame_of(wire: WireFrame) -> Frame:
    """The channel's frame in a DATA frame.

    Raises
    ------
    ChannelError
        if its numbers or its kind cannot be.
    """
    kind = _KINDS.get(wire.kind)
    if wire.first < 1 or wire.message_count < 1 or kind is None:
        raise ChannelError(f"a data frame with first={wire.first}, count={wire.message_count}, kind={wire.kind}")
    return Frame(wire.first, wire.message_count, kind, wire.payload)


def marker_of(wire: WireFrame) -> Marker:
    """The marker in a MARKER frame. Raises ChannelError if the payload has another length."""
    return Marker(*_MARKER.unpack(_exactly(wire, _MARKER.size)))


def credit_of(wire: WireFrame) -> int:
    """The bytes that a CREDIT frame grants. Raises ChannelError if the payload has another length."""
    granted: int = _CREDIT.unpack(_exactly(wire, _CREDIT.size))[0]
    return granted


class FrameReader:
    """Cuts a stream of bytes into frames. Fill `space`, say how much with `advance`, drain `next_frame`.

    A payload that is whole in the read-ahead buffer is copied out of it once, so that it holds no other memory;
    of a larger one only the beginning is, and the rest is read straight into place.

    Parameters
    ----------
    caps : mapping of WireType to int
        The types that may come, and the longest payload of each.
    read_ahead_bytes : int
        With `HEADER_BYTES` it never reads beyond the frame that it is reading.
    """

    def __init__(self, caps: Caps, *, read_ahead_bytes: int = READ_AHEAD_BYTES) -> None:
        self._caps = {int(type_): cap for type_, cap in caps.items()}
        self._scratch = memoryview(bytearray(read_ahead_bytes))
        self._start = 0
        self._end = 0
        #: the header whose payload is due, None between frames, and what the checksum of that is seeded with
        self._header: tuple[Any, ...] | None = None
        self._seed = 0
        #: the payload when it is read straight into place
        self._payload: memoryview | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty once `next_frame` has returned None."""
        if self._payload is not None:
            return self._payload[self._filled :]
        return self._scratch[self._end :]

    def advance(self, count: int) -> None:
        """The first `count` bytes of `space` are filled."""
        if self._payload is not None:
            self._filled += count
        else:
            self._end += count

    def next_frame(self) -> WireFrame | None:
        """The next whole frame, or None when more bytes are needed.

        Raises
        ------
        ChannelError
            if the bytes are no frame, a frame of a type or length that is not admitted here, or damaged. The
            stream cannot be read further.
        """
        header = self._header
        if header is None:
            start = self._start
            if self._end - start < HEADER_BYTES:
                self._move_to_front()
                return None
            header = _HEADER.unpack_from(self._scratch, start)
            self._seed = xxh3_64_intdigest(self._scratch[start : start + _PREFIX_BYTES])
            self._judge(header)
            self._start = start + HEADER_BYTES
            self._header = header
        _, _, type_, kind, _, channel, incarnation, first, count, length, _, checksum = header
        payload: bytes | memoryview | None
        start, stop = self._start, self._start + length
        if self._payload is None and stop <= self._end:
            payload = bytes(self._scratch[start:stop])
            self._start = stop
        elif (payload := self._take_large(length)) is None:
            return None
        self._header = None
        if xxh3_64_intdigest(payload, seed=self._seed) != checksum:
            raise ChannelError("a frame's checksum is wrong: it was damaged on the way")
        return WireFrame(_TYPES[type_], channel, incarnation, payload, kind, first, count)

    def _move_to_front(self) -> None:
        """What is left, less than a header, so that there is space behind it."""
        left = self._end - self._start
        if left:
            self._scratch[:left] = bytes(self._scratch[self._start : self._end])
        self._start, self._end = 0, left

    def _judge(self, header: tuple[Any, ...]) -> None:
        magic, version, type_, _, zero, _, _, _, _, length, check, _ = header
        if magic != MAGIC or zero:
            raise ChannelError("the peer does not speak this protocol: a frame begins with other bytes")
        if version != VERSION:
            raise ChannelError(f"the peer speaks version {version}, this side {VERSION}: install the same")
        if check != self._seed & _LOW_HALF:
            raise ChannelError("a frame's header check is wrong: it was damaged on the way")
        cap = self._caps.get(type_)
        if cap is None:
            raise ChannelError(f"a frame of type {type_} has no business on this connection")
        if length > cap:
            raise ChannelError(f"a {_TYPES[type_].name} frame that claims {length:,} bytes; at most {cap:,} are taken")

    def _take_large(self, length: int) -> memoryview | None:
        """The payload that is read straight into place, once it is whole."""
        if self._payload is None:
            self._payload = new_memory(length)
            self._filled = self._end - self._start
            self._payload[: self._filled] = self._scratch[self._start : self._end]
            self._start = self._end = 0
        if self._filled < length:
            return None
        whole, self._payload = self._payload, None
        return whole.toreadonly()


def _exactly(wire: WireFrame, size: int) -> bytes | memoryview:
    if len(wire.payload) != size:
        raise ChannelError(f"a {wire.type.name} frame of {len(wire.payload)} bytes, where {size} are due")
    return wire.payload


_KINDS = {int(kind): kind for kind in PayloadKind}
_TYPES = {int(type_): type_ for type_ in WireType}
