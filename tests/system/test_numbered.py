"""Checker 7 live: numbered records, two shuffles or a ring, five scheduled faults, nothing lost and nothing doubled."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Job, Live, assert_exact, folders, pipeline
from benchmarks.numbered_nodes import Lane, Ledger, Numbers, Record, Relay
from cutline import Graph
from tests.system.faults import Faults, Gate, Shaky

pytestmark = [pytest.mark.spark, pytest.mark.ray]

SCHEDULE = ("onMessage", "close", "snapshotState", "kill", "restoreState")
#: Those that end an incarnation. A failing snapshotState ends its snapshot only, a failing close nothing.
ROLLBACKS = ("onMessage", "kill", "restoreState")


@pytest.mark.parametrize("alignment", ["unaligned", "aligned"])
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_pipeline_survives_five_faults(live: Live, parallelism: int, alignment: str) -> None:
    """Two shuffles around a failing map: exactly-once in state and in output, and every fault fired."""
    faults = Faults(live.folder / "done", SCHEDULE)
    job = pipeline(live.folder, parallelism, middle=Shaky(faults), enough=len(SCHEDULE))
    _assert_survives(live, job, faults, alignment=alignment)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_ring_survives_five_faults(live: Live, parallelism: int) -> None:
    """The same on a cycle, where records are in flight in every snapshot."""
    faults = Faults(live.folder / "done", SCHEDULE)
    job = _ring(live, parallelism, Shaky(faults), len(SCHEDULE))
    _assert_survives(live, job, faults)


def _assert_survives(live: Live, job: Job, faults: Faults, **settings: Any) -> None:
    run = live.run(job.graph, snapshotInterval=0.05, **settings)
    assert run.awaitTermination(DEADLINE_S), f"not over; fired: {faults.fired()}; {run.status}"
    assert faults.fired() == list(SCHEDULE)
    status = run.status
    count = assert_exact(job, run)
    print(f"{count} records, {len(status['restarts'])} restarts, newest snapshot {status['snapshots'][-1]}")
    assert len(status["restarts"]) == len(ROLLBACKS), status["restarts"]
    assert any("scheduled: snapshotState" in each["reason"] for each in status["aborted"]), status["aborted"]


class _LapLane:
    """The lane of what goes round the ring: a record and the laps that are left."""

    def __init__(self, sources: int) -> None:
        self.lane = Lane(sources)

    def __call__(self, message: tuple[int, Record]) -> int:
        return self.lane(message[1])


def _ring(live: Live, parallelism: int, shaky: Shaky, enough: int) -> Job:
    folder = folders(live.folder)
    lane, laps = Lane(parallelism), _LapLane(parallelism)
    graph = Graph("ring")
    graph.add("numbers", Numbers(folder / "done", enough), parallelism=parallelism)
    graph.add("gate", Gate(laps=3), parallelism=parallelism)
    graph.add("ring", shaky, parallelism=parallelism)
    graph.add("back", Relay(), parallelism=parallelism)
    graph.add("ledger", Ledger(folder, parallelism), parallelism=parallelism)
    graph.connect("numbers", "gate", key=lane).connect("gate", "ledger", key=lane)
    graph.connect("gate", "ring", key=laps).connect("ring", "back", key=laps).connect("back", "gate", key=laps)
    return Job(graph, folder, parallelism)
