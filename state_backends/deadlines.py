"""A bound on the time of every call to a store.

Owns the deadline; must not know what is called. A system call that hangs (a dead network file system) cannot
be interrupted, so each call runs in a thread of its own and is abandoned when its time is over. It may still
take effect later: that is why the fence exists.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

#: Calls that may hang at one time. A store that does not come back would otherwise gather a thread with its
#: buffers for every snapshot that is tried.
ABANDONED_CALLS_MAX = 16


class Deadline:
    """Runs calls with a bound on their time. Pickles to the same bound without its abandoned calls.

    Parameters
    ----------
    seconds : float
        Infinite for what cannot hang.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._abandoned = 0

    def call(self, what: str, function: Callable[[], Result]) -> Result:
        """What `function` returns or raises, if it does so in time. Blocks for at most ``seconds``.

        Raises
        ------
        TimeoutError
            naming `what`, when the time is over, or when too many earlier calls still hang.
        """
        if self.seconds == math.inf:
            return function()  # nothing to wait for, so no thread
        with self._lock:
            if self._abandoned >= ABANDONED_CALLS_MAX:
                raise TimeoutError(f"{what}: not tried, {self._abandoned} earlier calls still wait for an answer")
        call = _Call(function)
        threading.Thread(target=call.run, name="cutline-store", daemon=True).start()
        if not call.done.wait(self.seconds):
            self._abandon(call)
            raise TimeoutError(f"{what}: no answer in {self.seconds:g} s; it is not known whether it happened")
        if call.error is not None:
            raise call.error
        result: Result = call.result
        return result

    def _abandon(self, call: _Call) -> None:
        with self._lock:
            self._abandoned += 1
        # Not under the lock: a call that has just ended is forgotten at once, and that takes the lock.
        call.on_late_end(self._forget)

    def _forget(self) -> None:
        with self._lock:
            self._abandoned -= 1

    def __reduce__(self) -> tuple[type[Deadline], tuple[float]]:
        return (Deadline, (self.seconds,))


class _Call:
    """One call in its thread: its end, and what came of it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self._function = function
        self._lock = threading.Lock()
        self._late: Callable[[], None] | None = None

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            self.error = error
        with self._lock:
            self.done.set()
            late = self._late
        if late is not None:
            late()

    def on_late_end(self, late: Callable[[], None]) -> None:
        """Call `late` when the call ends after all."""
        with self._lock:
            if not self.done.is_set():
                self._late = late
                return
        late()
