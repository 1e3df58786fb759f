"""How long a snapshot takes, how long processing pauses for it, and how fast it is stored.

For states of a kilobyte to a gigabyte; idle, under load, and with all channels full before a slow node. Snapshots are
ordered one by one; after each, as long a time without one is watched, so that both pauses saw the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Literal, NamedTuple

from barrier_runtime import Run
from benchmarks.bare_write import bare_write_bytes_per_second
from benchmarks.effort import Effort
from benchmarks.loaded_nodes import GAP_SECONDS_MIN, Flow, Holder, is_right
from benchmarks.result import Metric, Result, metric_of_samples, paired_ratio
from benchmarks.session import Place, scratch
from snapshot import Graph, Snapshot
from snapshot.errors import CutlineError
from state_backends import FileSystemBackend
from tests.system.live import DEADLINE_S, Live, wait_for

#: Bytes of the holder's array, by the name of the state.
STATES = {"1KB": 1_000, "10MB": 10_000_000, "1GB": 1_000_000_000}
#: The source: (bytes of a message, messages in a burst, seconds between two); the holder: seconds a message.
LOADS = {"idle": (100, 1, 0.001, 0.0), "load": (100, 64, 0.0, 0.0), "back_pressure": (2048, 64, 0.0, 0.001)}
#: From this size on a state is a file of its own, and storing it is worth comparing.
STORED_BYTES_MIN = 1_000_000
#: Snapshots of each run, however long they take.
SNAPSHOTS_MIN = 3
#: As long as a snapshot took nothing is done after it, but no longer than this.
QUIET_SECONDS_MAX = 2.0
#: Progress reports, four a second, by which back-pressure is told from a start.
_REPORTS = 8

Alignment = Literal["unaligned", "aligned"]


class Case(NamedTuple):
    """One configuration."""

    state: str
    load: str
    alignment: Alignment = "unaligned"


class Taken(NamedTuple):
    """One snapshot."""

    #: from the driver's order until it holds the published snapshot
    seconds: float
    #: from the trigger to the last acknowledgement, as the manifest says
    collected_seconds: float
    #: longest gaps between two messages: around the snapshot, and in as long a time after it
    pause_seconds: float
    quiet_seconds: float
    bytes: int
    bare_bytes_per_second: float


CASES = [Case(state, load) for state, load in product(STATES, LOADS)]
#: What overtaking saves: an aligned marker waits until the slow node has worked off all that is before it.
CASES.append(Case("1KB", "back_pressure", "aligned"))
QUICK_CASES = [Case("1KB", "idle"), Case("1KB", "back_pressure"), Case("10MB", "load")]


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for each case."""
    live = place()
    runs: dict[Case, list[list[Taken]]] = {case: [] for case in effort.choose(CASES, QUICK_CASES)}
    for _ in range(effort.repeats):
        for case, samples in runs.items():
            samples.append(_run(live, case, effort))
    for case, samples in runs.items():
        yield _result(case, samples, effort)


def _run(live: Live, case: Case, effort: Effort) -> list[Taken]:
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
        wait_for("messages", lambda: _is_steady(run, case.load))
        taken = _take(run, folder, STATES[case.state], effort)
        run.stop()
        return _with_pauses(taken, _read_gaps(folder / "gaps"))


def _is_steady(run: Run, load: str) -> bool:
    """The holder has messages; under back-pressure the source may send no more than the holder takes."""
    if not run.isActive:
        run.awaitTermination()  # raises what ended it
    recent = [report["progress"] for report in run.recentProgress[-_REPORTS:]]
    if len(recent) < _REPORTS:
        return False
    sent = recent[-1]["sent"].get("flow", 0) - recent[0]["sent"].get("flow", 0)
    done = recent[-1]["processed"].get("holder", 0) - recent[0]["processed"].get("holder", 0)
    return bool(done > 0 and (load != "back_pressure" or sent <= 1.5 * done))


class _Window(NamedTuple):
    """When a snapshot was ordered and published, and until when nothing was done after it."""

    ordered_at: float
    published_at: float
    quiet_until: float
    taken: Taken


def _take(run: Run, folder: Path, size: int, effort: Effort) -> list[_Window]:
    windows: list[_Window] = []
    until = time.monotonic() + effort.seconds
    while len(windows) < SNAPSHOTS_MIN or time.monotonic() < until:
        ordered_at = time.monotonic()
        snapshot = run.takeSnapshot(timeout=DEADLINE_S)
        published_at = time.monotonic()
        time.sleep(min(published_at - ordered_at, QUIET_SECONDS_MAX))
        quiet_until = time.monotonic()
        bare = bare_write_bytes_per_second(folder, size) if size >= STORED_BYTES_MIN else 0.0
        seconds = published_at - ordered_at
        taken = Taken(seconds, snapshot.manifest.duration, 0.0, 0.0, snapshot.size, bare)
        windows.append(_Window(ordered_at, published_at, quiet_until, taken))
    _require_right(snapshot)
    return windows


def _require_right(snapshot: Snapshot) -> None:
    """The last snapshot: the holder's state is what its count makes of it, and the cut is exact."""
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
            pause_seconds=longest(window.ordered_at, window.published_at),
            quiet_seconds=longest(window.published_at, window.quiet_until),
        )
        for window in windows
    ]


def _result(case: Case, runs: list[list[Taken]], effort: Effort) -> Result:
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
    if STATES[case.state] >= STORED_BYTES_MIN:
        stored = [[_stored_bytes_per_second(taken) for taken in run] for run in runs]
        bare = [[taken.bare_bytes_per_second for taken in run] for run in runs]
        metrics["bytes_per_s"] = metric_of_samples("bytes/s", stored)
        metrics["bare_write_bytes_per_s"] = metric_of_samples("bytes/s", bare)
        ratios["bare_write"] = paired_ratio(list(chain(*stored)), list(chain(*bare)))
    configuration = {**case._asdict(), "parallelism": 1, **effort.configuration()}
    return Result("snapshot", configuration, metrics, ratios)


def _stored_bytes_per_second(taken: Taken) -> float:
    """While processing pauses the state is captured; what is left until the acknowledgement is storing it."""
    return taken.bytes / max(taken.collected_seconds - taken.pause_seconds, 1e-6)
