"""Threads that call the stores of a worker's aggregates, one for each subtask. Knows no protocol.

A call that fails is made again, with pauses, for as long as the incarnation lasts. The thread of an older incarnation
may still wait for its store: whatever it writes late is refused there, because its claim is older.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

from cutline.snapshot.coordinator.control import Deploy
from cutline.snapshot.error_text import headline
from cutline.snapshot.errors import CutlineError, RestoreRefused, StateError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.ledger import TotalsTask
from cutline.snapshot.modes.totals.store_calls import StoreCalls, claim_of, opening
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.stored.backend import StoreRefused
from cutline.snapshot.worker.events import Performed
from cutline.snapshot.worker.ledger import AnyTask, TaskRefused
from cutline.state_backends.retries import repeated

_logger = logging.getLogger("cutline.worker")

#: Seconds for which a restore repeats a call. Then the run restarts, and tries again.
_OPENING_SECONDS = 20.0

#: Seconds of the first pause after a failed call, and of the longest.
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.1, 2.0


AggregateOf = Callable[[Subtask], PersistentAggregate | None]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How far a subtask's store is."""

    cells_left: int
    #: the last error, or "" if the last call succeeded
    error: str
    operations: int


class TotalsThreads:
    """The stores of one worker.

    Parameters
    ----------
    run : str
    aggregate_of : callable
        Returns a copy of the aggregate of a subtask, or None for another node.
    finish : callable
        Takes the end of a task. Called on the threads.
    """

    def __init__(self, run: str, aggregate_of: AggregateOf, finish: Callable[[Performed], None]) -> None:
        self._run = run
        self._aggregate_of = aggregate_of
        self._finish = finish
        self._threads: dict[Subtask, _StoreThread] = {}

    def open(self, deploy: Deploy) -> None:
        """Take the stores of a deployment. Called before its restore, on a thread that may wait.

        Raises
        ------
        RestoreRefused
            if a store has committed a later snapshot than is restored, or refuses for good.
        Fenced
            if a later incarnation has taken a store.
        StateError
            if a store does not answer in time.
        """
        self.close()
        calls: dict[Subtask, StoreCalls] = {}
        try:
            for each in deploy.subtasks:
                subtask = each.subtask
                if (node := self._aggregate_of(subtask)) is None:
                    continue
                claim = claim_of(self._run, each, deploy.incarnation)
                _open(node.store, claim, subtask, 0 if each.origin is None else each.origin.snapshot_id)
                calls[subtask] = StoreCalls(node.store, claim, node.monoid)
        except BaseException:
            for own in calls.values():
                own.close()
            raise
        # At once, because the loop may close meanwhile.
        self._threads = {
            subtask: _StoreThread(subtask, own, deploy.incarnation, self._finish) for subtask, own in calls.items()
        }

    def work(self, task: AnyTask, incarnation: int) -> None:
        """Perform a task after the subtask's other tasks."""
        thread = self._threads.get(task.subtask)
        assert isinstance(task, TotalsTask)
        if thread is not None and thread.incarnation == incarnation:
            thread.put(task)

    def status(self, subtask: Subtask) -> StoreStatus:
        """Return how far the store of a subtask is. Read when the stores of a deployment are open."""
        return self._threads[subtask].status

    def close(self) -> None:
        """End all threads after their present calls. Does not wait."""
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            thread.end()


def _open(store: AggregateStore, claim: StoreClaim, subtask: Subtask, snapshot_id: int) -> None:
    def call() -> None:
        for _ in opening(store, claim, subtask.node, snapshot_id):
            pass

    def note(error: OSError) -> None:
        _logger.warning("the store of %s: %s; trying again", subtask, headline(error))

    try:
        # Any error may pass: the contract of a store says so, and not the number of the error.
        repeated(call, _OPENING_SECONDS, note, lambda error: not isinstance(error, StoreRefused))
    except StoreRefused as error:
        raise RestoreRefused(f"the store of {subtask}: {headline(error)}") from error
    except OSError as error:
        raise StateError(f"the store of {subtask} cannot be taken: {headline(error)}") from error


class _StoreThread:
    def __init__(
        self,
        subtask: Subtask,
        calls: StoreCalls,
        incarnation: int,
        finish: Callable[[Performed], None],
    ) -> None:
        self.incarnation = incarnation
        self._subtask = subtask
        self._calls = calls
        self._finish = finish
        #: an entry for each task, and one for the end
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._is_ended = False
        self._error = ""
        # A daemon, because a store that hangs must not keep the process.
        Thread(target=self._run, name=f"cutline-totals-{subtask}", daemon=True).start()

    def put(self, task: TotalsTask) -> None:
        self._calls.put(task)
        self._woken.put(None)

    def end(self) -> None:
        self._is_ended = True
        self._woken.put(None)

    @property
    def status(self) -> StoreStatus:
        return StoreStatus(self._calls.cells_left, self._error, self._calls.operations)

    def _run(self) -> None:
        try:
            while not self._is_ended:
                self._woken.get()
                self._perform()
        except Exception as error:  # noqa: BLE001  # any error, because the snapshot waits for an answer
            refused = TaskRefused(self._failure(error))
            self._finish(Performed(self.incarnation, self._calls.current, refused))
        finally:
            self._calls.close()

    def _perform(self) -> None:
        """Perform the next task, each call as often as it takes, or until the incarnation is over."""
        pause = _PAUSE_SECONDS_MIN
        done = None
        while done is None and not self._is_ended:
            try:
                done = self._calls.step()
            except StoreRefused:
                raise
            except OSError as error:
                if not self._error:
                    _logger.warning("the store of %s is away: %s; trying again", self._subtask, headline(error))
                self._error = headline(error)
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
                continue
            pause = _PAUSE_SECONDS_MIN
            if self._error:
                _logger.warning("the store of %s is back", self._subtask)
                self._error = ""
        if done is not None:
            self._finish(Performed(self.incarnation, done, None))

    def _failure(self, error: Exception) -> CutlineError:
        if isinstance(error, CutlineError):
            return error
        text = f"the store of {self._subtask}: {headline(error)}"
        # Refused for good, as by a store that has lost totals: a restart would go on without them.
        return RestoreRefused(text) if isinstance(error, StoreRefused) else StateError(text)
