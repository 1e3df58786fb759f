"""Fixtures of the system tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.live import Live
from benchmarks.servers import PostgreSQLServer, RedisServer, Server
from tests.leaks import LeakCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def live(spark: SparkSession, ray_instance: None, leak_check: LeakCheck, tmp_path: Path) -> Iterator[Live]:
    """Runs graphs on the one Spark and the one Ray; nothing of them outlives the test (RELIABILITY, checker 10)."""
    there = Live(spark, tmp_path)
    yield there
    there.end()


@pytest.fixture
def live_of_another_ray(spark: SparkSession, ray_instance: None, tmp_path: Path) -> Iterator[Live]:
    """Runs graphs on a Ray that is replaced. Connections to the new Ray stay, and so the leak check does not fit."""
    there = Live(spark, tmp_path)
    yield there
    there.end()


@pytest.fixture
def postgresql(leak_check: LeakCheck) -> Iterator[PostgreSQLServer]:
    """A server that ends ahead of the leak check, because a test may start it again."""
    with PostgreSQLServer() as server:
        yield server


@pytest.fixture
def redis_server(leak_check: LeakCheck) -> Iterator[RedisServer]:
    """A server that ends ahead of the leak check, because a test may start it again."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """The server whose fixture has the parameter's name."""
    found: Server = request.getfixturevalue(request.param)
    return found
