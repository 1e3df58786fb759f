"""What the live page costs a run of 64 subtasks with a snapshot every half second.

One run, in windows of two seconds: without a page, with one that nobody looks at, with none, with one whose stream is
read by a small process, with none, with one that Chromium shows. Each is compared with its neighbours: from one run to
the next the machine changes by far more than a page costs. On a machine that the job fills, Chromium takes what it
needs to draw from the job; what the page itself takes is what the reader's windows lose, and what the driver's process
used more.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import NamedTuple
from urllib.parse import urljoin

from playwright.sync_api import Page

from barrier_runtime import Run
from benchmarks.counted_messages import Board, CountedMessages
from benchmarks.effort import Effort
from benchmarks.keyed_nodes import RunningSum
from benchmarks.keyed_rows import BURST_MESSAGES, require_equal, sums_of_bursts
from benchmarks.result import Result, metric
from benchmarks.session import Place, scratch
from benchmarks.timed_run import timed_run
from snapshot import Graph
from tests.page.chromium import chromium
from tests.system.live import Live, wait_for

PARALLELISM = 32
WORKERS = 2
SNAPSHOT_INTERVAL_SECONDS = 0.5
WINDOW_SECONDS = 2.0
#: After the first record, before the first window.
SETTLE_SECONDS = 2.0

#: Reads a stream, and the metrics with each of its documents, once a second; prints after each how many it had.
_READER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as stream:
    documents = 0
    for line in stream:
        if line.startswith(b"data: "):
            with urllib.request.urlopen(sys.argv[2]) as metrics:
                assert b"cutline_" in metrics.read()
            documents += 1
            print(documents, flush=True)
"""

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
    STREAM = "stream"  #: a small process, which reads the metrics as well
    BROWSER = "browser"


class Window(NamedTuple):
    """A few seconds of the run."""

    viewer: Viewer
    records_per_second: float
    #: processor time of the driver's process, for each second
    driver_seconds: float


@dataclass
class Watch:
    """What was seen of the one run."""

    windows: list[Window] = field(default_factory=list)
    #: {what viewers say: each time}
    seen: dict[str, list[float]] = field(default_factory=dict)


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for each viewer."""
    viewers = effort.choose((Viewer.NOBODY, Viewer.STREAM, Viewer.BROWSER), (Viewer.STREAM,))
    turns = [each for viewer in viewers for each in (Viewer.OFF, viewer)]
    rounds = max(1, round(effort.seconds * effort.repeats / WINDOW_SECONDS))
    watch = _run(place(), turns * rounds + [Viewer.OFF])
    for viewer in (Viewer.OFF, *viewers):
        yield _result(viewer, watch, effort)


def _run(live: Live, turns: list[Viewer]) -> Watch:
    watch = Watch()
    with scratch(live) as folder, ExitStack() as open_at_last:
        board = Board(folder / "board", PARALLELISM)
        graph = Graph("page")
        graph.add("records", CountedMessages(folder / "board"), parallelism=PARALLELISM)
        graph.add("sums", RunningSum(), parallelism=PARALLELISM)
        graph.connect("records", "sums")  # pairs: snapshots are small and the rate is steady, so that little shows

        @contextmanager
        def watched(run: Run) -> Iterator[None]:
            tab = None
            if Viewer.BROWSER in turns:
                tab = open_at_last.enter_context(chromium()).new_page(viewport={"width": 1280, "height": 900})
                tab.add_init_script(_LONGEST_TASK)
            wait_for("records", lambda: board.all_have_begun)
            time.sleep(SETTLE_SECONDS)
            for viewer in turns:
                with _viewing(viewer, run, tab, watch.seen):
                    watch.windows.append(_window(viewer, board))
            board.end()
            yield

        timed = timed_run(
            live,
            graph,
            source="records",
            last="sums",
            seconds=0.0,  # all have ended then
            interval=SNAPSHOT_INTERVAL_SECONDS,
            workers=WORKERS,
            page=True,
            watch=watched,
        )
    found: Counter[str] = Counter()
    for sums in timed.results:
        assert isinstance(sums, dict)
        found.update(sums)
    require_equal("page", dict(found), sums_of_bursts(timed.rounds))
    return watch


def _window(viewer: Viewer, board: Board) -> Window:
    began_at, began_with, before = time.monotonic(), board.rounds, time.process_time()
    time.sleep(WINDOW_SECONDS)
    seconds, sent = time.monotonic() - began_at, (board.rounds - began_with) * BURST_MESSAGES
    return Window(viewer, sent / seconds, (time.process_time() - before) / seconds)


@contextmanager
def _viewing(viewer: Viewer, run: Run, tab: Page | None, seen: dict[str, list[float]]) -> Iterator[None]:
    match viewer:
        case Viewer.OFF:
            # As a run that was submitted without one: nothing is shown. The server waits, and does nothing.
            run._page, page = None, run._page
            try:
                yield
            finally:
                run._page = page
        case Viewer.NOBODY:
            yield
        case Viewer.STREAM:
            with _reading(run, seen):
                yield
        case Viewer.BROWSER:
            assert tab is not None
            assert run.pageAddress is not None
            tab.goto(run.pageAddress)
            yield
            seen.setdefault("longest_task_ms", []).append(tab.evaluate("window.longestTask"))
            tab.goto("about:blank")


@contextmanager
def _reading(run: Run, seen: dict[str, list[float]]) -> Iterator[None]:
    assert run.pageAddress is not None
    stream = f"{run.pageAddress}/events".replace("/runs/", "/api/runs/")
    command = [sys.executable, "-c", _READER, stream, urljoin(stream, "/metrics")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        try:
            assert reader.stdout is not None
            first = reader.stdout.readline()
            yield
            reader.terminate()
            documents = (first + reader.stdout.read()).split()
            seen.setdefault("documents", []).append(float(documents[-1]))
        finally:
            reader.kill()


def _result(viewer: Viewer, watch: Watch, effort: Effort) -> Result:
    windows = [each for each in watch.windows if each.viewer is viewer]
    metrics = {
        "records_per_s": metric("records/s", [each.records_per_second for each in windows]),
        "driver_cpu_ms_per_s": metric("ms/s", [each.driver_seconds * 1e3 for each in windows]),
    }
    ratios = {}
    if viewer is not Viewer.OFF:
        shares = _shares_of_neighbours(viewer, watch.windows)
        metrics["share_of_neighbours"] = metric("ratio", shares)
        ratios["without_page"] = median(shares)
    seen = {Viewer.STREAM: ("documents", "documents"), Viewer.BROWSER: ("longest_task_ms", "ms")}.get(viewer)
    if seen is not None:
        name, unit = seen
        metrics[name] = metric(unit, watch.seen[name])
    return Result(
        "page",
        {
            "viewer": viewer.value,
            "subtasks": 2 * PARALLELISM,
            "parallelism": PARALLELISM,
            "snapshot_interval_s": SNAPSHOT_INTERVAL_SECONDS,
            "window_s": WINDOW_SECONDS,
            **effort.configuration(),
        },
        metrics,
        ratios,
    )


def _shares_of_neighbours(viewer: Viewer, windows: list[Window]) -> list[float]:
    """Of the mean rate of the windows before and after, in which there was no page."""
    around = zip(windows, windows[1:], windows[2:], strict=False)
    return [
        2 * each.records_per_second / (before.records_per_second + after.records_per_second)
        for before, each, after in around
        if each.viewer is viewer
    ]
