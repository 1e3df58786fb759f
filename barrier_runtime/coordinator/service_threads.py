"""The threads of a coordinator instance that wait for the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class ServiceThreads:
    """Run the effects of the fence on one thread, and removals on another.

    Parameters
    ----------
    wake : callable
        Wakes the loop. Called after an unexpected error of a thread, which `raise_failure` then raises in the loop.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # Single, because the fence waits for one store effect at a time, and their order must be kept.
        self._store = ThreadPoolExecutor(1, "cutline-store")
        # A separate thread for removals, because removals may be slow and nothing waits for them.
        self._sweeper = ThreadPoolExecutor(1, "cutline-sweep")
        #: unexpected errors of the threads
        self._failures: deque[BaseException] = deque()

    def store(self, work: Callable[..., None], *arguments: object) -> None:
        """Do `work` on the thread of the fence."""
        self._store.submit(work, *arguments).add_done_callback(self._on_worked)

    def sweep(self, work: Callable[..., None], *arguments: object) -> None:
        """Do `work` on the thread of removals."""
        self._sweeper.submit(work, *arguments).add_done_callback(self._on_worked)

    def answered_sweep(self, work: Callable[..., object], *arguments: object) -> Future[object]:
        """Do `work` on the thread of removals, for a caller that reads the result and any error."""
        return self._sweeper.submit(work, *arguments)

    def raise_failure(self) -> None:
        """Raise the first unexpected error of a thread that was not raised yet."""
        if self._failures:
            raise self._failures.popleft()

    def shut_down(self) -> None:
        """Cancel all waiting work."""
        self._store.shutdown(wait=False, cancel_futures=True)
        self._sweeper.shutdown(wait=False, cancel_futures=True)

    def _on_worked(self, work: Future[None]) -> None:
        """Pass the error of a thread to the loop, because nothing else reads the error."""
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self._failures.append(error)
            self._wake()
