"""``cutline run`` without Spark and Ray: what it prints while a run goes, at Ctrl-C, and at the end."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cutline import BarrierRuntime, FileSystemBackend, Graph
from cutline.barrier_runtime.cli import session
from cutline.barrier_runtime.cli.progress import watch
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from tests.barrier_runtime.driver.test_local_runs import counting
from tests.barrier_runtime.invoking import invoke
from tests.barrier_runtime.local_cluster import LocalCluster, local_cluster
from tests.leaks import LeakCheck

_JOBS = """
import os, signal
from pathlib import Path
from cutline import LineSource
from cutline import END, Graph, Node, Sink, Source

class Numbers(Source):
    '''0 to 1,499. Presses Ctrl-C at 500 and 501 and fails once at 700, where a file says so.'''
    def __init__(self): self.next = 0
    def poll(self, context):
        if self.next == 1_500: return END
        if self.next in (500, 501) and Path(f"press at {self.next}").exists():
            Path(f"press at {self.next}").unlink()
            os.kill(os.getpid(), signal.SIGINT)
        if self.next == 700 and Path("fail").exists():
            Path("fail").unlink()
            raise ValueError("[bold]no more than 700")
        context.send(self.next)
        self.next += 1
        return 0.0005
    def snapshotState(self, snapshotId, timestamp): return self.next
    def restoreState(self, state): self.next = state

class Total(Sink):
    def __init__(self): self.total = 0
    def onMessage(self, message, context): self.total += message
    def snapshotState(self, snapshotId, timestamp): return self.total
    def restoreState(self, state): self.total = state

class Lengths(Node):
    deterministic = True
    def onMessage(self, message, context): context.send(len(message))

def lines():
    graph = Graph("lines").add("lines", LineSource("local_jobs.py")).add("lengths", Lengths()).add("total", Total())
    return graph.connect("lines", "lengths").connect("lengths", "total")

def numbers(spark):
    graph = Graph("numbers").add("numbers", Numbers()).add("total", Total()).connect("numbers", "total")
    if Path("wrong").exists():
        graph.addInvariant("small", lambda snapshot: False)
    return graph
"""


@pytest.fixture
def cluster(leak_check: LeakCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A cluster in this process, which `cutline run` takes for Spark; the current folder has a module of graphs."""
    (tmp_path / "local_jobs.py").write_text(_JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "local_jobs", raising=False)
    with local_cluster() as made:
        monkeypatch.setattr(session, "_start", lambda master, settings, log: made.spark)
        yield made


def run(*arguments: str) -> Any:
    return invoke("run", "local_jobs:numbers", "--page", "none", "--interval", "0.2", "--backend", "store", *arguments)


def test_a_run_goes_to_its_end(cluster: LocalCluster) -> None:
    """Lines of progress, and how it ended. The module goes to the workers, and the session is stopped."""
    done = run()
    assert done.exit_code == 0, done.output
    assert re.search(
        r"^00:0\d running: in [\d,]+/s, out [\d,]+/s, snapshot (none yet|\d+ \(.*\)), restarts 0$", *_lines(done)
    )
    assert re.search(r"^run numbers finished: .*; 0 restarts$", *_lines(done))
    assert [Path(each).name for each in cluster.spark.files] == ["local_jobs.py"] and cluster.spark.is_stopped


def _lines(done: Any) -> tuple[str, re.RegexFlag]:
    return done.output, re.MULTILINE


def test_a_restart_is_printed_once(cluster: LocalCluster, tmp_path: Path) -> None:
    """With its reason as it is, on one line. The exit code is that of the end."""
    (tmp_path / "fail").touch()
    done = run()
    assert done.exit_code == 0
    (line,) = re.findall(r"^restart 1: .*", *_lines(done))
    assert "[bold]no more than 700" in line
    assert "Traceback" not in line
    assert re.search(r"^run numbers finished: .*; 1 restarts$", *_lines(done))


def test_ctrl_c_stops_and_the_printed_command_goes_on(cluster: LocalCluster, tmp_path: Path) -> None:
    """The exit code is that of an interrupt. The command has all options, and the second run begins at the snapshot."""
    (tmp_path / "press at 500").touch()
    stopped = run("--retained", "3", "--safe")
    assert stopped.exit_code == 130, stopped.output
    assert "stopping with a snapshot; press Ctrl-C again to stop at once" in stopped.output
    (snapshot,) = re.findall(r"^run numbers stopped with snapshot (\d+)$", *_lines(stopped))
    heading, printed = stopped.output.splitlines()[-2:]
    words = shlex.split(printed)
    assert heading == "To go on:" and words[:3] == ["cutline", "run", "local_jobs:numbers"]
    assert words[-4:-1] == ["--name", "numbers", "--backend"] and {"--retained", "--safe"} <= set(words)
    resumed = invoke(*words[1:], "--json")
    assert resumed.exit_code == 0, resumed.output
    documents = [json.loads(line) for line in resumed.output.splitlines() if line.startswith("{")]
    assert documents[0]["event"] == "progress" and documents[0]["progress"]["sent"].get("numbers", 500) >= 500
    last = documents[-1]
    assert (last["event"], last["outcome"], last["snapshot"]) == ("end", "finished", None)
    assert int(snapshot) < last["snapshots"][-1] and shlex.split(last["goOn"])[-4:] == words[-4:]


def test_a_run_has_the_chosen_mode(cluster: LocalCluster) -> None:
    """Also in the command that goes on. Another mode is refused, and so is a graph that the mode cannot run."""
    words = ("run", "local_jobs:lines", "--page", "none", "--backend", "store", "--mode", "deltas:every=2")
    done = invoke(*words, "--json")
    assert done.exit_code == 0, done.output
    end = json.loads(next(line for line in done.output.splitlines() if line.startswith('{"event":"end"')))
    assert end["mode"]["name"] == "deltas" and "--mode deltas:every=2" in end["goOn"]
    assert "made in mode 'deltas'; submit it so" in str(invoke(*words[:-2]).exception)
    planned = invoke("plan", "local_jobs:lines", "--backend", "store", "--mode", "inputLogging")
    assert planned.exit_code == 1 and "made in mode 'deltas'; submit it so" in planned.output
    assert invoke("plan", "local_jobs:lines", "--backend", "store").exit_code == 0
    assert "source 'numbers' is no ReplayableSource" in str(run("--mode", "inputLogging").exception)


def test_a_second_ctrl_c_stops_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    """The exit code and the command that goes on are those of the first."""
    for number in (500, 501):
        (tmp_path / f"press at {number}").touch()
    stopped = run()
    assert stopped.exit_code == 130, stopped.output
    heading, printed = stopped.output.splitlines()[-2:]
    assert heading == "To go on:" and printed.startswith("  cutline run local_jobs:numbers ")


def test_a_package_is_sent_whole(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one archive, because its modules import each other."""
    (tmp_path / "local_package").mkdir()
    (tmp_path / "local_package" / "jobs.py").write_text(_JOBS)
    for name in ("local_package", "local_package.jobs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    done = invoke("run", "local_package.jobs:numbers", "--page", "none", "--backend", "store")
    assert done.exit_code == 0, done.output
    assert [Path(each).name for each in cluster.spark.files] == ["local_package.zip"]


def test_a_violated_invariant_is_the_exit_code(cluster: LocalCluster, tmp_path: Path) -> None:
    """The run finishes all the same, and the invariant is named."""
    (tmp_path / "wrong").touch()
    done = run()
    assert done.exit_code == 1 and "small" in done.output and "run numbers finished" in done.output


def test_the_display_of_a_terminal(cluster: LocalCluster, tmp_path: Path) -> None:
    """The name, the phase, workers, counts in and out, the newest snapshot and the restarts, each in its row."""
    graph: Graph = counting(1500, tmp_path / "failed", 700)
    backend = FileSystemBackend(str(tmp_path / "store"))
    runtime = BarrierRuntime(
        cluster.spark, backend=backend, page=False, snapshotInterval=0.1, restartPolicy=RestartPolicy(maxRestarts=3)
    )
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120, color_system=None)
    started = runtime.submit(graph)
    seen = list(watch(started, graph, console))
    assert seen and all(report["name"] == "counting" for report in seen)
    text = written.getvalue()
    for row in (
        r"counting  \w+  00:0\d  incarnation \d+  workers [012]",
        r"  rows in    +[\d,]+/s  +[\d,]+ in all",
        r"  rows out   +[\d,]+/s  +[\d,]+ in all",
        r"  snapshot   (none yet|\d+ \([\d.]+ \w+, [\d.]+ \w+\))",
        r"  restarts   [01]",
        r"restart 1: .*this message is too much",
    ):
        assert re.search(row, text), row
