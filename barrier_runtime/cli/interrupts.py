"""Ctrl-C at the command line: the first one stops the run with a snapshot, the second one at once."""

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

#: Seconds that "at once" may take: workers are told to leave, and end with this process in any case.
STOP_SECONDS_MAX = 5.0


class Interrupts:
    """While entered, Ctrl-C only is counted, and `check` acts on it.

    Enter it on the main thread. Behind it Ctrl-C is the ordinary one.

    Parameters
    ----------
    run : Run
    console : Console
    timeout : float
        Seconds for the last snapshot.
    """

    def __init__(self, run: Run, console: Console, timeout: float) -> None:
        #: the run's last snapshot, once Ctrl-C has stopped the run with it
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
        """Act on what was pressed; True: stop watching, the run was stopped at once."""
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
