"""A thread that does jobs in their sequence, in small steps that leave the interpreter's lock to others.

Must not know what the jobs do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from cutline.snapshot.error_text import headline
from cutline.snapshot.errors import StateError
from cutline.snapshot.keyed.row_store import Job


class WriterThread:
    """A writer of rows. See `Writer`.

    Parameters
    ----------
    name : str
        Name of the thread, and beginning of its errors.
    wake : callable
        Called on the thread after each job, and after the job that failed.
    """

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name = name
        self._wake = wake
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> None:
        """See `Writer`."""
        self.check()
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    @property
    def has_failed(self) -> bool:
        """See `Writer`."""
        return self._error is not None

    def check(self) -> None:
        """See `Writer`."""
        if self._error is not None:
            raise StateError(f"{self._name}: {headline(self._error)}") from self._error

    def close(self) -> None:
        """See `Writer`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                for seconds in job:
                    time.sleep(seconds or 0)  # because a thread that never waits keeps the interpreter's lock
                    if self._is_closed:
                        return
                self._wake()
        except BaseException as error:  # noqa: BLE001  # the subtask's thread raises it, at its next job
            self._error = error
            self._wake()

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_closed)
            return None if self._is_closed else self._jobs.popleft()
