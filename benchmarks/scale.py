"""What a snapshot costs when there are many subtasks on one machine: its duration, its markers, the coordinator's time.

Half of the subtasks send to all of the other half, so channels grow with the square of the subtasks. What is linear in
channels costs no more a channel from one size to the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.effort import Effort
from benchmarks.loaded_nodes import Flow, Holder, is_right
from benchmarks.result import Result, metric, metric_of_samples
from benchmarks.session import Place, scratch
from snapshot import Graph, Snapshot
from snapshot.errors import CutlineError
from state_backends import FileSystemBackend
from tests.system.live import DEADLINE_S, Live, coordinators, wait_for

SUBTASKS = (2, 4, 8, 16, 32, 64)
QUICK_SUBTASKS = (2, 8)
WORKERS = 2
#: Bytes of a message, and seconds between two of one source: enough to keep the channels alive, little to do.
MESSAGE_BYTES = 100
PAUSE_SECONDS = 0.01
#: Length of a holder's array.
STATE_LENGTH = 16
#: Snapshots of each run, however long they take.
SNAPSHOTS_MIN = 3


class Scaled(NamedTuple):
    """One run."""

    channels: int
    markers: int
    duration_seconds: list[float]
    collected_seconds: list[float]
    #: processor time, a snapshot
    coordinator_seconds: float
    workers_seconds: float


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for each number of subtasks."""
    live = place()
    runs: dict[int, list[Scaled]] = {count: [] for count in effort.choose(SUBTASKS, QUICK_SUBTASKS)}
    for _ in range(effort.repeats):
        for count, samples in runs.items():
            samples.append(_run(live, count, effort))
    smaller: list[Scaled] = []
    for count, samples in runs.items():
        yield _result(count, samples, smaller, effort)
        smaller = samples


def _run(live: Live, count: int, effort: Effort) -> Scaled:
    with scratch(live) as folder:
        graph = Graph(f"scale-{count}")
        graph.add("flow", Flow(MESSAGE_BYTES, pause=PAUSE_SECONDS), parallelism=count // 2)
        graph.add("holder", Holder(STATE_LENGTH), parallelism=count // 2)
        graph.connect("flow", "holder", spread="rebalance")
        backend = FileSystemBackend(folder)
        run = live.run(graph, backend=backend, workers=WORKERS, snapshotInterval=None)
        wait_for("the run to run", lambda: run.status["phase"] == "running")
        run.takeSnapshot(timeout=DEADLINE_S)  # the first one makes folders
        [coordinator] = coordinators()
        workers = list(run.status["workers"].values())
        before = _cpu_seconds(coordinator), sum(map(_cpu_seconds, workers))
        taken: list[tuple[float, Snapshot]] = []
        until = time.monotonic() + effort.seconds
        while len(taken) < SNAPSHOTS_MIN or time.monotonic() < until:
            began_at = time.perf_counter()
            snapshot = run.takeSnapshot(timeout=DEADLINE_S)
            taken.append((time.perf_counter() - began_at, snapshot))
        after = _cpu_seconds(coordinator), sum(map(_cpu_seconds, workers))
        _require_right(taken[-1][1])
        run.stop()
    return Scaled(
        channels=len(taken[-1][1].channels),
        markers=sum(len(record.received) for record in taken[-1][1].manifest.records),
        duration_seconds=[seconds for seconds, _ in taken],
        collected_seconds=[snapshot.manifest.duration for _, snapshot in taken],
        coordinator_seconds=(after[0] - before[0]) / len(taken),
        workers_seconds=(after[1] - before[1]) / len(taken),
    )


def _require_right(snapshot: Snapshot) -> None:
    """The last snapshot: every holder's state is what its channels have brought it, and every source's what it sent."""
    sent: dict[int, int] = {}
    processed: dict[int, int] = {}
    for channel in snapshot.channels:
        found = snapshot.channel(channel.source, channel.target)
        sent[channel.source.index] = sent.get(channel.source.index, 0) + found.sent
        processed[channel.target.index] = processed.get(channel.target.index, 0) + found.processed
    states = snapshot.node("holder").states
    are_right = all(is_right(state, processed[index]) for index, state in enumerate(states))
    if not are_right or snapshot.node("flow").states != list(_by_index(sent)):
        raise CutlineError(f"{snapshot}: states are not what the channels have brought: {sent}, {processed}")


def _by_index(counts: Mapping[int, int]) -> Iterator[int]:
    return (counts[index] for index in range(len(counts)))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _result(count: int, runs: list[Scaled], smaller: list[Scaled], effort: Effort) -> Result:
    ratios = {}
    if smaller:
        # Costs a channel, beside those of the next smaller graph: at most 1 where growth is linear.
        ratios["duration_per_channel"] = _per_channel(runs) / _per_channel(smaller)
    return Result(
        "scale",
        {
            "subtasks": count,
            "parallelism": count // 2,
            "channels": runs[0].channels,
            "workers": WORKERS,
            **effort.configuration(),
        },
        {
            "duration_ms": metric_of_samples("ms", [[each * 1e3 for each in run.duration_seconds] for run in runs]),
            "collected_ms": metric_of_samples("ms", [[each * 1e3 for each in run.collected_seconds] for run in runs]),
            "coordinator_ms": metric("ms", [run.coordinator_seconds * 1e3 for run in runs]),
            "workers_ms": metric("ms", [run.workers_seconds * 1e3 for run in runs]),
            "markers": metric("markers", [run.markers for run in runs]),
        },
        ratios,
    )


def _per_channel(runs: list[Scaled]) -> float:
    return median(second for run in runs for second in run.duration_seconds) / runs[0].channels
