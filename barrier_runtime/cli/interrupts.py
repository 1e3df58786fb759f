"""Ctrl-C, SIGTERM and SIGHUP at the command line: the first stops the run with a snapshot, the second stops at once.

SIGTERM is how process managers (systemd, Docker, Kubernetes) end a program. SIGHUP comes when the terminal is gone, and
is left alone where a program such as nohup has it ignored. Ray and Spark install handlers of their own
for some signals, so the handlers of this module are put back after each of these has started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from cutline.snapshot.error_text import without_traceback
from cutline.snapshot.errors import CutlineError

if TYPE_CHECKING:
    from rich.console import Console

    from cutline.barrier_runtime.driver.run import Run
    from cutline.snapshot.stored.snapshot import Snapshot

#: seconds that stopping "at once" may take; workers that have not ended by then end with this process
STOP_SECONDS_MAX = 5.0

#: added to the number of a signal, gives the exit code of a program that the signal has ended
SIGNAL_EXIT_CODE = 128

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a run."""
    is_hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [each for each in _STOP_SIGNALS if each is not signal.SIGHUP or not is_hangup_ignored]


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this program in order outside of `Interrupts`. Enter before Ray is imported."""
    # Else Ray replaces the handler of SIGTERM by one that prints the stack and aborts the process.
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
    with signals_as_before():
        if threading.current_thread() is threading.main_thread():
            for each in _stop_signals():
                if each is not signal.SIGINT:
                    signal.signal(each, lambda number, _: sys.exit(SIGNAL_EXIT_CODE + number))
        yield


@contextlib.contextmanager
def signals_as_before() -> Iterator[None]:
    """Restore the handlers of the stop signals when left, because Spark and Ray install their own."""
    before = [(number, signal.getsignal(number)) for number in _STOP_SIGNALS]
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before:
                signal.signal(number, handler)


class Interrupts:
    """Count Ctrl-C and SIGTERM while entered. `check` acts on the count.

    Must be entered on the main thread, where Python allows signal handlers. Leaving restores the previous handler.

    Parameters
    ----------
    run : Run
    console : Console
    timeout : float
        Seconds that the last snapshot may take.
    """

    def __init__(self, run: Run, console: Console, timeout: float) -> None:
        #: last snapshot of the run, or None before a signal has stopped the run with a snapshot
        self.snapshot: Snapshot | None = None
        self.count = 0
        #: the first signal, or None before
        self.first: int | None = None
        self._run = run
        self._console = console
        self._timeout = timeout
        self._stopping: threading.Thread | None = None
        self._handlers = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._handlers.enter_context(signals_as_before())
        for number in _stop_signals():
            signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._handlers.close()
        if self._stopping is not None and self.count == 1:
            self._stopping.join()

    def check(self) -> bool:
        """Act on the signals so far. Return True when the run was stopped at once, and watching must end."""
        if self.first == signal.SIGHUP:
            _leave_terminal()
        if self.count > 1:
            self._console.print("stopping at once")
            self._in_background(self._run.stop).join(STOP_SECONDS_MAX)
            return True
        if self.first is not None and self.count == 1 and self._stopping is None:
            again = (
                f"a second {signal.Signals(self.first).name} stops"
                if self._is_terminated
                else "press Ctrl-C again to stop"
            )
            self._console.print(f"stopping with a snapshot; {again} at once")
            self._stopping = self._in_background(self._stop_with_snapshot)
        return False

    @property
    def _is_terminated(self) -> bool:
        return self.first not in (None, signal.SIGINT)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.first = self.first or number
        self.count += 1

    def _stop_with_snapshot(self) -> None:
        try:
            self.snapshot = self._run.stop(withSnapshot=True, timeout=self._timeout)
        except CutlineError as error:
            follows = "Stopping without one" if self._is_terminated else "Press Ctrl-C to stop without one"
            self._console.print(
                f"no snapshot: {without_traceback(str(error))}. {follows}", markup=False, soft_wrap=True
            )
            if self._is_terminated:
                self.count += 1  # because a process manager sends no second signal, and kills the program soon

    @staticmethod
    def _in_background(stop: Any) -> threading.Thread:
        thread = threading.Thread(target=stop, name="cutline-stop", daemon=True)
        thread.start()
        return thread


def _leave_terminal() -> None:
    """Send output that went to a terminal nowhere, because writing to a terminal that is gone fails."""
    with open(os.devnull, "ab") as nowhere:
        for descriptor in (1, 2):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere.fileno(), descriptor)
