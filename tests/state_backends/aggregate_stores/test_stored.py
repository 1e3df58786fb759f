"""What other programs find in a store of aggregates, and that its work is in proportion to what has changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import redis

from benchmarks.servers import PostgreSQLServer, RedisServer
from snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from state_backends import MemoryStore, PostgreSQLStore, RedisStore, RocksDBStore, SQLiteStore
from state_backends.aggregate_stores.cell_store import Holder
from state_backends.aggregate_stores.memory import MemoryTable

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


def test_only_changed_cells_are_listed(redis_server: RedisServer, tmp_path: Path) -> None:
    """A rollback finds its cells in a list that holds no cell that is committed."""
    memory, rocksdb = MemoryStore(), RocksDBStore(tmp_path / "totals")
    redis_store = RedisStore(redis_server.url, prefix="changed")
    for store in (memory, rocksdb, redis_store):
        _fill(store)
    keys = {'"größe"', '"new"'}
    tables = memory._table, rocksdb._table
    assert isinstance(tables[0], MemoryTable)
    assert tables[0]._written == {2: keys}
    assert {row[9:].decode() for row in tables[1]._written_above(0)} == keys  # type: ignore[union-attr]
    with closing(redis.Redis.from_url(redis_server.url, decode_responses=True)) as client:
        assert set(client.zrange("{changed}:written", 0, -1)) == keys
    for store in (memory, rocksdb, redis_store):
        store.rollBack(_CLAIM, 1)
        assert store.current(["größe", "new"]) == [1.5, None]
        store.close()


def test_indexes_are_used(postgresql: PostgreSQLServer, tmp_path: Path) -> None:
    """The databases find the cells of a rollback by the index of snapshots, and those of a list by their keys."""
    items = [(number, number) for number in range(_MANY)]
    sqlite_store = SQLiteStore(tmp_path / "totals.db")
    postgresql_store = PostgreSQLStore(postgresql.url, table="indexed")
    for store in (sqlite_store, postgresql_store):
        store.take(_CLAIM)
        store.write(_CLAIM, 1, items)
        store.commit(_CLAIM, 1)
        store.close()
    names = sqlite_store._names
    with closing(sqlite3.connect(tmp_path / "totals.db")) as file:
        for statement in (names.remove.format("1"), names.restore.format("1", "1")):
            [plan] = file.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            assert "USING INDEX cutline_snapshot_id" in plan[3]
    names = postgresql_store._names
    table: Any = postgresql_store._call(lambda each: each)
    keys = list(map(str, range(_MANY // 2)))
    for statement, parameters, index in (
        (names.remove.format("1"), (), "indexed_snapshot_id"),
        (names.restore.format("1", "1"), (), "indexed_snapshot_id"),
        (table.select, (keys,), "indexed_pkey"),
    ):
        plan = str(table._execute(f"EXPLAIN {statement}", *parameters))
        assert index in plan and "Seq Scan on indexed " not in plan, plan
    postgresql_store.close()


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
    assert checks == [0, 1]
    store.commit(_CLAIM, 2)
    assert other.get("a") == 2
    for each in (store, other):
        each.close()
