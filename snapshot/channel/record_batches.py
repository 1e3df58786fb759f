"""A record batch as an Arrow IPC stream, and back. Columns are copied once on the way in, and none on the way out.

::

    schema   its message is the same for every batch of an edge: read once
    (dictionaries)
    batch    one, or several that share a frame
    end      8 bytes

Small batches share a frame, because each frame costs as much as a thousand rows on its way from encoding to
`Node.onBatch`. Rows are copied when they are added, so what a sender does to its memory later is not seen.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from snapshot.channel.frame import Buffer, Frame, PayloadKind

#: Gives memory of so many bytes to write to.
Allocate = Callable[[int], memoryview]

#: Arrow's defaults; without them each stream asks the environment whether an old format is wanted.
_WRITE_OPTIONS: Final = pa.ipc.IpcWriteOptions()

#: What is ahead of a message: a mark, and in four bytes the length of what follows.
_AHEAD_BYTES: Final = 8
_END_BYTES: Final = 8

#: Arrow and NumPy compute at full speed on buffers that begin at a multiple of this.
_ALIGNMENT_BYTES: Final = 8

#: More schemas than the edges of one worker have.
_SCHEMAS_KEPT: Final = 256


def new_memory(size: int) -> memoryview:
    """Memory of Arrow's own allocator, which keeps what is given back for the next batch."""
    return memoryview(pa.allocate_buffer(size)).cast("B")


def encode_batch(batch: pa.RecordBatch, allocate: Allocate = new_memory) -> memoryview:
    """One record batch as a stream, in `allocate` of the right size."""
    schema = batch.schema.serialize()
    if _schema_of(schema.to_pybytes()) is None:
        sized = pa.MockOutputStream()
        _write_stream(sized, batch)
        size = sized.size()
    else:
        size = schema.size + pa.ipc.get_record_batch_size(batch) + _END_BYTES
    data = allocate(size)
    with pa.FixedSizeBufferWriter(pa.py_buffer(data)) as sink:
        _write_stream(sink, batch)
    return data.toreadonly()


def decode_batch(data: Buffer) -> pa.RecordBatch:
    """The record batch of `encode_batch`; its columns refer to `data` without a copy."""
    with pa.ipc.open_stream(io.BytesIO(data) if isinstance(data, bytes) else pa.BufferReader(data)) as reader:
        return reader.read_next_batch()


def decode_rows(data: Buffer, row_count: int) -> pa.RecordBatch:
    """So many rows, which are all of a stream's.

    Its columns refer to `data` without a copy, unless several batches share the stream.
    """
    buffer = pa.py_buffer(data)
    if buffer.address % _ALIGNMENT_BYTES:  # a payload inside a stored part lies anywhere
        buffer = pa.py_buffer(bytes(data))
    schema_bytes = _AHEAD_BYTES + int.from_bytes(data[4:_AHEAD_BYTES], "little")
    schema = _schema_of(bytes(data[:schema_bytes]))
    if schema is not None:
        batch = pa.ipc.read_record_batch(buffer.slice(schema_bytes), schema)
        if batch.num_rows == row_count:
            return batch
    with pa.ipc.open_stream(buffer) as reader:
        batches = list(reader)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def has_dictionaries(kind: pa.DataType) -> bool:
    """Whether arrays of this type refer to dictionaries, which are messages of their own."""
    return "dictionary<" in str(kind)


def _write_stream(sink: Any, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema, options=_WRITE_OPTIONS) as writer:
        writer.write_batch(batch)


@lru_cache(_SCHEMAS_KEPT)
def _schema_of(message: bytes) -> pa.Schema | None:
    """The schema that a stream's first message says; None if dictionaries come behind it, ahead of the batch."""
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    return None if any(has_dictionaries(field.type) for field in schema) else schema


#: Rows from which a batch needs no company: what a frame costs is then below a nanosecond or two a row.
JOINED_ROWS_MAX: Final = 16 * 1024

#: Bytes at which a frame of small batches is full: one large write of a socket.
JOINED_BYTES_MAX: Final = 256 * 1024


class OpenBatches:
    """Encodes batches of one schema into one frame. Ended by `frame`.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.row_count = 0
        self._schema = schema
        # Dictionaries of several batches may outgrow their index, or not unify at all.
        self._can_join = not any(has_dictionaries(field.type) for field in schema)
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Whether `batch` may go into the same frame as those that are in it."""
        return self._can_join and batch.num_rows < JOINED_ROWS_MAX and self._has_schema_of(batch)

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode the rows of `batch` behind all others."""
        self._writer.write_batch(batch)
        self.row_count += batch.num_rows

    @property
    def byte_count(self) -> int:
        """Return the bytes that are encoded so far."""
        return int(self._sink.tell())

    @property
    def is_full(self) -> bool:
        """Nothing more is to be added."""
        return self.row_count >= JOINED_ROWS_MAX or not self._can_join or self.byte_count >= JOINED_BYTES_MAX

    def frame(self, first: int) -> Frame:
        """The frame, the first row of which is message `first`."""
        self._writer.close()
        return Frame(first, self.row_count, PayloadKind.BATCH, memoryview(self._sink.getvalue()))

    def _has_schema_of(self, batch: pa.RecordBatch) -> bool:
        return batch.schema is self._schema or bool(batch.schema.equals(self._schema, check_metadata=True))
