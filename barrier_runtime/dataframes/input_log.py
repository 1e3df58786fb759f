"""The input log of one source: the rows of a DataFrame, written once, read by offset from then on.

Owns the log's manifest and reads. `barrier_runtime.dataframes.log_writing` writes the files. Must not know contexts,
nor how readers share the row groups.

::

    <root>/<run>/input/<node>/manifest                     write-once, written last: it makes the log exist
    <root>/<run>/input/<node>/<name>/part-….parquet        one file a partition of Spark; each attempt has its own name

Replay is exact for any lineage of the DataFrame, because the DataFrame is never computed again. The manifest of a fork
may name the log of another run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from cutline.snapshot.errors import GraphError, SnapshotCorrupt
from cutline.snapshot.stored.envelope import pack_plain, seal, unpack_plain, unseal
from cutline.snapshot.stored.layout import run_folder
from cutline.state_backends.filesystem import FileSystemBackend

INPUT_LOG_MAGIC = b"CLIL"

#: Rows of a batch. From this size on a channel moves rows at full speed, and a marker still waits only briefly.
BATCH_ROWS_MAX = 8192

#: Bytes of a batch of several rows, so that wide rows do not make frames that a receiver refuses.
BATCH_BYTES_MAX = 4 * 1024 * 1024

#: Bytes of a column that are read ahead. Reading ahead would otherwise take the column of a whole row group.
_READ_BYTES = 256 * 1024

#: Bytes at the end of a Parquet file: the length of the footer, and the magic number.
_FOOTER_END = 8

_MANIFEST = "manifest"


class LogPlace(NamedTuple):
    """The location of the log of one node of one run: `path` below the file-system backend at `root`."""

    root: str
    path: str

    def __str__(self) -> str:
        return f"{self.root}/{self.path}"


class LogFile(NamedTuple):
    """A Parquet file of the log."""

    name: str
    size_bytes: int
    row_counts: tuple[int, ...]  #: of each row group
    #: digest of what says how to read the pages, which have checksums of their own; empty in logs of older versions
    footer: bytes = b""


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
                rows = pa.RecordBatch.from_arrays(batch.slice(skipped).columns, schema=self.schema)
                for piece in _bounded(rows):
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
        if written.footer and written.footer != footer_digest(path):
            raise SnapshotCorrupt(f"{path} of the input log has another footer than the file that was written")
        with pq.ParquetFile(path, buffer_size=_READ_BYTES, page_checksum_verification=True) as parquet:
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
    files = tuple(LogFile(each, size, tuple(counts), *footer) for each, size, counts, *footer in record["files"])
    return InputLog(place._replace(path=record.get("path", place.path)), record["name"], schema, files)


def share_log(origin: LogPlace, place: LogPlace) -> InputLog | None:
    """Make the log at `origin` that of `place` too, unless `place` has one. Return None without a log at `origin`."""
    log = find_log(origin)
    if log is None:
        return None
    complete(place, log)
    return find_log(place)


def complete(place: LogPlace, log: InputLog) -> None:
    """Write the manifest at `place`, unless there is one."""
    record = {"name": log.name, "schema": log.schema.serialize().to_pybytes(), "files": log.files}
    shared = {"path": log.place.path} if log.place != place else {}
    content = seal(INPUT_LOG_MAGIC, [pack_plain(record | shared)])
    FileSystemBackend(place.root).put_if_absent(f"{place.path}/{_MANIFEST}", content)


def footer_digest(path: str) -> bytes:
    """Return a digest of the footer of a Parquet file. Where its length is damaged, the digest is another one."""
    with open(path, "rb") as file:
        end = file.seek(-_FOOTER_END, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(end - length, 0))
        return xxhash.xxh3_128(file.read()).digest()


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut `batch` into pieces of at most `BATCH_BYTES_MAX` bytes, or of one row. No piece for an empty batch."""
    while batch.num_rows:
        piece = batch
        while piece.nbytes > BATCH_BYTES_MAX and piece.num_rows > 1:
            piece = piece.slice(0, piece.num_rows // 2)
        yield piece
        batch = batch.slice(piece.num_rows)
