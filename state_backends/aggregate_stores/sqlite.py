"""Totals of an aggregate in a table of an SQLite file, for all processes of one host."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.aggregate_stores.cell_store import CALL_SECONDS_MAX, CellStore, CellTable, Holder, Result
from cutline.state_backends.aggregate_stores.sql import Names

#: Result codes of SQLite after which another try may succeed: locks, the disk, memory.
_PASSING: Final = frozenset(
    (
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL),
    )
)

#: KiB of the file that a connection keeps in memory. With SQLite's own 2 MB, writes to a table of a million keys took
#: twice the time.
_CACHE_KIB: Final = 65_536

#: bits of a result code that are the same for all its variants
_PRIMARY_CODE: Final = 0xFF


class SQLiteStore(CellStore):
    """Keep totals in tables of an SQLite file on a local disk. Each call is durable when it returns.

    Parameters
    ----------
    path : str
        The file. It is made where it is missing; its folder is not.
    table : str
        Name of the table of cells: small letters, digits and ``_``. ``{table}_totals`` is a view of the committed
        totals, with columns *key* and *value* in JSON. Each aggregate in the file needs a table of its own.
    """

    def __init__(self, path: str | os.PathLike[str], *, table: str = "cutline") -> None:
        super().__init__()
        self.path = os.path.abspath(os.fspath(path))  # because a worker has another working directory
        self.table = table
        self._names = Names.of(table)

    def __str__(self) -> str:
        return f"SQLite table {self.table} in {self.path}"

    def _connect(self) -> CellTable:
        # The writing thread of a worker is another one than the thread that closes.
        connection = sqlite3.connect(self.path, timeout=CALL_SECONDS_MAX, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")  # because readers then never wait for a writer
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            table = _Table(connection, self._names)
            table.make()
        except BaseException:
            connection.close()
            raise
        return table

    def _translated(self, error: Exception) -> OSError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & _PRIMARY_CODE in _PASSING:
            return OSError(f"{self}: {error}; see whether another process holds a lock, and whether the disk has room")
        return StoreRefused(f"{self}: {error}; see whether its folder is there and this is a file of a store")


class _Table:
    """See `CellTable`."""

    def __init__(self, connection: sqlite3.Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    def make(self) -> None:
        """Make tables, index and view, if they are not there."""
        if not self._is_made():
            self.atomically(self._make, alone=True)

    def _is_made(self) -> bool:
        found = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [self._names.plain_totals])
        return found.fetchone() is not None

    def _make(self) -> None:
        if not self._is_made():
            for statement in self._names.schema("TEXT"):
                self._connection.execute(statement)

    def atomically(self, deed: Callable[[], Result], *, alone: bool) -> Result:
        """See `CellTable`."""
        self._connection.execute("BEGIN IMMEDIATE")
        result = deed()
        self._connection.execute("COMMIT")
        return result

    def holder(self) -> Holder:
        """See `CellTable`."""
        return Holder(*self._connection.execute(f"SELECT run, claim, committed FROM {self._names.holder}").fetchone())

    def hold(self, holder: Holder) -> None:
        """See `CellTable`."""
        values = (holder.run, holder.number, holder.committed)
        self._connection.execute(f"UPDATE {self._names.holder} SET run = ?, claim = ?, committed = ?", values)
        self._connection.execute(f"DELETE FROM {self._names.written} WHERE snapshot_id <= ?", (holder.committed,))

    def write(self, texts: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
        """See `CellTable`."""
        upsert = f"INSERT INTO {self._names.cells} VALUES (?, ?, ?, NULL) {self._names.on_conflict.format('?')}"
        self._connection.executemany(upsert, ((key, value, snapshot_id, committed) for key, value in texts))
        lines = "\n".join(key for key, _ in texts)
        self._connection.execute(f"INSERT INTO {self._names.written} VALUES (?, ?)", (snapshot_id, lines))

    def roll_back(self, snapshot_id: int, committed: int) -> bool:
        """See `CellTable`."""
        take_written = self._names.take_written.format("rowid", "?")
        written = self._connection.execute(take_written, (snapshot_id,)).fetchall()
        keys = [key for (lines,) in written for key in lines.split("\n")]
        remove, restore = self._names.remove.format("key = ?", "?"), self._names.restore.format("?", "key = ?", "?")
        self._connection.executemany(remove, ((key, snapshot_id) for key in keys))
        self._connection.executemany(restore, ((committed, key, snapshot_id) for key in keys))
        return bool(written)

    def read(self, keys: Sequence[str]) -> list[str | None]:
        """See `CellTable`."""
        self._connection.execute("BEGIN")
        select = f"SELECT value FROM {self._names.totals} WHERE key = ?"
        found = [self._connection.execute(select, (key,)).fetchone() for key in keys]
        self._connection.execute("COMMIT")
        return [row and row[0] for row in found]

    def close(self) -> None:
        """See `CellTable`."""
        self._connection.close()
