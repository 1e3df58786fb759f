"""Frames from messages and back: how the payload of each kind is made, read and cut to a range.

A frame's payload is a MessagePack array of its messages, so that the array's own header says how many it
holds; or an Arrow IPC stream of record batches; or nothing, for the end of a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

import pyarrow as pa

from snapshot.channel.frame import Frame, PayloadKind
from snapshot.channel.serialization import Codec, array_header, encode_batch

#: Arrow and NumPy compute at full speed on buffers that begin at a multiple of this.
_ALIGNMENT_BYTES: Final = 8


def frame_of_pieces(first: int, kind: PayloadKind, pieces: Sequence[bytes]) -> Frame:
    """A frame of messages that are encoded one by one already."""
    return Frame(first, len(pieces), kind, array_header(len(pieces)) + b"".join(pieces))


def frame_of_batch(first: int, batch: pa.RecordBatch) -> Frame:
    """A frame of one record batch; a row is a message."""
    return Frame(first, batch.num_rows, PayloadKind.BATCH, memoryview(encode_batch(batch)))


def frame_of_end(first: int) -> Frame:
    """The end of a stream: one numbered message (PROTOCOL 5.1)."""
    return Frame(first, 1, PayloadKind.END, b"")


def messages_of(frame: Frame, codec: Codec) -> list[Any] | pa.RecordBatch:
    """The messages of a frame, or its record batch. The end of a stream has none.

    The columns of a batch refer to the payload without a copy, unless several small batches share the frame.
    """
    match frame.kind:
        case PayloadKind.VALUES:
            messages: list[Any] = codec.decode(frame.payload)
            return messages
        case PayloadKind.TUPLES:
            return list(map(tuple, codec.decode(frame.payload)))
        case PayloadKind.BATCH:
            return _batch_of(frame.payload)
        case PayloadKind.END:
            return []
    assert_never(frame.kind)


def cut_frame(frame: Frame, after: int, through: int, codec: Codec) -> Frame:
    """The part of `frame` that is numbered (after, through]; the whole frame, uncopied, where it all is.

    Must not be empty: ``frame.first <= through`` and ``after < frame.last``.
    """
    if after < frame.first and frame.last <= through:
        return frame
    start = max(after + 1, frame.first)
    stop = min(through, frame.last)
    assert start <= stop, (frame.first, frame.last, after, through)
    kept = messages_of(frame, codec)[start - frame.first : stop - frame.first + 1]
    if isinstance(kept, pa.RecordBatch):
        return frame_of_batch(start, kept)
    if frame.kind is PayloadKind.TUPLES:
        kept = [list(message) for message in kept]
    return frame_of_pieces(start, frame.kind, [codec.encode(message) for message in kept])


def _batch_of(payload: bytes | memoryview) -> pa.RecordBatch:
    buffer = pa.py_buffer(payload)
    if buffer.address % _ALIGNMENT_BYTES:  # a payload inside a stored part lies anywhere
        buffer = pa.py_buffer(bytes(payload))
    with pa.ipc.open_stream(buffer) as reader:
        first = reader.read_next_batch()
        others = list(reader)
    return pa.concat_batches([first, *others]) if others else first
