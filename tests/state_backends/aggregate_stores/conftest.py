"""One PostgreSQL and one Redis server for all tests of stores, and all five stores, empty."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from benchmarks.servers import PostgreSQLServer, RedisServer
from cutline import MemoryStore, PostgreSQLStore, RedisStore, RocksDBStore, SQLiteStore
from cutline.snapshot.operators.aggregate_store import AggregateStore

Maker = Callable[[], AggregateStore]

_SHARED = ("sqlite", "postgresql", "redis")

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQLServer]:
    """A server that runs. It does not wait for the disk, because no test cuts the power."""
    with PostgreSQLServer("fsync=off") as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A server that runs."""
    with RedisServer() as server:
        yield server


def _maker(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    name = f"store_{next(_numbers)}"
    if kind == "memory":
        memory = MemoryStore()
        return lambda: _connection(memory)
    if kind == "sqlite":
        return lambda: SQLiteStore(tmp_path / "totals.db", table=name)
    if kind == "rocksdb":
        return lambda: RocksDBStore(tmp_path / "totals")
    if kind == "postgresql":
        postgresql = cast(PostgreSQLServer, request.getfixturevalue("postgresql"))
        return lambda: PostgreSQLStore(postgresql.url, table=name)
    redis_server = cast(RedisServer, request.getfixturevalue("redis_server"))
    return lambda: RedisStore(redis_server.url, prefix=name)


def _connection(memory: MemoryStore) -> MemoryStore:
    connection = MemoryStore()
    connection._id = memory._id
    return connection


@pytest.fixture(params=["memory", "rocksdb", *_SHARED])
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    """Makes connections to an empty store of each kind."""
    return _maker(request.param, request, tmp_path)


@pytest.fixture(params=_SHARED)
def shared_maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    """Makes connections to an empty store of each kind that several processes may use at once."""
    return _maker(request.param, request, tmp_path)
