"""Stores that the processes of a run cannot share are refused by name, before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline import (
    AggregateStore,
    BarrierRuntime,
    FileSystemBackend,
    Graph,
    GraphError,
    MemoryBackend,
    MemoryStore,
    MonoidClocks,
    RocksDBStore,
    SQLiteStore,
    StateBackend,
    Sum,
)
from cutline.barrier_runtime.driver.store_check import check_stores
from tests.snapshot.testing.replayed import Slices


def totals(stores: dict[str, AggregateStore], parallelism: int = 1) -> Graph:
    """Return a graph with an aggregate for each store."""
    graph = Graph("g")
    words = graph.source("slices", Slices({"a": 3})).keyBy(str)
    for name, store in stores.items():
        words.persistentAggregate(name, Sum(), store, parallelism=parallelism)
    return graph


LACKS: list[tuple[Callable[[], Graph], int, str]] = [
    (
        lambda: totals({"sum": MemoryStore()}), 1,
        r"graph 'g': node 'sum' has its totals in MemoryStore \w+, which is lost with its worker; use SQLiteStore, "
        "PostgreSQLStore or RedisStore",
    ),
    (
        lambda: totals({"sum": RocksDBStore("/rows")}, 4), 3,
        "graph 'g': node 'sum' has its totals in RocksDB database in /rows, which serves one process, and runs in 3 "
        "workers; use SQLiteStore, PostgreSQLStore or RedisStore, or parallelism=1",
    ),
    (
        lambda: totals({"a": SQLiteStore("/t.db"), "b": SQLiteStore("/t.db", table="b"), "c": SQLiteStore("/t.db")}), 1,
        "graph 'g': nodes 'a' and 'c' have their totals in SQLite table cutline in /t.db; give each a store of its own",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "workers", "text"), LACKS, ids=["memory", "processes", "shared"])
def test_a_store_that_cannot_serve_is_refused(graph: Callable[[], Graph], workers: int, text: str) -> None:
    """With node, store, and what to use."""
    with pytest.raises(GraphError, match=f"{text}$"):
        check_stores(graph(), workers)


@pytest.mark.parametrize(("parallelism", "workers"), [(1, 4), (4, 1)])
def test_a_store_of_one_process_serves_one_worker(parallelism: int, workers: int) -> None:
    """One subtask, or all of them in one worker."""
    check_stores(totals({"sum": RocksDBStore("/rows")}, parallelism), workers)


def _submit(backend: StateBackend, graph: Graph, mode: Any) -> None:
    """Submit by a session that can only register a data source, so that any other use of Spark fails the test."""
    session = SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: None))
    BarrierRuntime(cast(Any, session), backend=backend).submit(graph, mode=mode)


@pytest.mark.parametrize("mode", ["markers", "monoidClocks", MonoidClocks(clock="negotiated")])
def test_submit_checks_the_stores(mode: Any, tmp_path: Path) -> None:
    """In each mode, and without a claim."""
    with pytest.raises(GraphError, match="node 'sum' has its totals in MemoryStore"):
        _submit(FileSystemBackend(str(tmp_path)), totals({"sum": MemoryStore()}), mode)
    assert not list(tmp_path.rglob("claims"))


def test_clocks_need_a_backend_that_stays() -> None:
    """A run that is lost with its coordinator leaves a store that nobody may write any more."""
    with pytest.raises(GraphError, match=r"^mode 'monoidClocks' cannot run graph 'g': a MemoryBackend does"):
        _submit(MemoryBackend(), totals({"sum": SQLiteStore("/t.db")}), "monoidClocks")
