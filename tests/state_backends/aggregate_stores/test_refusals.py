"""What a store of aggregates refuses for good, and how errors name the store without its password."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
import redis

from benchmarks.servers import PostgreSQLServer, RedisServer
from cutline import MemoryStore, PostgreSQLStore, RedisStore, RocksDBStore, SQLiteStore
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.stored.backend import StoreRefused

_CLAIM = StoreClaim("r", 1)

#: opens a database, and holds it until its standard input ends
_HOLDER = """
import sys
from cutline import RocksDBStore
store = RocksDBStore(sys.argv[1])
store.get("a")
print("open", flush=True)
sys.stdin.read()
"""


def _refused(store: AggregateStore, words: str) -> None:
    """Each call raises `StoreRefused`, whose text has the name and these words."""
    for call in (lambda: store.take(_CLAIM), lambda: store.get("a")):
        with pytest.raises(StoreRefused) as found:
            call()
        assert str(store) in str(found.value)
        assert words in str(found.value)


def test_a_postgresql_that_refuses(postgresql: PostgreSQLServer) -> None:
    """Password, user, database and DSN are wrong for good. No text shows a password."""
    place = f"127.0.0.1:{postgresql.port}"
    for dsn, words in (
        (f"postgresql://cutline:secret-1@{place}/postgres", "password authentication failed"),
        (f"postgresql://unknown:secret-1@{place}/postgres", "password authentication failed"),
        (f"postgresql://cutline:{postgresql.password}@{place}/nothing", 'database "nothing" does not exist'),
        (f"host=127.0.0.1 port={postgresql.port} user=cutline password='secret 1' dbname=x", "authentication failed"),
        ("host=127.0.0.1 such=secret", "see user"),
    ):
        store = PostgreSQLStore(dsn)
        _refused(store, words)
        assert "secret" not in repr(store) and postgresql.password not in repr(store)
        assert "127.0.0.1" in str(store)


def test_a_total_that_no_store_can_hold_is_named_by_its_key(tmp_path: Path) -> None:
    """And by its value, before anything is written."""
    store = SQLiteStore(tmp_path / "totals.db")
    store.take(_CLAIM)
    for value, text in ((object, "cannot hold <class 'object'> of key 'b'"), (None, "cannot hold None of key 'b'")):
        with pytest.raises(StoreRefused, match=text):
            store.write(_CLAIM, 1, [("a", 1), ("b", value)])
        assert store.get("a") is None


def test_tables_of_others(postgresql: PostgreSQLServer, tmp_path: Path) -> None:
    """A table of the same name that is no table of a store is refused, and so is a user without rights."""
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE others (a int)")
        connection.execute("CREATE USER reader PASSWORD 'secret'")
    _refused(PostgreSQLStore(postgresql.url, table="others"), "already exists")
    url = f"postgresql://reader:secret@127.0.0.1:{postgresql.port}/postgres"
    _refused(PostgreSQLStore(url), "permission denied")
    with closing(sqlite3.connect(tmp_path / "totals.db")) as file:
        file.execute("CREATE TABLE others (a int)")
    _refused(SQLiteStore(tmp_path / "totals.db", table="others"), "already exists")


def test_a_long_key(postgresql: PostgreSQLServer) -> None:
    """A key that is longer than an index of PostgreSQL holds is refused. Nothing of the call is written."""
    store = PostgreSQLStore(postgresql.url, table="long_keys")
    store.take(_CLAIM)
    with pytest.raises(StoreRefused, match="index row"):
        store.write(_CLAIM, 1, [("a", 1), (random.Random(1).randbytes(9_000), 1)])
    store.commit(_CLAIM, 1)
    assert store.get("a") is None
    store.close()


def test_a_redis_that_refuses(redis_server: RedisServer) -> None:
    """The password and the number of the database are wrong for good. No text shows a password."""
    place = f"127.0.0.1:{redis_server.port}"
    for url, words in (
        (f"redis://:secret@{place}/0", "invalid username-password pair"),
        (f"redis://{place}/0", "AuthenticationError"),
        (f"redis://:{redis_server.password}@{place}/999", "DB index is out of range"),
    ):
        store = RedisStore(url)
        _refused(store, words)
        assert "secret" not in repr(store) and redis_server.password not in repr(store)
        assert place in str(store)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6380/1?password=secret&db=3", "redis://host:6380/1?db=3"),
        ("rediss://host/0", "rediss://host/0"),
        ("unix://user:secret@/run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
    ],
)
def test_the_name_of_a_redis(url: str, shown: str) -> None:
    """The name has the prefix, and of the URL all that says where the keys are, and no password."""
    assert str(RedisStore(url, prefix="counts")) == f"Redis keys counts at {shown}"


def test_a_redis_without_memory(redis_server: RedisServer) -> None:
    """A server that is full raises an error that may pass. It has written nothing, and goes on when it has memory."""
    store = RedisStore(redis_server.url, prefix="full")
    store.take(_CLAIM)
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(OSError, match="maxmemory") as found:
                store.write(_CLAIM, 1, [("a", 1)])
            assert not isinstance(found.value, StoreRefused)
        finally:
            client.config_set("maxmemory", 0)
        assert client.keys("{full}:*") == [b"{full}:holder"]
    store.write(_CLAIM, 1, [("a", 1)])
    store.commit(_CLAIM, 1)
    assert store.get("a") == 1
    store.close()


def test_a_store_that_has_lost_totals() -> None:
    """A store whose committed id goes back, as a server's from an old copy, is refused by all who have seen more."""
    store = MemoryStore()
    store.take(_CLAIM)
    old = store._call(lambda table: table.holder())
    store.commit(_CLAIM, 1)
    store.commit(_CLAIM, 2)
    store._call(lambda table: table.hold(old))
    for call in (
        lambda: store.take(_CLAIM),
        lambda: store.write(_CLAIM, 3, [("a", 1)]),
        lambda: store.commit(_CLAIM, 3),
        lambda: store.rollBack(_CLAIM, 3),
    ):
        with pytest.raises(StoreRefused, match="had committed snapshot 1, and now has -1"):
            call()


def test_files_that_are_damaged(tmp_path: Path) -> None:
    """A file that is no database is refused, and so is a folder that is missing."""
    (tmp_path / "text").write_text("no database" * 100)
    _refused(SQLiteStore(tmp_path / "text"), "file is not a database")
    _refused(SQLiteStore(tmp_path / "missing" / "totals.db"), "see whether its folder is there")
    store = RocksDBStore(tmp_path / "totals")
    store.take(_CLAIM)
    store.close()
    (tmp_path / "totals" / "CURRENT").write_text("damaged")
    _refused(store, "Corruption")


def test_another_process_has_the_database(tmp_path: Path) -> None:
    """RocksDB serves one process. While another one has the database, calls fail with an error that may pass."""
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "totals")]
    store = RocksDBStore(tmp_path / "totals")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(OSError, match="one process at a time") as found:
            store.take(_CLAIM)
        assert not isinstance(found.value, StoreRefused)
        process.stdin.close()
    assert store.take(_CLAIM) == -1
    store.close()


@pytest.mark.parametrize(
    ("module", "store", "extra"),
    [
        ("psycopg", PostgreSQLStore("host=127.0.0.1"), "postgresql"),
        ("redis", RedisStore("redis://127.0.0.1"), "redis"),
        ("rocksdict", RocksDBStore("totals"), "rocksdb"),
    ],
    ids=lambda each: str(each),
)
def test_a_package_is_missing(module: str, store: AggregateStore, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    _refused(store, f"pip install 'cutline[{extra}]'")


def test_packages_are_imported_late() -> None:
    """A program that makes stores without calling them imports none of the optional packages."""
    code = """
import sys
from cutline import PostgreSQLStore, RedisStore, RocksDBStore
stores = PostgreSQLStore("host=127.0.0.1"), RedisStore("redis://127.0.0.1"), RocksDBStore("totals")
assert not {"psycopg", "redis", "rocksdict"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_of_tables(postgresql: PostgreSQLServer) -> None:
    """A name needs no quotes where others use it. A schema, and a word of SQL, are possible."""
    for name in ("Counts", "a-b", "1a", "", "a.b.c", "a" * 49, 'a"; DROP TABLE b; --'):
        for make in (partial(PostgreSQLStore, postgresql.url), partial(SQLiteStore, "totals.db")):
            with pytest.raises(ValueError, match="small letters"):
                make(table=name)
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA counts")
    for name in ("counts.words", "order", "a" * 48):
        store = PostgreSQLStore(postgresql.url, table=name)
        store.take(_CLAIM)
        store.write(_CLAIM, 1, [("a", 1)])
        store.commit(_CLAIM, 1)
        assert store.get("a") == 1
        store.close()
