"""Totals in a store, of whole runs without Spark and Ray: what the status says, and a store that is away."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live import wait_for
from cutline import (
    END,
    BarrierRuntime,
    Context,
    Count,
    FileSystemBackend,
    Graph,
    MonoidClocks,
    ReplayableSource,
    SQLiteStore,
)
from cutline.state_backends.aggregate_stores import sqlite
from tests.barrier_runtime.local_cluster import LocalCluster, local_cluster
from tests.leaks import LeakCheck

_WORDS = ("to", "be", "or", "not", "to", "be")


class Words(ReplayableSource):
    """Sends words from each file of a folder that is there: a partition waits for its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def partitions(self) -> list[str]:
        return ["first", "second", "third"]

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        if start == len(_WORDS):
            return END
        return len(_WORDS) if (self.folder / partition).exists() else None

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        context.sendAll(list(_WORDS[start:stop]))


@pytest.fixture
def cluster(leak_check: LeakCheck) -> Iterator[LocalCluster]:
    """Spark and Ray within this process."""
    with local_cluster() as there:
        yield there


@pytest.mark.parametrize(
    "mode", ["markers", "monoidClocks", MonoidClocks(clock="negotiated")], ids=["markers", "epochs", "negotiated"]
)
def test_a_store_that_is_away_is_seen(
    mode: Any, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock holds up all writers: the run goes on, its status has the error, and all totals are right at the end."""
    monkeypatch.setattr(sqlite, "CALL_SECONDS_MAX", 0.05)
    path = tmp_path / "totals.db"
    store = SQLiteStore(path)
    words = Graph("words").source("words", Words(tmp_path)).keyBy(str)
    graph = words.persistentAggregate("counts", Count(), store, parallelism=2)
    backend = FileSystemBackend(str(tmp_path / "snapshots"))
    run = BarrierRuntime(cluster.spark, backend=backend, page=False, snapshotInterval=0.1).submit(graph, mode=mode)

    def of_mode() -> dict[str, Any]:
        found: dict[str, Any] = run.status["mode"]
        return found

    def of_store() -> dict[str, Any]:
        found: dict[str, Any] = of_mode()["stores"]["counts"]
        return found

    (tmp_path / "first").touch()
    wait_for("the first totals", lambda: store.get("to") == 2)
    with closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        (tmp_path / "second").touch()
        wait_for("the error", lambda: "database is locked" in of_store()["error"])
        (tmp_path / "third").touch()
        behind = None if mode == MonoidClocks(clock="negotiated") else 14  # twelve words and the ends of two channels
        wait_for("keys behind the store", lambda: of_store()["openKeys"] + of_store()["cutKeys"] >= len(set(_WORDS)))
        wait_for("their number", lambda: of_mode()["itemsBehind"] == behind)
        assert run.isActive and store.get("to") == 2
    run.awaitTermination(60)
    assert [store.get(word) for word in ("to", "be", "or", "not")] == [6, 6, 3, 3]
    status, last = of_mode(), of_store()
    assert status["snapshot"] == run.status["snapshots"][-1] and status["itemsBehind"] in (0, None)
    assert {key for key, value in last.items() if value} == {"operations"}
    store.close()
