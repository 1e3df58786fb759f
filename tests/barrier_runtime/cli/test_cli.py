"""The command line: what it finds, shows and refuses, and a run that is stopped by Ctrl-C and goes on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cutline import END, Context, FileSystemBackend, Graph, Node, Sink, Source
from cutline.barrier_runtime.cli import app
from cutline.barrier_runtime.cli.formatting import verdict_lines
from cutline.barrier_runtime.cli.graph_loader import find_graph, python_file
from cutline.barrier_runtime.cli.progress import Flow
from cutline.barrier_runtime.cli.session import check_java
from cutline.barrier_runtime.cli.stored import CODEC
from cutline.demos import bank
from cutline.snapshot.drawing.labels import duration_text, size_text
from cutline.snapshot.errors import GraphError, RunFailed
from cutline.snapshot.node import End
from cutline.snapshot.stored.run_store import RunStore
from tests.barrier_runtime.invoking import invoke
from tests.leaks import LeakCheck
from tests.programs import Program

_JOB = """
from cutline import END, Sink, Source, Graph
from jobs.nodes import Numbers, Total

def endless(spark):
    assert spark.range(3).count() == 3
    graph = Graph("numbers").add("numbers", Numbers(), parallelism=2).add("total", Total())
    return graph.connect("numbers", "total")

def without_argument():
    return Graph("numbers").add("numbers", Numbers()).add("total", Total()).connect("numbers", "total")

number = 5
broken = lambda spark: number
no_argument = lambda: finished
any_argument = lambda *arguments: finished.add(str(len(arguments)), Total())
two_arguments = lambda spark, number: finished
finished = Graph("finished")
"""
_NODES = """
from cutline import Sink, Source

import os, time

class Numbers(Source):
    def __init__(self): self.next = 0
    def poll(self, context):
        context.send(self.next)
        self.next += 1
        return 0.005
    def snapshotState(self, snapshotId, timestamp):
        while os.path.exists("stuck"): time.sleep(0.05)
        return self.next
    def restoreState(self, state): self.next = state

class Total(Sink):
    def __init__(self): self.total = 0
    def onMessage(self, message, context): self.total += message
    def snapshotState(self, snapshotId, timestamp): return self.total
    def restoreState(self, state): self.total = state
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a package of two modules, imported anew by each test."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "numbers.py").write_text(_JOB)
    (tmp_path / "jobs" / "nodes.py").write_text(_NODES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "jobs"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


# ---------------------------------------------------------------- help and arguments


@pytest.mark.parametrize(
    "command",
    [
        *(("run",), ("restore",), ("fork",), ("stop",), ("top",), ("runs",), ("demo", "wordcount"), ("demo", "bank")),
        *(("snapshots", each) for each in ("list", "show", "verify", "diff", "take", "pin", "unpin", "delete")),
    ],
)
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    """Each command explains itself, with an example of itself, and is listed with the others."""
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert f"Usage: cutline {' '.join(command)} [OPTIONS]" in result.output
    assert f"Example: cutline {' '.join(command)} " in result.output
    listed = invoke(*command[:-1], "--help")
    assert listed.exit_code == 0 and f" {command[-1]} " in listed.output


def test_every_option_has_help() -> None:
    """A name alone does not say what an option changes."""
    commands = _commands(typer.main.get_command(app))
    assert len(commands) > 15
    silent = [
        f"{command.name} {each.opts[0]}"
        for command in commands
        for each in command.params
        if each.param_type_name == "option" and not getattr(each, "help", None)
    ]
    assert silent == []


@pytest.mark.parametrize("command", [("top",), ("stop",), ("snapshots", "take")])
def test_the_page_of_the_first_run_is_the_default(command: tuple[str, ...]) -> None:
    """Its address is in the help as the default, so that nobody has to look for it."""
    assert "[default: http://127.0.0.1:4640]" in " ".join(invoke(*command, "--help").output.split())


def _commands(group: Any) -> list[Any]:
    """All commands below a group of commands."""
    found = []
    for command in group.commands.values():
        found += _commands(command) if hasattr(command, "commands") else [command]
    return found


@pytest.mark.parametrize(("group", "command"), [((), "snapshots"), (("snapshots",), "unpin"), (("demo",), "bank")])
def test_a_group_without_a_command_shows_its_commands(group: tuple[str, ...], command: str) -> None:
    """The help says more than an error."""
    result = invoke(*group)
    assert command in result.output and "Missing command" not in result.output


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--alignment", "sideways", "a number of seconds"),
        ("--restore-from", "yesterday", "the id of a snapshot"),
        ("--conf", "spark.ui.enabled", "KEY=VALUE"),
        ("--backend", "file://host/folder", "three slashes"),
        ("--workers", "0", "greater than or equal to 1"),
        ("--page", "somewhere", "a port, or HOST:PORT"),
        ("--page", "70000", "a port is 0 to 65535"),
        ("--mode", "deltas:every=0", "every is a whole number from 1"),
    ],
)
def test_wrong_options_are_refused(option: str, value: str, said: str) -> None:
    """A wrong value is refused before anything starts, with what would be right."""
    result = invoke("run", "jobs.numbers:endless", option, value)
    assert result.exit_code == 2
    assert said in result.output


# ---------------------------------------------------------------- MODULE:GRAPH


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jobs.numbers", "give MODULE:GRAPH"),
        ("nojobs:graph", "no module 'nojobs'"),
        ("jobs.none:graph", "no module 'jobs.none'"),
        ("jobs.numbers:nothing", "its graphs are finished"),
        ("jobs.numbers:number", "is of type int; it must be a Graph"),
    ],
)
def test_a_graph_that_is_not_there_is_said(jobs: Path, name: str, said: str) -> None:
    """Each way to name no graph has its own error."""
    with pytest.raises(GraphError, match=said):
        find_graph(name)


def test_what_a_module_lacks_itself_is_not_blamed_on_its_name(jobs: Path) -> None:
    """A module that is there, and imports one that is not, fails as Python says it."""
    (jobs / "jobs" / "lame.py").write_text("import jobs_that_are_nowhere")
    with pytest.raises(ModuleNotFoundError, match="jobs_that_are_nowhere"):
        find_graph("jobs.lame:graph")


def test_a_function_must_return_a_graph(jobs: Path) -> None:
    """What the function returned instead is said."""
    place = find_graph("jobs.numbers:broken")
    with pytest.raises(GraphError, match="returned a value of type int"):
        place.graph(None)


def test_a_function_may_have_no_argument(jobs: Path) -> None:
    """The session is passed where it is accepted; a function that needs more is refused by its signature."""
    assert find_graph("jobs.numbers:no_argument").graph(None).name == "finished"
    graph = find_graph("jobs.numbers:any_argument").graph(None)
    assert [declared.name for declared in graph.nodes] == ["1"]
    with pytest.raises(GraphError, match=r"two_arguments\(spark, number\): .* or no argument"):
        find_graph("jobs.numbers:two_arguments").graph(None)


def test_the_whole_package_goes_to_the_workers(jobs: Path, tmp_path: Path) -> None:
    """Nodes of a neighbouring module are found too: the package travels, each file of it once."""
    archive = python_file(find_graph("jobs.numbers:finished").module, tmp_path)
    assert archive is not None
    with zipfile.ZipFile(archive) as files:
        assert files.namelist() == ["jobs/", "jobs/nodes.py", "jobs/numbers.py"]
    # As a worker finds it: without the folder that it came from.
    script = f"import sys; sys.path.insert(0, {str(archive)!r}); import jobs.numbers; print(jobs.numbers.__file__)"
    found = subprocess.run([sys.executable, "-c", script], cwd="/", capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == f"{archive}/jobs/numbers.py", found.stderr


def test_a_single_module_goes_as_it_is(jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module without a package is one file."""
    (jobs / "single_job.py").write_text("from cutline import Graph\ngraph = Graph('single')")
    module = find_graph("single_job:graph").module
    monkeypatch.delitem(sys.modules, "single_job")
    sys.modules["single_job"] = module
    assert python_file(module, tmp_path) == jobs / "single_job.py"
    del sys.modules["single_job"]


def test_what_is_installed_stays(tmp_path: Path) -> None:
    """Installed packages are not sent along."""
    assert python_file(json, tmp_path) is None
    assert python_file(bank, tmp_path) is None  # a demo: Cutline is installed on every executor
    assert python_file(pytest, tmp_path) is None


# ---------------------------------------------------------------- numbers


class Letters(Source):
    """A source, by its class only."""

    def poll(self, context: Context) -> End:
        """Nothing."""
        return END


class Bin(Sink):
    """A sink, by its class only."""

    def onMessage(self, message: Any, context: Context) -> None:
        """Nothing."""


def report(timestamp: float, incarnation: int, sent: dict[str, int], processed: dict[str, int]) -> dict[str, Any]:
    """What `Run.recentProgress` holds, as far as rates need it."""
    return {
        "timestamp": timestamp,
        "incarnation": incarnation,
        "progress": {"sent": sent, "processed": processed},
    }


def test_rates_are_those_of_sources_and_sinks() -> None:
    """Rows in are what sources send, rows out what sinks process; what passes between is neither."""
    flow = Flow(Graph("g").add("letters", Letters()).add("middle", Node()).add("bin", Bin()))
    reports = [
        report(at, 1, {"letters": round(100 * at), "middle": 10**6}, {"middle": 0, "bin": round(50 * at)})
        for at in (0.0, 1.0, 2.0, 3.0)
    ]
    assert flow.rates(reports) == (100.0, 50.0)
    assert flow.totals(reports[-1]) == (300, 150)


def test_a_rollback_is_no_leap() -> None:
    """Counters go on from the snapshot: a worker's first report after a rollback counts for no rate."""
    flow = Flow(Graph("g").add("letters", Letters()).add("bin", Bin()))
    before = report(0.0, 1, {"letters": 100}, {"bin": 100})
    none = report(0.5, 2, {}, {})
    first, later = (report(at, 2, {"letters": count}, {"bin": count}) for at, count in ((1.0, 5000), (2.0, 5100)))
    last = report(3.0, 2, {"letters": 5200}, {"bin": 5200})
    assert flow.rates([before, none]) == (0.0, 0.0)
    assert flow.rates([before, none, first]) == (0.0, 0.0)
    assert flow.rates([before, none, first, later, last]) == (100.0, 100.0)


def test_sizes_and_durations_are_read_at_a_glance() -> None:
    """Units fit the number."""
    assert [size_text(n) for n in (0, 1023, 1024, 1536, 5 * 1024**5)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5120.0 TiB")
    ]
    assert [duration_text(s) for s in (0.0354, 1.25)] == ["35 ms", "1.25 s"]


def test_what_nobody_can_judge_is_said() -> None:
    """An invariant that is violated, and snapshots that cannot be read, are both named at the end of a run."""
    sound = {"holds": True, "snapshot": 4, "violations": [], "unreadable": []}
    sound |= {"violationCount": 0, "unreadableCount": 0}
    assert verdict_lines({"sum": sound}) == []
    assert verdict_lines(
        {"sum": {**sound, "violations": [2], "violationCount": 1, "unreadable": [1, 3], "unreadableCount": 1207}}
    ) == [
        "invariant sum does not hold in the snapshots 2",
        "invariant sum cannot judge 1,207 snapshots, the last 1, 3",
    ]


# ---------------------------------------------------------------- Java


@pytest.mark.parametrize(
    ("java", "said"),
    [(None, "there is none"), ("echo 'openjdk version \"11.0.2\"' >&2", "is 11"), ("exit 3", "is exit code 3")],
)
def test_java_that_does_not_do_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: str | None, said: str
) -> None:
    """Missing, too old or broken: said before Spark is started, with what to install."""
    (tmp_path / "bin").mkdir()
    if java is not None:
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\n{java}\n")
        (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RunFailed, match=rf"{said}.*Install one"):
        check_java()


# ---------------------------------------------------------------- a run


def command(folder: Path, *arguments: str) -> list[str]:
    """`cutline` in a process of its own, started in `folder`."""
    return ["env", "-C", str(folder), sys.executable, "-u", "-m", "cutline", *arguments]


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_with_a_snapshot_and_the_run_goes_on(jobs: Path, leak_check: LeakCheck, number: int) -> None:
    """The first signal takes a snapshot; the command that it prints goes on from there; a second one does not wait.

    Meanwhile `cutline top` finds the run at the printed address; the second start tells the same in JSON.
    """
    environment = {"COLUMNS": "500", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    started = command(jobs, "run", "jobs.numbers:endless", "--interval", "0.5", "--backend", "store")
    with Program(started, timeout_s=100, environment=environment) as program:
        address = program.read_until("live page at").split()[-1]
        program.read_until("running: in")
        seen = json.loads(invoke("top", address, "--json").output)
        assert (seen["name"], seen["phase"]) == ("numbers", "running")
        os.kill(program.pid, number)
        stopped = program.read_until("stopped with snapshot")
        assert program.wait() == 128 + number
        assert "Traceback" not in program.output and "*** SIG" not in program.output
        printed = shlex.split(program.output.splitlines()[-1])
    last = json.loads(invoke("snapshots", "list", jobs / "store", "--json").output)[-1]
    assert f"stopped with snapshot {last['id']}" in stopped
    assert printed[:2] == ["cutline", "run"]
    (jobs / "stuck").touch()  # from now on no snapshot is ever whole
    with Program(command(jobs, *printed[1:], "--json"), timeout_s=100, environment=environment) as program:
        progress = json.loads(program.read_until('"phase":"running"'))
        assert (progress["event"], progress["name"]) == ("progress", "numbers")
        os.kill(program.pid, number)
        program.read_until("stopping with a snapshot")
        os.kill(program.pid, number)
        end = json.loads(program.read_until('{"event":"end"'))
        assert end["snapshot"] is None and shlex.split(end["goOn"]) == [*printed[:-4], "--json", *printed[-4:]]
        program.read_until("stopped at once")
        assert program.wait() == 128 + number
    store = RunStore(FileSystemBackend(jobs / "store"), "numbers")
    assert [base.snapshot_id for base in store.bases()] == [None, last["id"]]


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_is_changed_from_another_terminal(jobs: Path, leak_check: LeakCheck) -> None:
    """Take, pin, stop, restore, fork, delete, of a graph that a function without arguments makes."""
    environment = {"COLUMNS": "500", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    options = ("--interval", "0", "--backend", "store", "--page", "4700")

    def started(*words: str) -> Program:
        line = command(jobs, words[0], "jobs.numbers:without_argument", *words[1:], *options)
        return Program(line, timeout_s=120, environment=environment)

    def changed(*words: object) -> Any:
        line = command(jobs, *map(str, words), "--json")
        done = subprocess.run(
            line, env={**os.environ, **environment}, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stored(run: str) -> dict[int, bool]:
        return {each["id"]: each["pinned"] for each in changed("snapshots", "list", "store", "--run", run)}

    with started("run") as program:
        address = program.read_until("live page at").split()[-1]
        program.read_until("running: in")
        first = changed("snapshots", "take", address, "--timeout", "60")["id"]
        second = changed("snapshots", "take", address)["id"]
        assert changed("snapshots", "pin", address, first) == [{"run": "numbers", "id": first, "pinned": True}]
        third = changed("stop", address, "--timeout", "60")["snapshot"]
        program.read_until("run numbers stopped")
        assert program.wait() == 0
    assert stored("numbers") == {first: True, second: False, third: False}
    with started("restore", "--from", str(second)) as program:
        address = program.read_until("live page at").split()[-1]
        program.read_until("running: in")
        fourth = changed("snapshots", "take", address)["id"]
        assert changed("snapshots", "delete", address, second, "--yes")[0]["deleted"]
        assert changed("stop", address, "--now")["snapshot"] == fourth
        assert program.wait() == 0
    assert stored("numbers") == {first: True, fourth: False}
    with started("fork", "--run", "numbers", "--from", str(first), "--name", "again") as program:
        address = program.read_until("live page at").split()[-1]
        program.read_until("running: in")
        fifth = changed("stop", address)["snapshot"]
        assert program.wait() == 0
    assert stored("again") == {fifth: False}
    store = RunStore(FileSystemBackend(jobs / "store"), "again")
    begun = RunStore(FileSystemBackend(jobs / "store"), "numbers").read_snapshot(first, CODEC).node("numbers").state
    assert store.read_snapshot(fifth, CODEC).node("numbers").state >= begun > 0
    changed("snapshots", "unpin", "store", first, "--run", "numbers")
    changed("snapshots", "delete", "store", first, "--run", "numbers", "--yes")
    assert stored("numbers") == {fourth: False}
    assert invoke("snapshots", "verify", "store").exit_code == 0
