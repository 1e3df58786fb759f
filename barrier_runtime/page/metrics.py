"""The metrics of the runs for Prometheus: names, units and labels. docs/PAGE.md has the same list.

Counters continue over incarnations and never decrease, because work that was rolled back was also done. Counters
restart with the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from cutline.barrier_runtime.page.run_view import RunView

_MILLISECOND = 1e-3

#: field of a snapshot's report, in milliseconds, by the label ``phase`` of the metric
_PHASES = {
    "trigger": "triggerMs",
    "align": "alignMs",
    "capture": "captureMs",
    "upload": "uploadMs",
    "publish": "publishMs",
}

_COUNTERS = {
    "messages_sent": ("Messages that the subtasks of a node have sent.", ["run", "node"]),
    "messages_processed": ("Messages that the subtasks of a node have processed.", ["run", "node"]),
    "edge_messages": ("Messages of an edge that were processed.", ["run", "source", "target"]),
    "edge_bytes": ("Bytes of the frames that an edge's messages were sent in.", ["run", "source", "target"]),
    "store_operations": ("Calls that read or wrote an aggregate's totals, or committed them.", ["run", "node"]),
    "snapshots_published": ("Snapshots that were published.", ["run"]),
    "snapshots_aborted": ("Snapshots that were given up.", ["run"]),
    "restarts": ("Failures that the run went on from.", ["run"]),
    "user_metric": ("What nodes have counted with Context.increment.", ["run", "metric"]),
}

_GAUGES = {
    "run_active": ("1 while the run is on, 0 when it has ended.", ["run"]),
    "run_start_timestamp_seconds": ("When the run was submitted.", ["run"]),
    "incarnation": ("Number of the claim of the last rollback.", ["run"]),
    "workers": ("Workers that are there.", ["run"]),
    "subtasks": ("Subtasks of a node.", ["run", "node"]),
    "subtasks_ended": ("Subtasks of a node that have ended.", ["run", "node"]),
    "node_busy_ratio": ("Share of time that the subtasks of a node are at work.", ["run", "node"]),
    "edge_queued_messages": ("Messages of an edge that are sent and not processed.", ["run", "source", "target"]),
    "edge_backpressure_ratio": (
        "Share of time in which an edge's sending ends had data and no credit.",
        ["run", "source", "target"],
    ),
    "items_behind": ("Messages that aggregates have added behind the newest published snapshot.", ["run"]),
    "store_keys": ("Keys of an aggregate in memory: open, or behind a cut (cut).", ["run", "node", "state"]),
    "store_bytes": ("Bytes in memory of these keys.", ["run", "node", "state"]),
    "store_cells_left": ("Cells of an aggregate's present snapshot that are not written.", ["run", "node"]),
    "store_available": ("1 if the last calls of an aggregate's store succeeded, else 0.", ["run", "node"]),
    "record_age_seconds": ("Mode channelLogs: since the oldest newest record of a node's subtasks.", ["run", "node"]),
    "records_failed": ("Mode channelLogs: records of a node that failed since the last that did not.", ["run", "node"]),
    "snapshot_timestamp_seconds": ("When the newest published snapshot was started.", ["run"]),
    "snapshot_duration_seconds": ("Of the newest published snapshot, from its start to its publication.", ["run"]),
    "snapshot_phase_seconds": ("The same by phase, of its slowest subtask.", ["run", "phase"]),
    "snapshot_bytes": ("All parts of the newest published snapshot.", ["run"]),
    "snapshot_channel_bytes": ("Its parts that hold channel state.", ["run"]),
    "snapshot_channel_messages": ("Messages in its channel state.", ["run"]),
    "invariant_holds": ("1 if the invariant held in the last snapshot that was judged, else 0.", ["run", "invariant"]),
}


def metrics_registry(views: Callable[[], Mapping[str, RunView]]) -> CollectorRegistry:
    """Return a registry that reads the runs at each scrape. The registry has no metrics of the process."""
    registry = CollectorRegistry()
    registry.register(_Runs(views))
    return registry


class _Runs(Collector):
    def __init__(self, views: Callable[[], Mapping[str, RunView]]) -> None:
        self._views = views

    def collect(self) -> Iterable[Metric]:
        info = InfoMetricFamily("cutline_run", "A run.", labels=["run"])
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            **{name: CounterMetricFamily(f"cutline_{name}", text, labels=to) for name, (text, to) in _COUNTERS.items()},
            **{name: GaugeMetricFamily(f"cutline_{name}", text, labels=to) for name, (text, to) in _GAUGES.items()},
        }
        for key, view in self._views().items():
            info.add_metric([key], {"version": version("cutline")})
            for name, labels, value in _samples(view):
                families[name].add_metric([key, *labels], value)
        return [info, *families.values()]


def _samples(view: RunView) -> Iterator[tuple[str, list[str], float]]:
    """Yield the name, the labels after ``run``, and the value of each sample of a run."""
    document = view.document()
    yield from _of_run(document)
    for (name, *where), count in view.counters().items():
        yield name, where, count
    for name, node in document["nodes"].items():
        yield "subtasks", [name], node["parallelism"]
        yield "subtasks_ended", [name], node["ended"]
        yield "node_busy_ratio", [name], node["busy"]
    for edge in document["edges"]:
        yield "edge_queued_messages", [edge["source"], edge["target"]], edge["queued"]
        yield "edge_backpressure_ratio", [edge["source"], edge["target"]], edge["backPressure"]
    yield from _of_mode(document["mode"])
    if view.snapshots.newest is not None:
        yield from _of_snapshot(view.snapshots.newest)


def _of_run(document: Mapping[str, Any]) -> Iterator[tuple[str, list[str], float]]:
    yield "run_active", [], document["isActive"]
    yield "run_start_timestamp_seconds", [], document["startedAt"]
    yield "incarnation", [], document["incarnation"]
    yield "workers", [], document["workers"]
    yield "snapshots_published", [], document["published"]
    yield "snapshots_aborted", [], document["aborted"]
    yield "restarts", [], document["restartCount"]
    for name, verdict in document["invariants"].items():
        if verdict["holds"] is not None:
            yield "invariant_holds", [name], verdict["holds"]
    for name, count in document["metrics"].items():
        yield "user_metric", [name], count


def _of_mode(mode: Mapping[str, Any]) -> Iterator[tuple[str, list[str], float]]:
    if mode.get("itemsBehind") is not None:
        yield "items_behind", [], mode["itemsBehind"]
    for name, store in mode.get("stores", {}).items():
        for state in ("open", "cut"):
            yield "store_keys", [name, state], store[f"{state}Keys"]
            yield "store_bytes", [name, state], store[f"{state}Bytes"]
        yield "store_cells_left", [name], store["cellsLeft"]
        yield "store_available", [name], not store["error"]
    for name, records in mode.get("nodes", {}).items():
        yield "record_age_seconds", [name], records["recordAge"]
        yield "records_failed", [name], records["failed"]


def _of_snapshot(report: Mapping[str, Any]) -> Iterator[tuple[str, list[str], float]]:
    yield "snapshot_timestamp_seconds", [], report["timestamp"]
    yield "snapshot_duration_seconds", [], report["durationMs"] * _MILLISECOND
    for phase, field in _PHASES.items():
        if report[field] is not None:
            yield "snapshot_phase_seconds", [phase], report[field] * _MILLISECOND
    yield "snapshot_bytes", [], report["bytes"]
    yield "snapshot_channel_bytes", [], report["channelBytes"]
    yield "snapshot_channel_messages", [], report["channelMessages"]
