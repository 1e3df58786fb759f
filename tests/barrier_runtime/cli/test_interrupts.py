"""Ctrl-C and SIGTERM of `cutline run`: what the first and the second one do, and whose handlers stay."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cutline.barrier_runtime.cli.interrupts import Interrupts, ended_by_sigterm, signals_as_before
from cutline.snapshot.errors import SnapshotAborted

_DEADLINE_S = 30.0
_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class FakeRun:
    """A run that records how it was stopped."""

    def __init__(self, error: SnapshotAborted | None = None) -> None:
        self.stops: list[bool] = []
        self.released = threading.Event()
        self._error = error

    def stop(self, *, withSnapshot: bool = False, timeout: float | None = None) -> str | None:
        """Record the stop. A stop with a snapshot waits until the test releases it."""
        self.stops.append(withSnapshot)
        if not withSnapshot:
            return None
        assert self.released.wait(_DEADLINE_S)
        if self._error is not None:
            raise self._error
        return "the last snapshot"


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def interrupts(run: FakeRun) -> tuple[Interrupts, io.StringIO]:
    """Return the interrupts of `run`, and what they print."""
    printed = io.StringIO()
    anything: Any = run
    return Interrupts(anything, Console(file=printed, width=200), timeout=5.0), printed


@pytest.mark.parametrize("number", _SIGNALS)
def test_the_first_signal_stops_with_a_snapshot(number: int) -> None:
    """Either signal asks for a last snapshot once, however often `check` is called, and is remembered."""
    run = FakeRun()
    run.released.set()
    stopping, printed = interrupts(run)
    with stopping:
        assert not stopping.check()
        os.kill(os.getpid(), number)
        until(lambda: stopping.count)
        assert not stopping.check() and not stopping.check()
    assert (run.stops, str(stopping.snapshot), stopping.first) == ([True], "the last snapshot", number)
    name = signal.Signals(number).name
    again = "press Ctrl-C again to stop at once" if number == signal.SIGINT else f"a second {name} stops at once"
    assert printed.getvalue() == f"stopping with a snapshot; {again}\n"


@pytest.mark.parametrize("second", _SIGNALS)
@pytest.mark.parametrize("first", _SIGNALS)
def test_the_second_signal_does_not_wait(first: int, second: int) -> None:
    """Whichever comes second, it stops the run while the last snapshot is still being taken."""
    run = FakeRun()
    stopping, printed = interrupts(run)
    with stopping:
        os.kill(os.getpid(), first)
        until(lambda: stopping.count == 1)
        assert not stopping.check()
        os.kill(os.getpid(), second)
        until(lambda: stopping.count == 2)
        assert stopping.check()
    assert run.stops == [True, False] and stopping.first == first
    assert printed.getvalue().endswith("stopping at once\n")
    run.released.set()


@pytest.mark.parametrize("number", _SIGNALS)
def test_a_last_snapshot_that_fails(number: int) -> None:
    """After Ctrl-C a person decides; after another signal nobody does, and the run is stopped without a snapshot."""
    run = FakeRun(SnapshotAborted("the disk is full\nTraceback (most recent call last):\n  File ..."))
    run.released.set()
    stopping, printed = interrupts(run)
    with stopping:
        os.kill(os.getpid(), number)
        until(lambda: stopping.count)
        assert not stopping.check()
        until(lambda: "no snapshot: the disk is full. " in printed.getvalue())
        if number != signal.SIGINT:
            until(stopping.check)
        else:
            assert not stopping.check()
    assert run.stops == ([True] if number == signal.SIGINT else [True, False])


@pytest.mark.parametrize("number", _SIGNALS)
def test_handlers_are_restored(number: int) -> None:
    """Handlers that Spark, Ray or `Interrupts` install are gone afterwards."""
    before = signal.getsignal(number)
    with signals_as_before():
        signal.signal(number, signal.SIG_IGN)
    with interrupts(FakeRun())[0]:
        assert signal.getsignal(number) != before
    assert signal.getsignal(number) == before


def test_sigterm_ends_the_program_in_order() -> None:
    """Before there is a run, and once it has ended: no stack dump, what is open is closed, the exit code is 143."""
    script = """
import os, signal
from cutline.barrier_runtime.cli.interrupts import ended_by_sigterm
with ended_by_sigterm():
    import ray
    from ray._private import ray_constants
    assert ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        print("closed")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "closed\n", "")


def test_another_thread_may_run_the_command() -> None:
    """Python lets the main thread alone install handlers; elsewhere nothing is installed and nothing fails."""
    before = signal.getsignal(signal.SIGTERM)

    def enter() -> bool:
        with ended_by_sigterm():
            return signal.getsignal(signal.SIGTERM) == before

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(enter).result(_DEADLINE_S)
    assert signal.getsignal(signal.SIGTERM) == before


_HUNG_UP = """
import sys, time
from rich.console import Console
from cutline.barrier_runtime.cli.interrupts import Interrupts, ended_by_sigterm

class FakeRun:
    def stop(self, **how):
        open(sys.argv[1], "a").write(repr(how))

with ended_by_sigterm(), Interrupts(FakeRun(), Console(), timeout=5.0) as stopping:
    print("ready", flush=True)
    while stopping.first is None:
        time.sleep(0.01)
    stopping.check()
print("the run has stopped", flush=True)
"""


def test_a_terminal_that_is_gone(tmp_path: Path) -> None:
    """SIGHUP stops the run with a snapshot, and what is printed then fails nowhere."""
    own, terminal = pty.openpty()
    command = [sys.executable, "-c", _HUNG_UP, str(tmp_path / "stops")]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL) as process:
        os.close(terminal)
        # To the end of the line, because the line may come in two writes, and a second one would fail.
        with open(own, "rb") as screen:
            assert screen.readline().strip() == b"ready"
        process.send_signal(signal.SIGHUP)
        assert process.wait(_DEADLINE_S) == 0
    assert (tmp_path / "stops").read_text() == "{'withSnapshot': True, 'timeout': 5.0}"


def test_nohup_is_heeded() -> None:
    """Where SIGHUP is ignored, as below nohup, it stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_sigterm(), interrupts(FakeRun())[0]:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
