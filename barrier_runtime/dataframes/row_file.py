"""Writes one Parquet file: takes rows and batches, ends with durable content.

Owns the conversion of rows to columns. Must not know the purpose of the file, nor its final name.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from operator import itemgetter
from sys import getsizeof
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cutline.snapshot.errors import NodeError
from cutline.snapshot.values.fitting import DoesNotFit, fit_batch, plain_batch, row_check
from cutline.snapshot.values.kinds import is_size_fixed, kind_of, plain_type

#: Rows that wait as Python objects, at most. Enough for a cheap conversion.
WAITING_ROWS_MAX = 1024

#: Bytes of rows that wait as Python objects until these rows are converted.
WAITING_BYTES_MAX = 1024 * 1024

#: Bytes of Arrow data that wait until a row group is written. A subtask's sink holds as much in memory.
ROW_GROUP_BYTES = 16 * 1024 * 1024


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
        self._checked = row_check(schema)
        #: plain values of rows, in the order of the columns
        self._rows: list[tuple[Any, ...]] = []
        self._row_bytes = 0
        #: returns about how many bytes the values of a row take, or None where each row takes as many
        self._size_of = _size_function(schema)
        self._batches: list[pa.RecordBatch] = []
        self._batch_bytes = 0
        self._file = open(path, "xb")  # noqa: SIM115 - closed by `finish` and `abandon`
        self._writer = _writer(self._file, schema)

    def add_row(self, row: Any) -> None:
        """Add a dict with exactly the schema's columns, or a tuple of their values in order.

        Raises
        ------
        NodeError
            if `row` is neither, or a value does not fit its column.
        """
        try:
            plain = self._checked(row)
        except DoesNotFit as error:
            raise NodeError(f"a row of the sink: {error}") from error
        self._rows.append(plain)
        self.row_count += 1
        if self._size_of is not None:
            self._row_bytes += self._size_of(plain)
        if len(self._rows) >= WAITING_ROWS_MAX or self._row_bytes >= WAITING_BYTES_MAX:
            self._convert_rows()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add a batch with exactly the schema's columns, in any order, whose values fit the columns.

        Raises
        ------
        NodeError
            if the batch has other columns, or a value does not fit its column.
        """
        try:
            fitting = fit_batch(batch, self._schema)
        except DoesNotFit as error:
            raise NodeError(f"row {error.row} of a batch of the sink: {error}") from error
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

    def _convert_rows(self) -> None:
        if not self._rows:
            return
        rows, self._rows, self._row_bytes = self._rows, [], 0
        self._add(plain_batch(rows, self._schema))

    def _add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._batch_bytes += batch.nbytes
        if self._batch_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def _write_row_group(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
            self._batches, self._batch_bytes = [], 0


def written_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types in which a file has the columns of a schema.

    Dictionaries become their values, because Parquet has its own, and Arrow's count as few values as their type says.
    Nanoseconds become microseconds, because Spark reads no nanoseconds. So a row with some is refused at itself.
    """
    return pa.schema([_written_field(field) for field in schema])


def _written_field(field: pa.Field) -> pa.Field:
    return field.with_type(_written_type(plain_type(field.type)))


def _written_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp("us", type_.tz)
    if pa.types.is_struct(type_):
        return pa.struct([_written_field(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_written_field(type_.key_field), _written_field(type_.item_field))
    if pa.types.is_list(type_):
        return pa.list_(_written_field(type_.value_field))
    if pa.types.is_large_list(type_):
        return pa.large_list(_written_field(type_.value_field))
    return type_


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
    return pq.ParquetWriter(file, schema, coerce_timestamps="us", write_page_checksum=True)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a later incarnation has removed the file
        os.unlink(path)


def _size_function(schema: pa.Schema) -> Callable[[tuple[Any, ...]], int] | None:
    """Return a function that sizes plain values of the columns whose values take memory as they like."""
    places = [place for place, field in enumerate(schema) if not is_size_fixed(field.type)]
    if not places:
        return None
    if any(kind_of(schema.field(place).type) not in ("text", "bytes") for place in places):
        return lambda row: sum([_held_bytes(row[place]) for place in places])
    if len(places) == 1:
        [only] = places
        return lambda row: getsizeof(row[only])
    taken = itemgetter(*places)
    return lambda row: sum(map(getsizeof, taken(row)))


def _held_bytes(value: Any) -> int:
    """Return about how many bytes of memory a plain value takes, with the values inside of it."""
    if isinstance(value, list | tuple):
        return getsizeof(value) + sum(map(_held_bytes, value))
    if isinstance(value, dict):
        return getsizeof(value) + sum(map(_held_bytes, value.values()))
    return getsizeof(value)
