"""The page's view of one run: the newest report, rates, counters and a short history. Made from reports alone.

`document` returns the whole state as plain data, for browsers, the JSON interface and the metrics. The graph and the
places of its nodes in the drawing are computed at the start and at each rescale, because nothing else changes a graph.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cutline.barrier_runtime.page.commands import Actions, Arguments, Commands, Kind
from cutline.barrier_runtime.page.counting import flow_ends
from cutline.barrier_runtime.page.run_counts import RunCounts
from cutline.barrier_runtime.page.snapshot_table import SnapshotTable
from cutline.snapshot.drawing.layout import layout
from cutline.snapshot.plan.topology import Topology


def graph_document(topology: Topology) -> dict[str, Any]:
    """Return the drawing of a graph as plain data: size, nodes with places about 1 apart, edges, and `flow_ends`."""
    drawn = layout(topology)
    into, out_of = _flow_ends(topology)
    return {
        "width": drawn.width,
        "height": drawn.height,
        "nodes": [
            {
                "name": node.name,
                "class": node.class_name,
                "parallelism": node.parallelism,
                "isSource": node.is_source,
                "isSink": node.is_sink,
                "x": drawn.points[node.name].x,
                "y": drawn.points[node.name].y,
            }
            for node in topology.nodes
        ],
        "edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "partitioning": edge.partitioning.value,
                "alignment": str(edge.alignment),
            }
            for edge in topology.edges
        ],
        "into": into,
        "outOf": out_of,
    }


def _flow_ends(topology: Topology) -> tuple[list[str], list[str]]:
    return flow_ends((node.name, node.is_source, node.is_sink) for node in topology.nodes)


class RunView:
    """The state of one run for the page. The run's monitor calls `see` and `end`; any thread may call the rest.

    Parameters
    ----------
    key : str
        Name of the run on this page. The key differs from the run's name while the page shows two runs of that name.
    topology : Topology
    actions : mapping of Kind to callable
        Functions that carry out commands.
    pinned : sequence of int
        Ids of the snapshots that were pinned at the submission.
    """

    def __init__(self, key: str, topology: Topology, actions: Actions, pinned: Sequence[int] = ()) -> None:
        self.key = key
        #: ids of the snapshots that were pinned at the submission and still are
        self._pinned = tuple(pinned)
        self.commands = Commands(actions, self._changed)
        self.snapshots = SnapshotTable()
        #: number of changes so far
        self.version = 0
        self.has_ended = False
        self._began = time.time()
        self._graph = graph_document(topology)
        self._counts = RunCounts(*_flow_ends(topology))
        self._lock = threading.Lock()
        self._report: Mapping[str, Any] = {}

    # ---------------------------------------------------------------- input from the monitor

    def see(self, report: Mapping[str, Any]) -> None:
        """Take a progress report. The caller must not change the report any more."""
        now = time.monotonic()
        with self._lock:
            self.version += 1
            self._report = report
            self._counts.see(now, self.version, report)
            self.snapshots.see(self.version, report["snapshotReports"], report["snapshots"])

    def end(self, status: Mapping[str, Any], error: Exception | None, invariants: Mapping[str, Any]) -> None:
        """Take the last status of a run, or the error of a supervisor that failed before the first status."""
        last = {**status, "invariants": invariants, "timestamp": time.time()}
        if error is not None:
            last |= {"outcome": "failed", "reason": f"its supervisor failed: {error}"}
        if status:
            self.see(last)
        else:
            self._report = {**self._report, **last}
        self.commands.end()
        with self._lock:
            self._counts.stop()
            self.version += 1
            self.has_ended = True  # set after `version`, so that a reader of `has_ended` finds a new document

    def show_graph(self, topology: Topology) -> None:
        """Take the graph of a run that was rescaled. Only the parallelism of nodes and the partitionings differ."""
        self._graph = graph_document(topology)
        self._changed()

    def note_unpinned(self, snapshot_id: int) -> None:
        """Note that a snapshot is not pinned any more."""
        self._pinned = tuple(each for each in self._pinned if each != snapshot_id)
        self._changed()

    def command(self, kind: Kind, arguments: Arguments) -> int | None:
        """Start a command and return its number, or None while the same command waits."""
        return self.commands.submit(kind, arguments)

    def _changed(self) -> None:
        with self._lock:
            self.version += 1

    # ---------------------------------------------------------------- output to the page

    def summary(self) -> dict[str, Any]:
        """Return the run's line in the list of runs."""
        report = self._report
        return {
            "name": self.key,
            "isActive": not self.has_ended,
            "phase": report.get("phase", "starting"),
            "outcome": report.get("outcome"),
            "startedAt": self._began,
        }

    def document(self, since: int = 0) -> dict[str, Any]:
        """Return the whole document, but of `points` and `snapshotReports` only changes after version `since`."""
        with self._lock:
            report = self._report
            return {
                **self.summary(),
                "version": self.version,
                "isWhole": since == 0,
                "timestamp": report.get("timestamp", self._began),
                "reason": report.get("reason", ""),
                "incarnation": report.get("incarnation", 0),
                "mode": report.get("mode", {}),
                "workers": len(report.get("workers", {})),
                "refused": report.get("refused", {}),
                "graph": self._graph,
                **(self._counts.flow() if report else {"inPerSecond": 0.0, "outPerSecond": 0.0}),
                "nodes": {name: self._counts.node(name, node) for name, node in report.get("nodes", {}).items()},
                "edges": [self._counts.edge(edge) for edge in report.get("edges", [])],
                "points": self._counts.points(since),
                "snapshotReports": self.snapshots.since(since),
                "retained": report.get("snapshots", []),
                "pinnedBefore": self._pinned_before(report),
                "published": self.snapshots.published,
                "aborted": self.snapshots.aborted,
                "restarts": report.get("restarts", []),
                "restartCount": report.get("restartCount", 0),
                "invariants": report.get("invariants", {}),
                "metrics": self._counts.metrics.totals(),
                "commands": self.commands.as_document(),
            }

    def _pinned_before(self, report: Mapping[str, Any]) -> list[int]:
        """Return the pinned snapshots that the history of this submission lacks, once the history is known."""
        kept = report.get("snapshots", [])
        return [each for each in self._pinned if report.get("incarnation") and each not in kept]

    def counters(self) -> dict[tuple[str, ...], float]:
        """Return the counters, cumulative over all incarnations."""
        with self._lock:
            return self._counts.counters.totals()
