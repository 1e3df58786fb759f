"""Totals of an aggregate in a table of a PostgreSQL database, for all processes that reach its server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.aggregate_stores.cell_store import (
    CALL_SECONDS_MAX,
    CellStore,
    CellTable,
    Holder,
    Result,
    imported,
)
from cutline.state_backends.aggregate_stores.sql import Names

if TYPE_CHECKING:
    import psycopg

#: seconds until an attempt to connect fails
_CONNECT_SECONDS_MAX: Final = 5

#: Seconds until the server itself ends a statement, before this side gives up: so a lock ends with its own error.
_STATEMENT_SECONDS_MAX: Final = CALL_SECONDS_MAX - 2

#: Classes of SQLSTATE after which another try may succeed: connection, transaction rollback (deadlocks), resources,
#: a lock or an object in use, the operator, system errors, a server that only reads for now, and a transaction that
#: was idle for too long.
_PASSING: Final = ("08", "40", "53", "55", "57", "58", "25006", "25P03")

#: A refusal in the text of a connection, because the client library gives no SQLSTATE of it.
_REFUSAL: Final = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r"|(database|role) .* does not exist|permission denied for database|authentication failed"
)

#: Settings by which a call works on the cells that it names, and does not read the table. Without them 10,000 keys of a
#: million were found by a scan of all cells, which was compiled at each call.
_PLANS: Final = ("jit = off", "enable_seqscan = off")

#: A third of each page is for newer values of its cells, which then need no change of an index.
_ROOM: Final = "WITH (fillfactor = 67)"

#: A lock that is for the makers of tables. PostgreSQL's ``IF NOT EXISTS`` fails where two are at it.
_MAKING: Final = 0x63_75_74_6C_69_6E_65


class PostgreSQLStore(CellStore):
    """Keep totals in tables of a PostgreSQL database. Each call is one transaction, or one query.

    Parameters
    ----------
    dsn : str
        Where the database is and who connects, as libpq takes it: a URL, or ``host=… dbname=…``. It is pickled with
        the store. Errors show host and database only.
    table : str
        Name of the table of cells: small letters, digits and ``_``, with or without a schema. It is made where it is
        missing. ``{table}_totals`` is a view of the committed totals, with columns *key* and *value* in JSON. Each
        aggregate in the database needs a table of its own. A key has at most 2,000 bytes.
    """

    def __init__(self, dsn: str, *, table: str = "cutline") -> None:
        super().__init__()
        self.dsn = dsn
        self.table = table
        self._names = Names.of(table)

    def __str__(self) -> str:
        return f"PostgreSQL table {self.table} in {_place(self.dsn)}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def _connect(self) -> CellTable:
        psycopg = imported(self, "psycopg", "postgresql")
        connection = psycopg.connect(
            self.dsn,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=_CONNECT_SECONDS_MAX,
            client_encoding="utf8",
        )
        try:
            table = _Table(connection, self._names)
            table.prepare()
        except BaseException:
            connection.close()
            raise
        return table

    def _translated(self, error: Exception) -> OSError | None:
        psycopg = imported(self, "psycopg", "postgresql")
        if not isinstance(error, psycopg.Error):
            return None
        text = f"{self}: {' '.join(str(error).split())}"
        if error.sqlstate:
            passes = error.sqlstate.startswith(_PASSING)
        else:
            passes = isinstance(error, psycopg.OperationalError) and not _REFUSAL.search(text)
        if passes:
            return OSError(f"{text}; see whether the server is running and reachable")
        hint = "the rights, and whether the tables are those of a store" if error.sqlstate else "user and password"
        return StoreRefused(f"{text}; see {hint}")


def _place(dsn: str) -> str:
    """Return host and database of a DSN, and nothing that could be a password."""
    if "://" in dsn:
        url = urlsplit(dsn)
        return f"{url.netloc.rpartition('@')[2]}{url.path}"  # perhaps of several hosts, each with its port
    unquoted = re.sub(r"'(\\.|[^'\\])*'", "…", dsn)
    return " ".join(f"{name}={value}" for name, value in re.findall(r"\b(host|port|dbname)\s*=\s*(\S+)", unquoted))


class _Table:
    """See `CellTable`."""

    def __init__(self, connection: psycopg.Connection, names: Names) -> None:
        # Else a call of a server that hangs would never end.
        connection.wait = partial(connection.wait, timeout=CALL_SECONDS_MAX)  # type: ignore[method-assign]
        self._connection = connection
        self._names = names
        self._lock = ""

    @property
    def select(self) -> str:
        """Query of the totals of a list of keys."""
        return f"SELECT key, value FROM {self._names.totals} WHERE key = ANY(%s)"

    def prepare(self) -> None:
        """Limit how long the server works, or waits for this side. Make what is missing."""
        milliseconds = int(_STATEMENT_SECONDS_MAX * 1000)
        self._execute(f"SET statement_timeout = {milliseconds}")
        # Else a writer that is frozen within a transaction would keep its locks, and nobody could take the store.
        self._execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")
        for setting in _PLANS:
            self._execute(f"SET {setting}")
        if not self._is_made():
            # A lock of the session, because only a transaction that begins after it sees what others have made.
            self._execute("SELECT pg_advisory_lock(%s)", _MAKING)
            self.atomically(self._make, alone=True)
            self._execute("SELECT pg_advisory_unlock(%s)", _MAKING)

    def _is_made(self) -> bool:
        return bool(self._execute("SELECT to_regclass(%s) IS NOT NULL", self._names.totals)[0][0])

    def _make(self) -> None:
        if not self._is_made():
            for statement in self._names.schema('TEXT COLLATE "C"', _ROOM):
                self._execute(statement)

    def atomically(self, deed: Callable[[], Result], *, alone: bool) -> Result:
        """See `CellTable`. A deed that fails is rolled back with its connection."""
        self._lock = "UPDATE" if alone else "SHARE"
        self._execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        result = deed()
        self._execute("COMMIT")
        return result

    def holder(self) -> Holder:
        """See `CellTable`."""
        [row] = self._execute(f"SELECT run, claim, committed FROM {self._names.holder} FOR {self._lock}")
        return Holder(*row)

    def hold(self, holder: Holder) -> None:
        """See `CellTable`."""
        update = f"UPDATE {self._names.holder} SET run = %s, claim = %s, committed = %s"
        self._execute(update, holder.run, holder.number, holder.committed)
        self._execute(f"DELETE FROM {self._names.written} WHERE snapshot_id <= %s", holder.committed)

    def write(self, texts: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
        """See `CellTable`."""
        keys, values = [key for key, _ in texts], [value for _, value in texts]
        upsert = (
            f"INSERT INTO {self._names.cells} SELECT key, value, %s, NULL FROM unnest(%s::text[], %s::text[]) "
            f"AS items (key, value) {self._names.on_conflict.format('%s')}"
        )
        self._execute(upsert, snapshot_id, keys, values, committed)
        self._execute(f"INSERT INTO {self._names.written} VALUES (%s, %s)", snapshot_id, "\n".join(keys))

    def roll_back(self, snapshot_id: int, committed: int) -> bool:
        """See `CellTable`."""
        written = self._execute(self._names.take_written.format("ctid", "%s"), snapshot_id)
        keys = [key for (lines,) in written for key in lines.split("\n")]
        self._execute(self._names.remove.format("key = ANY(%s)", "%s"), keys, snapshot_id)
        self._execute(self._names.restore.format("%s", "key = ANY(%s)", "%s"), committed, keys, snapshot_id)
        return bool(written)

    def read(self, keys: Sequence[str]) -> list[str | None]:
        """See `CellTable`."""
        found = dict(self._execute(self.select, sorted(keys)))  # because neighbours in the index are found faster
        return [found.get(key) for key in keys]

    def close(self) -> None:
        """See `CellTable`."""
        self._connection.close()

    def _execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode(), parameters or None)
        return [] if cursor.description is None else cursor.fetchall()
