"""Wire format of frames, without I/O. Big-endian; a header of 48 bytes, then the payload.

::

    offset  bytes  field
         0      4  magic "CUTL"
         4      1  version
         5      1  type            WireType
         6      1  payload kind    PayloadKind of a DATA or SHARED frame, else 0
         7      1  zero
         8      4  channel         index into the run's topology; 0 where there is none
        12      8  incarnation     the sender's, as proved in its handshake
        20      8  first           sequence number of the first message of a DATA or SHARED frame, else 0
        28      4  count           messages in a DATA or SHARED frame, else 0
        32      4  length          bytes of the payload; checked before anything is allocated
        36      4  header check    low half of XXH3-64 of the 36 bytes above; checked before the length is believed
        40      8  checksum        XXH3-64 of the payload, seeded with XXH3-64 of the 36 bytes above

    MARKER payload: snapshot_id u64, min_snapshot_id u64, written u64, aligned u8, is_final u8.
    CREDIT payload: bytes granted u64.
    STAMPS payload, before a DATA or SHARED frame: MessagePack, [[stamp, messages] of each run].
    MEMORY payload: size u64.   SHARED payload, in place of a DATA frame's: start u64, length u64, XXH3-64 u64.

The checksum finds damage, not forgery: `channels.handshake` decides which peers may send at all.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from cutline.channels.limits import CONTROL_BYTES_MAX, FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.channel.stamps import StampRuns
from cutline.snapshot.errors import ChannelError

MAGIC = b"CUTL"
VERSION = 1
BEGINNING = MAGIC + bytes((VERSION,))

_PREFIX = struct.Struct("!5sBBxIQQII")
_CHECKS = struct.Struct("!IQ")
#: `_PREFIX` and `_CHECKS` at once, for reading.
HEADER = struct.Struct("!5sBBBIQQIIIQ")
_MARKER = struct.Struct("!QQQ??")
_CREDIT = struct.Struct("!Q")
_MEMORY = struct.Struct("!Q")
_PLACE = struct.Struct("!QQQ")

HEADER_BYTES = HEADER.size
PREFIX_BYTES = _PREFIX.size
assert PREFIX_BYTES + _CHECKS.size == HEADER_BYTES

LOW_HALF = 0xFFFF_FFFF

_encode_stamps = msgspec.msgpack.Encoder().encode
_decode_stamps = msgspec.msgpack.Decoder(StampRuns).decode


class WireType(IntEnum):
    """Type of a frame. Sent on sockets: never renumber."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    VERDICT = 4
    DATA = 5
    MARKER = 6
    CREDIT = 7
    CONTROL = 8
    HEARTBEAT = 9
    MEMORY = 10  #: between workers of one host: announces the memory that holds the payloads of SHARED frames
    SHARED = 11
    STAMPS = 12  #: stamps of the messages of the next DATA or SHARED frame of the channel


Caps = Mapping[WireType, int]

#: Frame types that each kind of connection admits, with the longest payload of each in bytes.
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
    WireType.STAMPS: FRAME_BYTES_MAX,
}
#: Caps of a data connection over a Unix socket.
LOCAL_DATA_CAPS: Caps = {**DATA_CAPS, WireType.MEMORY: _MEMORY.size, WireType.SHARED: _PLACE.size}
CONTROL_CAPS: Caps = {WireType.CONTROL: CONTROL_BYTES_MAX}
HEARTBEAT_CAPS: Caps = {WireType.HEARTBEAT: 0}


class WireFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame of any type. `payload` may be a read-only view of memory that nobody else writes to."""

    type: WireType
    channel: int
    incarnation: int
    payload: bytes | memoryview
    kind: int = 0
    first: int = 0
    message_count: int = 0


def header_of(frame: WireFrame) -> bytes:
    """Return the header of `frame`, which goes before its payload."""
    return header(
        frame.type, frame.kind, frame.channel, frame.incarnation, frame.first, frame.message_count, frame.payload
    )


def header(
    type_: WireType,
    kind: int,
    channel: int,
    incarnation: int,
    first: int,
    count: int,
    payload: bytes | memoryview,
) -> bytes:
    """Return the header of a frame with these numbers, for callers that need no `WireFrame`."""
    prefix = _PREFIX.pack(BEGINNING, type_, kind, channel, incarnation, first, count, len(payload))
    seed = xxh3_64_intdigest(prefix)
    return prefix + _CHECKS.pack(seed & LOW_HALF, xxh3_64_intdigest(payload, seed=seed))


def data_frame(channel: int, incarnation: int, frame: Frame) -> WireFrame:
    """Return a channel's frame as a DATA frame.

    Raises
    ------
    ChannelError
        if the frame is larger than a receiver would take.
    """
    if len(frame.payload) > FRAME_BYTES_MAX:
        raise ChannelError(
            f"a frame of {len(frame.payload):,} bytes; at most {FRAME_BYTES_MAX:,} can be sent. "
            "Send smaller messages or batches."
        )
    return WireFrame(WireType.DATA, channel, incarnation, frame.payload, frame.kind, frame.first, frame.count)


def marker_frame(channel: int, incarnation: int, marker: Marker) -> WireFrame:
    """Return a marker as a MARKER frame."""
    return WireFrame(WireType.MARKER, channel, incarnation, _MARKER.pack(*marker))


def stamps_frame(channel: int, incarnation: int, stamps: StampRuns) -> WireFrame:
    """Return the stamps of the next frame of a channel as a STAMPS frame."""
    return WireFrame(WireType.STAMPS, channel, incarnation, _encode_stamps(stamps))


def stamps_of(wire: WireFrame) -> StampRuns:
    """Return the stamps in a STAMPS frame. Raises ChannelError if the payload is of another kind."""
    try:
        stamps: StampRuns = _decode_stamps(wire.payload)
    except msgspec.DecodeError as error:
        raise ChannelError(f"a STAMPS frame without stamps: {error}") from error
    return stamps


def credit_frame(channel: int, incarnation: int, granted_bytes: int) -> WireFrame:
    """Return a grant of credit as a CREDIT frame."""
    return WireFrame(WireType.CREDIT, channel, incarnation, _CREDIT.pack(granted_bytes))


class SharedPlace(NamedTuple):
    """Place of a payload in shared memory, and its XXH3-64."""

    start: int
    length: int
    checksum: int


def memory_frame(incarnation: int, size: int) -> WireFrame:
    """Return the MEMORY frame, which goes before all data: bytes of the memory beside it, or 0 for no memory."""
    return WireFrame(WireType.MEMORY, 0, incarnation, _MEMORY.pack(size))


def shared_frame(frame: WireFrame, place: SharedPlace) -> WireFrame:
    """Return the SHARED frame that replaces the DATA frame `frame`."""
    return msgspec.structs.replace(frame, type=WireType.SHARED, payload=_PLACE.pack(*place))


def memory_size_of(wire: WireFrame) -> int:
    """Return the bytes that a MEMORY frame announces. Raises ChannelError if the payload has another length."""
    size: int = _MEMORY.unpack(_exactly(wire, _MEMORY.size))[0]
    return size


def place_of(wire: WireFrame) -> SharedPlace:
    """Return the place that a SHARED frame names. Raises ChannelError if the payload has another length."""
    return SharedPlace(*_PLACE.unpack(_exactly(wire, _PLACE.size)))


def frame_of(wire: WireFrame) -> Frame:
    """Return the channel's frame in a DATA frame.

    Raises
    ------
    ChannelError
        if its numbers or its kind are invalid.
    """
    kind = _KINDS.get(wire.kind)
    if wire.first < 1 or wire.message_count < 1 or kind is None:
        raise ChannelError(f"a data frame with first={wire.first}, count={wire.message_count}, kind={wire.kind}")
    return Frame(wire.first, wire.message_count, kind, wire.payload)


def marker_of(wire: WireFrame) -> Marker:
    """Return the marker in a MARKER frame. Raises ChannelError if the payload has another length."""
    return Marker(*_MARKER.unpack(_exactly(wire, _MARKER.size)))


def credit_of(wire: WireFrame) -> int:
    """Return the bytes that a CREDIT frame grants. Raises ChannelError if the payload has another length."""
    granted: int = _CREDIT.unpack(_exactly(wire, _CREDIT.size))[0]
    return granted


def _exactly(wire: WireFrame, size: int) -> bytes | memoryview:
    if len(wire.payload) != size:
        raise ChannelError(f"a {wire.type.name} frame of {len(wire.payload)} bytes, where {size} are due")
    return wire.payload


_KINDS = {int(kind): kind for kind in PayloadKind}
