"""Frame reader: splits a byte stream into frames: whole, admitted, undamaged, of one incarnation. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from cutline.channels.limits import READ_AHEAD_BYTES
from cutline.channels.wire import (
    BEGINNING,
    HEADER,
    HEADER_BYTES,
    LOW_HALF,
    MAGIC,
    PREFIX_BYTES,
    VERSION,
    Caps,
    WireFrame,
    WireType,
)
from cutline.snapshot.channel.record_batches import new_memory
from cutline.snapshot.errors import ChannelError

_TYPES = {int(type_): type_ for type_ in WireType}


class _Partial(NamedTuple):
    """A frame whose payload has not come whole."""

    frame: WireFrame
    seed: int
    checksum: int


class FrameReader:
    """Splits a stream into frames. Fill `space`, then call `advance` with the count, which returns the whole frames.

    A payload that is whole in the read-ahead buffer is copied once, so that it keeps no other memory alive. Of a larger
    payload only the beginning is copied, and the rest is read straight into place.

    Parameters
    ----------
    caps : mapping of WireType to int
        The frame types that may come, and the longest payload of each in bytes.
    incarnation : int
        The incarnation that every frame must carry; 0 before the peer has proved an incarnation.
    read_ahead_bytes : int
        Bytes of the read-ahead buffer. With `HEADER_BYTES` the reader never reads beyond the current frame.
    """

    def __init__(self, caps: Caps, incarnation: int = 0, *, read_ahead_bytes: int = READ_AHEAD_BYTES) -> None:
        self._caps = {int(type_): cap for type_, cap in caps.items()}
        self._incarnation = incarnation
        self._scratch = memoryview(bytearray(read_ahead_bytes))
        #: bytes at the front of the read-ahead buffer: less than a header
        self._left = 0
        self._partial: _Partial | None = None
        #: memory for the next bytes; never empty
        self.space = self._scratch

    def advance(self, count: int) -> list[WireFrame]:
        """Parse the first `count` bytes of `space`, which the caller has filled. Return the frames that are whole now.

        Raises
        ------
        ChannelError
            if the bytes are no frame, or the frame is damaged or of a type, length or incarnation that is not admitted.
            The stream cannot be read further.
        """
        if self._partial is not None:
            self.space = self.space[count:]
            return [] if self.space else [self._completed(self._partial)]
        frames: list[WireFrame] = []
        scratch, caps, start, end = self._scratch, self._caps, 0, self._left + count
        while end - start >= HEADER_BYTES:
            fields = HEADER.unpack_from(scratch, start)
            beginning, type_, kind, zero, channel, incarnation, first, messages, length, check, checksum = fields
            seed = xxh3_64_intdigest(scratch[start : start + PREFIX_BYTES])
            if check != seed & LOW_HALF or beginning != BEGINNING or zero or length > caps.get(type_, -1):
                raise _refusal(fields, seed, caps)
            if incarnation != self._incarnation:
                raise ChannelError(f"a frame of incarnation {incarnation} came")
            start += HEADER_BYTES
            is_whole = start + length <= end
            payload = bytes(scratch[start : start + length]) if is_whole else self._begin(length, scratch[start:end])
            frame = WireFrame(_TYPES[type_], channel, incarnation, payload, kind, first, messages)
            if not is_whole:
                self._partial = _Partial(frame, seed, checksum)
                return frames
            if xxh3_64_intdigest(payload, seed=seed) != checksum:
                raise _damaged()
            frames.append(frame)
            start += length
        left = self._left = end - start
        if left:
            scratch[:left] = bytes(scratch[start:end])
        self.space = scratch[left:]
        return frames

    def _begin(self, length: int, beginning: memoryview) -> memoryview:
        """Return memory for a payload of `length` bytes whose beginning has come."""
        payload = new_memory(length)
        payload[: len(beginning)] = beginning
        self._left, self.space = 0, payload[len(beginning) :]
        return payload.toreadonly()

    def _completed(self, partial: _Partial) -> WireFrame:
        self.space, self._partial = self._scratch, None
        if xxh3_64_intdigest(partial.frame.payload, seed=partial.seed) != partial.checksum:
            raise _damaged()
        return partial.frame


def _damaged() -> ChannelError:
    return ChannelError("a frame's checksum is wrong: it was damaged on the way")


def _refusal(fields: tuple[Any, ...], seed: int, caps: Mapping[int, int]) -> ChannelError:
    beginning, type_, _, zero, _, _, _, _, length, check, _ = fields
    magic, version = beginning[:-1], beginning[-1]
    if magic != MAGIC or zero:
        return ChannelError("the peer does not speak this protocol: a frame begins with other bytes")
    if version != VERSION:
        return ChannelError(f"the peer speaks version {version}, this side {VERSION}: install the same")
    if check != seed & LOW_HALF:
        return ChannelError("a frame's header check is wrong: it was damaged on the way")
    if type_ not in caps:
        return ChannelError(f"a frame of type {type_} has no business on this connection")
    return ChannelError(f"a {_TYPES[type_].name} frame that claims {length:,} bytes; at most {caps[type_]:,} are taken")
