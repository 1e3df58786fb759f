"""Measure a snapshot of many subtasks on one machine: its duration, its markers, and processor time.

Each subtask of one half sends to all subtasks of the second half, so channels grow with the square of the subtasks. A
cost that is linear in channels has the same figure per channel at each size.

Experiments, measured once with the sources and sums of `benchmarks.page`, joined all to all, with a snapshot every half
second. 32 sources and 32 sums have 1,024 channels. No benchmark repeats them.

* Let fewer bytes wait on a channel where a subtask has many channels. Otherwise the waiting bytes grow with the square
  of the subtasks, and every unaligned snapshot stores them. In 14 s the job processed 5.9 M messages instead of 1.2 M.
  A snapshot took 0.6 s and 9 MB instead of 2.5 s and a growing 65 MB.
* Store all parts of a subtask in one file instead of a file each. A snapshot took 0.23 s instead of 0.6. The job
  processed 0.70 instead of 0.43 M messages a second (in turn).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

from benchmarks.live import DEADLINE_S, Live, wait_for
from benchmarks.loaded_nodes import Flow, Holder, is_right
from benchmarks.process_table import coordinators, cpu_seconds
from benchmarks.result import Result, metric, metric_of_samples
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place, scratch
from cutline import FileSystemBackend, Graph, Snapshot
from cutline.snapshot.errors import CutlineError

SUBTASKS = (2, 4, 8, 16, 32, 64)
QUICK_SUBTASKS = (2, 8)
WORKERS = 2
#: Bytes of a message, and seconds between two messages of a source, which keep all channels in use at little cost.
MESSAGE_BYTES = 100
PAUSE_SECONDS = 0.01
#: Numbers in the array of a holder.
STATE_LENGTH = 16
#: Snapshots of a run, even when they take longer than the seconds of the run.
SNAPSHOTS_MIN = 3


class Scaled(NamedTuple):
    """The figures of a run."""

    channels: int
    markers: int
    duration_seconds: list[float]
    collected_seconds: list[float]
    #: seconds of processor time of a snapshot
    coordinator_seconds: float
    workers_seconds: float


def configurations(size: RunSize) -> Cases:
    """Return one case for each number of subtasks."""
    return {
        count: {
            "subtasks": count,
            "parallelism": count // 2,
            "channels": (count // 2) ** 2,
            "workers": WORKERS,
            **size.configuration(),
        }
        for count in size.choose(SUBTASKS, QUICK_SUBTASKS)
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each number of subtasks."""
    live = place()
    runs: dict[int, list[Scaled]] = {count: [] for count in cases}
    for number in range(size.repeats):
        for count, samples in runs.items():
            show_progress("scale", cases[count], number + 1, size.repeats)
            samples.append(_run(live, count, size))
    smaller: list[Scaled] = []
    for count, samples in runs.items():
        yield _result(cases[count], samples, smaller)
        smaller = samples


def _run(live: Live, count: int, size: RunSize) -> Scaled:
    with scratch(live) as folder:
        graph = Graph(f"scale-{count}")
        graph.add("flow", Flow(MESSAGE_BYTES, pause=PAUSE_SECONDS), parallelism=count // 2)
        graph.add("holder", Holder(STATE_LENGTH), parallelism=count // 2)
        graph.connect("flow", "holder", partitioning="rebalance")
        backend = FileSystemBackend(folder)
        run = live.run(graph, backend=backend, workers=WORKERS, snapshotInterval=None)
        wait_for("the run to run", lambda: run.status["phase"] == "running")
        run.takeSnapshot(timeout=DEADLINE_S)  # which makes the folders
        [coordinator] = coordinators()
        workers = list(run.status["workers"].values())
        before = cpu_seconds(coordinator), sum(map(cpu_seconds, workers))
        taken: list[tuple[float, Snapshot]] = []
        until = time.monotonic() + size.seconds
        while len(taken) < SNAPSHOTS_MIN or time.monotonic() < until:
            began_at = time.perf_counter()
            snapshot = run.takeSnapshot(timeout=DEADLINE_S)
            taken.append((time.perf_counter() - began_at, snapshot))
        after = cpu_seconds(coordinator), sum(map(cpu_seconds, workers))
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
    """Check that the states of the last snapshot fit the messages that its channels have sent and processed."""
    sent: dict[int, int] = {}
    processed: dict[int, int] = {}
    for channel in snapshot.channels:
        found = snapshot.channel(channel.source, channel.target)
        sent[channel.source.index] = sent.get(channel.source.index, 0) + found.sent
        processed[channel.target.index] = processed.get(channel.target.index, 0) + found.processed
    states = snapshot.node("holder").states
    are_right = all(is_right(state, processed[index]) for index, state in enumerate(states))
    if not are_right or snapshot.node("flow").states != list(_by_index(sent)):
        raise CutlineError(f"{snapshot}: states do not fit the messages of the channels: {sent}, {processed}")


def _by_index(counts: Mapping[int, int]) -> Iterator[int]:
    return (counts[index] for index in range(len(counts)))


def _result(configuration: Configuration, runs: list[Scaled], smaller: list[Scaled]) -> Result:
    ratios = {}
    if smaller:
        # The duration per channel divided by that of the next smaller graph is at most 1 where growth is linear.
        ratios["duration_per_channel"] = _per_channel(runs) / _per_channel(smaller)
    return Result(
        "scale",
        configuration,
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
