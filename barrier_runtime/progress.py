"""Progress of the workers, sent to the coordinator about twice a second, and its sums there.

Owns the numbers between workers and `Run.status`. `barrier_runtime.worker.meter` measures the numbers. Must not know a
clock, because shares of time are measured in the workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cutline.snapshot.plan.topology import Topology

#: Seconds between two reports of one worker: short enough to watch a run, and long enough to cost nothing.
PROGRESS_INTERVAL_SECONDS = 0.5


class EdgeSent(NamedTuple):
    """Sums over the channel senders of one edge at one worker."""

    #: messages sent since the run began, counted in this incarnation from its snapshot's number on
    sent: int
    #: messages of `sent` that were sent before the incarnation began
    before: int
    #: messages that are still in the output buffers
    waiting: int
    ends: int
    #: seconds in which data waited and could not be sent, per second since the last report, summed over all senders
    held_up: float


class EdgeProcessed(NamedTuple):
    """Sums over the channel receivers of one edge at one worker."""

    #: messages processed since the run began, and messages of them from before the incarnation, as in `EdgeSent`
    processed: int
    before: int
    #: messages that arrived and wait to be processed
    waiting: int
    #: payload bytes of processed frames that were received over a link
    bytes: int


class StoreProgress(NamedTuple):
    """Sums over the subtasks of one aggregate at one worker (PROTOCOL 13)."""

    #: keys in memory that belong to no snapshot yet, and their bytes, about
    open_keys: int
    open_bytes: int
    #: keys in memory that wait until the store has committed their snapshot, and their bytes, about
    cut_keys: int
    cut_bytes: int
    #: cells of the present difference that are not written
    cells_left: int
    #: calls of this incarnation that read or wrote cells, or committed
    operations: int
    #: the last error of a store, or "" if its last call succeeded
    error: str

    def plus(self, other: StoreProgress) -> StoreProgress:
        """Return the sums, with one of the errors."""
        counts = (a + b for a, b in zip(self[:-1], other[:-1], strict=True))
        return StoreProgress._make((*counts, self.error or other.error))


class ModeProgress(NamedTuple):
    """Progress of what differs by mode, of all workers."""

    #: most steps that a subtask has to repeat after the present one
    steps_left: int = 0
    #: {aggregate: progress of its store}
    stores: Mapping[str, StoreProgress] = {}
    #: messages that aggregates have processed since the run began, and messages of them from before the incarnation
    added: int = 0
    added_before: int = 0


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """Counters of one worker in `incarnation`. Edges are numbered as the topology lists them."""

    worker: int
    incarnation: int
    sent: dict[int, EdgeSent]
    processed: dict[int, EdgeProcessed]
    #: {node: share of the time since the last report that turns took, summed over its subtasks here}
    busy: dict[str, float]
    #: {node: count of its ended subtasks at this worker}
    ended: dict[str, int]
    #: {metric: sum of `Context.increment`}
    metrics: dict[str, float]
    #: {reason: count of connections that this process refused, in all incarnations}
    refused: dict[str, int]
    #: most steps that one of its subtasks has to repeat after the present one
    steps_left: int
    #: {aggregate: progress of its store}
    stores: dict[str, StoreProgress]


class ProgressTracker:
    """The newest reports of all workers. Call `note` on one thread, and all other methods on any thread.

    Parameters
    ----------
    topology : Topology
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._newest: dict[int, WorkerProgress] = {}
        #: {worker: the report before its newest report}
        self._previous: dict[int, WorkerProgress] = {}

    def note(self, report: WorkerProgress) -> None:
        """Store the report of a worker."""
        known = self._newest.get(report.worker)
        if known is not None:
            self._previous[report.worker] = known
        self._newest[report.worker] = report

    def edges(self, incarnation: int) -> list[dict[str, Any]]:
        """Return the traffic of each edge, as in `Run.status`."""
        reports, previous = _of(incarnation, self._newest), _of(incarnation, self._previous)
        return [_edge(edge.source, edge.target, n, reports, previous) for n, edge in enumerate(self._topology.edges)]

    def nodes(self, incarnation: int) -> dict[str, dict[str, Any]]:
        """Return the progress of each node, as in `Run.status`."""
        reports = _of(incarnation, self._newest)
        edges = self.edges(incarnation)
        return {
            node.name: {
                "parallelism": node.parallelism,
                "ended": sum(report.ended.get(node.name, 0) for report in reports),
                "processed": sum(edge["processed"] for edge in edges if edge["target"] == node.name),
                "sent": sum(edge["sent"] for edge in edges if edge["source"] == node.name),
                "busy": sum(report.busy.get(node.name, 0.0) for report in reports) / node.parallelism,
            }
            for node in self._topology.nodes
        }

    def mode(self, incarnation: int) -> ModeProgress:
        """Return the progress of what differs by mode."""
        reports = _of(incarnation, self._newest)
        stores = {node.name: _NO_PROGRESS for node in self._topology.nodes if node.is_aggregate}
        added = added_before = 0
        for report in reports:
            stores |= {name: stores[name].plus(store) for name, store in report.stores.items()}
            for number, processed in report.processed.items():
                if self._topology.edges[number].target in stores:
                    added, added_before = added + processed.processed, added_before + processed.before
        return ModeProgress(max((report.steps_left for report in reports), default=0), stores, added, added_before)

    def totals(self, incarnation: int) -> dict[str, dict[str, float]]:
        """Return reported sums since the start: ``{"sent": {node: …}, "processed": …, "ended": …, "metrics": …}``."""
        total: dict[str, dict[str, float]] = {"sent": {}, "processed": {}, "ended": {}, "metrics": {}}
        for report in _of(incarnation, self._newest):
            for number, sent in report.sent.items():
                _add(total["sent"], self._topology.edges[number].source, sent.sent)
            for number, processed in report.processed.items():
                _add(total["processed"], self._topology.edges[number].target, processed.processed)
            for name, count in report.ended.items():
                _add(total["ended"], name, count)
            for name, value in report.metrics.items():
                _add(total["metrics"], name, value)
        return total

    def refused(self, endpoint: dict[str, int]) -> dict[str, int]:
        """Sum the connections refused by the coordinator's `endpoint` and by workers: ``{reason: count}``."""
        total = Counter(endpoint)
        for report in list(self._newest.values()):
            total.update(report.refused)
        return dict(total)


_NO_PROGRESS = StoreProgress(0, 0, 0, 0, 0, 0, "")


def _of(incarnation: int, reports: dict[int, WorkerProgress]) -> list[WorkerProgress]:
    return [report for report in list(reports.values()) if report.incarnation == incarnation]


def _edge(
    source: str, target: str, number: int, reports: list[WorkerProgress], previous: list[WorkerProgress]
) -> dict[str, Any]:
    senders = [report.sent[number] for report in reports if number in report.sent]
    receivers = [report.processed[number] for report in reports if number in report.processed]
    processed = sum(end.processed for end in receivers)
    # Sender and receiver report at different times. "Sent less processed" would be wrong by the messages in between,
    # which at full speed are far more than those that wait. Two counts are never too high, and exact while an edge
    # stands still: messages that wait at both ends, and messages sent a report ago that are not processed yet.
    at_ends = sum(end.waiting for end in senders) + sum(end.waiting for end in receivers)
    sent_earlier = sum(report.sent[number].sent for report in previous if number in report.sent)
    return {
        "source": source,
        "target": target,
        "sent": sum(end.sent - end.before for end in senders),
        "processed": processed - sum(end.before for end in receivers),
        "bytes": sum(end.bytes for end in receivers),
        "queued": max(at_ends, sent_earlier - processed),
        "backPressure": sum(end.held_up for end in senders) / max(1, sum(end.ends for end in senders)),
    }


def _add(sums: dict[str, float], key: str, value: float) -> None:
    sums[key] = sums.get(key, 0) + value
