"""Files of lists: whatever is published, aborted, compacted and removed, each kept snapshot has all its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.coordinator.retention import Retention
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import own_part, rows_part
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore
from tests.snapshot import sample
from tests.snapshot.stored.test_run_store import Apart

ALL = (0, KEY_GROUPS)


@dataclass
class KeyedRun:
    """A run in which P has keyed state: what its worker and its coordinator store."""

    store: RunStore = field(default_factory=lambda: RunStore(Apart(), sample.RUN))
    incarnation: int = 1
    list_now: tuple[ListEntry, ...] = ()
    #: snapshots whose manifest is not written, ascending
    pending: list[Manifest] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    captures: int = 0

    def store_piece(self, first: int, last: int) -> ListEntry:
        """A stored piece of all key groups."""
        origin = (self.store.run, self.incarnation, self.incarnation * 1_000_000 + self.captures, sample.P)
        (handle,) = self.store.put_rows([rows_part(*origin, (first, last), ALL, [b"rows"], 1)], inline=False)
        return ListEntry(handle, *ALL)

    @property
    def own(self) -> tuple[ListEntry, ...]:
        """The own part of the list."""
        return tuple(entry for entry in self.list_now if entry.handle.incarnation == self.incarnation)

    def capture(self) -> Manifest:
        """A generation is stored, and a snapshot lists it."""
        self.captures += 1
        last = self.own[-1].handle.last if self.own else 0
        self.list_now += (self.store_piece(last + 1, last + 1),)
        return self.cut()

    def compact(self) -> Manifest:
        """A base replaces the list, and a snapshot lists it."""
        self.captures += 1
        self.list_now = (self.store_piece(0, self.own[-1].handle.last if self.own else 0),)
        return self.cut()

    def cut(self) -> Manifest:
        """A snapshot of the list, whose manifest is not written yet."""
        p, q = (replace(each, incarnation=self.incarnation) for each in sample.records())
        records = (replace(p, groups=ALL, rows=self.list_now), q)
        snapshot_id = self.incarnation * 1_000_000 + self.captures
        made = replace(sample.manifest(records, snapshot_id), incarnation=self.incarnation, claim=self.incarnation)
        self.pending.append(replace(made, run=self.store.run, pinned=False))
        return self.pending[-1]

    def publish(self, manifest: Manifest) -> None:
        """The manifest is written; lower snapshots are superseded."""
        assert self.store.write_manifest(manifest)
        self.published.append(manifest.snapshot_id)
        self.pending = [each for each in self.pending if each.snapshot_id > manifest.snapshot_id]

    def remove(self, *snapshot_ids: int) -> None:
        """Retention removes snapshots."""
        for snapshot_id in snapshot_ids:
            self.published.remove(snapshot_id)
            assert self.store.delete_snapshot(snapshot_id, self.published, self.incarnation)

    def roll_back(self) -> None:
        """The newest snapshot is restored under the next claim."""
        self.incarnation += 1
        self.captures, self.pending, self.list_now = 0, [], ()
        if self.published:
            newest = self.store.read_manifest(self.published[-1])
            assert isinstance(newest, Manifest)
            self.list_now = newest.records[0].rows or ()

    def collect(self, seconds: float) -> None:
        """Orphans are collected; those that were found before are removed."""
        self.store.collect_orphans(self.published, self.incarnation, grace=1.0, now=seconds)

    def verify(self) -> None:
        """Every part of every published snapshot is there."""
        for snapshot_id in self.published:
            self.store.read_snapshot(snapshot_id, sample.CODEC).verify()


@given(st.data())
def test_every_kept_snapshot_has_its_files(data: st.DataObject) -> None:
    """Random captures, compactions, publications, aborts, removals, rollbacks and sweeps; at the end, one is left."""
    run, now = KeyedRun(), 0.0
    retention = Retention(data.draw(st.integers(1, 2)))
    steps = ("capture", "compact", "publish", "publish", "abort", "roll back", "collect")
    for step in data.draw(st.lists(st.sampled_from(steps), max_size=25)):
        now += 1.0
        match step:
            case "capture":
                run.capture()
            case "compact":
                run.compact()
            case "publish" if run.pending:
                run.publish(data.draw(st.sampled_from(run.pending)))
            case "abort" if run.pending:
                run.pending.remove(data.draw(st.sampled_from(run.pending)))
            case "roll back":
                run.roll_back()
            case "collect":
                run.collect(now)
        retention.take_over(run.published)
        removal = retention.next_removal([each.snapshot_id for each in run.pending])
        run.remove(*removal)
        retention.removed(removal)
        run.verify()
    run.publish(run.compact())
    run.remove(*run.published[:-1])
    run.roll_back()
    run.collect(now + 1.0)
    run.collect(now + 2.0)
    run.verify()
    rows = [path for path in run.store.backend.files() if "-rows-" in path]
    assert len(rows) == len(run.list_now) == 1, "what nothing lists is collected"


def test_a_removal_below_a_pending_snapshot_would_take_its_files() -> None:
    """PROTOCOL 10.3: a snapshot below the newest that may still appear lists pieces that the newest has dropped.

    Removing without the rule damages it. With the rule the removal waits until the snapshot is settled, and then the
    pieces of the snapshot stay.
    """
    for knows_pending in (False, True):
        run, retention = KeyedRun(), Retention(1)
        run.publish(run.capture())
        late, newest = run.capture(), run.compact()
        run.publish(newest)
        retention.take_over(run.published)
        unsettled = [late.snapshot_id]
        removal = retention.next_removal(unsettled if knows_pending else [])
        assert removal == (() if knows_pending else (run.published[0],))
        run.remove(*removal)
        retention.removed(removal)
        assert run.store.write_manifest(late)
        snapshot = run.store.read_snapshot(late.snapshot_id, sample.CODEC)
        if knows_pending:
            snapshot.verify()
            assert retention.next_removal([]) == (run.published[0],)
            run.published.insert(1, late.snapshot_id)
            run.remove(run.published[0])
            snapshot.verify()
        else:
            with pytest.raises(SnapshotCorrupt, match=r"-rows-P-0-.*the file is missing"):
                snapshot.verify()


def test_own_state_in_deltas_is_kept_too() -> None:
    """The files of the list of own state, as those of rows."""
    store = RunStore(Apart(), sample.RUN)
    made = [
        own_part(sample.RUN, sample.INCARNATION, sample.SNAPSHOT_ID, sample.P, each, [b"own"])
        for each in ((0, 0), (1, 1))
    ]
    handles = tuple(store.put_rows(made, inline=False))
    p, q = sample.records()
    first = replace(sample.manifest((replace(p, own=handles[:1]), q)), pinned=False)
    second = replace(sample.manifest((replace(p, own=handles), q), sample.SNAPSHOT_ID + 1), pinned=False)
    assert store.write_manifest(first) and store.write_manifest(second)
    assert store.delete_snapshot(first.snapshot_id, [second.snapshot_id], sample.INCARNATION)
    store.read_snapshot(second.snapshot_id, sample.CODEC).verify()
    assert store.delete_snapshot(second.snapshot_id, [], sample.INCARNATION)
    assert store.backend.files() == []


def _rows_of(manifest: Manifest) -> Manifest:
    return manifest


def _state_of(manifest: Manifest) -> Manifest:
    return replace(manifest, records=tuple(replace(each, rows=None, groups=None) for each in manifest.records))


@pytest.mark.parametrize(("change", "is_held"), [(_rows_of, True), (_state_of, False)])
def test_a_fork_holds_the_origin_while_it_lists_its_pieces(
    change: Callable[[Manifest], Manifest], is_held: bool
) -> None:
    """Pieces count as any part. A fork that has none of them any more lets the origin's snapshot go."""
    origin = KeyedRun()
    origin.publish(origin.capture())
    origin.publish(origin.capture())
    first = origin.published[0]
    assert origin.store.hold(first, PinKind.FORK, "fork")
    fork = RunStore(origin.store.backend, "fork")
    assert fork.take_claim(Claim(1, "o", "x")) and fork.write_base(Base(1, None))
    restored = origin.store.read_manifest(first)
    assert isinstance(restored, Manifest)
    assert fork.write_manifest(change(replace(restored, run="fork")))
    assert origin.store.delete_snapshot(first, origin.published[1:], 1) == (not is_held)
