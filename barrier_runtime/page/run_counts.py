"""Counters, rates and the chart of throughput of one run, from its progress reports.

Not thread-safe: the run's view calls every method under its lock.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from cutline.barrier_runtime.page.counting import CumulativeCounters, Rates

#: seconds between two points of the chart of throughput
POINT_SECONDS = 1.0
#: newest points that are kept: ten minutes
POINTS_MAX = 600

#: name of the metric, then the labels that the metric has after ``run``: a node, or the source and target of an edge
_Counter = tuple[str, ...]


class RunCounts:
    """The counters of a run's nodes, edges and stores, and the metrics of its nodes.

    Parameters
    ----------
    into, out_of : sequence of str
        Nodes whose sent messages enter the graph, and nodes whose processed messages leave the graph: see `flow_ends`.
    """

    def __init__(self, into: Sequence[str], out_of: Sequence[str]) -> None:
        self._into, self._out_of = into, out_of
        #: cumulative over all incarnations
        self.counters: CumulativeCounters[_Counter] = CumulativeCounters()
        #: metrics of nodes, cumulative over all incarnations
        self.metrics: CumulativeCounters[str] = CumulativeCounters()
        self._rates: Rates[_Counter] = Rates()
        self._points: deque[tuple[int, dict[str, float]]] = deque(maxlen=POINTS_MAX)
        #: monotonic seconds of the next point of the chart
        self._next_point = 0.0

    def see(self, now: float, version: int, report: Mapping[str, Any]) -> None:
        """Add the counts of a report at `now`, in monotonic seconds. `version` numbers a new point of the chart."""
        incarnation, counts = report["incarnation"], _counts(report)
        self._rates.see(now, incarnation, counts)
        self.counters.see(incarnation, counts)
        self.metrics.see(incarnation, _finite(report["progress"]["metrics"]))
        if now >= self._next_point:
            self._next_point = now + POINT_SECONDS
            self._points.append((version, {"timestamp": time.time(), **self.flow()}))

    def stop(self) -> None:
        """Set all rates to 0, because the run has ended."""
        self._rates.stop()

    def points(self, since: int) -> list[dict[str, float]]:
        """Return the points of the chart that are newer than version `since`."""
        return [point for version, point in self._points if version > since]

    def flow(self) -> dict[str, float]:
        """Return the rates of messages into and out of the graph."""
        into = sum(self._rates.per_second(("messages_sent", node)) for node in self._into)
        out_of = sum(self._rates.per_second(("messages_processed", node)) for node in self._out_of)
        return {"inPerSecond": into, "outPerSecond": out_of}

    def node(self, name: str, node: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node's report with its rates."""
        return {
            **node,
            "sentPerSecond": self._rates.per_second(("messages_sent", name)),
            "processedPerSecond": self._rates.per_second(("messages_processed", name)),
        }

    def edge(self, edge: Mapping[str, Any]) -> dict[str, Any]:
        """Return an edge's report with its rates."""
        ends = (edge["source"], edge["target"])
        return {
            **edge,
            "messagesPerSecond": self._rates.per_second(("edge_messages", *ends)),
            "bytesPerSecond": self._rates.per_second(("edge_bytes", *ends)),
        }


def _counts(report: Mapping[str, Any]) -> dict[_Counter, float]:
    counts: dict[_Counter, float] = {}
    for name, node in report["nodes"].items():
        counts["messages_sent", name] = node["sent"]
        counts["messages_processed", name] = node["processed"]
    for edge in report["edges"]:
        ends = (edge["source"], edge["target"])
        counts["edge_messages", *ends], counts["edge_bytes", *ends] = edge["processed"], edge["bytes"]
    for name, store in report.get("mode", {}).get("stores", {}).items():
        counts["store_operations", name] = store["operations"]
    return counts


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the finite metrics, because JSON has no infinity and no NaN, which a node's sums may reach."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
