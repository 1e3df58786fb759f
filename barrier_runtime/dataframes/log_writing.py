"""The writing of an input log: tasks of Spark write the rows of a DataFrame by Arrow, and return a record of each file.

Owns the tasks, their files, and the order in which a log becomes durable. Must not know how rows are read.

Spark's own Parquet writer is not used, because settings of the session change what it writes: it stores a VARIANT in
pieces, its rebase modes move old dates, and its timestamp types drop microseconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from cutline.barrier_runtime.dataframes.input_log import InputLog, LogFile, LogPlace, complete, find_log, footer_digest
from cutline.barrier_runtime.dataframes.row_file import RowFile
from cutline.snapshot.errors import GraphError
from cutline.state_backends.disk import Disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: columns of the record that a task returns of its file, as DDL
_RECORD = "partition INT, name STRING, sizeBytes LONG, rowCounts ARRAY<LONG>, footer BINARY"


def write_log(df: DataFrame, place: LogPlace) -> InputLog:
    """Let Spark write the rows of `df` once, and complete the log. Return the log that the run uses from now on.

    Blocks until Spark has written. If several drivers write at one time, all return the log that was completed
    first.

    Raises
    ------
    GraphError
        if a column cannot be sent, or the driver does not see the files of the tasks.
    Exception
        of Spark, if Spark cannot compute or write the rows.
    """
    schema = arrow_schema_of(df)
    try:
        _try_to_complete(df, schema, place)
    except Exception:  # Spark's exceptions have no common root
        if find_log(place) is None:
            raise
        # Another driver completed its log, and removed the files of this attempt while Spark still wrote them.
    log = find_log(place)
    assert log is not None, "a manifest is never deleted"
    return log


def remove_other_attempts(log: InputLog) -> None:
    """Remove what attempts have written that is not in `log`: folders of other drivers, and files of failed tasks.

    Call only after the manifest is written, because before that any attempt may still become the log.
    """
    folder = f"{log.place}/{log.name}"
    with os.scandir(str(log.place)) as found:
        others = [entry.path for entry in found if entry.is_dir() and entry.name != log.name]
    for other in others:
        # Spark may still write to the folder and add files during the removal. The next submit removes those files.
        shutil.rmtree(other, ignore_errors=True)
    listed = {file.name for file in log.files}
    for name in set(os.listdir(folder)) - listed if os.path.isdir(folder) else ():
        with contextlib.suppress(FileNotFoundError):  # another driver has removed the file
            os.unlink(f"{folder}/{name}")


def arrow_schema_of(df: DataFrame) -> pa.Schema:
    """Return the Arrow schema of the rows of `df`. Instants are in UTC, for any time zone of the session.

    Raises
    ------
    GraphError
        with the name of the type for which Arrow has no counterpart, or of columns that cannot be told apart.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        schema = to_arrow_schema(df.schema, timezone="UTC")
    except PySparkException as error:
        raise GraphError(f"a DataFrame with the columns {df.columns} cannot be a source: {error}") from error
    if len(set(schema.names)) < max(len(schema), 1):
        raise GraphError(
            f"a DataFrame with the columns {schema.names} cannot be a source: give it at least one column, and each "
            "another name, as df.toDF('a', 'b')"
        )
    return schema


def _try_to_complete(df: DataFrame, schema: pa.Schema, place: LogPlace) -> None:
    name = uuid.uuid4().hex
    folder = f"{place}/{name}"
    os.makedirs(folder)
    files = _write_files(df, schema, folder)
    _keep_files(files, folder)
    Disk().sync_folder(str(place))
    complete(place, InputLog(place, name, schema, files))


def _write_files(df: DataFrame, schema: pa.Schema, folder: str) -> tuple[LogFile, ...]:
    """Let Spark's tasks write the rows. Return the files in the order of the partitions."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "Spark calls this in a task"
        return records((task.partitionId(), file) for file in write_partition(batches, schema, folder))

    # Columns are named anew, because Spark looks them up by name there, and reads a dot as the field of a struct.
    numbered = df.toDF(*(f"column{number}" for number in range(len(schema))))
    found = sorted(numbered.mapInArrow(write, _RECORD).collect())
    return tuple(LogFile(name, size, tuple(counts), bytes(footer)) for _, name, size, counts, footer in found)


def write_partition(batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: str) -> list[LogFile]:
    """Write a partition to a durable file of its own, and none for a partition without rows. Called in a task.

    Parameters
    ----------
    batches : iterable of RecordBatch
        Rows as Spark gives them to Python. Zones of instants are those of the session, and become UTC.
    """
    name = f"part-{uuid.uuid4().hex}.parquet"
    file = None
    try:
        for batch in batches:
            if batch.num_rows:
                os.makedirs(folder, exist_ok=True)  # where the executor has a disk of its own, the driver finds out
                file = file or RowFile(f"{folder}/{name}", schema)
                file.add_batch(pa.RecordBatch.from_arrays(batch.columns, names=schema.names))
        if file is None:
            return []
        return [_record_of(file.path, name, file.finish())]
    except BaseException:
        if file is not None:
            file.abandon()
        raise


def records(files: Iterable[tuple[int, LogFile]]) -> Iterator[pa.RecordBatch]:
    """Encode records of files for Spark, each with its partition."""
    for partition, file in files:
        values = (partition, file.name, file.size_bytes, list(file.row_counts), file.footer)
        types = (pa.int32(), pa.string(), pa.int64(), pa.list_(pa.int64()), pa.binary())
        columns = [pa.array([value], type_) for value, type_ in zip(values, types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=["partition", "name", "sizeBytes", "rowCounts", "footer"])


def _record_of(path: str, name: str, size: int) -> LogFile:
    metadata = pq.read_metadata(path)
    row_counts = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    return LogFile(name, size, row_counts, footer_digest(path))


def _keep_files(files: Sequence[LogFile], folder: str) -> None:
    """Make the names of files durable. Refuse a folder in which the driver does not see a file of a task."""
    missing = [file for file in files if not os.path.exists(f"{folder}/{file.name}")]
    if missing:
        # Each executor wrote to a disk of its own. Without this check, rows would be missing silently.
        rows, unseen = (sum(sum(file.row_counts) for file in listed) for listed in (files, missing))
        raise GraphError(
            f"Spark wrote {rows} rows below {folder}, of which the driver sees {rows - unseen}: the folder must be one "
            "that the driver and all executors share. Give DataFrameSource(df, logPath=...) such a folder"
        )
    Disk().sync_folder(folder)
