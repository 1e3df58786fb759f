"""Record batches as Arrow IPC streams. Columns are copied once by encoding, and not by decoding.

::

    schema   its message is the same for every batch of an edge, so it is read once
    (dictionaries)
    batch    one, or several that share a frame
    end      8 bytes

Small batches share a frame, because the way from encoding to `Node.onBatch` costs a frame as much as a thousand rows.
Rows are copied when they are added, so later changes to the sender's memory do not reach the frame.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.channel.frame import Buffer, Frame, PayloadKind

#: Function that returns writable memory of the given number of bytes.
Allocate = Callable[[int], memoryview]

#: Arrow's defaults. Without explicit options each stream asks the environment whether an old format is wanted.
_WRITE_OPTIONS: Final = pa.ipc.IpcWriteOptions()

#: Bytes before a message: a mark, and the length of the message in four bytes.
_AHEAD_BYTES: Final = 8
_END_BYTES: Final = 8

#: Bytes whose multiples are aligned addresses. Arrow and NumPy compute at full speed on aligned buffers.
_ALIGNMENT_BYTES: Final = 8

#: Most parsed schemas that are kept: more than the edges of one worker have.
_SCHEMAS_KEPT: Final = 256


def new_memory(size: int) -> memoryview:
    """Return memory of Arrow's own allocator, which keeps freed memory for the next batch."""
    return memoryview(pa.allocate_buffer(size)).cast("B")


def encode_batch(batch: pa.RecordBatch, allocate: Allocate = new_memory) -> memoryview:
    """Encode one record batch as a stream, in memory of `allocate` of the right size."""
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
    """Return the record batch of `encode_batch`. Its columns refer to `data` without a copy."""
    with pa.ipc.open_stream(io.BytesIO(data) if isinstance(data, bytes) else pa.BufferReader(data)) as reader:
        return reader.read_next_batch()


def decode_rows(data: Buffer, row_count: int) -> pa.RecordBatch:
    """Return all rows of a stream, of which there are `row_count`, as one batch.

    The columns refer to `data` without a copy, unless several batches share the stream.
    """
    buffer = pa.py_buffer(data)
    if buffer.address % _ALIGNMENT_BYTES:  # a payload inside a stored part may be unaligned
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


def count_rows(data: Buffer) -> int:
    """Return the number of rows of a stream, which is read without a copy. -1 for bytes that are no stream."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return sum(batch.num_rows for batch in reader)
    except (pa.ArrowException, OSError):
        return -1


def has_dictionaries(kind: pa.DataType) -> bool:
    """Return whether arrays of this type refer to dictionaries, which are messages of their own."""
    return "dictionary<" in str(kind)


def _write_stream(sink: Any, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema, options=_WRITE_OPTIONS) as writer:
        writer.write_batch(batch)


@lru_cache(_SCHEMAS_KEPT)
def _schema_of(message: bytes) -> pa.Schema | None:
    """Return the schema in a stream's first message. None if dictionaries come between the schema and the batch."""
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    return None if any(has_dictionaries(field.type) for field in schema) else schema


#: Rows from which a batch fills a frame alone, because a frame then costs below two nanoseconds a row.
JOINED_ROWS_MAX: Final = 16 * 1024

#: Bytes at which a frame of small batches is full: one large write of a socket.
JOINED_BYTES_MAX: Final = 256 * 1024


class OpenBatches:
    """Encode batches of one schema into one frame. `frame` ends the frame; call nothing afterwards.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.row_count = 0
        self._schema = schema
        # Batches with dictionaries are not joined, because their dictionaries may outgrow the index, or not unify.
        self._can_join = not any(has_dictionaries(field.type) for field in schema)
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Return whether `batch` may share the frame with the batches that were added."""
        return self._can_join and batch.num_rows < JOINED_ROWS_MAX and self._has_schema_of(batch)

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode the rows of `batch` after all others."""
        self._writer.write_batch(batch)
        self.row_count += batch.num_rows

    @property
    def byte_count(self) -> int:
        """Bytes encoded so far."""
        return int(self._sink.tell())

    @property
    def is_full(self) -> bool:
        """No more batches are to be added."""
        return self.row_count >= JOINED_ROWS_MAX or not self._can_join or self.byte_count >= JOINED_BYTES_MAX

    def frame(self, first: int) -> Frame:
        """Close the stream and return the frame. `first` is the number of its first row."""
        self._writer.close()
        return Frame(first, self.row_count, PayloadKind.BATCH, memoryview(self._sink.getvalue()))

    def _has_schema_of(self, batch: pa.RecordBatch) -> bool:
        return batch.schema is self._schema or bool(batch.schema.equals(self._schema, check_metadata=True))


def take_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows of a batch at the places `rows`, with one copy."""
    try:
        return pc.take(batch, pa.array(rows), boundscheck=False)
    except pa.ArrowNotImplementedError:  # Arrow cannot take rows of views, nor of run-end encoded columns
        columns = [_concatenated(column, rows) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _concatenated(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Take rows by joining slices of neighbours, which Arrow can do for every type."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    lengths = np.diff(starts, append=len(rows))
    return pa.concat_arrays(
        [column.slice(start, length) for start, length in zip(rows[starts].tolist(), lengths.tolist(), strict=True)]
    )
