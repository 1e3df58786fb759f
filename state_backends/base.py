"""Bound on the time of every call, and its repetition, for backends of stores that may hang or fail for a moment.

A hanging system call (a dead network file system) cannot be interrupted. So calls run in helper threads, and a call
whose time is over is abandoned with its thread. The call may still take effect later, which is why the fence exists.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from cutline.snapshot.stored.backend import INLINE_BYTES_MAX, StateBackend
from cutline.state_backends.retries import repeated

#: Names of helper threads, for readers of a process list: during a call, and between calls.
BUSY, WAITING = "cutline-store", "cutline-store-waiting"

#: Most calls that may hang at one time. Otherwise a dead store would gather a thread with its buffers for every
#: snapshot that is tried.
ABANDONED_CALLS_MAX = 16

_logger = logging.getLogger("cutline.store")


class Deadline:
    """Run calls with a bound on their time. Pickles to the same bound without its threads.

    Parameters
    ----------
    seconds : float
        Bound of each call; infinite for calls that cannot hang.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._helpers = _Helpers()
        weakref.finalize(self, self._helpers.dismiss)

    def call(self, what: str, function: Callable[[], Result]) -> Result:
        """Return or raise the result of `function`, if it comes in time. Blocks for at most ``seconds``.

        Raises
        ------
        TimeoutError
            when the time is over, or too many earlier calls still hang. The message names `what`.
        """
        if self.seconds == math.inf:
            return function()  # such calls cannot hang, so no thread
        call = _Call(function)
        if hanging := self._helpers.begin(call):
            raise TimeoutError(f"{what}: not tried, {hanging} earlier calls still wait for an answer")
        if not call.done.wait(self.seconds) and self._helpers.abandon(call):
            cause = f"; last error: {call.last_failure}" if call.last_failure else ""
            raise TimeoutError(f"{what}: no answer in {self.seconds:g} s; it is not known whether it happened{cause}")
        if call.error is not None:
            try:
                raise call.error
            finally:
                # The error refers to frames that refer to the call. In that cycle all written data waits for the
                # collector.
                call.error = None
        result: Result = call.result
        return result

    @staticmethod
    def note_failure(text: str) -> None:
        """Keep the text of an error after which the running call is tried again, for the error of its deadline."""
        if _running.call is not None:
            _running.call.last_failure = text

    def __reduce__(self) -> tuple[type[Deadline], tuple[float]]:
        return (Deadline, (self.seconds,))


class _Call:
    """A call, and its result or error. `done` and `is_abandoned` are set under the helpers' lock."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self.is_abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None
        #: text of the last error after which the call was tried again, or "" before the first
        self.last_failure = ""
        self._function = function

    def run(self) -> None:
        """Call the function. Raises nothing."""
        _running.call = self
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            self.error = error
        finally:
            _running.call = None


class _Running(threading.local):
    """The call that a helper thread runs now, or None."""

    call: _Call | None = None


_running = _Running()


class _Helpers:
    """Threads that run calls. They stay for the next call, because a waiting thread runs at once. A new thread on a
    busy machine runs milliseconds after its start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._abandoned = 0
        #: inboxes of the helpers that wait for a call
        self._idle: list[SimpleQueue[_Call | None]] = []
        self._process = os.getpid()
        self._is_dismissed = False

    def begin(self, call: _Call) -> int:
        """Run `call` in a helper thread. Return 0, or the number of hanging calls if there are too many to begin."""
        with self._lock:
            if self._abandoned >= ABANDONED_CALLS_MAX:
                return self._abandoned
            if self._process != os.getpid():  # threads do not survive a fork
                self._process, self._idle = os.getpid(), []
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._help, args=(inbox,), daemon=True).start()
        inbox.put(call)
        return 0

    def abandon(self, call: _Call) -> bool:
        """Give `call` up. Return False if it ended in this very moment."""
        with self._lock:
            call.is_abandoned = not call.done.is_set()
            self._abandoned += call.is_abandoned
            return call.is_abandoned

    def dismiss(self) -> None:
        """End the threads after the last call. Takes no lock, because the collector may call with the lock held."""
        self._is_dismissed = True
        for inbox in list(self._idle):
            inbox.put(None)

    def _help(self, inbox: SimpleQueue[_Call | None]) -> None:
        thread = threading.current_thread()
        while not self._is_dismissed and (call := inbox.get()) is not None:
            thread.name = BUSY
            call.run()
            thread.name = WAITING
            with self._lock:
                call.done.set()
                if call.is_abandoned:
                    self._abandoned -= 1
                    return
                self._idle.append(inbox)
            del call  # because it refers to written or read data, which may be gigabytes


Result = TypeVar("Result")

#: Seconds that one call to a store may take. Far above a slow store's worst answer, and far below the snapshot timeout,
#: so that a dead store aborts the snapshot and not the run.
CALL_SECONDS_MAX = 60.0


class DeadlineBackend(StateBackend):
    """Base of backends whose calls end in time, and are repeated after errors that may pass.

    A call that fails raises the store's last error. A call without an answer raises `TimeoutError` with the last error
    before.

    Parameters
    ----------
    inline_bytes_max : int
        See `StateBackend`.
    deadline : float
        Seconds that a call may take.
    """

    def __init__(self, *, inline_bytes_max: int = INLINE_BYTES_MAX, deadline: float = CALL_SECONDS_MAX) -> None:
        super().__init__(inline_bytes_max=inline_bytes_max)
        self._deadline = Deadline(deadline)
        #: the last call failed, and the log has the cause
        self._is_failing = False

    def _call(self, what: str, function: Callable[[], Result]) -> Result:
        attempt = partial(self._attempt, what, function)
        result = self._deadline.call(what, lambda: repeated(attempt, self._deadline.seconds, self._note_failure))
        self._is_failing = False
        return result

    def _attempt(self, what: str, function: Callable[[], Result]) -> Result:
        try:
            return function()
        except Exception as error:
            translated = self._translated(what, error)
            if translated is error:
                raise
            raise translated from error

    def _translated(self, what: str, error: Exception) -> Exception:
        """Return the error of a try of the call `what` as the contract has it, or `error` itself.

        Its class and number decide whether the call is repeated (`retries.may_pass`).
        """
        return error

    def _note_failure(self, error: OSError) -> None:
        """Log the first failure at once, because the caller learns of the failure at the deadline only."""
        text = error.strerror or str(error)
        self._deadline.note_failure(text)
        if not self._is_failing:
            self._is_failing = True
            _logger.warning("%s; tried again for %g s", text, self._deadline.seconds)
