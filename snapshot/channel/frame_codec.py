"""Encode messages into frames, decode frames, and cut frames to a range of messages.

The payload of a frame is a MessagePack array of its messages, whose own header holds the count; or an Arrow IPC stream
of record batches. `snapshot.channel.control_frames` has the payloads of control frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgpack
import pyarrow as pa

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.object_frame import AnyFrame, ObjectFrame
from cutline.snapshot.channel.record_batches import Allocate, decode_rows, encode_batch, new_memory
from cutline.snapshot.channel.serialization import Codec, array_header


def frame_of_pieces(first: int, kind: PayloadKind, pieces: Sequence[bytes], count: int | None = None) -> Frame:
    """Return a frame of encoded messages. `count` is their number, or None for one message a piece."""
    count = len(pieces) if count is None else count
    return Frame(first, count, kind, array_header(count) + b"".join(pieces))


def encoded_together(messages: list[Any], codec: Codec, *, are_tuples: bool) -> tuple[PayloadKind, bytes] | None:
    """Encode several messages as one piece of a frame, and return its kind too. None if each must be encoded alone.

    With `are_tuples` every message is a tuple. A FLAT piece may go into a frame of TUPLES.
    """
    if not are_tuples:
        kind, piece = PayloadKind.VALUES, codec.pack_all(messages)
    else:
        kind, piece = PayloadKind.FLAT, codec.pack_flat(messages)
        if piece is None:
            kind, piece = PayloadKind.TUPLES, codec.pack_tuples(messages)
    return None if piece is None else (kind, piece)


def frame_of_batch(first: int, batch: pa.RecordBatch, allocate: Allocate = new_memory) -> Frame:
    """Return a frame of one record batch, encoded into memory of `allocate`. A row is a message."""
    return Frame(first, batch.num_rows, PayloadKind.BATCH, encode_batch(batch, allocate))


def encoded_frame(frame: AnyFrame) -> Frame:
    """Return a frame with its messages encoded, as they would have been when they were sent."""
    return frame if isinstance(frame, Frame) else _encoded(frame.first, frame.messages, frame.codec)


def _encoded(first: int, messages: list[Any], codec: Codec) -> Frame:
    kinds = set(map(type, messages))
    are_tuples = kinds == {tuple}
    together = encoded_together(messages, codec, are_tuples=are_tuples) if are_tuples or tuple not in kinds else None
    if together is not None:
        kind, piece = together
        return frame_of_pieces(first, kind, [piece], len(messages))
    if are_tuples:
        return frame_of_pieces(first, PayloadKind.TUPLES, [codec.encode_tuple(message) for message in messages])
    return frame_of_pieces(first, PayloadKind.VALUES, [codec.encode(message) for message in messages])


def messages_of(frame: AnyFrame, codec: Codec) -> list[Any] | pa.RecordBatch:
    """Return the messages of a frame, or its record batch. A control frame has no messages.

    The list is the frame's own if the messages are there by reference. The columns of a batch refer to the payload
    without a copy, unless several small batches share the frame.
    """
    if isinstance(frame, ObjectFrame):
        return frame.messages
    return _DECODERS[frame.kind](frame, codec)


def cut_frame(frame: AnyFrame, after: int, through: int) -> Frame:
    """Return the messages (after, through] of `frame`, encoded. An encoded frame in the range is not copied.

    Messages are skipped in the payload and not decoded, because a cut through a frame of thousands must be fast.
    The range must not be empty: ``frame.first <= through`` and ``after < frame.last``.
    """
    if after < frame.first and frame.last <= through:
        return encoded_frame(frame)
    start = max(after + 1, frame.first)
    stop = min(through, frame.last)
    assert start <= stop, (frame.first, frame.last, after, through)
    count = stop - start + 1
    if isinstance(frame, ObjectFrame):
        return _encoded(start, frame.messages[start - frame.first : start - frame.first + count], frame.codec)
    if frame.kind is PayloadKind.BATCH:
        return frame_of_batch(start, decode_rows(frame.payload, frame.count).slice(start - frame.first, count))
    to_walk = None if stop == frame.last else count
    return frame_of_pieces(start, frame.kind, [_messages_behind(frame.payload, start - frame.first, to_walk)], count)


def encoded_messages(frame: Frame) -> list[bytes]:
    """Return the bytes of each message of a frame that is neither a batch nor control, without decoding any."""
    payload = bytes(frame.payload)
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(payload)))
    unpacker.feed(payload)
    unpacker.read_array_header()
    starts = [unpacker.tell()]
    for _ in range(frame.count):
        unpacker.skip()
        starts.append(unpacker.tell())
    return [payload[start:end] for start, end in pairwise(starts)]


def _messages_behind(payload: bytes | memoryview, passed: int, count: int | None) -> bytes:
    """Return the bytes of `count` messages after the first `passed`; None: of all, without a walk over them."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(payload)))
    unpacker.feed(payload)
    unpacker.read_array_header()
    for _ in range(passed):
        unpacker.skip()
    start = unpacker.tell()
    if count is None:
        return bytes(payload[start:])
    for _ in range(count):
        unpacker.skip()
    return bytes(payload[start : unpacker.tell()])


def _values(frame: Frame, codec: Codec) -> list[Any]:
    messages: list[Any] = codec.decode(frame.payload)
    return messages


#: Table of decoders, because comparing with one enum member after another takes longer than decoding a message.
_DECODERS: Final[Mapping[PayloadKind, Callable[[Frame, Codec], list[Any] | pa.RecordBatch]]] = {
    PayloadKind.VALUES: _values,
    PayloadKind.TUPLES: lambda frame, codec: list(map(tuple, codec.decode(frame.payload))),
    PayloadKind.FLAT: lambda frame, codec: codec.decode_flat(frame.payload),
    PayloadKind.BATCH: lambda frame, _: decode_rows(frame.payload, frame.count),
    PayloadKind.CONTROL: lambda frame, codec: [],
}
assert set(_DECODERS) == set(PayloadKind)
