"""What other programs find in a store of aggregates, and that its work is in proportion to what has changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from benchmarks.live import wait_for
from benchmarks.servers import PostgreSQLServer, RedisServer
from cutline import MemoryStore, PostgreSQLStore, RedisStore, RocksDBStore, SQLiteStore
from cutline.snapshot.errors import Fenced
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.state_backends.aggregate_stores.cell_store import CellStore, Holder

_CLAIM = StoreClaim("r", 1)

#: cells of a table in which an index is worth while
_MANY = 20_000


def _fill(store: AggregateStore) -> None:
    """Commit a snapshot of two keys, and write one old and one new key of the next snapshot."""
    store.take(_CLAIM)
    store.write(_CLAIM, 1, [("größe", 1.5), (("b", 2), 7)])
    store.commit(_CLAIM, 1)
    store.write(_CLAIM, 2, [("größe", 2.5), ("new", 1)])


def test_views_have_the_committed_totals(postgresql: PostgreSQLServer, tmp_path: Path) -> None:
    """Keys and values are JSON. What is not committed does not show, and the tables say who writes."""
    select = "SELECT key, value FROM seen_totals ORDER BY key"
    found = [('"größe"', "1.5"), ('["b",2]', "7")]
    store: AggregateStore = PostgreSQLStore(postgresql.url, table="seen")
    _fill(store)
    store.close()
    with psycopg.connect(postgresql.url) as connection:
        assert connection.execute(select).fetchall() == found
        assert connection.execute("SELECT * FROM seen_holder").fetchall() == [("r", 1, 1)]
        [numbers] = connection.execute("SELECT sum(value::numeric) FROM seen_totals").fetchall()
        assert float(numbers[0]) == 8.5
    store = SQLiteStore(tmp_path / "totals.db", table="seen")
    _fill(store)
    store.close()
    with closing(sqlite3.connect(tmp_path / "totals.db")) as file:
        assert file.execute(select).fetchall() == found
        assert file.execute("SELECT * FROM seen_holder").fetchall() == [("r", 1, 1)]


def test_redis_has_three_lines_for_a_key(redis_server: RedisServer) -> None:
    """Others read the hash of cells, and the holder, without a script."""
    store = RedisStore(redis_server.url, prefix="seen")
    _fill(store)
    store.close()
    with closing(redis.Redis.from_url(redis_server.url, decode_responses=True)) as client:
        assert client.hgetall("{seen}:cells") == {
            '"größe"': "2.5\n2\n1.5",
            '["b",2]': "7\n1\n",
            '"new"': "1\n2\n",
        }
        assert client.get("{seen}:holder") == '{"run": "r", "claim": 1, "committed": 1}'


def test_only_changed_cells_are_listed(postgresql: PostgreSQLServer, redis_server: RedisServer, tmp_path: Path) -> None:
    """A rollback finds its cells in a list that holds no cell that is committed. A rollback empties the list."""
    rocksdb, redis_store = RocksDBStore(tmp_path / "totals"), RedisStore(redis_server.url, prefix="changed")
    memory, sqlite_store = MemoryStore(), SQLiteStore(tmp_path / "totals.db", table="changed")
    postgresql_store = PostgreSQLStore(postgresql.url, table="changed")
    stores = (memory, rocksdb, redis_store, sqlite_store, postgresql_store)
    for store in stores:
        _fill(store)
    tables = {type(store).__name__: _table(store) for store in stores}

    def listed() -> dict[str, set[str]]:
        """The keys that each store lists."""
        with closing(redis.Redis.from_url(redis_server.url, decode_responses=True)) as client:
            return {
                "MemoryStore": set().union(*tables["MemoryStore"]._written.values()),
                "RocksDBStore": {row[9:].decode() for row in tables["RocksDBStore"]._written_above(0)},
                "RedisStore": set(client.zrange("{changed}:written", 0, -1)),
                "SQLiteStore": _lines(tables["SQLiteStore"]._connection.execute("SELECT keys FROM changed_written")),
                "PostgreSQLStore": _lines(tables["PostgreSQLStore"]._execute("SELECT keys FROM changed_written")),
            }

    keys = {'"größe"', '"new"'}
    assert listed() == dict.fromkeys(tables, keys)
    for store in stores:
        store.rollBack(_CLAIM, 1)
        assert store.current(["größe", "new"]) == [1.5, None]
    assert not any(listed().values())
    for store in stores:
        store.close()


def _lines(rows: Iterable[tuple[str]]) -> set[str]:
    return {key for (lines,) in rows for key in lines.split("\n")}


def test_indexes_are_used(postgresql: PostgreSQLServer, tmp_path: Path) -> None:
    """The databases plan to find cells by their keys, those of a rollback too."""
    items = [(number, number) for number in range(_MANY)]
    sqlite_store, postgresql_store = SQLiteStore(tmp_path / "totals.db"), PostgreSQLStore(postgresql.url, table="large")
    for store in (sqlite_store, postgresql_store):
        store.take(_CLAIM)
        store.write(_CLAIM, 1, items)
        store.commit(_CLAIM, 1)
    names, connection = sqlite_store._names, _table(sqlite_store)._connection
    for statement in (names.remove.format("key = ''", "1"), names.restore.format("1", "key = ''", "1")):
        [plan] = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        assert "USING INDEX" in plan[3] and "(key=?)" in plan[3]
    names, table = postgresql_store._names, _table(postgresql_store)
    keys = list(map(str, range(_MANY // 2)))
    for statement in (
        names.remove.format("key = ANY(%s)", "1"),
        names.restore.format("1", "key = ANY(%s)", "1"),
        table.select,
    ):
        plan = str(table._execute(f"EXPLAIN {statement}", keys))
        assert "large_pkey" in plan and "Seq Scan on large " not in plan, plan
    for store in (sqlite_store, postgresql_store):
        store.close()


def _table(store: CellStore) -> Any:
    return store._call(lambda table: table)


def test_deeds_are_done_again(redis_server: RedisServer) -> None:
    """A commit of another connection that comes between the check and the script makes the deed start again."""
    store, other = (RedisStore(redis_server.url, prefix="between") for _ in range(2))
    store.take(_CLAIM)
    table = store._call(lambda each: each)
    holder, checks = table.holder, []

    def slow() -> Holder:
        found = holder()
        checks.append(found.committed)
        if len(checks) == 1:
            other.commit(_CLAIM, 1)
        return found

    table.holder = slow  # type: ignore[method-assign]
    store.write(_CLAIM, 2, [("a", 2)])
    assert checks == [-1, 1]
    store.commit(_CLAIM, 2)
    assert other.get("a") == 2
    for each in (store, other):
        each.close()


def test_a_take_waits_for_a_write(postgresql: PostgreSQLServer) -> None:
    """In PostgreSQL a claim that comes between the check and the write waits until the cells are there."""
    store, other = (PostgreSQLStore(postgresql.url, table="waits") for _ in range(2))
    store.take(_CLAIM)
    table, later = _table(store), StoreClaim("r", 2)
    holder = table.holder

    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgresql.url, autocommit=True) as connection:
        taking: list[Future[int]] = []

        def slow() -> Holder:
            found: Holder = holder()
            taking.append(pool.submit(other.take, later))
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_for("a lock", lambda: taking[0].done() or connection.execute(waiting).fetchall())
            assert not taking[0].done()
            return found

        table.holder = slow
        store.write(_CLAIM, 1, [("a", 1)])
        assert taking[0].result() == -1
    with pytest.raises(Fenced):
        other.write(_CLAIM, 1, [("a", 2)])
    other.commit(later, 1)
    assert other.get("a") == 1
    for each in (store, other):
        each.close()
