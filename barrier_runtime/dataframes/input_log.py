"""The input log of one source: the rows of a DataFrame, written once by Spark, read by offset from then on.

Owns the log's files and its manifest. Must not know contexts, nor how readers share the row groups.

::

    <root>/<run>/input/<node>/manifest                     write-once, written last: it makes the log exist
    <root>/<run>/input/<node>/<name>/part-….parquet        Spark's files; each attempt has its own name

Replay is exact for any lineage of the DataFrame, because the DataFrame is never computed again. The manifest of a fork
may name the log of another run.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cutline.snapshot.errors import GraphError, SnapshotCorrupt
from cutline.snapshot.stored.envelope import pack_plain, seal, unpack_plain, unseal
from cutline.snapshot.stored.layout import run_folder
from cutline.state_backends.disk import Disk
from cutline.state_backends.filesystem import FileSystemBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT_LOG_MAGIC = b"CLIL"

#: Rows of a batch. From this size on a channel moves rows at full speed, and a marker still waits only briefly.
BATCH_ROWS_MAX = 8192

#: Bytes of a batch of several rows, so that wide rows do not make frames that a receiver refuses.
BATCH_BYTES_MAX = 4 * 1024 * 1024

#: Bytes that Spark aims at for a row group. A restore reads a row group again from its start, and row groups are
#: divided among the subtasks. Spark's default of 128 MiB would restore slowly and divide unevenly.
ROW_GROUP_BYTES = 16 * 1024 * 1024

#: Bytes of a column that are read ahead. Reading ahead would otherwise take the column of a whole row group.
_READ_BYTES = 256 * 1024

_MANIFEST = "manifest"


class LogPlace(NamedTuple):
    """The location of the log of one node of one run: `path` below the file-system backend at `root`."""

    root: str
    path: str

    def __str__(self) -> str:
        return f"{self.root}/{self.path}"


class LogFile(NamedTuple):
    """A Parquet file of the log: its name, its size in bytes, and the row count of each row group."""

    name: str
    size_bytes: int
    row_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InputLog:
    """A complete input log."""

    #: location of the files; of the manifest too, unless a fork shares the log
    place: LogPlace
    #: folder of the log's files, unique to the log, so that the name identifies the log
    name: str
    schema: pa.Schema
    #: files in the order in which offsets count them
    files: tuple[LogFile, ...]

    @property
    def row_groups(self) -> list[tuple[int, int]]:
        """The row groups of the log, in order: (number of the file, number in the file)."""
        return [(file, group) for file, each in enumerate(self.files) for group in range(len(each.row_counts))]

    def read(self, row_group: tuple[int, int], first_row: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read the rows of a row group from `first_row` on. Yield batches, each with the number of the row after it.

        Batches are bounded, but their limits are not part of the contract. A second read may return the same rows in
        other batches.

        Raises
        ------
        SnapshotCorrupt
            if a file is missing, damaged, or differs from the written file.
        """
        file, group = row_group
        path = os.path.join(self.place.root, self.place.path, self.name, self.files[file].name)
        end = 0
        try:
            for batch in self._stored_batches(path, self.files[file], group):
                skipped = min(max(first_row - end, 0), batch.num_rows)
                row, end = end + skipped, end + batch.num_rows
                for piece in _bounded(batch.slice(skipped).cast(self.schema)):
                    row += piece.num_rows
                    yield row, piece
        except FileNotFoundError as error:
            raise SnapshotCorrupt(f"{path} of the input log is missing; without it the run cannot replay") from error
        except (OSError, ValueError, pa.ArrowException) as error:
            if getattr(error, "errno", None) is not None:
                raise  # the disk failed, and the file's content may be sound
            raise SnapshotCorrupt(f"{path} of the input log, row group {group}, about row {end}: {error}") from error
        expected = self.files[file].row_counts[group]
        if end != expected:
            raise SnapshotCorrupt(f"{path} of the input log, row group {group}: {end} rows instead of {expected}")

    @staticmethod
    def _stored_batches(path: str, written: LogFile, group: int) -> Iterator[pa.RecordBatch]:
        size = os.stat(path).st_size
        if size != written.size_bytes:
            raise SnapshotCorrupt(f"{path} of the input log has {size} bytes instead of {written.size_bytes}")
        # Spark writes timestamps as INT96, whose nanoseconds would overflow outside of 1677 to 2262.
        with pq.ParquetFile(
            path, buffer_size=_READ_BYTES, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
        ) as parquet:
            yield from parquet.iter_batches(BATCH_ROWS_MAX, row_groups=[group], use_threads=False)


def place_of(root: str, run: str, node: str) -> LogPlace:
    """Return the location of the log of `node`.

    Parameters
    ----------
    root : str
        An absolute path or a ``file://`` URL that the driver and all executors share.

    Raises
    ------
    GraphError
        if `root` is neither.
    """
    try:
        return LogPlace(FileSystemBackend(root).root, f"{run_folder(run)}/input/{run_folder(node)}")
    except ValueError as error:
        raise GraphError(f"node {node!r}: its input log cannot be there: {error}") from error


def find_log(place: LogPlace) -> InputLog | None:
    """Read the manifest of the log at `place`. Return None if no log was completed there.

    Raises
    ------
    SnapshotCorrupt
        if its manifest is damaged.
    """
    try:
        data = FileSystemBackend(place.root).get(f"{place.path}/{_MANIFEST}")
    except FileNotFoundError:
        return None
    name = f"{place}/{_MANIFEST}"
    record: Any = unpack_plain(unseal(INPUT_LOG_MAGIC, data, name), name)
    schema = pa.ipc.read_schema(pa.py_buffer(record["schema"]))
    files = tuple(LogFile(each, size, tuple(counts)) for each, size, counts in record["files"])
    return InputLog(place._replace(path=record.get("path", place.path)), record["name"], schema, files)


def share_log(origin: LogPlace, place: LogPlace) -> InputLog | None:
    """Make the log at `origin` that of `place` too, unless `place` has one. Return None without a log at `origin`."""
    log = find_log(origin)
    if log is None:
        return None
    _complete(place, log)
    return find_log(place)


def write_log(df: DataFrame, place: LogPlace) -> InputLog:
    """Let Spark write the rows of `df` once, and complete the log. Return the log that the run uses from now on.

    Blocks until Spark has written. If several drivers write at one time, all return the log that was completed
    first.

    Raises
    ------
    GraphError
        if a column's type cannot be sent, or the driver does not see Spark's files.
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
    """Remove the folders of attempts that did not become `log`.

    Call only after the manifest is written, because before that any attempt may still become the log.
    """
    with os.scandir(str(log.place)) as found:
        others = [entry.path for entry in found if entry.is_dir() and entry.name != log.name]
    for folder in others:
        # Spark may still write to the folder and add files during the removal. The next submit removes those files.
        shutil.rmtree(folder, ignore_errors=True)


def arrow_schema_of(df: DataFrame) -> pa.Schema:
    """Return the Arrow schema of the rows of `df`. Instants are in UTC, for any time zone of the session.

    Raises
    ------
    GraphError
        with the name of the type for which Arrow has no counterpart.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(df.schema, timezone="UTC")
    except PySparkException as error:
        raise GraphError(f"a DataFrame with the columns {df.columns} cannot be a source: {error}") from error


def _try_to_complete(df: DataFrame, schema: pa.Schema, place: LogPlace) -> None:
    name = uuid.uuid4().hex
    folder = f"{place}/{name}"
    row_count = _write_files(df, folder)
    log = InputLog(place, name, schema, tuple(_durable_files(folder, row_count)))
    Disk().sync_folder(str(place))
    _complete(place, log)


def _complete(place: LogPlace, log: InputLog) -> None:
    """Write the manifest at `place`, unless there is one."""
    record = {"name": log.name, "schema": log.schema.serialize().to_pybytes(), "files": log.files}
    shared = {"path": log.place.path} if log.place != place else {}
    content = seal(INPUT_LOG_MAGIC, [pack_plain(record | shared)])
    FileSystemBackend(place.root).put_if_absent(f"{place.path}/{_MANIFEST}", content)


def _write_files(df: DataFrame, folder: str) -> int:
    """Let Spark write the rows. Return the row count that Spark reports."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    written = Observation()
    writer = df.observe(written, count(lit(1)).alias("rows")).write
    # The codec is named, because Arrow may not read the session's default codec.
    options = {"compression": "snappy", "parquet.page.write-checksum.enabled": "true"}
    writer.options(**options).option("parquet.block.size", ROW_GROUP_BYTES).parquet(f"file://{folder}")
    return int(written.get["rows"])


def _durable_files(folder: str, row_count: int) -> list[LogFile]:
    """Make Spark's files durable and return their records. Refuse a folder with missing rows."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    files = [_durable_file(folder, name) for name in sorted(names) if name.startswith("part-")]
    found = sum(sum(file.row_counts) for file in files)
    if found != row_count:
        # Each executor wrote to a disk of its own. Without this check, rows would be missing silently.
        raise GraphError(
            f"Spark wrote {row_count} rows below {folder}, of which the driver sees {found}: the folder must be one "
            "that the driver and all executors share. Give DataFrameSource(df, logPath=...) such a folder"
        )
    if names:
        Disk().sync_folder(folder)
    return files


def _durable_file(folder: str, name: str) -> LogFile:
    path = os.path.join(folder, name)
    metadata = pq.read_metadata(path)
    with open(path, "rb") as file:
        Disk().sync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    row_counts = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    return LogFile(name, size, row_counts)


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut `batch` into pieces of at most `BATCH_BYTES_MAX` bytes, or of one row. No piece for an empty batch."""
    while batch.num_rows:
        piece = batch
        while piece.nbytes > BATCH_BYTES_MAX and piece.num_rows > 1:
            piece = piece.slice(0, piece.num_rows // 2)
        yield piece
        batch = batch.slice(piece.num_rows)
