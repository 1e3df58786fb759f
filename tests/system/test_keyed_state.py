"""SIGKILL of workers whose keyed state is in RocksDB: the counts are exact, also when the heap takes the run over."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.live import Live
from benchmarks.process_table import kill
from cutline import HeapState, RocksDBState
from tests.spark.counting import ENDLESS, counting_graph, stop_and_check, wait_for_snapshots

pytestmark = [pytest.mark.spark, pytest.mark.ray]

_MEMORY_BYTES = 64 * 1024 * 1024


def test_rows_of_a_database_survive_a_kill_and_move_to_the_heap(live: Live, tmp_path: Path) -> None:
    """The database goes with its worker. Rows come from the snapshot, into whichever tier the next start has."""
    graph = counting_graph("rocksdb", ENDLESS, str(tmp_path), keyed=True)
    disk = tmp_path / "disk"
    run = live.run(graph, keyedState=RocksDBState(_MEMORY_BYTES, str(disk)))
    for _ in range(2):
        wait_for_snapshots(run, 2)
        before = run.status
        kill(before["workers"][0])
        wait_for_snapshots(run, 2)
        assert run.status["incarnation"] == before["incarnation"] + 1
    assert [*disk.rglob("*.sst")] or [*disk.rglob("CURRENT")], "no database was made"
    stop_and_check(run)
    run = live.run(graph, keyedState=HeapState())
    wait_for_snapshots(run, 2)
    stop_and_check(run)
