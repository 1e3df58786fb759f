"""Submit graphs, wait for conditions, and judge the output of jobs of numbered records.

Benchmarks and the system tests share the module, because both need a run that is known to be exact.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.numbered_nodes import Lane, Ledger, Numbers, Relay
from cutline import BarrierRuntime, FileSystemBackend, Graph, Node, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: seconds that a condition may take before `wait_for` fails with the name of the condition
DEADLINE_S = 90.0
#: Pauses between two polls grow up to the last, because the status of a run costs milliseconds of two processes.
_FIRST_POLL_S, _LAST_POLL_S, _POLL_GROWTH = 0.01, 0.1, 1.3


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """Poll until `condition` returns something true, and return it.

    Raises
    ------
    AssertionError
        with `what`, after `DEADLINE_S`.
    """
    end, pause = time.monotonic() + DEADLINE_S, _FIRST_POLL_S
    while not (found := condition()):
        assert time.monotonic() < end, f"after {DEADLINE_S:g} s still waiting for {what}"
        threading.Event().wait(pause)
        pause = min(pause * _POLL_GROWTH, _LAST_POLL_S)
    return found


class Live:
    """Submits graphs, and ends at the end the runs that are still active.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        An empty folder that nothing else uses.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.backend = FileSystemBackend(folder / "snapshots")
        self.runs: list[Run] = []

    def within(self, name: str) -> Live:
        """Return a place in a folder of this one. Its runs end with the runs of this place."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        there = Live(self.spark, folder)
        there.runs = self.runs
        return there

    def runtime(self, **settings: Any) -> BarrierRuntime:
        """Make a runtime with a short snapshot interval, snapshots in `folder`, and no page."""
        defaults: dict[str, Any] = {"backend": self.backend, "snapshotInterval": 0.1, "page": False}
        return BarrierRuntime(self.spark, **defaults | settings)

    def submit(self, runtime: BarrierRuntime, graph: Graph, **how: Any) -> Run:
        """Submit a graph, and note the run for `end`."""
        run = runtime.submit(graph, **how)
        self.runs.append(run)
        return run

    def run(self, graph: Graph, **settings: Any) -> Run:
        """Submit a graph with a runtime of these settings."""
        return self.submit(self.runtime(**settings), graph)

    def end(self) -> None:
        """Stop every active run, in whatever state it is."""
        for run in self.runs:
            if run.isActive:
                ending = threading.Thread(target=run.stop, name=f"ending {run.name}", daemon=True)
                ending.start()
                ending.join(DEADLINE_S)
                assert not ending.is_alive(), f"run {run.name!r} cannot be stopped"
        self.runs.clear()


class Job(NamedTuple):
    """A job of numbered records, its folder, and its number of source subtasks."""

    graph: Graph
    folder: Path
    sources: int

    def finish(self) -> None:
        """Let the source send its tail and end."""
        (self.folder / "done" / "enough").touch()


def folders(folder: Path) -> Path:
    """Make the folders that a job needs, unless an earlier driver made them."""
    for name in ("done", "prepared", "committed"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


def pipeline(
    folder: Path,
    parallelism: int = 2,
    *,
    name: str = "job",
    source: Node | None = None,
    middle: Node | None = None,
    sink: Node | None = None,
    enough: int = 1,
) -> Job:
    """Make the job: numbers, shuffle, a node in the middle, shuffle, ledger. A given node replaces the usual node."""
    folders(folder)
    lane = Lane(parallelism)
    graph = Graph(name)
    graph.add("numbers", source or Numbers(folder / "done", enough), parallelism=parallelism)
    graph.add("middle", middle or Relay(), parallelism=parallelism)
    graph.add("ledger", sink or Ledger(folder, parallelism), parallelism=parallelism)
    graph.connect("numbers", "middle", key=lane)
    graph.connect("middle", "ledger", key=lane)
    return Job(graph, folder, parallelism)


def assert_exact(job: Job, run: Run) -> int:
    """Check that no record is lost, doubled, out of order or damaged, in states and output. Return their number."""
    final = run.snapshots()[-1]
    final.verify()
    ends = [state[0] for state in final.node("numbers").states]
    expected = sorted(number for index, end in enumerate(ends) for number in range(index, end, job.sources))
    for _, skipped, wrong in final.node("ledger").states:
        assert (skipped, wrong) == ([], {"duplicate": 0, "disorder": 0, "corrupt": 0})
    files = sorted((job.folder / "committed").iterdir())
    assert sorted(int(line) for path in files for line in path.read_text().splitlines()) == expected
    assert list((job.folder / "prepared").iterdir()) == []
    return len(expected)


def await_snapshots(run: Run, count: int) -> list[int]:
    """Wait until the run is running and has then published `count` more snapshots. Return the new ids."""
    known = wait_for("the run to run", lambda: status if (status := run.status)["phase"] == "running" else None)
    newest = max(known["snapshots"], default=0)
    return list(wait_for(f"{count} more snapshots", lambda: _enough(_after(run, newest), count)))


def _after(run: Run, snapshot_id: int) -> list[int]:
    return [each for each in run.status["snapshots"] if each > snapshot_id]


def _enough(found: list[int], count: int) -> list[int]:
    return found if len(found) >= count else []


def recovery_seconds(job: Job, fault_at: float, incarnation: int) -> float:
    """Return seconds from the fault to the first record at any ledger that no earlier incarnation had processed."""
    return float(wait_for("a new record", lambda: _first_new(job, incarnation))) - fault_at


def _first_new(job: Job, incarnation: int) -> float:
    times = [at for number, at, what, _ in _lines(job) if what == "new" and number > incarnation]
    return min(times, default=0.0)


def longest_gap(job: Job, since: float) -> float:
    """Return the longest pause in seconds of any ledger that ended after `since`, or 0 when none was noted."""
    return max((length for _, at, what, length in _lines(job) if what == "gap" and at > since), default=0.0)


def _lines(job: Job) -> list[tuple[int, float, str, float]]:
    found = []
    for path in sorted(job.folder.glob("watch-*.lines")):
        for line in path.read_text().splitlines():
            incarnation, at, what, value = line.split()
            found.append((int(incarnation), float(at), what, float(value)))
    return found
