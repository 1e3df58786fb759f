"""Ctrl-C at the command line: the first Ctrl-C stops the run with a snapshot, the second Ctrl-C stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from snapshot.errors import CutlineError

if TYPE_CHECKING:
    from rich.console import Console

    from barrier_runtime.driver.run import Run
    from snapshot.stored.snapshot import Snapshot

#: seconds that stopping "at once" may take; workers that have not ended by then end with this process
STOP_SECONDS_MAX = 5.0


class Interrupts:
    """Count the presses of Ctrl-C while entered. `check` acts on the count.

    Must be entered on the main thread, where Python allows signal handlers. Leaving restores the previous handler.

    Parameters
    ----------
    run : Run
    console : Console
    timeout : float
        Seconds that the last snapshot may take.
    """

    def __init__(self, run: Run, console: Console, timeout: float) -> None:
        #: last snapshot of the run, or None before Ctrl-C has stopped the run with a snapshot
        self.snapshot: Snapshot | None = None
        self.count = 0
        self._run = run
        self._console = console
        self._timeout = timeout
        self._stopping: threading.Thread | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)
        if self._stopping is not None and self.count == 1:
            self._stopping.join()

    def check(self) -> bool:
        """Act on the presses so far. Return True when the run was stopped at once, and watching must end."""
        if self.count > 1:
            self._console.print("stopping at once")
            self._in_background(self._run.stop).join(STOP_SECONDS_MAX)
            return True
        if self.count == 1 and self._stopping is None:
            self._console.print("stopping with a snapshot; press Ctrl-C again to stop at once")
            self._stopping = self._in_background(self._stop_with_snapshot)
        return False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    def _stop_with_snapshot(self) -> None:
        try:
            self.snapshot = self._run.stop(withSnapshot=True, timeout=self._timeout)
        except CutlineError as error:
            self._console.print(f"no snapshot: {error}. Press Ctrl-C to stop without one", markup=False, soft_wrap=True)

    @staticmethod
    def _in_background(stop: Any) -> threading.Thread:
        thread = threading.Thread(target=stop, name="cutline-stop", daemon=True)
        thread.start()
        return thread
