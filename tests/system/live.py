"""Runs graphs for the system tests, waits for conditions, and judges what came out."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barrier_runtime import BarrierRuntime, Run
from snapshot import Graph, Node
from state_backends import FileSystemBackend
from state_backends.disk import Disk
from tests.leaks import Process, process_table
from tests.system.programs import Lane, Ledger, Numbers, Relay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds that anything here may take before the test fails and says what it waited for. Passing tests do not wait.
DEADLINE_S = 90.0
_POLL_S = 0.01


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """Poll until `condition` gives something true, and return it; fail, naming `what`, when it does not."""
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"after {DEADLINE_S:g} s still waiting for {what}"
        threading.Event().wait(_POLL_S)
    return found


class HeldBackend(FileSystemBackend):
    """Waits before, or after, it writes what a file ``hold-before`` or ``hold-after`` names; says so in ``held``."""

    def __init__(self, root: Path, signs: Path) -> None:
        super().__init__(root, inlineBytesMax=0)
        self.signs = signs

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        self._hold(self.signs / "hold-before", path)
        won = super()._put_if_absent(path, chunks)
        self._hold(self.signs / "hold-after", path)
        return won

    def _hold(self, sign: Path, path: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while _names(sign, path) and time.monotonic() < end:
            (self.signs / "held").touch()
            threading.Event().wait(_POLL_S)


def _names(sign: Path, path: str) -> bool:
    """Whether the sign is up and names `path`; one read, for the test takes it down at any time."""
    try:
        return sign.read_text() in path
    except FileNotFoundError:
        return False


class DimDisk(Disk):
    """Manifests cannot be read through it while `fault` says so; copies that others got at submit read well.

    `fault` is "" (none), "error" (the read fails) or "damage" (a bit is flipped).
    """

    def __init__(self) -> None:
        self.fault = ""

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        data = super().read(path, offset, size)
        fault = self.fault if path.endswith(".manifest") else ""
        if fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return data[:-1] + bytes([data[-1] ^ 1]) if fault == "damage" else data


class Live:
    """Submits graphs and ends what is still active when the test is over.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        empty; the test's own.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.backend = FileSystemBackend(folder / "snapshots")
        self.runs: list[Run] = []

    def runtime(self, **settings: Any) -> BarrierRuntime:
        """A runtime with a short interval between snapshots, the test's own folder for them, and no page."""
        defaults: dict[str, Any] = {"backend": self.backend, "snapshotInterval": 0.1, "page": False}
        return BarrierRuntime(self.spark, **defaults | settings)

    def submit(self, runtime: BarrierRuntime, graph: Graph, **how: Any) -> Run:
        """Submit, and remember to end it."""
        run = runtime.submit(graph, **how)
        self.runs.append(run)
        return run

    def run(self, graph: Graph, **settings: Any) -> Run:
        """Submit with a runtime of its own."""
        return self.submit(self.runtime(**settings), graph)

    def end(self) -> None:
        """End what is active, whatever state it is in."""
        for run in self.runs:
            if run.isActive:
                ending = threading.Thread(target=run.stop, name=f"ending {run.name}", daemon=True)
                ending.start()
                ending.join(DEADLINE_S)
                assert not ending.is_alive(), f"run {run.name!r} cannot be stopped"
        self.runs.clear()


class Job(NamedTuple):
    """A numbered-record job and the folders by which it is steered and judged."""

    graph: Graph
    folder: Path
    sources: int

    def finish(self) -> None:
        """Let the source send its tail and end."""
        (self.folder / "done" / "enough").touch()


def folders(folder: Path) -> Path:
    """Make the folders that a job needs, unless an earlier driver did."""
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
    """Numbers, shuffle, a node in the middle, shuffle, ledger; what is given takes the place of the usual node."""
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
    """Nothing lost, doubled, out of order or damaged, in states and in output; returns the number of records."""
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
    """Wait until the run runs and has published `count` snapshots more than it had then; returns the new ones."""
    known = wait_for("the run to run", lambda: status if (status := run.status)["phase"] == "running" else None)
    newest = max(known["snapshots"], default=0)
    return list(wait_for(f"{count} more snapshots", lambda: _enough(_after(run, newest), count)))


def _after(run: Run, snapshot_id: int) -> list[int]:
    return [each for each in run.status["snapshots"] if each > snapshot_id]


def _enough(found: list[int], count: int) -> list[int]:
    return found if len(found) >= count else []


def kill(pid: int) -> float:
    """SIGKILL; returns when, in seconds of the monotonic clock."""
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return at


def parent_of(pid: int) -> int:
    """The process above: of a worker, its barrier task."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_gone(pid: int) -> bool:
    """Whether the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def coordinators() -> list[int]:
    """Processes of the coordinators that this driver's Ray runs."""
    table = {process.pid: process for process in process_table()}
    return [p.pid for p in table.values() if "ray::CoordinatorActor" in p.command and _is_below(p, os.getpid(), table)]


def _is_below(process: Process | None, ancestor: int, table: Mapping[int, Process]) -> bool:
    while process is not None and process.parent != ancestor:
        process = table.get(process.parent)
    return process is not None


def recovery_seconds(job: Job, fault_at: float, incarnation: int) -> float:
    """From the fault to the first record that no incarnation before had processed, at any ledger."""
    return float(wait_for("a new record", lambda: _first_new(job, incarnation))) - fault_at


def _first_new(job: Job, incarnation: int) -> float:
    times = [at for number, at, what, _ in _lines(job) if what == "new" and number > incarnation]
    return min(times, default=0.0)


def longest_gap(job: Job, since: float) -> float:
    """The longest pause of any ledger that ended after `since`, in seconds; 0: none was worth a note."""
    return max((length for _, at, what, length in _lines(job) if what == "gap" and at > since), default=0.0)


def _lines(job: Job) -> list[tuple[int, float, str, float]]:
    found = []
    for path in sorted(job.folder.glob("watch-*.lines")):
        for line in path.read_text().splitlines():
            incarnation, at, what, value = line.split()
            found.append((int(incarnation), float(at), what, float(value)))
    return found
