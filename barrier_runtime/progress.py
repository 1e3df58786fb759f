"""Progress of the workers, sent to the coordinator about twice a second, and its sums there.

Owns the numbers between workers and `Run.status`; `barrier_runtime.worker.meter` takes them. Knows no clock: shares
of time
are measured where the time passes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from snapshot.plan.topology import Topology

#: Seconds between two reports of one worker: fast enough to watch, too slow to cost anything.
PROGRESS_INTERVAL_SECONDS = 0.5


class EdgeSent(NamedTuple):
    """The sending ends of one edge at one worker, added up."""

    #: messages sent since the run began, as this incarnation knows it: it goes on from its snapshot's number
    sent: int
    #: of them, those that were sent before the incarnation began
    before: int
    #: messages that have not left the out-buffers
    waiting: int
    ends: int
    #: seconds, of all ends together, for each second since the last report, in which data waited and could not leave
    held_up: float


class EdgeProcessed(NamedTuple):
    """The receiving ends of one edge at one worker, added up."""

    #: as in `EdgeSent`
    processed: int
    before: int
    #: messages that came and wait
    waiting: int
    #: payload of the frames that came over a link and are processed
    bytes: int


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """Counters of one worker in `incarnation`. Edges are numbered as the topology lists them."""

    worker: int
    incarnation: int
    sent: dict[int, EdgeSent]
    processed: dict[int, EdgeProcessed]
    #: {node: share of the time since the last report that its subtasks here were in their turns, added up}
    busy: dict[str, float]
    #: {node: subtasks here that have ended}
    ended: dict[str, int]
    #: {metric: sum of `Context.increment`}
    metrics: dict[str, float]
    #: {reason: connections that this process refused, in all incarnations}
    refused: dict[str, int]


class ProgressTracker:
    """The newest reports of all workers. `note` on one thread, all else on any.

    Parameters
    ----------
    topology : Topology
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._newest: dict[int, WorkerProgress] = {}
        #: the one before it of each worker
        self._previous: dict[int, WorkerProgress] = {}

    def note(self, report: WorkerProgress) -> None:
        """A worker reports."""
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

    def totals(self, incarnation: int) -> dict[str, dict[str, float]]:
        """Since the run began: ``{"sent": {node: …}, "processed": …, "ended": …, "metrics": …}``; of reports only."""
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
        """Connections that the coordinator's `endpoint` and the workers refused: ``{reason: count}``."""
        total = Counter(endpoint)
        for report in list(self._newest.values()):
            total.update(report.refused)
        return dict(total)


def _of(incarnation: int, reports: dict[int, WorkerProgress]) -> list[WorkerProgress]:
    return [report for report in list(reports.values()) if report.incarnation == incarnation]


def _edge(
    source: str, target: str, number: int, reports: list[WorkerProgress], previous: list[WorkerProgress]
) -> dict[str, Any]:
    senders = [report.sent[number] for report in reports if number in report.sent]
    receivers = [report.processed[number] for report in reports if number in report.processed]
    processed = sum(end.processed for end in receivers)
    # Both sides report at times of their own, so "sent less processed" would be wrong by what passes in between, which
    # at full speed is far more than what waits. These two are never too much, and while an edge stands still not too
    # little: what waits at the ends, and what was sent a report ago and is not processed yet, on its way or not.
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
