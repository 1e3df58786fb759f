"""`cutline top`: one view or a live one, of a page that is fed by hand; what it says where there is none."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import pytest
from rich.console import Console

from cutline.barrier_runtime.cli import top
from cutline.barrier_runtime.cli.formatting import age_text, rate_text
from cutline.barrier_runtime.cli.page_client import PageClient
from cutline.barrier_runtime.cli.top_view import share, top_view
from cutline.barrier_runtime.page.commands import Kind
from cutline.barrier_runtime.page.run_view import RunView
from cutline.barrier_runtime.page.server import PageServer, RunPage, close_page, open_page
from cutline.barrier_runtime.page.settings import Page
from tests.barrier_runtime.invoking import invoke
from tests.leaks import LeakCheck
from tests.page.reports import pipeline, report, snapshot_report

#: Seconds that anything may take here on a crowded machine.
_DEADLINE_S = 30.0

_VIOLATED = {
    "money": {
        **{"holds": False, "snapshot": 4},
        **{"violations": [3, 4], "violationCount": 102, "unreadable": [], "unreadableCount": 0},
    }
}
_RESTARTS = [{"timestamp": 1.8e9, "reason": "worker 1 was lost:\n\x1b[31mkilled"}]


def busy_report(step: int, **other: Any) -> dict[str, Any]:
    """A report with snapshots in each state, and a restart."""
    snapshots = [
        snapshot_report(1, pinned=True),
        snapshot_report(2, "aborted", reason="its deadline has passed"),
        snapshot_report(3, "pending"),
    ]
    return report(pipeline(), step, snapshotReports=snapshots, restarts=_RESTARTS, **other)


class Watched:
    """A page with one run, which reports whenever it is told to, and counts the snapshots that are ordered."""

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self.ordered = threading.Event()
        actions: dict[Kind, Callable[[], None]] = {Kind.SNAPSHOT: self.ordered.set, Kind.STOP: lambda: None}
        self.run: RunPage = server.show("orders", pipeline(), actions)
        for step in (1, 2):
            self.run.see(busy_report(step))

    @property
    def address(self) -> str:
        """As it is printed at submit."""
        return self.run.address


@pytest.fixture
def opened(leak_check: LeakCheck) -> Iterator[Callable[[Page], Watched]]:
    """Opens pages; they are closed at the end."""
    servers: list[PageServer] = []

    def open_one(settings: Page) -> Watched:
        servers.append(open_page(settings))
        return Watched(servers[-1])

    yield open_one
    for server in servers:
        close_page(server)


@pytest.fixture
def watched(opened: Callable[[Page], Watched]) -> Watched:
    """One page on loopback."""
    return opened(Page(port=0))


# ---------------------------------------------------------------- one view


def test_one_view_is_printed(watched: Watched) -> None:
    """Without a terminal: nodes, edges, snapshots, restarts; control characters do not come through."""
    result = invoke("top", watched.address, columns=140)
    assert result.exit_code == 0
    for text in (
        *(
            "orders  running",
            "clicks -> sessions",
            "alerts_with_a_long_name",
            "back-pressure",
            "published",
            "restarts 1",
        ),
        *("sessions[2], pinned", "aborted", "its deadline has passed", "4 of 21", "12 ms"),
    ):
        assert text in result.output, (text, result.output)
    assert "\x1b" not in result.output


def test_the_document_is_printed_as_json(watched: Watched) -> None:
    """--json is what the page says; a run is found by its name, by the address, or because it is the only one."""
    whole = json.loads(invoke("top", watched.address, "--json").output)
    assert (whole["name"], len(whole["edges"])) == ("orders", 8)
    place = watched.server.address()
    assert json.loads(invoke("top", place, "--json").output)["name"] == "orders"
    assert json.loads(invoke("top", place, "--run", "orders", "--json").output)["name"] == "orders"


def test_a_violated_invariant_is_an_exit_code(watched: Watched) -> None:
    """1, in time for scripts that look once."""
    watched.run.see(busy_report(3, invariants=_VIOLATED))
    result = invoke("top", watched.address, "--once")
    assert result.exit_code == 1
    assert "invariant money is violated in 102 snapshots, last in 4" in result.output


def test_a_failed_run_is_an_exit_code(watched: Watched) -> None:
    """1; a run that was stopped is as it should be."""
    watched.run.see(busy_report(3, phase="ended", outcome="stopped"))
    assert invoke("top", watched.address, "--once").exit_code == 0
    watched.run.see(busy_report(4, phase="ended", outcome="failed", reason="worker 1 was lost"))
    assert invoke("top", watched.address, "--once").exit_code == 1


def test_a_token_is_sent(opened: Callable[[Page], Watched]) -> None:
    """The token of the address is shown to the page; without it the page is not."""
    place = opened(Page(port=0, token="secret")).address
    assert invoke("top", f"{place}?token=secret", "--once").exit_code == 0
    refused = invoke("top", place, "--once")
    assert isinstance(refused.exception, PermissionError)
    assert "wants its token" in str(refused.exception)


def test_one_of_several_runs_is_named(watched: Watched) -> None:
    """A page of two active runs shows neither until one is named."""
    watched.server.show("payments", pipeline(), {})
    result = invoke("top", watched.server.address())
    assert result.exit_code == 2 and "has the runs orders, payments: name one with --run" in result.output


def test_what_is_no_page_is_said(watched: Watched) -> None:
    """No server, an unknown run, no address: each has its own words, and says what to do."""
    unknown = invoke("top", watched.server.address(), "--run", "orbers")
    assert unknown.exit_code == 2 and "did you mean 'orders'?" in unknown.output
    nobody = invoke("top", "http://127.0.0.1:1")
    assert isinstance(nobody.exception, ConnectionError)
    assert "there is no live page at http://127.0.0.1:1" in str(nobody.exception)
    assert "hint: it is there while a run is on" in nobody.exception.__notes__[0]
    wrong = invoke("top", "ftp://host")
    assert wrong.exit_code == 2 and "Invalid value for ADDRESS" in wrong.output


# ---------------------------------------------------------------- the screen


def drawn(document: dict[str, Any], width: int, height: int | None) -> list[str]:
    """The lines of the screen."""
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(top_view(document, width, height))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (140, 40), (200, 20), (40, 16)])
def test_the_screen_fits(width: int, height: int) -> None:
    """No line is too long and no line too many; the keys are always there, and what is left out is said."""
    view = RunView("orders", pipeline(), {})
    view.see(busy_report(1, invariants=_VIOLATED))
    lines = drawn(view.document(), width, height)
    assert len(lines) <= height and max(map(len, lines)) <= width
    assert "q quit" in lines[-1]
    assert any(" more" in line for line in lines) == (height < 40)


def test_lines_are_shared() -> None:
    """Each table gets what it wants while it is no more than the others'; never more than there are."""
    assert share(10, [2, 3, 4]) == [2, 3, 4]
    assert share(9, [1, 20, 20]) == [1, 4, 4]
    assert share(0, [1, 2]) == [0, 0]


def test_numbers_are_short() -> None:
    """A rate, and an age, take a few characters."""
    rates = [rate_text(each) for each in (0, 0.25, 12, 999, 12_345, 4.56e6, 7e9)]
    assert rates == ["0", "0.2", "12", "999", "12.3k", "4.6M", "7.0G"]
    assert [age_text(each) for each in (-1, 59, 119, 120, 7199, 7200, 200_000)] == [
        *("0 s", "59 s", "119 s", "2 min", "119 min", "2 h", "2 d")
    ]


# ---------------------------------------------------------------- live


class FlakyPage(PageClient):
    """Has one run. Answers unless it is away. A snapshot that was ordered is always still being taken."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.is_away = False

    def document(self, run: str) -> dict[str, Any]:
        if self.is_away:
            raise ConnectionError("the page is away")
        view = RunView(run, pipeline(), {})
        view.see(busy_report(1))
        return view.document()

    def send(self, run: str, kind: Kind, arguments: Mapping[str, str]) -> int | None:
        return None


def test_a_page_that_answers_again_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss is told until the next answer, and what became of an order until something else is to be told."""
    page, output = FlakyPage(), io.StringIO()
    screens: list[str] = []
    steps = iter([("s", False), (None, True), (None, False), ("q", False)])

    class Keys:
        """Before each key, the screen is kept, and the page goes away or comes back."""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None: ...

        def pressed(self, timeout: float) -> str | None:
            screens.append(output.getvalue())
            output.truncate(output.seek(0))
            key, page.is_away = next(steps)
            return key

    monkeypatch.setattr(top, "Keyboard", Keys)
    console = Console(file=output, force_terminal=True, color_system=None, width=100, height=40)
    assert top._Watch(page, "orders", console).until_quit()["name"] == "orders"
    facts = ("still being taken", "connection lost 0 s ago; the page is away")
    assert [[fact in screen for fact in facts] for screen in screens] == [
        *([False, False], [True, False], [False, True], [False, False])
    ]


class Terminal:
    """`cutline top` on a terminal of its own, 100 by 40."""

    def __init__(self, *arguments: str) -> None:
        self.screen = ""
        self._descriptor, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        command = [sys.executable, "-m", "cutline", "top", *arguments]
        environment = {
            **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")},
            **{"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        }
        self._process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
        )
        os.close(other)

    def press(self, key: str) -> None:
        """One key."""
        os.write(self._descriptor, key.encode())

    def interrupt(self) -> int:
        """As Ctrl-C does it on the terminal that the session belongs to. Its exit code.

        Again after a while, as a user does: Python drops a Ctrl-C that comes while it runs a destructor.
        """
        end = time.monotonic() + _DEADLINE_S
        while self._process.poll() is None and time.monotonic() < end:
            self._process.send_signal(signal.SIGINT)
            again = time.monotonic() + _DEADLINE_S / 10
            while select.select([self._descriptor], [], [], max(0.0, again - time.monotonic()))[0] and self._read():
                pass
        return self._process.wait(_DEADLINE_S)

    def wait_for(self, text: str) -> None:
        """Read on until `text` was drawn."""
        end = time.monotonic() + _DEADLINE_S
        while text not in self.screen:
            assert select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))[0], self.screen
            self._read()

    def wait(self) -> int:
        """Its exit code."""
        end = time.monotonic() + _DEADLINE_S
        while select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))[0] and self._read():
            pass
        return self._process.wait(_DEADLINE_S)

    def end(self) -> None:
        """Leave nothing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._descriptor)

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # so a terminal says that nobody is there any more
            return False
        self.screen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        return bool(data)


def test_keys_take_a_snapshot_and_quit(watched: Watched) -> None:
    """On a terminal it goes on: s orders a snapshot, the end of the run is told, q quits."""
    terminal = Terminal(watched.address)
    try:
        terminal.wait_for("s take a snapshot")
        terminal.press("s")
        assert watched.ordered.wait(_DEADLINE_S)
        terminal.wait_for("the run had ended")  # what the order's outcome is called where no snapshot came of it
        watched.run.end(busy_report(4, outcome="finished", reason="all nodes have ended"), None, {})
        terminal.wait_for("run orders finished: all nodes have ended")
        terminal.press("q")
        assert terminal.wait() == 0
    finally:
        terminal.end()


def test_a_lost_page_is_told(opened: Callable[[Page], Watched]) -> None:
    """It goes on, in case the page comes back, and says since when; Ctrl-C ends it as every command."""
    watched = opened(Page(port=0))
    terminal = Terminal(watched.address)
    try:
        terminal.wait_for("s take a snapshot")
        watched.server.close()
        terminal.wait_for("connection lost")
        assert terminal.interrupt() == 130
    finally:
        terminal.end()
