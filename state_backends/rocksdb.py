"""A RocksDB database of one subtask: a disposable cache of rows on the local disk, with bounded memory.

Must not know what the rows mean: keys and values are bytes. Only versions are durable, because else the segments of a
snapshot hold all that a restore needs. So there is no log and no sync, and the folder goes with the process.

No child of a process that has ever opened a database can open one: the child hangs (facebook/rocksdb#2006). So
`rocksdict` is imported and opened at the first use only, in the worker, after the fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cutline.snapshot.errors import RestoreRefused, StateError
from cutline.snapshot.keyed.row_store import Job, Steps, StoredRow
from cutline.state_backends.local_versions import UnfinishedVersion
from cutline.state_backends.scratch_folder import ScratchFolder

if TYPE_CHECKING:
    from rocksdict import Options, ReadOptions, WriteOptions

#: Bits of a Bloom filter for each key. 10 bits are wrong for 1 % of absent keys.
_FILTER_BITS: Final = 10
_BLOCK_BYTES: Final = 4096
_OPEN_FILES_MAX: Final = 256
_BACKGROUND_JOBS: Final = 2

#: Parts of the memory: write buffers take a third, and no database fills more than a fourth of them before a flush.
_BUFFERS_DIVISOR: Final = 3
_FLUSHES_MIN: Final = 4
_BUFFER_BYTES_MIN: Final = 1024 * 1024

#: text of RocksDB's error for a write that would wait
_STALL: Final = "Write stall"

#: properties of RocksDB: errors of flushes and compactions, and what is not 0 while writes wait for compactions
_FAILED: Final = "rocksdb.background-errors"
_STALLED: Final = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")

#: processes that have opened a database; a child sees the entry of its parent
_OPENED_IN: set[int] = set()


def is_installed() -> bool:
    """Return whether `rocksdict` can be imported. Imports nothing."""
    return find_spec("rocksdict") is not None


def refuse_in_child() -> None:
    """Call before a database is opened.

    Raises
    ------
    StateError
        if a parent of this process has opened a database.
    """
    if _OPENED_IN - {os.getpid()}:
        raise StateError(
            "a parent of this process has opened a RocksDB database, so this process would hang in its own: "
            "start processes by spawn instead of fork"
        )
    _OPENED_IN.add(os.getpid())


class RocksDBMemory:
    """The block cache and the write buffers that all databases of a worker share.

    Parameters
    ----------
    bytes_max : int
        Bytes of blocks, indexes, filters and write buffers together.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._options: Options | None = None

    def options(self) -> Options:
        """Return the options of every database of this worker.

        Raises
        ------
        StateError
            if `rocksdict` is not installed here, or a parent of this process has opened a database.
        """
        if self._options is None:
            self._options = _make_options(self.bytes_max)
        return self._options


def _make_options(bytes_max: int) -> Options:
    if not is_installed():
        raise StateError(
            "the keyed state is kept in RocksDB, but rocksdict is not installed where this worker runs: "
            "pip install 'cutline[rocksdb]' there, or use keyedState=HeapState()"
        )
    refuse_in_child()
    import rocksdict as r

    cache, buffers = r.Cache(bytes_max), bytes_max // _BUFFERS_DIVISOR
    table = r.BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)  # because memory outside the cache has no limit
    table.set_bloom_filter(_FILTER_BITS, False)
    table.set_block_size(_BLOCK_BYTES)
    options = r.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    manager = r.WriteBufferManager.new_write_buffer_manager_with_cache(buffers, False, cache)
    options.set_write_buffer_manager(manager)
    options.set_write_buffer_size(max(buffers // _FLUSHES_MIN, _BUFFER_BYTES_MIN))
    options.set_compaction_style(r.DBCompactionStyle.universal())
    options.set_compression_type(r.DBCompressionType.lz4())
    options.set_max_background_jobs(_BACKGROUND_JOBS)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(_BUFFER_BYTES_MIN)
    options.set_stats_dump_period_sec(0)
    return options


class Database:
    """One database in a folder of its own. See `RowStore`.

    Parameters
    ----------
    memory : RocksDBMemory
        What the databases of this worker share.
    parent : Path
        Folder on a local disk, in which the database gets a folder of its own.
    name : str
        Beginning of the folder's name, and the name in errors.
    begin_version : callable, optional
        Returns the version to make of a snapshot id. Without it, the database has no versions.
    restore : callable, optional
        Puts the files of a version at a path, and returns what its rows are of. Without it, the database is empty.

    Raises
    ------
    StateError
        if the database cannot be opened.
    """

    def __init__(
        self,
        memory: RocksDBMemory,
        parent: Path,
        name: str,
        begin_version: Callable[[int], UnfinishedVersion] | None = None,
        restore: Callable[[Path], bytes] | None = None,
    ) -> None:
        self._options = memory.options()
        import rocksdict as r

        self._r = r
        self.name = name
        try:
            self._folder = ScratchFolder(parent, name)
            #: see `RowStore`
            self.states = b"" if restore is None else restore(self._path)
            self._db = r.Rdict(str(self._path), self._options)
        except RestoreRefused:
            self._folder.close()
            raise
        except Exception as error:
            raise self._failed("open", error) from error
        self._write_options: WriteOptions = r.WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]  # a property, whatever the stub says
        self._write_options.no_slowdown = True
        self._begin_version = begin_version
        self._ingested = 0
        self._is_closed = False
        #: see `RowStore`; without a call of our own between, because each get of a key passes here
        self.get: Callable[[bytes], bytes | None] = self._db.get

    def get_many(self, rows: list[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None where there is none."""
        found: list[bytes | None] = self._db.get(rows)  # type: ignore[arg-type,assignment]  # list is invariant
        return found

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the rows from `start` to before `end`, as they are now, sorted by key."""
        options = self._r.ReadOptions()
        options.set_iterate_upper_bound(end)
        return _kept(self._db.items(from_key=start, read_opt=options), options, end)  # type: ignore[arg-type]

    @property
    def is_busy(self) -> bool:
        """See `RowStore`. An ingestion never waits itself, and too many files make each read slow."""
        if self._db.property_int_value(_FAILED):
            return False  # because the database would stay busy, and the ingestion names what has failed
        return any(self._db.property_int_value(name) for name in _STALLED)

    def ingest(self, parts: Iterable[Sequence[StoredRow]]) -> Job:
        """See `RowStore`. The rows become a file of the database, four times as fast as by its write buffer.

        Raises
        ------
        StateError
            if the disk refuses, or the rows are not sorted.
        """
        path = str(self._folder.path / f"{self._ingested}.sst")
        self._ingested += 1
        writer = None
        try:
            for part in parts:
                if writer is None:
                    writer = self._r.SstFileWriter(self._options)
                    writer.open(path)
                for row, value in part:
                    if value is None:
                        del writer[row]
                    else:
                        writer[row] = value
                yield None
            if writer is not None:
                writer.finish()
                options = self._r.IngestExternalFileOptions()
                options.set_move_files(True)
                self._db.ingest_external_file([path], options)
        except Exception as error:
            raise self._failed("ingest rows into", error) from error

    def remove(self, rows: list[bytes]) -> bool:
        """See `RowStore`. Call with few rows, because RocksDB writes a batch under the interpreter's lock.

        For that reason a removal never waits for a flush or a compaction.

        Raises
        ------
        StateError
            if the disk refuses. No row is removed.
        """
        batch = self._r.WriteBatch(raw_mode=True)
        for row in rows:
            batch.delete(row)
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            if _STALL in str(error):
                return False
            raise self._failed("remove rows from", error) from error
        return True

    def make_version(self, snapshot_id: int, states: bytes) -> Steps[int]:
        """See `RowStore`. RocksDB links its files under the interpreter's lock, for 10 to 50 ms.

        Raises
        ------
        StateError
            if the disk refuses.
        """
        assert self._begin_version is not None
        try:
            version = self._begin_version(snapshot_id)
            self._r.Checkpoint(self._db).create_checkpoint(str(version.database))
            yield None
            return version.finish(states)
        except Exception as error:
            raise self._failed("make a version of", error) from error

    def close(self) -> None:
        """Close the database and remove its folder. May be called again."""
        if not self._is_closed:
            self._is_closed = True
            self._db.close()
            self._folder.close()

    @property
    def _path(self) -> Path:
        return self._folder.path / "db"

    def _failed(self, deed: str, error: Exception) -> StateError:
        return StateError(f"{self.name}: cannot {deed} the database of the keyed state: {error}")

    def memory_use(self) -> dict[str, Any]:
        """Return bytes that the database uses: write buffers, cached blocks, indexes and filters outside the cache."""
        names = ("cur-size-all-mem-tables", "block-cache-usage", "estimate-table-readers-mem", "total-sst-files-size")
        return {name: self._db.property_int_value(f"rocksdb.{name}") for name in names}


def _kept(rows: Iterator[tuple[bytes, bytes]], options: ReadOptions, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield rows. Keeps the options and the bound alive, because an iterator of `rocksdict` refers to their memory."""
    yield from rows
