"""Pinned snapshots off the history's chain: listed, readable, restorable, kept by retention and by sweeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import MemoryBackend
from cutline.barrier_runtime.coordinator.coordinator_store import CoordinatorStore
from cutline.snapshot.coordinator import events
from cutline.snapshot.coordinator.fence_events import RestoreFrom
from cutline.snapshot.coordinator.machine import Outcome
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.run_store import RunStore, pinned_off_chain, restorable, stored_history
from cutline.snapshot.stored.snapshot_edits import remove_snapshot, set_pinned
from cutline.state_backends.verify import verify_run
from tests.snapshot import sample
from tests.snapshot.led import RUN, Led, of_kind, order

#: what a user does with a run: publish a snapshot (pinned or not), or submit again from the n-th of what is listed
_STEPS = st.one_of(st.booleans(), st.sampled_from(["latest", None]), st.integers(0, 9).map(lambda n: ("listed", n)))


@dataclass
class _User:
    """A run under one name, and what must be listed of it."""

    store: RunStore = field(default_factory=lambda: RunStore(MemoryBackend(), RUN))
    #: ids of the history, ascending, with those that retention has removed
    chain: tuple[int, ...] = ()
    #: {snapshot: the history that ends in it}
    chains: dict[int, tuple[int, ...]] = field(default_factory=dict)
    pinned: list[int] = field(default_factory=list)
    submissions: int = 0

    def __post_init__(self) -> None:
        self.submit("latest")

    def submit(self, restore_from: RestoreFrom) -> None:
        """Submit the run again, with a driver of its own."""
        self.submissions += 1
        self.led = Led(store=self.store, owner=f"driver {self.submissions}", restore_from=restore_from).run()
        assert self.led.coordinator.outcome is None, self.led.coordinator.reason
        if restore_from != "latest":
            self.chain = self.chains[restore_from] if restore_from is not None else ()

    def publish(self, *, pinned: bool) -> None:
        """Publish a snapshot, and let retention remove what is too old."""
        self.led.step(events.SnapshotRequested(order(1, pinned=pinned)))
        (snapshot_id,) = self.led.coordinator.pending
        self.chain = self.chains[snapshot_id] = (*self.chain, snapshot_id)
        self.pinned += [snapshot_id] * pinned
        for removal in of_kind(self.led.acknowledge(snapshot_id), events.DeleteSnapshots):
            keep = [each for each in self.led.coordinator.history if each not in removal.snapshot_ids]
            gone = CoordinatorStore(self.store.backend, RUN).delete_snapshots(
                removal.snapshot_ids, tuple(keep), self.led.coordinator.incarnation
            )
            self.led.step(events.SnapshotsDeleted(gone))


@given(st.lists(_STEPS, max_size=12))
def test_what_is_listed_can_be_restored_and_pins_stay(steps: list[bool | str | tuple[str, int] | None]) -> None:
    """Whatever was submitted from where: the history is as the chain says, and no pinned snapshot vanishes."""
    user = _User()
    for step in steps:
        match step:
            case bool():
                user.publish(pinned=step)
            case ("listed", int() as number):
                listed = restorable(user.store)
                if listed:
                    user.submit(listed[number % len(listed)])
            case _:
                user.submit("latest" if step == "latest" else None)
        stored = user.store.manifests()
        history = [each for each in user.chain if each in stored]
        assert list(stored_history(user.store)) == history == user.led.coordinator.history
        assert user.chain[-1:] == tuple(history[-1:]), "the newest is never removed"
        listed = restorable(RunStore(user.store.backend, RUN))
        assert sorted(listed) == sorted({*history, *user.pinned})
        assert list(listed[:-1]) == sorted(listed[:-1]) and (not history or listed[-1] == history[-1])
        snapshots = user.store.read_snapshots(sample.CODEC)
        assert [each.id for each in snapshots] == list(listed) == list(verify_run(user.store.backend, RUN).history)
        for snapshot in snapshots:
            snapshot.verify()


def test_what_is_not_pinned_cannot_be_restored_off_the_chain() -> None:
    """A void snapshot is refused by name, as one that was never there."""
    user = _User()
    user.publish(pinned=False)
    user.submit(None)
    (void,) = user.chains
    assert restorable(user.store) == ()
    for missing in (void, void + 1):
        led = Led(store=user.store, owner=f"wants {missing}", restore_from=missing)
        assert led.coordinator.outcome is Outcome.FAILED and f"{missing} is not in the run's history" in (
            led.coordinator.reason
        )


def test_a_return_is_remembered() -> None:
    """A driver that dies before its first snapshot goes on from the pinned snapshot, not from the beginning."""
    user = _User()
    user.publish(pinned=True)
    (pinned,) = user.pinned
    user.submit(None)
    user.publish(pinned=False)
    user.submit(pinned)
    user.submit("latest")
    assert user.led.coordinator.history == [pinned] == list(stored_history(user.store))


def _stored(store: RunStore, snapshot_id: int, *, pinned: bool) -> list[str]:
    """Publish a snapshot with its parts in a file. Return the paths of its parts."""
    taken = [replace(each, snapshot_id=snapshot_id) for each in sample.taken()]
    of = [store.put_parts(parts_of(each, sample.RUN, sample.INCARNATION)) for each in taken]
    records = [record_of(each, sample.INCARNATION, handles) for each, handles in zip(taken, of, strict=True)]
    assert store.write_manifest(replace(sample.manifest(tuple(records), snapshot_id), pinned=pinned))
    return [handle.path for handles in of for handle in handles if handle.path is not None]


class _Apart(MemoryBackend):
    """Stores no part inline."""

    def __init__(self) -> None:
        super().__init__()
        self.inline_bytes_max = 0


def test_a_sweep_leaves_the_parts_of_pinned_snapshots() -> None:
    """After a fresh start a sweep takes what is void, and leaves what is pinned whole, until it is unpinned."""
    first, pinned = sample.SNAPSHOT_ID, sample.SNAPSHOT_ID + 1
    store = RunStore(_Apart(), sample.RUN)
    for number in range(1, sample.INCARNATION + 2):
        store.take_claim(Claim(number, "owner", str(number)))
        store.write_base(Base(number, None))
    void = _stored(store, first, pinned=False)
    kept = _stored(store, pinned, pinned=True)
    assert void and kept and not {*void} & {*kept}
    _sweep(store)
    store.read_snapshot(pinned, sample.CODEC).verify()
    assert [each.id for each in pinned_off_chain(store, ())] == [pinned]
    set_pinned(store, pinned, False)
    assert (restorable(store), store.read_snapshots(sample.CODEC)) == ((), [])
    remove_snapshot(store, pinned)
    _sweep(store)
    assert not {*kept} & {path.removeprefix(f"{sample.RUN}/") for path in store.backend.files()}


def _sweep(store: RunStore) -> None:
    for now in (0.0, 1000.0):
        store.collect_orphans(stored_history(store), sample.INCARNATION + 1, 900.0, now)


@pytest.mark.parametrize("is_on_chain", [True, False])
def test_damage_off_the_chain_hides_nothing_else(is_on_chain: bool) -> None:
    """A fresh start from a damaged history lists its own snapshots; the damaged manifest is named by verify."""
    user = _User()
    user.publish(pinned=True)
    (damaged,) = user.pinned
    path = f"{layout.run_folder(RUN)}/{layout.manifest_path(damaged)}"
    if not is_on_chain:
        user.submit(None)
    user.publish(pinned=True)
    data = bytearray(user.store.backend.get(path))
    data[-1] ^= 1
    user.store.backend.delete(path)
    user.store.backend.put_if_absent(path, [bytes(data)])
    again = RunStore(user.store.backend, RUN)
    assert any(f"{damaged}" in problem for problem in verify_run(user.store.backend, RUN).problems)
    if is_on_chain:
        assert damaged in restorable(again)
    else:
        assert restorable(again) == (user.pinned[-1],) == tuple(each.id for each in again.read_snapshots(sample.CODEC))
