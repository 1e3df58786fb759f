"""Calls on a store of totals: one at a time, in order, and again where one failed."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.errors import Fenced, RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.ledger import CommitTotals, TotalsTask, WriteTotals
from cutline.snapshot.modes.totals.store_calls import StoreCalls, claim_of, opening
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals
from cutline.snapshot.testing.simulation.totals import SimulatedStore, StoreConnection

ME = Subtask("sums")
OLD, NEW = StoreClaim("g", 1), StoreClaim("g", 2)
KEYS = [f"key {number}" for number in range(5)]


def test_a_claim_has_the_former_names_of_its_node() -> None:
    """The store of a node that was renamed belongs to it, and those of other nodes that were renamed do not."""
    renames = (("sum", "sums"), ("total", "totals"))
    restored = RestoredSubtask(ME, None, (), (), (), renames=renames)
    assert claim_of("g", restored, 2) == StoreClaim("g/sums", 2, ("g/sum",))


def open_store(store: SimulatedStore, claim: StoreClaim = OLD, snapshot_id: int = 0) -> None:
    """Take a store as a restore does."""
    for _ in opening(StoreConnection(store), claim, "sums", snapshot_id):
        pass


def tasks(snapshot_id: int) -> list[TotalsTask]:
    """Add one to each key, and commit."""
    return [WriteTotals(ME, snapshot_id, dict.fromkeys(KEYS, 1)), CommitTotals(ME, snapshot_id)]


def run(calls: StoreCalls) -> list[TotalsTask]:
    """Make all calls, also those that fail, and return the tasks that were done."""
    done = []
    while calls.has_work:
        try:
            task = calls.step()
        except OSError:
            continue
        if task is not None:
            done.append(task)
    return done


@pytest.mark.parametrize("keys_at_once", [1, 2, 5, 9])
@pytest.mark.parametrize("happens", [False, True])
def test_a_call_that_failed_is_made_again(keys_at_once: int, happens: bool) -> None:
    """Each call of two snapshots in its turn, before it has happened or after: all totals come out the same."""
    calls_of_a_snapshot = -(-len(KEYS) // keys_at_once) + 1
    for fails_at in range(2 * calls_of_a_snapshot):
        store = SimulatedStore()
        open_store(store)
        calls = StoreCalls(StoreConnection(store), OLD, Count(), keys_at_once)
        for task in (*tasks(1), *tasks(2)):
            calls.put(task)
        for _ in range(fails_at):
            calls.step()
        store.failures[:] = [happens]
        with pytest.raises(OSError, match="away"):
            calls.step()
        run(calls)
        assert KeptTotals(store.cells).totals() == dict.fromkeys(KEYS, 2)


def test_tasks_are_done_in_order_and_each_once() -> None:
    """A commit is not made ahead of the last cell of its snapshot, also where a call fails between."""
    store = SimulatedStore()
    open_store(store)
    calls = StoreCalls(StoreConnection(store), OLD, Count(), 2)
    for task in tasks(1):
        calls.put(task)
    assert (calls.cells_left, calls.is_writing) == (5, False)
    assert calls.step() is None and (calls.cells_left, calls.is_writing) == (3, True)
    assert KeptTotals(store.cells).totals() == {}
    store.failures[:] = [False, True, False]
    assert run(calls) == tasks(1) and (calls.cells_left, calls.is_writing) == (0, False)


def test_each_changed_key_is_written_once_for_a_snapshot() -> None:
    """Reads and writes of cells, and commits, are counted: two calls for each list of keys, one for a commit."""
    store = SimulatedStore()
    open_store(store)
    calls = StoreCalls(StoreConnection(store), OLD, Count(), 5)
    for task in tasks(1):
        calls.put(task)
    run(calls)
    assert calls.operations == 3


def test_an_empty_difference_makes_no_call() -> None:
    """But its task is done, because the acknowledgement waits for it."""
    store = SimulatedStore()
    calls = StoreCalls(StoreConnection(store), OLD, Count())
    calls.put(WriteTotals(ME, 1, {}))
    assert calls.step() == WriteTotals(ME, 1, {}) and calls.operations == 0 and not calls.has_work


def test_an_aborted_difference_is_not_added_to() -> None:
    """A difference is added to the value that counts, and not to the newest (PROTOCOL 13.3, the value that counts)."""
    store = SimulatedStore()
    open_store(store)
    calls = StoreCalls(StoreConnection(store), OLD, Count())
    for task in (tasks(1)[0], *tasks(2)):
        calls.put(task)
    run(calls)
    assert KeptTotals(store.cells).totals() == dict.fromkeys(KEYS, 1)


def test_the_calls_of_an_old_claim_are_refused() -> None:
    """Each of them, also the half that is left of a write (PROTOCOL 13.8, claims)."""
    store = SimulatedStore()
    open_store(store)
    calls = StoreCalls(StoreConnection(store), OLD, Count(), 1)
    for task in tasks(1):
        calls.put(task)
    calls.step()
    open_store(store, NEW)
    with pytest.raises(Fenced):
        calls.step()
    assert KeptTotals(store.cells).totals() == {} and not store.cells.cells
    with pytest.raises(Fenced):
        open_store(store, OLD)


@pytest.mark.parametrize("calls_before", [1, 2, 5, 6])
@pytest.mark.parametrize("fails_at", [0, 1, 2])
@pytest.mark.parametrize("happens", [False, True])
def test_an_opening_may_begin_anew(calls_before: int, fails_at: int, happens: bool) -> None:
    """Wherever it failed: a published snapshot counts, and cells of a later one are gone (PROTOCOL 13.7, restore)."""
    store = SimulatedStore()
    open_store(store)
    calls = StoreCalls(StoreConnection(store), OLD, Count(), 1)
    for task in tasks(1):
        calls.put(task)
    for _ in range(calls_before):
        calls.step()
    is_published = calls_before >= len(KEYS)
    snapshot_id = 1 if is_published else 0
    begun = opening(StoreConnection(store), NEW, "sums", snapshot_id)
    for _ in range(fails_at):
        next(begun)
    store.failures[:] = [happens]
    with pytest.raises(OSError, match="away"):
        next(begun)
    open_store(store, NEW, snapshot_id)
    assert KeptTotals(store.cells).totals() == (dict.fromkeys(KEYS, 1) if is_published else {})
    assert not store.cells.open_keys


class Slow(StoreConnection):
    """Gives up each write of many keys, as a server does whose statement takes too long."""

    def __init__(self, store: SimulatedStore, keys_max: int) -> None:
        super().__init__(store)
        self.keys_max = keys_max
        self.sizes: list[int] = []

    def write(self, claim: StoreClaim, snapshotId: int, items: Any) -> None:
        self.sizes.append(len(items))
        if len(items) > self.keys_max:
            raise TimeoutError("the statement took too long")
        super().write(claim, snapshotId, items)


def test_a_call_that_takes_too_long_becomes_smaller() -> None:
    """Else the same call would be made for ever. When the store is fast again, calls grow again."""
    store = SimulatedStore()
    open_store(store)
    slow = Slow(store, keys_max=1)
    calls = StoreCalls(slow, OLD, Count(), 5)
    calls.put(tasks(1)[0])
    run(calls)
    assert slow.sizes[:3] == [5, 2, 1] and set(slow.sizes[3:]) == {1, 2}
    slow.keys_max, slow.sizes = 9, []
    for task in (CommitTotals(ME, 1), *tasks(2), *tasks(3)):
        calls.put(task)
    run(calls)
    assert slow.sizes[-1] == 5
    assert KeptTotals(store.cells).totals() == dict.fromkeys(KEYS, 3)


def test_a_store_that_has_lost_everything_is_refused() -> None:
    """Also at the second try, whatever the first one has changed. A run that begins may take it."""
    store = SimulatedStore()
    for claim in (OLD, NEW):
        with pytest.raises(RestoreRefused, match="snapshot 7 has totals in the store of 'sums', and no run has begun"):
            open_store(store, claim, 7)
    begun = StoreClaim("g", 3)
    open_store(store, begun, 0)
    open_store(store, StoreClaim("g", 4), 7)  # the commit of the first snapshot was lost with its worker


def test_a_store_does_not_go_back() -> None:
    """A restore of an older snapshot than the store has committed is refused, with what to do."""
    store = SimulatedStore()
    open_store(store)
    calls = StoreCalls(StoreConnection(store), OLD, Count())
    for task in tasks(7):
        calls.put(task)
    run(calls)
    with pytest.raises(RestoreRefused, match="'sums' has committed snapshot 7; it cannot go back to 6: restore"):
        open_store(store, NEW, 6)
    open_store(store, NEW, 7)
