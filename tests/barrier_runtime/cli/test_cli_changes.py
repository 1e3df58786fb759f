"""`cutline stop`, `restore`, `fork`, and the commands that change snapshots: of a living run, and in a store."""

from __future__ import annotations

import io
import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from cutline import BarrierRuntime, FileSystemBackend, Page
from cutline.barrier_runtime.cli import live_run, main, page_client, run_command, session
from cutline.barrier_runtime.cli.options import run_request
from cutline.barrier_runtime.cli.stored import KEY_VARIABLE
from cutline.barrier_runtime.driver.run import Run
from cutline.barrier_runtime.page import app
from cutline.barrier_runtime.page.commands import Kind
from cutline.barrier_runtime.page.server import RunPage, close_page, open_page
from cutline.snapshot.errors import CutlineError, SnapshotAborted, SnapshotInUse
from cutline.snapshot.stored.signed import SIGNING_KEY_BYTES_MIN
from tests.barrier_runtime.driver.test_local_runs import counting
from tests.barrier_runtime.invoking import invoke
from tests.barrier_runtime.local_cluster import LocalCluster, local_cluster
from tests.leaks import LeakCheck
from tests.page.reports import pipeline, report, snapshot_report

_ENDLESS = 10**9

_JOBS = """
from tests.barrier_runtime.driver.test_local_runs import counting

def upto_500(): return counting(500)
def upto_3000(spark): return counting(3000)
ready = counting(500)
"""


@pytest.fixture
def cluster(leak_check: LeakCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A cluster in this process, which `cutline` takes for Spark; the current folder has a module of graphs."""
    (tmp_path / "changed_jobs.py").write_text(_JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "UPDATE_SECONDS", 0.05)  # commands wait for the next document of the page
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "changed_jobs", raising=False)
    with local_cluster() as made:
        monkeypatch.setattr(session, "_start", lambda master, settings, log: made.spark)
        yield made


@pytest.fixture
def run(cluster: LocalCluster, tmp_path: Path) -> Iterator[Run]:
    """A run with a page, which keeps its two newest snapshots and takes none by itself."""
    runtime = BarrierRuntime(
        cluster.spark,
        backend=FileSystemBackend(str(tmp_path / "store")),
        page=Page(port=0),
        snapshotInterval=None,
        retainedSnapshots=2,
    )
    started = runtime.submit(counting(_ENDLESS))
    yield started
    started.stop()


def as_json(*arguments: object, exit_code: int = 0) -> Any:
    """What a command prints with --json."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == exit_code, (result.output, result.exception)
    return json.loads(result.stdout)


def ids(store: Path, run: str = "counting") -> list[int]:
    """The snapshots that can be restored."""
    return [each["id"] for each in as_json("snapshots", "list", store, "--run", run)]


def refused(*arguments: object, kind: type[BaseException], text: str) -> None:
    """A command that ends with exit code 1 and this error."""
    result = invoke(*arguments)
    assert result.exit_code == 1 and isinstance(result.exception, kind), (result.output, result.exception)
    assert text in str(result.exception), result.exception


# ---------------------------------------------------------------- a living run


def test_snapshots_of_a_living_run(run: Run, tmp_path: Path) -> None:
    """Taken, pinned, unpinned and deleted through the page; what is needed is refused, and stays."""
    address, store = run.pageAddress, tmp_path / "store"
    first = as_json("snapshots", "take", address)
    assert first == {"run": "counting", "id": run.snapshots()[-1].id, "pinned": False}
    taken = invoke("snapshots", "take", address, "--pin", "--timeout", "30")
    (_, second) = ids(store)
    assert taken.stdout.startswith(f"run counting: snapshot {second} was published after ")
    assert taken.stdout.endswith(" s, pinned\n")
    refused("snapshots", "delete", address, second, "--yes", kind=SnapshotInUse, text="is the newest")
    third = as_json("snapshots", "take", address)["id"]
    refused("snapshots", "delete", address, second, "--yes", kind=SnapshotInUse, text="is pinned; unpin it first")
    assert as_json("snapshots", "unpin", address, second) == [{"run": "counting", "id": second, "pinned": False}]
    pinned = invoke("snapshots", "pin", address, second, third)
    assert pinned.stdout == f"snapshot {second} of run counting: pinned\nsnapshot {third} of run counting: pinned\n"
    assert [each.id for each in run.snapshots() if each.pinned] == [second, third]
    as_json("snapshots", "unpin", address, second)
    assert as_json("snapshots", "delete", address, second, "--yes") == [
        {"run": "counting", "id": second, "deleted": True}
    ]
    assert ids(store) == [third] == run.status["snapshots"]
    refused("snapshots", "pin", address, 5, kind=CutlineError, text="run 'counting' has no snapshot 5")
    assert run.isActive


def test_a_run_is_stopped_with_a_snapshot(run: Run, tmp_path: Path) -> None:
    """The last snapshot is named. A run that is over has no page any more."""
    stopped = invoke("stop", run.pageAddress, "--run", "counting", "--timeout", "30")
    assert stopped.exit_code == 0 and not run.isActive, stopped.exception
    assert stopped.stdout == f"run counting stopped with snapshot {run.snapshots()[-1].id}\n"
    assert run.status["outcome"] == "stopped" and len(ids(tmp_path / "store")) == 1
    refused("stop", run.pageAddress, kind=ConnectionError, text="there is no live page")


@pytest.mark.parametrize("option", ["--now", "--no-snapshot"])
def test_a_run_is_stopped_at_once(run: Run, option: str) -> None:
    """Without a last snapshot; the output says where the run goes on."""
    snapshot = run.takeSnapshot(timeout=30)
    found = as_json("stop", run.pageAddress, option)
    assert found["run"] == "counting" and found["outcome"] == "stopped" and found["snapshot"] == snapshot.id
    assert [each.id for each in run.snapshots()] == [snapshot.id] and not run.isActive


def test_a_run_is_rescaled(run: Run) -> None:
    """By its name or its address; the output names the numbers and the snapshot, and the run goes on."""
    address = str(run.pageAddress)
    first = invoke("rescale", "counting", "count=2", "--page", address, "--timeout", "30")
    assert first.exit_code == 0, (first.output, first.exception)
    assert first.stdout.startswith("run counting rescaled to count=2 from snapshot 1")
    found = as_json("rescale", address, "count=2", "numbers=1")
    assert found == {"run": "counting", "parallelism": {"count": 2, "numbers": 1}, "snapshot": found["snapshot"]}
    assert found["snapshot"] in run.status["snapshots"]
    assert run.isActive and run.status["incarnation"] == 3


def test_a_rescale_that_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on, the reason is printed, and the exit code is 1; wrong arguments have exit code 2."""
    address = str(run.pageAddress)
    refused("rescale", address, "counts=2", kind=CutlineError, text="goes on: graph 'counting': there is no node count")
    refused("rescale", address, "count=5", kind=CutlineError, text="would need 5 slots at one time, and 4 are free")
    unknown = invoke("rescale", "bank", "count=2", "--page", address)
    assert unknown.exit_code == 2 and "shows no run 'bank'" in unknown.output
    for wrong in ("count", "count=two", "=2", "count=2,count=3"):
        assert invoke("rescale", address, wrong).exit_code == 2
    assert run.isActive and run.status["incarnation"] == 1


def test_a_run_without_a_snapshot_starts_anew(run: Run) -> None:
    """Which is said."""
    stopped = invoke("stop", run.pageAddress, "--now")
    assert stopped.stdout == "run counting stopped without a snapshot; it starts anew, because it has no snapshot\n"


# ---------------------------------------------------------------- a page that is fed by hand


class FedRun:
    """A run on a page, whose commands do what a test says."""

    def __init__(self, actions: dict[Kind, Callable[..., Any]]) -> None:
        self.server = open_page(Page(port=0))
        self.page: RunPage = self.server.show("orders", pipeline(), actions)
        self.page.see(report(pipeline(), 1))

    @property
    def address(self) -> str:
        """The address as it is printed at submit."""
        return self.page.address


@pytest.fixture
def fed(leak_check: LeakCheck) -> Iterator[Callable[..., FedRun]]:
    """Makes such runs; their pages are closed at the end."""
    made: list[FedRun] = []

    def make(actions: dict[Kind, Callable[..., Any]]) -> FedRun:
        made.append(FedRun(actions))
        return made[-1]

    yield make
    for each in made:
        if not each.server.is_closing:
            close_page(each.server)


def _fails(**arguments: object) -> None:
    raise SnapshotAborted("run 'orders': the disk is full")


def test_a_stop_whose_snapshot_fails(fed: Callable[..., FedRun], capsys: pytest.CaptureFixture[str]) -> None:
    """The error is that of the snapshot; a hint says that the run goes on, and how to stop it without a snapshot."""
    address = fed({Kind.STOP: _fails}).address
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["cutline", "stop", address])
        main()
    text = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 1 and "error: run 'orders': the disk is full" in text
    assert "hint: the run goes on; cutline stop" in text and "--no-snapshot stops it" in text


def test_a_run_that_fails_while_it_stops(fed: Callable[..., FedRun]) -> None:
    """The exit code is 1, with the outcome and its reason."""
    made: list[FedRun] = []

    def end(**arguments: object) -> None:
        pending = [snapshot_report(4, "pending")]
        made[0].page.see(report(pipeline(), 2, snapshotReports=pending))
        made[0].page.end(report(pipeline(), 3, outcome="failed", reason="no workers"), None, {})

    made.append(fed({Kind.STOP: end, Kind.STOP_NOW: end}))
    stopped = invoke("stop", made[0].address)
    assert stopped.exit_code == 1 and stopped.stdout == "run orders failed: no workers\n"


def test_a_run_that_is_over(fed: Callable[..., FedRun]) -> None:
    """While its page is still there, the error says how it ended and what to do."""
    made = fed({})
    made.page.end(report(pipeline(), 3, outcome="finished", reason="all has ended"), None, {})
    result = invoke("snapshots", "take", made.address)
    assert result.exit_code == 1 and "run 'orders' is over: finished" in str(result.exception)
    assert "cutline restore goes on" in result.exception.__notes__[0]


def test_ctrl_c_ends_the_waiting_only(fed: Callable[..., FedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes on in the run, and the output says where its outcome is. A second one waits for the first."""
    may_go_on, done = threading.Event(), threading.Event()

    def take(**arguments: object) -> None:
        assert may_go_on.wait(30)
        done.set()

    address = fed({Kind.SNAPSHOT: take}).address
    sent = page_client.PageClient.carry_out

    def interrupted(*arguments: Any) -> Iterator[Any]:
        for _ in sent(*arguments):
            raise KeyboardInterrupt
        yield

    with monkeypatch.context() as patch:
        patch.setattr(page_client.PageClient, "carry_out", interrupted)
        stopped = invoke("snapshots", "take", address)
    assert stopped.exit_code == 130 and "still taking the snapshot; `cutline top" in stopped.stderr
    refused("snapshots", "take", address, kind=BlockingIOError, text="the same command still waits")
    may_go_on.set()
    assert done.wait(30)


def test_brackets_in_a_name_are_no_markup() -> None:
    """A name is printed letter by letter, in one line, however narrow the terminal is."""
    written = io.StringIO()
    console = Console(file=written, width=20, force_terminal=True, color_system="truecolor")
    live_run._print(console, "run [red]orders[/]: still 12 snapshots to take")
    assert written.getvalue() == "run [red]orders[/]: still 12 snapshots to take\n"


def test_a_page_that_ends_first(fed: Callable[..., FedRun]) -> None:
    """A run that ends while it takes a snapshot: the error says where the outcome is."""
    made: list[FedRun] = []

    def take(**arguments: object) -> None:
        made[0].page.end(report(pipeline(), 3, outcome="finished", reason="all has ended"), None, {})
        assert made[0].server._thread.ident and threading.Event().wait(0.5) is False

    made.append(fed({Kind.SNAPSHOT: take}))
    refused("snapshots", "take", made[0].address, kind=ConnectionError, text="ended before the command was done")


def test_a_quiet_stream_is_not_given_up() -> None:
    """A page with nothing new still writes a line now and then, several of which may be late."""
    assert page_client.STREAM_SECONDS_MAX > 2 * app._ALIVE_SECONDS


def test_the_token_goes_with_commands(leak_check: LeakCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the page answers neither the stream nor the command. It may stand in the environment."""
    server = open_page(Page(port=0, token="secret"))
    page = server.show("orders", pipeline(), {Kind.PIN: lambda snapshotId: None})
    page.see(report(pipeline(), 1))
    assert invoke("snapshots", "pin", f"{page.address}?token=secret", 7).exit_code == 0
    refused("snapshots", "pin", page.address, 7, kind=PermissionError, text="wants its token")
    monkeypatch.setenv("CUTLINE_PAGE_TOKEN", "secret")
    assert invoke("snapshots", "pin", page.address, 7).exit_code == 0
    close_page(server)


def test_a_run_that_the_page_does_not_show(fed: Callable[..., FedRun]) -> None:
    """The exit code is that of wrong arguments, with what was meant."""
    result = invoke("stop", fed({}).address, "--run", "order")
    assert result.exit_code == 2 and "did you mean 'orders'?" in result.output


class _Foreign(BaseHTTPRequestHandler):
    """A server of somebody else, which answers any request with JSON, and closes."""

    def do_GET(self) -> None:  # the name that the base class calls
        self.send_response(503 if self.path.endswith("/busy/events") else 200)
        self.end_headers()
        self.wfile.write(b"" if self.path.endswith("/events") else b'{"status": "ok"}')

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


def test_something_else_at_the_address() -> None:
    """Whatever answers there, the error says that it is no live page, or what it answers."""
    with HTTPServer(("127.0.0.1", 0), _Foreign) as server:
        threading.Thread(target=server.serve_forever, name="foreign").start()
        client = page_client.PageClient(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ConnectionError, match="answers, but is no live page of a run"):
            client.find_run(None)
        with pytest.raises(ConnectionError, match="answers, but is no live page of a run"):
            list(client.carry_out("orders", Kind.PIN, {}))
        with pytest.raises(ConnectionError, match=r"/runs/busy/events answers 503"):
            list(client.carry_out("busy", Kind.PIN, {}))
        server.shutdown()


# ---------------------------------------------------------------- a store


@pytest.fixture
def store(run: Run, tmp_path: Path) -> Path:
    """What a run left: three snapshots, the first one pinned."""
    run.takeSnapshot(pinned=True, timeout=30)
    run.takeSnapshot(timeout=30)
    run.stop(withSnapshot=True)
    return tmp_path / "store"


def test_snapshots_of_a_store(store: Path) -> None:
    """Pins and removals without a run; the list shows them, and every byte stays whole."""
    first, second, third = ids(store)
    refused("snapshots", "delete", store, first, "--yes", kind=SnapshotInUse, text="is pinned")
    refused("snapshots", "delete", store, third, "--yes", kind=SnapshotInUse, text="is the newest")
    assert as_json("snapshots", "pin", store, second) == [{"run": "counting", "id": second, "pinned": True}]
    unpinned = invoke("snapshots", "unpin", store, first)
    assert unpinned.stdout == f"snapshot {first} of run counting: not pinned\n"
    listed = as_json("snapshots", "list", store)
    assert [each["pinned"] for each in listed] == [False, True, False]
    assert as_json("runs", store)[0]["pinned"] == 1
    deleted = invoke("snapshots", "delete", store, first, "--run", "counting", "-y")
    assert (deleted.exit_code, deleted.stdout) == (0, f"snapshot {first} of run counting: deleted\n")
    assert ids(store) == [second, third] and invoke("snapshots", "verify", store).exit_code == 0


def test_what_was_done_before_an_error_is_printed(store: Path) -> None:
    """So that a script knows what is gone."""
    first, second, third = ids(store)
    invoke("snapshots", "unpin", store, first)
    found = as_json("snapshots", "delete", store, first, first, third, second, "--yes", exit_code=1)
    assert found == [{"run": "counting", "id": first, "deleted": True}] and ids(store) == [second, third]


@pytest.mark.parametrize(("answer", "is_deleted"), [("y\n", True), ("n\n", False), ("", False)])
def test_a_deletion_is_confirmed(store: Path, answer: str, is_deleted: bool) -> None:
    """Any answer but yes, and none at all, deletes nothing and says so."""
    from typer.testing import CliRunner

    from cutline.barrier_runtime.cli import app

    first, second, third = ids(store)
    words = ["snapshots", "delete", str(store), str(second)]
    result = CliRunner().invoke(app, words, input=answer, env={"COLUMNS": "200"})
    assert f"Delete {second} of run counting for good? [y/N]" in result.stderr
    assert ids(store) == ([first, third] if is_deleted else [first, second, third])
    assert result.exit_code == (0 if is_deleted else 2)
    assert is_deleted or "nothing was deleted; answer y, or give --yes" in result.stderr


@pytest.mark.parametrize("command", ["pin", "unpin", "delete"])
def test_what_is_not_stored_is_named(store: Path, command: str) -> None:
    """An unknown run or id is refused with what there is, or what was meant."""
    yes = ["--yes"] if command == "delete" else []
    for arguments, text in (
        ((store, 5), f"no snapshot 5; there are {', '.join(map(str, ids(store)))}"),
        ((store, 5, "--run", "countign"), "did you mean 'counting'?"),
        ((store.parent / "stor", 5), "there is no such folder; did you mean"),
        ((store, "x"), "Invalid value for 'ID'"),
    ):
        result = invoke("snapshots", command, *arguments, *yes)
        assert result.exit_code == 2 and text in result.output, result.output


# ---------------------------------------------------------------- restore and fork


def command(*arguments: object) -> Any:
    """A command that starts a run of the module's graphs, without a page."""
    return invoke(*arguments, "--page", "none", "--backend", "store", "--interval", "0.2")


def test_a_graph_is_restored(store: Path) -> None:
    """From the newest snapshot, or from a named one, whose successors leave the history."""
    first, second, third = ids(store)
    done = command("restore", "changed_jobs:upto_3000", "--from", second, "--name", "counting")
    assert done.exit_code == 0 and "run counting finished" in done.stdout, done.output
    history = ids(store)
    assert first in history and third not in history and history[-1] > third
    assert command("restore", "changed_jobs:ready", "--from", "latest").exit_code == 0


def test_a_graph_is_forked(store: Path) -> None:
    """Under another name, from the newest or a named snapshot; the origin keeps what it has."""
    before = ids(store)
    done = command("fork", "changed_jobs:upto_500", "--run", "counting", "--from", before[0], "--name", "fork")
    assert done.exit_code == 0 and "run fork finished" in done.stdout, done.output
    assert ids(store) == before and ids(store, "fork")
    again = command("fork", "changed_jobs:upto_500", "--run", "counting", "--name", "fork")
    assert again.exit_code == 2 and "holds a run 'fork' with snapshots of its own" in again.output
    assert "choose another name; cutline restore --name fork" in again.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("restore", "changed_jobs:ready", "--from", "7"), "has no snapshot 7"),
        (("restore", "changed_jobs:upto_500", "--from", "7"), "has no snapshot 7"),
        (("restore", "changed_jobs:upto_500", "--name", "countign"), "did you mean 'counting'?"),
        (("restore", "changed_jobs:upto_500", "--from", "none"), "--from none: give latest, or the id of a snapshot"),
        (("fork", "changed_jobs:upto_500", "--from", "7", "--name", "fork"), "has no snapshot 7"),
        (("fork", "changed_jobs:upto_500", "--run", "countign", "--name", "fork"), "did you mean 'counting'?"),
        (("fork", "changed_jobs:upto_500", "--name", "counting"), "snapshots of its own"),
        (("fork", "changed_jobs:upto_500"), "Missing option '--name'"),
        (("run", "changed_jobs:upto_500", "--restore-from", "old"), "give latest, none, or the id of a snapshot"),
        (("run", "changed_jobs:upto_500", "--restore-from", "5"), "has no snapshot 5; there are"),
        (("run", "changed_jobs:upto_500", "--allow", "changedgraph"), "there are changedGraph, droppedMessages"),
        (("run", "changed_jobs:upto_500", "--parallelism", "count"), "--parallelism count: 'count' is not NODE=NUMBER"),
        (("run", "changed_jobs:upto_500", "--py-files", "."), "is a directory"),
    ],
)
def test_what_cannot_be_restored_is_refused(store: Path, arguments: tuple[str, ...], text: str) -> None:
    """Before anything starts, with what there is."""
    before = ids(store)
    result = command(*arguments)
    assert result.exit_code == 2 and text in result.output, result.output
    assert ids(store) == before and [each["run"] for each in as_json("runs", store)] == ["counting"]


def test_a_signed_run_is_restored_and_forked(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key reaches each reader of the store: the checks before the start, and the command that goes on."""
    monkeypatch.setenv(KEY_VARIABLE, "\n" + "k" * SIGNING_KEY_BYTES_MIN + " ")
    assert command("run", "changed_jobs:upto_500").exit_code == 0
    restored = command("restore", "changed_jobs:upto_500")
    assert restored.exit_code == 0 and "run counting finished" in restored.stdout, restored.output
    forked = command("fork", "changed_jobs:upto_500", "--name", "fork", "--json")
    place = f" --name fork --backend {FileSystemBackend(str(Path('store').absolute()))}"
    assert json.loads(forked.stdout.splitlines()[-1])["goOn"].endswith(place), forked.output
    monkeypatch.setenv(KEY_VARIABLE, "k" * SIGNING_KEY_BYTES_MIN)
    assert "signed with another key" in str(command("restore", "changed_jobs:upto_500").exception)


def test_the_printed_command_allows_the_same_until_there_is_a_snapshot(cluster: LocalCluster) -> None:
    """Because a start without a snapshot of its own restores the same snapshot again. It names changed parallelism."""
    options = (
        "--allow",
        "changedGraph",
        "--allow",
        "droppedMessages",
        "--parallelism",
        "count=3,total=1",
        "--workers",
        "3",
        "--json",
    )
    late = command("run", "changed_jobs:upto_3000", *options, "--name", "other")
    assert late.exit_code == 0, (late.output, late.exception)
    words = shlex.split(json.loads(late.stdout.splitlines()[-1])["goOn"])
    assert words[:3] == ["cutline", "run", "changed_jobs:upto_3000"] and "--allow" not in words, late.output
    assert words[words.index("--parallelism") + 1] == "count=3"
    early = run_command._resume_command(
        run_request(graph="m:g", allow=["changedGraph"], parallelism="count=2"),
        ["cutline", "run", "m:g"],
        cast("Run", SimpleNamespace(isActive=True, lastProgress=None, name="counting")),
        counting(1),
    )
    assert early[3:7] == ["--allow", "changedGraph", "--name", "counting"]


def test_the_printed_command_goes_on_with_a_fork(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a run once the fork has a snapshot; before that with the same fork, so that nothing starts afresh."""
    from cutline.barrier_runtime.cli import run_command

    first = ids(store)[0]
    options = ("--page", "none", "--backend", "store", "--json")
    fork = ("fork", "changed_jobs:upto_500", "--run", "counting", "--from", first, "--name", "fork", *options)
    with monkeypatch.context() as patch:
        patch.setattr(run_command, "stored_history", lambda store: ())
        early = [*map(json.loads, invoke(*fork).stdout.splitlines())][-1]["goOn"]
    late = shlex.split(
        [*map(json.loads, invoke("run", *fork[1:2], "--name", "fork", *options).stdout.splitlines())][-1]["goOn"]
    )
    words = shlex.split(early)
    assert words[:3] == ["cutline", "fork", "changed_jobs:upto_500"]
    assert words[-8:-2] == ["--run", "counting", "--from", str(first), "--name", "fork"]
    assert late[:3] == ["cutline", "run", "changed_jobs:upto_500"] and late[-4:-2] == ["--name", "fork"]
