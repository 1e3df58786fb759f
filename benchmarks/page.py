"""What the live page costs a run of 64 subtasks with a snapshot every half second.

The same job with no page, with one that nobody looks at, with one whose stream is read by a small process, and with
one that Chromium shows, in turn. On a machine that the job fills, Chromium takes what it needs to draw from the job;
what the page itself takes is what the reader's run loses, and what the driver's process used more.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from operator import itemgetter
from typing import NamedTuple

from barrier_runtime import Run
from benchmarks.effort import Effort
from benchmarks.keyed_nodes import Messages, RunningSum
from benchmarks.keyed_rows import BURST_MESSAGES, require_equal, sums_of_bursts
from benchmarks.result import Result, metric, paired_ratio
from benchmarks.session import Place
from benchmarks.timed_run import Timed, timed_run
from snapshot import Graph
from tests.page.chromium import chromium
from tests.system.live import Live

PARALLELISM = 32
WORKERS = 2
SNAPSHOT_INTERVAL_SECONDS = 0.5

#: Reads a stream to its end and prints how many documents it had.
_READER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as stream:
    print(sum(line.startswith(b"data: ") for line in stream))
"""

#: Seconds in which a reader has ended after the run.
_READER_SECONDS = 30.0

#: Notes the longest time for which the browser could not react.
_LONGEST_TASK = """
window.longestTask = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longestTask = Math.max(window.longestTask, task.duration);
}).observe({ type: "longtask", buffered: true });
"""


class Viewer(Enum):
    """Who looks at the page."""

    OFF = "off"  #: there is none
    NOBODY = "nobody"
    STREAM = "stream"
    BROWSER = "browser"


class Watched(NamedTuple):
    """One run."""

    timed: Timed
    #: processor time of the driver's process, for each second of the job
    driver_seconds: float
    #: of the viewer
    seen: dict[str, float]


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for each viewer."""
    live = place()
    viewers = effort.choose(tuple(Viewer), (Viewer.OFF, Viewer.STREAM))
    runs: dict[Viewer, list[Watched]] = {viewer: [] for viewer in viewers}
    for _ in range(effort.repeats):
        for viewer, watched in runs.items():
            watched.append(_run(live, viewer, effort))
    for viewer, watched in runs.items():
        yield _result(viewer, watched, runs[Viewer.OFF], effort)


def _run(live: Live, viewer: Viewer, effort: Effort) -> Watched:
    graph = Graph("page")
    graph.add("records", Messages(effort.seconds), parallelism=PARALLELISM)
    graph.add("sums", RunningSum(), parallelism=PARALLELISM)
    graph.connect("records", "sums", key=itemgetter(0))
    seen: dict[str, float] = {}
    before = time.process_time()
    timed = timed_run(
        live,
        graph,
        source="records",
        last="sums",
        seconds=effort.seconds,
        interval=SNAPSHOT_INTERVAL_SECONDS,
        workers=WORKERS,
        page=viewer is not Viewer.OFF,
        watch=lambda run: _watching(viewer, run, seen),
    )
    driver_seconds = (time.process_time() - before) / (timed.startup_seconds + timed.seconds)
    found: dict[str, int] = {}
    for sums in timed.results:
        assert isinstance(sums, dict)
        found |= sums
    require_equal("page", found, sums_of_bursts(timed.rounds))
    return Watched(timed, driver_seconds, seen)


def _watching(viewer: Viewer, run: Run, seen: dict[str, float]) -> AbstractContextManager[None]:
    match viewer:
        case Viewer.STREAM:
            return _reading(run, seen)
        case Viewer.BROWSER:
            return _browsing(run, seen)
        case _:
            return nullcontext()


@contextmanager
def _reading(run: Run, seen: dict[str, float]) -> Iterator[None]:
    address = f"{run.pageAddress}/events".replace("/runs/", "/api/runs/")
    reader = subprocess.Popen([sys.executable, "-c", _READER, address], stdout=subprocess.PIPE, text=True)
    try:
        yield
        output, _ = reader.communicate(timeout=_READER_SECONDS)
        seen["documents"] = float(output)
    finally:
        reader.kill()
        reader.wait()


@contextmanager
def _browsing(run: Run, seen: dict[str, float]) -> Iterator[None]:
    assert run.pageAddress is not None
    with chromium() as browser:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.add_init_script(_LONGEST_TASK)
        tab.goto(run.pageAddress)
        yield
        tab.locator("#ended").wait_for(state="visible")
        seen["longest_task_ms"] = tab.evaluate("window.longestTask")


def _rate(watched: Watched) -> float:
    return sum(watched.timed.rounds) * BURST_MESSAGES / watched.timed.seconds


def _result(viewer: Viewer, runs: list[Watched], off: list[Watched], effort: Effort) -> Result:
    rates = [_rate(each) for each in runs]
    seen = {name: metric(name.rpartition("_")[2], [each.seen[name] for each in runs]) for name in runs[0].seen}
    return Result(
        "page",
        {
            "viewer": viewer.value,
            "subtasks": 2 * PARALLELISM,
            "parallelism": PARALLELISM,
            "snapshot_interval_s": SNAPSHOT_INTERVAL_SECONDS,
            **effort.configuration(),
        },
        {
            "records_per_s": metric("records/s", rates),
            "driver_cpu_ms_per_s": metric("ms/s", [each.driver_seconds * 1e3 for each in runs]),
            "snapshots": metric("snapshots", [each.timed.snapshots for each in runs]),
            **seen,
        },
        {} if viewer is Viewer.OFF else {"without_page": paired_ratio(rates, [_rate(each) for each in off])},
    )
