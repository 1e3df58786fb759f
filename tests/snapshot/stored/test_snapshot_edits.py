"""Pins and removals of published snapshots: what is kept, what is refused, and what a removal must see."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import MemoryBackend
from cutline.snapshot.errors import Fenced, SnapshotCorrupt, SnapshotInUse
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.envelope import unpack_plain, unseal
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Aborted
from cutline.snapshot.stored.pins import PIN_MAGIC, PinKind
from cutline.snapshot.stored.run_store import RunStore, stored_history
from cutline.snapshot.stored.snapshot_edits import check_removable, remove_snapshot, set_pinned
from cutline.state_backends.verify import verify_run
from tests.snapshot import sample

FIRST, SECOND, THIRD = IDS = tuple(range(sample.SNAPSHOT_ID, sample.SNAPSHOT_ID + 3))


def stored(backend: MemoryBackend | None = None, *, pinned: tuple[int, ...] = (), base: int | None = None) -> RunStore:
    """A run with three snapshots, those of `pinned` pinned when they were taken."""
    store = RunStore(backend or MemoryBackend(), sample.RUN)
    for number in range(1, sample.INCARNATION + 1):
        store.take_claim(Claim(number, "owner", f"instance {number}"))
    store.write_base(Base(sample.INCARNATION, base))
    for snapshot_id in IDS:
        assert store.write_manifest(replace(sample.manifest(snapshot_id=snapshot_id), pinned=snapshot_id in pinned))
    return store


def pins(store: RunStore) -> dict[int, bool]:
    """The pins that a reader of another process sees."""
    again = RunStore(store.backend, store.run)
    return {each.id: each.pinned for each in again.read_snapshots(sample.CODEC)}


@given(st.booleans(), st.lists(st.booleans(), max_size=6))
def test_the_last_change_of_a_pin_counts(in_manifest: bool, changes: list[bool]) -> None:
    """Whatever the manifest holds, and however often the pin is changed. Only a change writes an entry."""
    store = stored(pinned=(SECOND,) if in_manifest else ())
    for is_pinned in changes:
        set_pinned(store, SECOND, is_pinned)
    expected = [in_manifest, *changes][-1]
    assert pins(store) == {FIRST: False, SECOND: expected, THIRD: False}
    assert store.read_snapshot(SECOND, sample.CODEC).pinned == expected
    changed = sum(before != after for before, after in itertools.pairwise([in_manifest, *changes]))
    assert len(store.pins.log(SECOND)) == changed
    assert store.delete_snapshot(SECOND, [FIRST, THIRD], claim=sample.INCARNATION) != expected


def test_a_pin_of_another_process_stops_retention() -> None:
    """The store of a coordinator knows its manifests, and reads the pin at each removal all the same."""
    coordinator = stored()
    set_pinned(RunStore(coordinator.backend, sample.RUN), FIRST, True)
    assert not coordinator.delete_snapshot(FIRST, [SECOND, THIRD], claim=sample.INCARNATION)
    set_pinned(RunStore(coordinator.backend, sample.RUN), FIRST, False)
    assert coordinator.delete_snapshot(FIRST, [SECOND, THIRD], claim=sample.INCARNATION)


def test_a_removed_snapshot_leaves_no_pin() -> None:
    """Neither a snapshot that was unpinned, nor one whose pin comes while the snapshot goes."""
    store = stored(pinned=(FIRST,))
    set_pinned(store, FIRST, False)
    remove_snapshot(store, FIRST)
    hold = store.pins.hold

    def hold_late(*entry: Any) -> bool:
        assert store.delete_snapshot(SECOND, [THIRD], claim=sample.INCARNATION)
        return hold(*entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.pins, "hold", hold_late)
        with pytest.raises(FileNotFoundError, match=f"has no snapshot {SECOND}"):
            set_pinned(store, SECOND, True)
    assert not store.pins.logs() and stored_history(store) == (THIRD,)


@pytest.mark.parametrize("edit", [lambda store, each: set_pinned(store, each, True), remove_snapshot])
def test_what_is_not_published_is_not_changed(edit: Callable[[RunStore, int], None]) -> None:
    """No manifest, or an aborted record in its place. Nothing is written."""
    store = stored()
    store.write_manifest(Aborted(sample.RUN, THIRD + 1))
    before = store.backend.files()
    for snapshot_id in (THIRD + 1, THIRD + 2):
        with pytest.raises(FileNotFoundError, match=f"has no snapshot {snapshot_id}"):
            edit(store, snapshot_id)
    assert store.backend.files() == before


def test_a_run_that_never_started_has_nothing_to_remove() -> None:
    """Nor a claim: the refusal names the run and the snapshot, as it does for other runs."""
    store = RunStore(MemoryBackend(), sample.RUN)
    with pytest.raises(FileNotFoundError, match=f"run {sample.RUN!r} has no snapshot {FIRST}"):
        remove_snapshot(store, FIRST)
    assert not store.backend.files()


def test_entries_are_stored_by_the_words_of_the_format() -> None:
    """With the number of each, and without a holder, which only claims and forks are (PROTOCOL 10)."""
    store = stored()
    set_pinned(store, FIRST, True)
    set_pinned(store, FIRST, False)
    assert store.pins.remove(FIRST, in_manifest=False, claim=sample.INCARNATION, is_needed_by=lambda fork: True)
    paths = [f"{layout.run_folder(sample.RUN)}/{layout.pin_path(FIRST, number)}" for number in (1, 2, 3)]
    entries = [unpack_plain(unseal(PIN_MAGIC, store.backend.get(path), path), path) for path in paths]
    words = ("pinned", "unpinned", "removed")
    assert entries == [[FIRST, number, word, ""] for number, word in enumerate(words, 1)]


def test_what_is_needed_is_not_removed() -> None:
    """The newest, from which the run continues; the base of a claim without a snapshot; a pinned one, either way."""
    store = stored(pinned=(FIRST,))
    set_pinned(store, SECOND, True)
    for snapshot_id, text in ((THIRD, "is the newest"), (FIRST, "is pinned"), (SECOND, "is pinned")):
        with pytest.raises(SnapshotInUse, match=text):
            remove_snapshot(store, snapshot_id)
    set_pinned(store, SECOND, False)
    store.take_claim(Claim(sample.INCARNATION + 1, "another", "instance"))
    store.write_base(Base(sample.INCARNATION + 1, SECOND))
    with pytest.raises(SnapshotInUse, match="is the newest"):
        remove_snapshot(store, SECOND)
    assert stored_history(store) == (FIRST, SECOND)


def test_a_claim_that_comes_meanwhile_stops_the_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start between the check and the removal may continue from the snapshot (PROTOCOL 7)."""
    store = stored()
    listed = store.manifests

    def list_late(*bases: object) -> tuple[int, ...]:
        if not bases:  # what stays is listed last
            store.take_claim(Claim(sample.INCARNATION + 1, "another", "instance"))
            store.write_base(Base(sample.INCARNATION + 1, FIRST))
        return listed(*bases)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "manifests", list_late)
    with pytest.raises(Fenced, match="was started meanwhile"):
        remove_snapshot(store, FIRST)
    assert stored_history(store) == (FIRST,)


def test_a_start_without_a_base_stops_the_removal() -> None:
    """Nobody knows from which snapshot it continues, because its listing may be old (PROTOCOL 10.6)."""
    store = stored()
    store.take_claim(Claim(sample.INCARNATION + 1, "another", "instance"))
    with pytest.raises(Fenced, match=f"has taken claim {sample.INCARNATION + 1} and has not said"):
        remove_snapshot(store, FIRST)
    assert stored_history(store) == IDS and not store.pins.logs()
    store.write_base(Base(sample.INCARNATION + 1, THIRD))
    remove_snapshot(store, FIRST)
    assert stored_history(store) == (SECOND, THIRD)


@pytest.mark.parametrize(("above", "is_removed"), [(0, True), (1, False)])
def test_a_base_above_the_claim_of_a_removal_holds_its_snapshot(above: int, is_removed: bool) -> None:
    """A claim up to that of the removal needs its older base no more (PROTOCOL 10.5, pin log)."""
    store = stored()
    assert store.hold(FIRST, PinKind.BASE, str(sample.INCARNATION + above))
    assert store.delete_snapshot(FIRST, [SECOND, THIRD], claim=sample.INCARNATION) == is_removed
    assert stored_history(store) == (IDS[1:] if is_removed else IDS)
    assert bool(store.pins.logs()) != is_removed


def test_a_removed_snapshot_is_gone_and_the_others_are_whole() -> None:
    """In whatever order all but the newest are removed."""
    for order in itertools.permutations((FIRST, SECOND)):
        store = stored()
        for count, snapshot_id in enumerate(order, 1):
            remove_snapshot(store, snapshot_id)
            history = stored_history(RunStore(store.backend, sample.RUN))
            assert snapshot_id not in history and len(history) == len(IDS) - count
        check_removable(store, (), THIRD)  # which only the history holds
        assert not verify_run(store.backend, sample.RUN).problems


def test_damaged_pins_are_found() -> None:
    """By verification, with the file. A pin of another snapshot in the place is damage too."""
    store = stored()
    set_pinned(store, FIRST, True)
    assert not verify_run(store.backend, sample.RUN).problems
    folder = layout.run_folder(sample.RUN)
    path, other = (f"{folder}/{layout.pin_path(each, 1)}" for each in (FIRST, SECOND))
    data = store.backend.get(path)
    store.backend.put_if_absent(other, [data])
    store.backend.delete(path)
    store.backend.put_if_absent(path, [data[:-1] + bytes([data[-1] ^ 1])])
    found = verify_run(store.backend, sample.RUN).problems
    assert len(found) == 2 and all(any(each in problem for problem in found) for each in (path, other))
    with pytest.raises(SnapshotCorrupt, match="not what belongs here"):
        store.pins.read(SECOND, 1)
