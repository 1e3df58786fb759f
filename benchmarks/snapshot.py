"""Measure how long a snapshot takes, how long processing pauses for it, and how fast it is stored.

States have a kilobyte to a gigabyte. The job is idle, under load, or has full channels before a slow node. Snapshots
are requested one by one. After each snapshot the run goes on for as long without one, so that both pauses saw the same
machine.

Small snapshots. A snapshot is a chain of small steps in several processes. Experiments (each version in turn, partly
with probes that are not kept):

* Start an embedded Ray with ``RAY_worker_niceness=0``. Ray's default niceness of 15 made each step of the coordinator
  wait 3 to 4 ms for the turn of a worker on full cores. From request to snapshot took 15 to 17 ms (p99 26 to 33)
  instead of 34 to 38 (p99 72 to 86).
* Keep threads for calls to a store. A new thread costs 1.9 ms on a full machine, and a waiting one 0.02.
* Request the result of a request once from the coordinator, not every 5 ms: 6.5 instead of 9.3 ms on an idle machine.

Large snapshots. A gigabyte is copied in 0.1 s where there is memory. Clearing new memory took 0.33 s. In a virtual
machine that returns free memory its host must find it again. For memory that was free for a second or two that took
0.6 s, and for memory never used 0.95 s. Pages of a file behave alike. Both took most of a snapshot of 1 GB.
Experiments:

* Copy arrays and record batches into the memory of the last copies (`snapshot/channel/kept_memory.py`). The pause fell
  from 0.27 s (0.26 to 0.55) to between 0.06 and 0.09. The first snapshot of a run pauses as before. A batch of 0.96 GB
  is encoded in 0.07 s instead of 0.52.
* Start the disk while the rest is written, with a hint after each 64 MiB. With all pages present, 1 GB written and
  synced took 0.29 to 0.45 s instead of 0.47. With new pages it took 0.9 to 1.0 instead of 1.3 to 1.5 (hints after each
  8 to 64 MiB). Pieces are 64 MiB, because in a worker each piece waits for the interpreter.

Together, under load, from request to snapshot took 0.55 to 0.78 s instead of 1.3 to 2.0. The state was stored at 0.8 to
1.2 of a plain write and fsync instead of 0.38 to 0.56 (short runs within half an hour).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks.live import DEADLINE_S, Live, wait_for
from benchmarks.loaded_nodes import GAP_SECONDS_MIN, Flow, Holder, is_right
from benchmarks.result import Metric, Result, metric_of_samples, paired_ratio
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place, scratch
from cutline import FileSystemBackend, Graph, Run, Snapshot
from cutline.snapshot.errors import CutlineError

#: Bytes of the holder's array, by the name of the state.
STATES = {"1KB": 1_000, "10MB": 10_000_000, "1GB": 1_000_000_000}
#: (bytes of a message, messages in a burst, seconds between two bursts, seconds of the holder for a message)
LOADS = {"idle": (100, 1, 0.001, 0.0), "load": (100, 64, 0.0, 0.0), "back_pressure": (2048, 64, 0.0, 0.001)}
#: Bytes from which a state is stored in its own file. Storing smaller states is not compared.
STORED_BYTES_MIN = 1_000_000
#: Snapshots of a run, even when they take longer than the seconds of the run.
SNAPSHOTS_MIN = 3
#: Seconds without a snapshot after a long snapshot. After a short one they are as many as the snapshot took.
QUIET_SECONDS_MAX = 1.0
#: Bytes of one write of the baseline, so large that calls count for nothing.
_BLOCK_BYTES = 8 * 1024 * 1024
#: Progress reports, four a second, that show back-pressure rather than a start.
REPORTS = 8
QUICK_REPORTS = 3

Alignment = Literal["unaligned", "aligned"]


class Case(NamedTuple):
    """Parameters of one configuration."""

    state: str
    load: str
    alignment: Alignment = "unaligned"


class Taken(NamedTuple):
    """The figures of a snapshot."""

    #: seconds from the driver's request until the driver holds the published snapshot
    seconds: float
    #: seconds from the trigger to the last acknowledgement, as in the manifest
    collected_seconds: float
    #: seconds of the longest gap between two messages around the snapshot
    pause_seconds: float
    #: seconds of the longest gap between two messages in as long a time after the snapshot
    quiet_seconds: float
    bytes: int
    #: bytes per second of a plain write after the snapshot, or 0 for a small state
    baseline_bytes_per_second: float


#: The aligned case shows what overtaking saves, because its markers wait until the slow node has read its input.
CASES = (*(Case(*each) for each in product(STATES, LOADS)), Case("1KB", "back_pressure", "aligned"))
QUICK_CASES = (Case("1KB", "idle"), Case("1KB", "back_pressure"), Case("10MB", "load"))


def configurations(size: RunSize) -> Cases:
    """Return one case for each state and load, and one with aligned snapshots."""
    return {
        case: {**case._asdict(), "parallelism": 1, **size.configuration()} for case in size.choose(CASES, QUICK_CASES)
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case."""
    live = place()
    runs: dict[Case, list[list[Taken]]] = {case: [] for case in cases}
    for number in range(size.repeats):
        for case, samples in runs.items():
            show_progress("snapshot", cases[case], number + 1, size.repeats)
            samples.append(_run(live, case, size))
    for case, samples in runs.items():
        yield _result(cases[case], samples)


def baseline_write_bytes_per_second(folder: Path, length: int) -> float:
    """Write `length` bytes that no file system can compress to a new file in `folder`, sync it, and remove it."""
    block = memoryview(os.urandom(min(length, _BLOCK_BYTES)))
    path = folder / "baseline-write"
    began_at = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        left = length
        while left:
            left -= os.write(descriptor, block[:left])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    seconds = time.perf_counter() - began_at
    path.unlink()
    return length / seconds


def _run(live: Live, case: Case, size: RunSize) -> list[Taken]:
    message_bytes, burst, pause, delay = LOADS[case.load]
    with scratch(live) as folder:
        graph = Graph("snapshot").add("flow", Flow(message_bytes, burst=burst, pause=pause))
        graph.add("holder", Holder(STATES[case.state] // 8, delay=delay, gaps=folder / "gaps"))
        graph.connect("flow", "holder")
        run = live.run(
            graph,
            backend=FileSystemBackend(folder / "snapshots"),
            workers=2,
            snapshotInterval=None,
            retainedSnapshots=1,
            alignment=case.alignment,
        )
        wait_for("messages", lambda: _is_steady(run, case.load, size.choose(REPORTS, QUICK_REPORTS)))
        taken = _take(run, folder, STATES[case.state], size)
        run.stop()
        return _with_pauses(taken, _read_gaps(folder / "gaps"))


def _is_steady(run: Run, load: str, reports: int) -> bool:
    """Return whether the holder has messages. Under back-pressure, sent messages must not far exceed handled ones."""
    if not run.isActive:
        run.awaitTermination()  # raises the error that ended the run
    recent = [report["progress"] for report in run.recentProgress[-reports:]]
    if len(recent) < reports:
        return False
    sent = recent[-1]["sent"].get("flow", 0) - recent[0]["sent"].get("flow", 0)
    done = recent[-1]["processed"].get("holder", 0) - recent[0]["processed"].get("holder", 0)
    return bool(done > 0 and (load != "back_pressure" or sent <= 1.5 * done))


class _Window(NamedTuple):
    """When a snapshot was requested and published, and when the time without a snapshot ended."""

    requested_at: float
    published_at: float
    quiet_until: float
    taken: Taken


def _take(run: Run, folder: Path, state_bytes: int, size: RunSize) -> list[_Window]:
    windows: list[_Window] = []
    until = time.monotonic() + size.seconds
    while len(windows) < SNAPSHOTS_MIN or time.monotonic() < until:
        requested_at = time.monotonic()
        snapshot = run.takeSnapshot(timeout=DEADLINE_S)
        published_at = time.monotonic()
        time.sleep(min(published_at - requested_at, QUIET_SECONDS_MAX))
        quiet_until = time.monotonic()
        is_stored = state_bytes >= STORED_BYTES_MIN
        baseline = baseline_write_bytes_per_second(folder, state_bytes) if is_stored else 0.0
        seconds = published_at - requested_at
        taken = Taken(seconds, snapshot.manifest.duration, 0.0, 0.0, snapshot.size, baseline)
        windows.append(_Window(requested_at, published_at, quiet_until, taken))
    _require_right(snapshot)
    return windows


def _require_right(snapshot: Snapshot) -> None:
    """Check that the cut of the last snapshot is exact, and that the holder's state fits its count."""
    snapshot.verify()
    channel = snapshot.channel("flow", "holder")
    in_flight = len(channel.messages)
    is_exact = channel.sent == snapshot.node("flow").state == channel.processed + in_flight
    if not is_exact or not is_right(snapshot.node("holder").state, channel.processed):
        raise CutlineError(f"{snapshot}: the holder's state is not that of {channel.processed} messages, or {channel}")


def _read_gaps(path: Path) -> list[tuple[float, float]]:
    lines = (line.split() for line in path.read_text().splitlines())
    return [(float(end), float(length)) for end, length in lines]


def _with_pauses(windows: list[_Window], gaps: list[tuple[float, float]]) -> list[Taken]:
    def longest(begin: float, end: float) -> float:
        return max((length for at, length in gaps if at >= begin and at - length <= end), default=GAP_SECONDS_MIN)

    return [
        window.taken._replace(
            pause_seconds=longest(window.requested_at, window.published_at),
            quiet_seconds=longest(window.published_at, window.quiet_until),
        )
        for window in windows
    ]


def _result(configuration: Configuration, runs: list[list[Taken]]) -> Result:
    def milliseconds(name: str) -> Metric:
        return metric_of_samples("ms", [[getattr(taken, name) * 1e3 for taken in run] for run in runs])

    metrics = {
        "duration_ms": milliseconds("seconds"),
        "collected_ms": milliseconds("collected_seconds"),
        "pause_ms": milliseconds("pause_seconds"),
        "pause_without_snapshot_ms": milliseconds("quiet_seconds"),
        "snapshot_bytes": metric_of_samples("bytes", [[taken.bytes for taken in run] for run in runs]),
    }
    ratios = {}
    if STATES[configuration["state"]] >= STORED_BYTES_MIN:
        stored = [[_stored_bytes_per_second(taken) for taken in run] for run in runs]
        baseline = [[taken.baseline_bytes_per_second for taken in run] for run in runs]
        metrics["bytes_per_s"] = metric_of_samples("bytes/s", stored)
        metrics["bare_write_bytes_per_s"] = metric_of_samples("bytes/s", baseline)
        ratios["bare_write"] = paired_ratio(list(chain(*stored)), list(chain(*baseline)))
    return Result("snapshot", configuration, metrics, ratios)


def _stored_bytes_per_second(taken: Taken) -> float:
    """Return bytes per second of storing, which follows the pause for the capture and ends with the acknowledgement."""
    return taken.bytes / max(taken.collected_seconds - taken.pause_seconds, 1e-6)
