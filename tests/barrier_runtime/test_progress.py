"""What is made of the workers' reports: edges, nodes, totals, and the progress report of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutline.barrier_runtime.driver.progress_report import Polled, progress_report, share_reports
from cutline.barrier_runtime.progress import (
    EdgeProcessed,
    EdgeSent,
    ModeProgress,
    ProgressTracker,
    StoreProgress,
    WorkerProgress,
)
from cutline.snapshot.plan.topology import UNALIGNED, Component, EdgeSpec, NodeSpec, Partitioning, Topology

_TOPOLOGY = Topology(
    "two",
    (NodeSpec("a", 1, 0, True, False, None, "m.A"), NodeSpec("b", 4, 1, False, True, None, "m.B")),
    (EdgeSpec("a", "b", Partitioning.REBALANCE, UNALIGNED, False, "", None),),
    (Component(("a",), False), Component(("b",), False)),
)


def _sender(sent: int, waiting: int = 0, held_up: float = 0.0, *, incarnation: int = 1) -> WorkerProgress:
    """Worker 0, which has `a`."""
    edge = EdgeSent(sent, 100, waiting, 4, held_up)
    return WorkerProgress(0, incarnation, {0: edge}, {}, {"a": 0.5}, {"a": 1}, {"seen": 1.5}, {"late": 1}, 2, {})


def _receiver(worker: int, processed: int, waiting: int = 0, **stores: StoreProgress) -> WorkerProgress:
    """Workers 1 and 2, with two subtasks of `b` each."""
    edge = EdgeProcessed(processed, 40, waiting, 1000)
    return WorkerProgress(worker, 1, {}, {0: edge}, {"b": 1.5}, {"b": 1}, {"seen": 0.5}, {"late": 2}, 5, stores)


def _tracker(*reports: WorkerProgress) -> ProgressTracker:
    tracker = ProgressTracker(_TOPOLOGY)
    for report in reports:
        tracker.note(report)
    return tracker


def test_an_edge_is_the_sum_of_its_ends() -> None:
    """Messages of this incarnation; back-pressure is the mean over all sending ends."""
    (edge,) = _tracker(_sender(200, 3, 1.0), _receiver(1, 80, 4), _receiver(2, 90, 5)).edges(1)
    assert edge == {
        "source": "a", "target": "b", "sent": 100, "processed": 90, "bytes": 2000, "queued": 12, "backPressure": 0.25,
    }  # fmt: skip


def test_what_is_on_its_way_is_queued_once_it_is_certain() -> None:
    """Sent half a second ago and not processed now: on the wire, in no buffer. Sent since then: nobody can tell."""
    tracker = _tracker(_sender(200), _receiver(1, 80), _receiver(2, 90))
    assert tracker.edges(1)[0]["queued"] == 0
    tracker.note(_sender(10_000))
    assert tracker.edges(1)[0]["queued"] == 30
    tracker.note(_sender(10_000))
    assert tracker.edges(1)[0]["queued"] == 9_830


def test_nodes_and_totals() -> None:
    """`busy` is a mean over subtasks, `nodes` counts the incarnation, `totals` the run."""
    tracker = _tracker(_sender(200), _receiver(1, 80), _receiver(2, 90))
    assert tracker.nodes(1) == {
        "a": {"parallelism": 1, "ended": 1, "processed": 0, "sent": 100, "busy": 0.5},
        "b": {"parallelism": 4, "ended": 2, "processed": 90, "sent": 0, "busy": 0.75},
    }
    assert tracker.totals(1) == {
        "sent": {"a": 200}, "processed": {"b": 170}, "ended": {"a": 1, "b": 2}, "metrics": {"seen": 2.5},
    }  # fmt: skip
    assert (tracker.mode(1), tracker.mode(7)) == (ModeProgress(5), ModeProgress())
    assert tracker.refused({"late": 1, "stranger": 7}) == {"late": 6, "stranger": 7}


def test_stores_are_summed_over_workers() -> None:
    """One of the errors is shown. Before the first report of an incarnation each aggregate is there, and zero."""
    source, target = _TOPOLOGY.nodes
    tracker = ProgressTracker(replace(_TOPOLOGY, nodes=(source, replace(target, is_aggregate=True))))
    tracker.note(_receiver(1, 80, b=StoreProgress(1, 10, 2, 20, 3, 4, "")))
    tracker.note(_receiver(2, 90, b=StoreProgress(10, 100, 20, 200, 30, 40, "away")))
    assert tracker.mode(1) == ModeProgress(5, {"b": StoreProgress(11, 110, 22, 220, 33, 44, "away")}, 170, 80)
    assert tracker.mode(2) == ModeProgress(0, {"b": StoreProgress(0, 0, 0, 0, 0, 0, "")})


def test_another_incarnation_does_not_count() -> None:
    """Before the first report of an incarnation all is there, and zero; an earlier report is not one of it."""
    tracker = _tracker(_sender(200), _receiver(1, 80))
    tracker.note(_sender(150, 2, incarnation=2))
    (edge,) = tracker.edges(2)
    assert (edge["sent"], edge["processed"], edge["queued"]) == (50, 0, 2)
    assert tracker.edges(3)[0]["sent"] == 0 and tracker.nodes(3)["b"]["busy"] == 0.0
    assert tracker.totals(3)["sent"] == {}


def _polled(at: float, processed: int, *reports: dict[str, Any]) -> Polled:
    progress = {"sent": {"a": processed + 5}, "processed": {"b": processed}}
    return Polled(at, {"incarnation": 1, "progress": progress, "snapshotReports": list(reports)})


def test_progress_report() -> None:
    """The newest published snapshot, not the newest; rates over the time since the report before."""
    published, pending = {"id": 1, "state": "published"}, {"id": 2, "state": "pending"}
    before = _polled(10.0, 100, published)
    report = progress_report("two", _polled(12.0, 300, published, pending), before)
    assert (report["name"], report["snapshot"]) == ("two", published)
    assert (report["numMessagesSent"], report["processedMessagesPerSecond"]) == (305, 100.0)
    assert progress_report("two", before, None)["sentMessagesPerSecond"] == 0.0


def test_reports_that_are_the_same_are_held_once() -> None:
    """A hundred progress reports with a hundred snapshots each hold each snapshot once."""
    before = _polled(10.0, 1, {"id": 1, "state": "published"}, {"id": 2, "state": "pending"})
    now = _polled(11.0, 1, {"id": 1, "state": "published"}, {"id": 2, "state": "published"})
    share_reports(now.status, before)
    assert now.status["snapshotReports"][0] is before.status["snapshotReports"][0]
    assert now.status["snapshotReports"][1] == {"id": 2, "state": "published"}
