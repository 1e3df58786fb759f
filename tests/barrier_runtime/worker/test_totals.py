"""Threads that call the stores of aggregates: what fails is tried again, what is refused is reported, nothing waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from cutline.barrier_runtime.worker import totals
from cutline.barrier_runtime.worker.totals import TotalsThreads
from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask
from cutline.snapshot.errors import Fenced, RestoreRefused, StateError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.ledger import CommitTotals, WriteTotals
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.stored.backend import StoreRefused
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals, StoredCells
from cutline.snapshot.worker.events import Performed
from cutline.snapshot.worker.ledger import TaskRefused

#: Milliseconds are enough; a test that passes does not wait for this.
DEADLINE_S = 20.0
ME, OTHER = Subtask("sums"), Subtask("relay")


class Shaky(KeptTotals):
    """A store that raises what a test has put, and that hangs until it is released."""

    def __init__(self, cells: StoredCells | None = None) -> None:
        super().__init__(cells)
        #: errors of the next calls
        self.errors: list[Exception] = []
        self.hangs = threading.Event()
        self.is_hanging = threading.Event()
        self.released = threading.Event()
        self.closed = threading.Event()

    def take(self, claim: StoreClaim) -> int:
        self._fail()
        return super().take(claim)

    def write(self, claim: StoreClaim, snapshotId: int, items: Sequence[tuple[Any, Any]]) -> None:
        self._fail()
        super().write(claim, snapshotId, items)

    def close(self) -> None:
        self.closed.set()

    def _fail(self) -> None:
        if self.hangs.is_set():
            self.is_hanging.set()
            assert self.released.wait(DEADLINE_S)
        if self.errors:
            raise self.errors.pop(0)


class Worker:
    """The threads of a worker with one aggregate, and what they have reported."""

    def __init__(self, store: Shaky) -> None:
        self.store = store
        self.finished: queue.Queue[Performed] = queue.Queue()
        self.threads = TotalsThreads("g", self._aggregate_of, self.finished.put)

    def _aggregate_of(self, subtask: Subtask) -> PersistentAggregate | None:
        return PersistentAggregate(Count(), self.store) if subtask == ME else None

    def open(self, incarnation: int = 1) -> None:
        """Take the store for an incarnation."""
        subtasks = tuple(RestoredSubtask(each, None, (), (), ()) for each in (ME, OTHER))
        self.threads.open(Deploy(incarnation, subtasks, has_more=False))

    def next(self) -> Performed:
        """The next report."""
        return self.finished.get(timeout=DEADLINE_S)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker whose store has short pauses."""
    monkeypatch.setattr(totals, "_PAUSE_SECONDS_MIN", 0.001)
    found = Worker(Shaky())
    yield found
    found.store.released.set()
    found.threads.close()


WRITE, COMMIT = WriteTotals(ME, 1, {"a": 2, "b": 1}), CommitTotals(ME, 1)


def test_tasks_are_done_in_order(worker: Worker) -> None:
    """And each is reported with its incarnation."""
    worker.open(3)
    worker.threads.work(WRITE, 3)
    worker.threads.work(COMMIT, 3)
    assert [worker.next(), worker.next()] == [Performed(3, WRITE, None), Performed(3, COMMIT, None)]
    assert worker.store.totals() == {"a": 2, "b": 1}
    status = worker.threads.status(ME)
    assert (status.cells_left, status.error, status.operations) == (0, "", 3)


def test_a_store_that_was_away_has_lost_nothing(worker: Worker) -> None:
    """A call that failed is made again until it succeeds, whatever number the error has."""
    worker.open()
    worker.store.errors = [OSError("away"), TimeoutError("away"), ConnectionRefusedError(111, "away")]
    worker.threads.work(WRITE, 1)
    assert worker.next() == Performed(1, WRITE, None)
    assert not worker.store.errors


def test_a_store_that_is_away_at_a_restore_is_waited_for(worker: Worker) -> None:
    """For some time, because a restart would find the same store."""
    worker.store.errors = [OSError("away"), ConnectionRefusedError(111, "away")]
    worker.open()
    worker.threads.work(WRITE, 1)
    assert worker.next() == Performed(1, WRITE, None)


def test_a_restore_does_not_wait_for_ever(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the store's own text."""
    monkeypatch.setattr(totals, "_OPENING_SECONDS", 0.01)
    worker.store.errors = [OSError("the server is down")] * 1000
    with pytest.raises(StateError, match=r"the store of sums\[0\] cannot be taken: .*the server is down"):
        worker.open()


REFUSALS: list[tuple[Callable[[], Exception], type[Exception], str]] = [
    (lambda: StoreRefused("no number"), RestoreRefused, r"the store of sums\[0\]: .*no number"),
    (lambda: Fenced("claim 2 has taken it"), Fenced, "claim 2 has taken it"),
    (lambda: ValueError("a bug"), StateError, r"the store of sums\[0\]: .*a bug"),
]


@pytest.mark.parametrize(("refusal", "kind", "text"), REFUSALS)
def test_what_is_refused_for_good_is_reported_once(
    worker: Worker, refusal: Callable[[], Exception], kind: type[Exception], text: str
) -> None:
    """The thread then ends, and closes its connection."""
    worker.open()
    worker.store.errors = [refusal()]
    worker.threads.work(WRITE, 1)
    report = worker.next()
    assert isinstance(report.result, TaskRefused) and (report.incarnation, report.task) == (1, WRITE)
    with pytest.raises(kind, match=text):
        raise report.result.error
    assert worker.store.closed.wait(DEADLINE_S)


def test_a_store_of_another_run_refuses_the_restore(worker: Worker) -> None:
    """For good, because another start would find the same owner."""
    worker.store.take(StoreClaim("other", 1))
    with pytest.raises(RestoreRefused, match=r"the store of sums\[0\]: .*belongs to run 'other', not to 'g/sums'"):
        worker.open()


def test_an_older_incarnation_cannot_take_the_store(worker: Worker) -> None:
    """A later one has it."""
    worker.open(2)
    with pytest.raises(Fenced):
        Worker(worker.store).open(1)


def test_a_store_that_hangs_does_not_hold_up_a_restore(worker: Worker) -> None:
    """Whatever the old thread writes late is refused by the store, because its claim is older."""
    worker.open(1)
    worker.store.hangs.set()
    worker.threads.work(WRITE, 1)
    assert worker.store.is_hanging.wait(DEADLINE_S)
    worker.store.hangs.clear()
    worker.open(2)
    worker.threads.work(WRITE, 2)
    assert worker.next() == Performed(2, WRITE, None)
    worker.store.released.set()
    late = worker.next()
    assert isinstance(late.result, TaskRefused) and late.incarnation == 1 and isinstance(late.result.error, Fenced)


def test_a_task_of_another_incarnation_is_dropped(worker: Worker) -> None:
    """Its data is gone."""
    worker.open(2)
    worker.threads.work(WriteTotals(ME, 1, {"old": 1}), 1)
    worker.threads.work(WRITE, 2)
    assert worker.next() == Performed(2, WRITE, None)
    worker.threads.close()
    worker.threads.work(COMMIT, 2)
    assert worker.store.closed.wait(DEADLINE_S)
    assert worker.finished.empty()
