"""Measure what the live page costs a run of 64 subtasks with a snapshot every half second.

The run is split into windows of two seconds. Windows without a page alternate with windows with a page. The page has no
reader, is read by a small process, or is shown by Chromium. Each window with a page is compared with its two
neighbours, because the machine varies more from run to run than a page costs.

On a machine that the job fills, Chromium takes processor time for drawing from the job. The cost of the page itself is
what windows with the small reader lose, and the additional time of the driver's process.

The figures of docs/SPEED_HISTORY.md were measured when the sources sent messages one by one. Sources now send lists.
"""

from __future__ import annotations

import os
import shutil
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

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.keyed_nodes import CountedMessages, RunningSum, SharedCounters
from benchmarks.keyed_rows import BURST_MESSAGES, require_equal, sums_of_bursts
from benchmarks.live import Live, wait_for
from benchmarks.result import Result, metric
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place, scratch
from benchmarks.timed_run import timed_run
from cutline import Graph, Run

PARALLELISM = 32
WORKERS = 2
SNAPSHOT_INTERVAL_SECONDS = 0.5
WINDOW_SECONDS = 2.0
QUICK_WINDOW_SECONDS = 0.5
#: windows of each viewer for each second of a round of a usual benchmark, so that there are 15 of each
ROUNDS_PER_SECOND = 2
#: Names of the program in the distributions. ``scripts/setup`` searches for the same names.
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
#: seconds after the first record and before the first window, in which the rate becomes steady
SETTLE_SECONDS = 2.0

#: Program that reads a stream, reads the metrics with each document, and prints the number of documents so far.
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

#: Script that notes the longest time for which the browser could not react.
_LONGEST_TASK = """
window.longestTask = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longestTask = Math.max(window.longestTask, task.duration);
}).observe({ type: "longtask", buffered: true });
"""


class Viewer(Enum):
    """The reader of the page in a window."""

    #: no page
    OFF = "off"
    #: a page without a reader
    NOBODY = "nobody"
    #: a small process, which reads the metrics too
    STREAM = "stream"
    #: Chromium
    BROWSER = "browser"


class Window(NamedTuple):
    """The figures of some seconds of the run with the same viewer."""

    viewer: Viewer
    records_per_second: float
    #: seconds of processor time of the driver's process in a second
    driver_seconds: float


@dataclass
class Watch:
    """Measurements of the run."""

    windows: list[Window] = field(default_factory=list)
    #: {name of a figure of the viewers: its values}
    seen: dict[str, list[float]] = field(default_factory=dict)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a headless Chromium of the distribution."""
    path = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if path is None:
        raise FileNotFoundError("Chromium is missing. Install it (Debian: apt-get install chromium).")
    # Chromium refuses to sandbox root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


def configurations(size: RunSize) -> Cases:
    """Return one case for each viewer."""
    return {
        viewer: {
            "viewer": viewer.value,
            "subtasks": 2 * PARALLELISM,
            "parallelism": PARALLELISM,
            "snapshot_interval_s": SNAPSHOT_INTERVAL_SECONDS,
            "window_s": size.choose(WINDOW_SECONDS, QUICK_WINDOW_SECONDS),
            **size.configuration(),
        }
        for viewer in size.choose(tuple(Viewer), (Viewer.OFF, Viewer.STREAM))
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case. Each window with a page has neighbours without a page, for the comparison."""
    viewers = [viewer for viewer in cases if viewer is not Viewer.OFF]
    turns = [each for viewer in viewers for each in (Viewer.OFF, viewer)]
    rounds = max(1, round(ROUNDS_PER_SECOND * size.seconds * size.repeats))
    show_progress("page", next(iter(cases.values())), 1, 1)
    watch = _run(place(), turns * rounds + [Viewer.OFF], size)
    for viewer, configuration in cases.items():
        yield _result(viewer, watch, configuration)


def _run(live: Live, turns: list[Viewer], size: RunSize) -> Watch:
    watch = Watch()
    settle_seconds = size.choose(SETTLE_SECONDS, QUICK_WINDOW_SECONDS)
    window_seconds = size.choose(WINDOW_SECONDS, QUICK_WINDOW_SECONDS)
    with scratch(live) as folder, ExitStack() as open_at_last:
        counters = SharedCounters(folder / "counters", PARALLELISM)
        graph = Graph("page")
        graph.add("records", CountedMessages(folder / "counters"), parallelism=PARALLELISM)
        graph.add("sums", RunningSum(), parallelism=PARALLELISM)
        graph.connect("records", "sums")  # in pairs, for small snapshots and a steady rate

        @contextmanager
        def watched(run: Run) -> Iterator[None]:
            tab = None
            if Viewer.BROWSER in turns:
                tab = open_at_last.enter_context(chromium()).new_page(viewport={"width": 1280, "height": 900})
                tab.add_init_script(_LONGEST_TASK)
            wait_for("records", lambda: counters.all_have_begun)
            time.sleep(settle_seconds)
            for viewer in turns:
                with _viewing(viewer, run, tab, watch.seen):
                    watch.windows.append(_window(viewer, counters, window_seconds))
            counters.end()
            yield

        timed = timed_run(
            live,
            graph,
            source="records",
            last="sums",
            seconds=0.0,  # because the sources have ended by then
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


def _window(viewer: Viewer, counters: SharedCounters, length: float) -> Window:
    began_at, began_with, before = time.monotonic(), counters.rounds, time.process_time()
    time.sleep(length)
    seconds, sent = time.monotonic() - began_at, (counters.rounds - began_with) * BURST_MESSAGES
    return Window(viewer, sent / seconds, (time.process_time() - before) / seconds)


@contextmanager
def _viewing(viewer: Viewer, run: Run, tab: Page | None, seen: dict[str, list[float]]) -> Iterator[None]:
    match viewer:
        case Viewer.OFF:
            # The run is like one submitted without a page. The server waits, and does nothing.
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


def _result(viewer: Viewer, watch: Watch, configuration: Configuration) -> Result:
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
    return Result("page", configuration, metrics, ratios)


def _shares_of_neighbours(viewer: Viewer, windows: list[Window]) -> list[float]:
    """Return the rates of a viewer, divided by the mean rate of the windows without a page before and after."""
    around = zip(windows, windows[1:], windows[2:], strict=False)
    return [
        2 * each.records_per_second / (before.records_per_second + after.records_per_second)
        for before, each, after in around
        if each.viewer is viewer
    ]
