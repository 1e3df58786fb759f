"""Writes one Parquet file: takes rows and batches, ends with durable content.

Owns the conversion of rows to columns. Must not know the purpose of the file, nor its final name.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cutline.snapshot.errors import NodeError

#: Rows that wait as Python objects. Enough for a cheap conversion, few enough to hold in memory.
WAITING_ROWS_MAX = 1024

#: Bytes of Arrow data that wait until a row group is written. A subtask's sink holds as much in memory.
ROW_GROUP_BYTES = 16 * 1024 * 1024

#: Characters of a refused row that an error shows.
_SHOWN_CHARACTERS_MAX = 200


class RowFile:
    """A new file at `path`, open for writing. Call `finish` or `abandon` to end the file.

    Raises
    ------
    FileExistsError
        if a file at `path` exists.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.row_count = 0
        self._schema = schema
        self._names = schema.names
        #: column values, in the schema's order
        self._rows: list[tuple[Any, ...]] = []
        self._batches: list[pa.RecordBatch] = []
        self._batch_bytes = 0
        self._file = open(path, "xb")  # noqa: SIM115 - closed by `finish` and `abandon`
        self._writer = _writer(self._file, schema)

    def add_row(self, row: Any) -> None:
        """Add a dict with exactly the schema's columns, or a tuple of their values in order.

        Raises
        ------
        NodeError
            if `row` is neither. A value of a wrong type is found when its block of rows is converted.
        """
        self._rows.append(self._values(row))
        self.row_count += 1
        if len(self._rows) >= WAITING_ROWS_MAX:
            self._convert_rows()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add a batch with exactly the schema's columns, in any order, of types that convert without loss.

        Raises
        ------
        NodeError
            if the batch has other columns or types.
        """
        if sorted(batch.schema.names) != sorted(self._names):
            raise NodeError(f"a batch has the columns {batch.schema.names}, but the sink's schema {self._names}")
        try:
            fitting = batch.select(self._names).cast(self._schema)
        except (pa.ArrowException, ValueError) as error:
            raise NodeError(f"a batch does not fit the sink's schema: {error}") from error
        self._convert_rows()
        self._add(fitting)
        self.row_count += batch.num_rows

    def finish(self) -> int:
        """Write waiting rows and close. Return the size in bytes. The content is durable then, the name is not."""
        self._convert_rows()
        self._write_row_group()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()
        return size

    def abandon(self) -> None:
        """Close and remove the file, in any state, even if the file was removed before."""
        with (
            contextlib.ExitStack() as steps
        ):  # runs backwards, each step also after another's failure, because a disk may be full
            steps.callback(_remove, self.path)
            steps.callback(self._file.close)
            steps.callback(self._writer.close)

    def _values(self, row: Any) -> tuple[Any, ...]:
        if isinstance(row, Mapping):
            if len(row) == len(self._names) and all(name in row for name in self._names):
                return tuple([row[name] for name in self._names])
        elif isinstance(row, tuple) and len(row) == len(self._names):
            return row
        raise NodeError(
            f"{repr(row)[:_SHOWN_CHARACTERS_MAX]} is no row of this sink: "
            f"it takes dicts with the keys {self._names}, or tuples of their values"
        )

    def _convert_rows(self) -> None:
        if not self._rows:
            return
        columns = [
            _array(values, field) for values, field in zip(zip(*self._rows, strict=True), self._schema, strict=True)
        ]
        self._rows = []
        self._add(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _add(self, batch: pa.RecordBatch) -> None:
        for field, column in zip(self._schema, batch.columns, strict=True):
            if column.null_count and not field.nullable:
                raise NodeError(f"column {field.name!r} holds null, but the sink's schema says NOT NULL")
        self._batches.append(batch)
        self._batch_bytes += batch.nbytes
        if self._batch_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def _write_row_group(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
            self._batches, self._batch_bytes = [], 0


def empty_file(schema: pa.Schema) -> bytes:
    """Encode a Parquet file without rows.

    Raises
    ------
    pyarrow.ArrowException
        if Parquet lacks a type of the schema.
    """
    content = io.BytesIO()
    _writer(content, schema).close()
    return content.getvalue()


def _writer(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    # Spark reads no nanoseconds. Values that do not fit microseconds are refused, not truncated.
    return pq.ParquetWriter(file, schema, coerce_timestamps="us", write_page_checksum=True)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a later incarnation has removed the file
        os.unlink(path)


def _array(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise NodeError(f"column {field.name!r} of the sink is {field.type}: {error}") from error
