"""Progress reports as a run's monitor makes them, for a page without a run."""

from __future__ import annotations

import math
from typing import Any

from cutline import END, Context, Graph, Node, Sink, Source
from cutline.snapshot.node import End
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import Topology

#: Names that HTML, PromQL and URLs would each read in their own way.
SPITEFUL = '<b>"x\\y"\n&'


class Ticks(Source):
    """A source; it never runs here."""

    def poll(self, context: Context) -> float | End | None:
        return END


class Step(Node):
    """A node between."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class Drain(Sink):
    """A sink."""

    def onMessage(self, message: Any, context: Context) -> None:
        pass


def pipeline(parallelism: int = 4) -> Topology:
    """Six nodes with a cycle, a self-edge and a short cut."""
    graph = Graph("orders")
    graph.add("clicks", Ticks(), parallelism=parallelism).add("payments", Ticks(), parallelism=parallelism)
    graph.add("sessions", Step(), parallelism=parallelism).add("rank_iteration", Step(), parallelism=parallelism)
    graph.add("alerts_with_a_long_name", Step(), parallelism=parallelism).add("ledger", Drain())
    for source, target in (
        *(("clicks", "sessions"), ("payments", "sessions"), ("sessions", "rank_iteration")),
        *(("rank_iteration", "sessions"), ("rank_iteration", "rank_iteration")),
        *(("rank_iteration", "alerts_with_a_long_name"), ("alerts_with_a_long_name", "ledger"), ("clicks", "ledger")),
    ):
        graph.connect(source, target, partitioning="rebalance")
    return build(graph, "unaligned").topology


def report(topology: Topology, step: int, *, incarnation: int = 1, **other: Any) -> dict[str, Any]:
    """The report after `step` looks of an incarnation; counters grow evenly."""
    edges: list[dict[str, Any]] = [
        {
            "source": edge.source,
            "target": edge.target,
            "sent": step * 1000 * (number + 1) + 5,
            "processed": step * 1000 * (number + 1),
            "bytes": step * 64_000,
            "queued": 5 + 400 * number,
            "backPressure": round(abs(math.sin(number + step / 40)) ** 3, 3),
        }
        for number, edge in enumerate(topology.edges)
    ]
    nodes = {
        node.name: {
            "parallelism": node.parallelism,
            "ended": 0,
            "processed": sum(e["processed"] for e in edges if e["target"] == node.name),
            "sent": sum(e["sent"] for e in edges if e["source"] == node.name),
            "busy": 0.15 * (number + 1),
        }
        for number, node in enumerate(topology.nodes)
    }
    return {
        "name": topology.name,
        "timestamp": 1.8e9 + step * 0.25,
        "phase": "running",
        "outcome": None,
        "reason": "",
        "incarnation": incarnation,
        "snapshots": [],
        "restarts": [],
        "restartCount": len(other.get("restarts", [])),
        "aborted": [],
        "abortedCount": 0,
        "workers": {0: 100, 1: 101},
        "refused": {},
        "progress": {"sent": {}, "processed": {}, "ended": {}, "metrics": {"events": step}},
        "nodes": nodes,
        "edges": edges,
        "snapshotReports": [],
        "invariants": {},
        **other,
    }


def snapshot_report(snapshot_id: int, state: str = "published", **other: Any) -> dict[str, Any]:
    """The report of one snapshot."""
    phases = {"triggerMs": 2.0, "alignMs": 11.5, "captureMs": 4.0, "uploadMs": 18.0, "publishMs": 6.5}
    return {
        "id": snapshot_id,
        "state": state,
        "reason": "",
        "pinned": False,
        "timestamp": 1.8e9 + snapshot_id,
        "durationMs": 42.0,
        **(phases if state == "published" else dict.fromkeys(phases)),
        "bytes": 123_456,
        "channelBytes": 4_096,
        "channelMessages": 37,
        "slowest": "sessions[2]" if state == "published" else None,
        "acknowledged": 4,
        "subtasks": 21,
        "initiator": "interval",
        **other,
    }


def totals_mode(**store: Any) -> dict[str, Any]:
    """What a report says of the mode when `ledger` is an aggregate."""
    counts = {"openKeys": 1000, "openBytes": 64_000, "cutKeys": 234, "cutBytes": 16_000, "cellsLeft": 56}
    of_ledger = {**counts, "operations": 5, "error": "", **store}
    return {
        "name": "monoidClocks", "clock": "epochs", "snapshot": 7, "itemsBehind": 1234, "stores": {"ledger": of_ledger},
    }  # fmt: skip
