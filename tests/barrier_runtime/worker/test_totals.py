"""Stores of a worker's aggregates that fail when they are taken."""

from __future__ import annotations

import pytest

from barrier_runtime.worker import totals
from barrier_runtime.worker.totals import TotalsThreads
from snapshot.coordinator.control import Deploy, RestoredSubtask
from snapshot.errors import StateError
from snapshot.ids import Subtask
from snapshot.operators.aggregate_store import StoreClaim
from snapshot.operators.monoids import Sum
from snapshot.operators.persistent_aggregate import PersistentAggregate
from snapshot.stored.backend import StoreRefused
from state_backends import MemoryStore

_SUBTASK = Subtask("sums", 0)
_DEPLOY = Deploy(7, (RestoredSubtask(_SUBTASK, None, (), (), ()),), has_more=False)


class _Unsteady(MemoryStore):
    """Fails with errors when it is taken, one at a call, and then works."""

    def __init__(self, *errors: OSError) -> None:
        super().__init__()
        self.errors = list(errors)

    def take(self, claim: StoreClaim) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return super().take(claim)


def _open(store: MemoryStore) -> None:
    threads = TotalsThreads("run", lambda _: PersistentAggregate(Sum(), store), lambda _: None)
    threads.open(_DEPLOY)
    threads.close()


def test_a_restore_waits_for_a_store() -> None:
    """Errors of stores have no numbers, and another try may succeed after each of them."""
    store = _Unsteady(OSError("away"), OSError("starting"))
    _open(store)
    assert not store.errors


def test_a_store_that_stays_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time the restore fails with node and error, and the run restarts."""
    monkeypatch.setattr(totals, "_OPENING_SECONDS", 0.1)
    with pytest.raises(StateError, match=r"^the store of sums\[0\] cannot be taken: OSError: still away$"):
        _open(_Unsteady(*[OSError("still away")] * 1000))


def test_a_store_that_refuses_is_asked_once() -> None:
    """Nobody waits for a store that will refuse again."""
    store = _Unsteady(StoreRefused("wrong password"), OSError("not reached"))
    with pytest.raises(StateError, match=r"cannot be taken: StoreRefused: wrong password$"):
        _open(store)
    assert len(store.errors) == 1
