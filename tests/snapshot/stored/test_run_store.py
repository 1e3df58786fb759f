"""The files of a run: what is written where, in which order, and what may be removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import FileSystemBackend, MemoryBackend
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.stored.envelope import pack_plain, seal
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.part import Handle, state_part
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import CLAIM_MAGIC, RunStore, runs
from tests.snapshot import sample

OTHER_ID = sample.SNAPSHOT_ID + 1


class Apart(MemoryBackend):
    """Memory that takes no part inline."""

    def __init__(self) -> None:
        super().__init__()
        self.inline_bytes_max = 0


def new_store(backend: StateBackend | None = None) -> RunStore:
    """A store of the sample's run."""
    return RunStore(backend or Apart(), sample.RUN)


def written(store: RunStore, snapshot_id: int = sample.SNAPSHOT_ID) -> Manifest:
    """The sample as a snapshot of this id, not pinned, a file for the parts of each subtask."""
    records = []
    for each in sample.taken():
        parts = parts_of(replace(each, snapshot_id=snapshot_id), sample.RUN, sample.INCARNATION)
        records.append(record_of(each, sample.INCARNATION, store.put_parts(parts)))
    manifest = replace(sample.manifest(tuple(records), snapshot_id), pinned=False)
    assert store.write_manifest(manifest)
    return manifest


# ---- the fence


def test_claims() -> None:
    """A number is taken once; who lost can read who won; all are listed in order."""
    store = new_store()
    first, second, rival = Claim(1, "a", "x"), Claim(2, "b", "y"), Claim(2, "b", "z")
    assert store.read_claim(1) is None
    assert store.take_claim(first)
    assert store.take_claim(second)
    assert not store.take_claim(rival)
    assert store.read_claim(2) == second
    assert store.claims() == (first, second)


def test_bases() -> None:
    """A base is written once; writing the very same one again is no contradiction, another one is."""
    store = new_store()
    assert store.write_base(Base(1, None))
    assert store.write_base(Base(2, 1_000_005))
    assert store.write_base(Base(2, 1_000_005))
    assert not store.write_base(Base(2, 1_000_004))
    assert store.bases() == (Base(1, None), Base(2, 1_000_005))


def test_a_manifest_and_its_abortion_exclude_each_other() -> None:
    """Whichever comes first stays: so reading back decides a write whose outcome was unknown (PROTOCOL 7.6)."""
    store = new_store()
    manifest = written(store)
    assert not store.write_manifest(Aborted(sample.RUN, sample.SNAPSHOT_ID))
    assert store.read_manifest(sample.SNAPSHOT_ID) == manifest
    assert store.write_manifest(Aborted(sample.RUN, OTHER_ID))
    assert not store.write_manifest(replace(manifest, snapshot_id=OTHER_ID))
    assert store.read_manifest(OTHER_ID) == Aborted(sample.RUN, OTHER_ID)
    assert store.manifests() == (sample.SNAPSHOT_ID,)
    with pytest.raises(FileNotFoundError, match="was aborted"):
        store.read_snapshot(OTHER_ID, sample.CODEC)


def test_history_is_what_is_on_the_chain() -> None:
    """A manifest that no base continues from is stored, but no snapshot of the run (PROTOCOL 7.3, history)."""
    store = new_store()
    for claim in (7, 8):
        store.take_claim(Claim(claim, "o", str(claim)))
    store.write_base(Base(7, None))
    written(store, 7_000_001)
    written(store, 7_000_002)
    assert [s.id for s in store.read_snapshots(sample.CODEC)] == [7_000_001, 7_000_002]
    store.write_base(Base(8, 7_000_001))
    assert [s.id for s in store.read_snapshots(sample.CODEC)] == [7_000_001]
    assert store.manifests() == (7_000_001, 7_000_002)


def test_a_missing_newest_snapshot_is_corruption() -> None:
    """A run whose newest snapshot is gone is damaged; it does not quietly have an older one (RELIABILITY 5)."""
    store = new_store()
    store.write_base(Base(7, None))
    written(store, 7_000_001)
    store.write_base(Base(8, 7_000_001))
    store.backend.delete(f"{sample.RUN}/{layout.manifest_path(7_000_001)}")
    with pytest.raises(SnapshotCorrupt, match="newest snapshot's manifest is missing"):
        store.read_snapshots(sample.CODEC)


def test_records_in_wrong_places_are_found() -> None:
    """A claim, base or manifest under another one's name, or of another run, is SnapshotCorrupt."""
    store = new_store()
    store.take_claim(Claim(1, "a", "x"))
    store.write_base(Base(1, None))
    written(store)
    moves = [
        (layout.claim_path(1), layout.claim_path(2)),
        (layout.base_path(1), layout.base_path(2)),
        (layout.manifest_path(sample.SNAPSHOT_ID), layout.manifest_path(OTHER_ID)),
        (layout.manifest_path(sample.SNAPSHOT_ID), layout.claim_path(3)),
    ]
    for old, new in moves:
        store.backend.put_if_absent(f"{sample.RUN}/{new}", [store.backend.get(f"{sample.RUN}/{old}")])
    for read in (
        lambda: store.read_claim(2),
        lambda: store.read_claim(3),
        lambda: store.read_base(2),
        lambda: store.read_manifest(OTHER_ID),
    ):
        with pytest.raises(SnapshotCorrupt, match=r"offset 0|belongs here"):
            read()
    name = f"{sample.RUN}/{layout.claim_path(4)}"
    store.backend.put_if_absent(name, seal(CLAIM_MAGIC, [pack_plain([4])]))
    with pytest.raises(SnapshotCorrupt, match=r"belongs here: \[4\]"):
        store.read_claim(4)
    forged = RunStore(store.backend, "other")
    forged.backend.put_if_absent(
        f"other/{layout.manifest_path(sample.SNAPSHOT_ID)}",
        [store.backend.get(f"{sample.RUN}/{layout.manifest_path(sample.SNAPSHOT_ID)}")],
    )
    with pytest.raises(SnapshotCorrupt, match="of run 'bank'"):
        forged.read_manifest(sample.SNAPSHOT_ID)


# ---- parts


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=4), st.integers(0, 1000))
def test_parts_come_back_inline_or_stored(bodies: list[bytes], inline_bytes_max: int) -> None:
    """What a subtask gives is inline up to the backend's limit, in one file beyond it, and the same when read."""
    store = new_store()
    store.backend.inline_bytes_max = inline_bytes_max
    parts = [state_part(sample.RUN, 1, 2, sample.P, [body]) for body in bodies]
    handles = store.put_parts(parts)
    size = sum(part.handle.size for part in parts)
    assert [bytes(store.read_part(handle)) for handle in handles] == bodies
    assert {handle.path is None for handle in handles} == {size <= inline_bytes_max}
    assert [len(store.backend.get(path)) for path in store.backend.files()] == [size] * (size > inline_bytes_max)


def test_a_part_is_read_without_the_others_of_its_file() -> None:
    """A restore that needs some messages does not read the gigabyte of state before them."""
    store = new_store()
    *_, last = store.put_parts([state_part(sample.RUN, 1, 2, sample.P, [body]) for body in (b"one", b"two")])
    asked: list[tuple[int, int | None]] = []

    def nothing(path: str, offset: int, size: int | None) -> bytes:
        asked.append((offset, size))
        return b""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.backend, "_get", nothing)
        with pytest.raises(SnapshotCorrupt, match=f"offsets from byte {last.offset}.*ends at offset 0"):
            store.read_part(last)
    assert asked == [(last.offset, last.size)] and last.offset > 0


def test_a_part_may_be_put_twice_but_not_changed() -> None:
    """A repeated upload finds its own bytes; other bytes of the same origin are refused."""
    store = new_store()
    part = state_part(sample.RUN, 1, 2, sample.P, [b"x"])
    assert store.put_parts([part]) == store.put_parts([part])
    with pytest.raises(SnapshotCorrupt, match="same origin"):
        store.put_parts([state_part(sample.RUN, 1, 2, sample.P, [b"y"])])


def test_a_fork_reads_the_parts_of_the_other_run() -> None:
    """A handle says of which run it is: a run that starts from another one's snapshot reads that one's files."""
    store = new_store()
    (handle,) = store.put_parts([state_part(sample.RUN, 1, 2, sample.P, [b"x"])])
    assert bytes(RunStore(store.backend, "fork").read_part(handle)) == b"x"


def test_a_missing_part_is_corruption(tmp_path: Path) -> None:
    """A listed file that is gone is named, with the store; it is never "empty"."""
    store = new_store(FileSystemBackend(tmp_path, inlineBytesMax=0))
    handle, *_ = store.put_parts(sample.parts())
    store.backend.delete(f"{sample.RUN}/{handle.path}")
    with pytest.raises(SnapshotCorrupt, match=f"file://{tmp_path}/{sample.RUN}/{handle.path}: the file is missing"):
        store.read_part(handle)


def test_a_stored_snapshot_reads_as_it_was() -> None:
    """From the store it shows the sample's states and channels."""
    store = new_store()
    written(store)
    snapshot = store.read_snapshot(sample.SNAPSHOT_ID, sample.CODEC)
    snapshot.verify()
    assert snapshot.node("P").state == {"balance": 1}
    assert len(snapshot.channel("P", "Q").messages) == 6


# ---- retention


class Recording(Apart):
    """Notes what is deleted, and may fail at one deletion."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        self.deleted: list[str] = []
        self.read: Counter[str] = Counter()
        self._fails_at = fails_at

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            if len(self.deleted) == self._fails_at:
                raise OSError("the store is away")
            self.deleted.append(path)
            super()._delete([path])

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        self.read[path] += 1
        return super()._get(path, offset, size)


def test_a_snapshot_is_deleted_manifest_first() -> None:
    """From the first step on it does not exist; its neighbour is untouched."""
    store = new_store(backend := Recording())
    written(store)
    kept = written(store, OTHER_ID)
    store.delete_snapshot(sample.SNAPSHOT_ID, keep=[OTHER_ID], claim=sample.INCARNATION)
    assert backend.deleted[0] == f"{sample.RUN}/{layout.manifest_path(sample.SNAPSHOT_ID)}"
    assert len(backend.deleted) == 1 + len(sample.taken()) + 1, "its manifest, its parts, the log of its removal"
    assert store.manifests() == (OTHER_ID,)
    store.read_snapshot(OTHER_ID, sample.CODEC).verify()
    assert len(backend.files()) == 1 + len(sample.taken())
    assert store.delete_snapshot(sample.SNAPSHOT_ID, keep=[OTHER_ID], claim=sample.INCARNATION)
    assert store.read_manifest(OTHER_ID) == kept


@pytest.mark.parametrize("is_own", [True, False])
def test_what_a_manifest_says_about_its_removal_is_read_once(is_own: bool) -> None:
    """Who wrote it knows it; who found it reads it the first time."""
    first, other = new_store(backend := Recording()), RunStore(backend, sample.RUN)
    written(first)
    pinned = replace(written(first, OTHER_ID), snapshot_id=OTHER_ID + 1, pinned=True)
    first.write_manifest(pinned)
    store = first if is_own else other
    backend.read.clear()
    assert not store.delete_snapshot(pinned.snapshot_id, keep=[OTHER_ID], claim=sample.INCARNATION)
    assert store.delete_snapshot(sample.SNAPSHOT_ID, keep=[OTHER_ID], claim=sample.INCARNATION)
    assert not store.delete_snapshot(pinned.snapshot_id, keep=[OTHER_ID], claim=sample.INCARNATION)
    assert store.manifests() == (OTHER_ID, pinned.snapshot_id)
    assert sum(backend.read.values()) == (0 if is_own else 3) + 2  # `manifests` looks at each


def test_shared_parts_stay() -> None:
    """A part that a kept snapshot reuses is not removed with the snapshot that it was made for (PROTOCOL 10)."""
    store = new_store()
    first = written(store)
    store.write_manifest(replace(first, snapshot_id=OTHER_ID))
    store.delete_snapshot(sample.SNAPSHOT_ID, keep=[OTHER_ID], claim=sample.INCARNATION)
    store.read_snapshot(OTHER_ID, sample.CODEC).verify()
    store.delete_snapshot(OTHER_ID, keep=[], claim=sample.INCARNATION)
    assert store.backend.files() == []


@pytest.mark.parametrize("at", range(2 + len(sample.taken())))
def test_a_deletion_that_stops_halfway_is_collected(at: int) -> None:
    """Wherever it stops, the snapshot is whole or gone, and what is left over is collected later."""
    store = new_store(backend := Recording(at))
    written(store)
    with pytest.raises(OSError, match="away"):
        store.delete_snapshot(sample.SNAPSHOT_ID, keep=[], claim=sample.INCARNATION)
    backend._fails_at = -1
    if at == 0:
        store.read_snapshot(sample.SNAPSHOT_ID, sample.CODEC).verify()
        return
    assert store.manifests() == ()
    store.collect_orphans([], sample.INCARNATION + 1, grace=10, now=1000)
    store.collect_orphans([], sample.INCARNATION + 1, grace=10, now=1010)
    assert backend.files() == []


def test_nothing_is_deleted_when_a_kept_manifest_is_damaged() -> None:
    """If it is not known what is needed, everything stays."""
    store = new_store(backend := Apart())
    written(store)
    backend.put_if_absent(f"{sample.RUN}/{layout.manifest_path(OTHER_ID)}", [b"damaged"])
    before = backend.files()
    with pytest.raises(SnapshotCorrupt, match="ends at offset 7"):
        store.delete_snapshot(sample.SNAPSHOT_ID, keep=[OTHER_ID], claim=sample.INCARNATION)
    assert backend.files() == before


# ---- orphans


def orphan(store: RunStore, incarnation: int) -> Handle:
    """A part that no manifest lists."""
    return store.put_parts([state_part(sample.RUN, incarnation, 1, sample.P, [b"orphan"])])[0]


def test_orphans_of_lower_incarnations_are_collected_after_a_grace_time() -> None:
    """Not before it, not the own incarnation's, not what a kept snapshot lists (PROTOCOL 10)."""
    store = new_store()
    written(store)
    old, own = orphan(store, 6), orphan(store, 7)
    below = sample.INCARNATION
    assert store.collect_orphans([sample.SNAPSHOT_ID], below, grace=60, now=1000) == []
    assert store.collect_orphans([sample.SNAPSHOT_ID], below, grace=60, now=1059) == []
    assert store.collect_orphans([sample.SNAPSHOT_ID], below, grace=60, now=1060) == [old.path]
    assert bytes(store.read_part(own)) == b"orphan"
    store.read_snapshot(sample.SNAPSHOT_ID, sample.CODEC).verify()


def test_what_is_referred_to_in_between_is_no_orphan() -> None:
    """The grace time starts again when a part was needed in between."""
    store = new_store()
    manifest = written(store)
    below, path = sample.INCARNATION + 1, f"{sample.RUN}/{layout.manifest_path(manifest.snapshot_id)}"
    store.backend.delete(path)
    store.collect_orphans([], below, grace=60, now=1000)
    store.write_manifest(manifest)
    store.collect_orphans([manifest.snapshot_id], below, grace=60, now=1060)
    store.backend.delete(path)
    assert store.collect_orphans([], below, grace=60, now=1060) == []
    assert len(store.collect_orphans([], below, grace=60, now=1120)) == len(manifest.records)


def test_a_void_snapshot_goes_unless_it_is_held() -> None:
    """A manifest that is there never lists parts that were swept (PROTOCOL 10.3, collector)."""
    store = new_store()
    manifest = written(store)
    held = written(store, OTHER_ID)
    assert store.hold(OTHER_ID, PinKind.FORK, "fork")
    below = sample.INCARNATION + 1
    assert store.collect_orphans([], sample.INCARNATION, grace=0, now=1000) == [], "of the own claim"
    assert store.collect_orphans([], below, grace=60, now=1000) == []
    for now, removed in ((1059, []), (1060, [layout.manifest_path(manifest.snapshot_id)]), (1120, [])):
        assert store.collect_orphans([], below, grace=60, now=now) == removed
        store.read_snapshot(OTHER_ID, sample.CODEC).verify()
    assert store.manifests() == (OTHER_ID,) and store.read_manifest(OTHER_ID) == held
    assert len(store.backend.files(f"{sample.RUN}/parts")) == len(held.records)


def test_the_log_of_a_snapshot_that_is_gone_is_collected() -> None:
    """A removal that stops before its last request leaves it."""
    store = new_store()
    written(store)
    assert store.hold(sample.SNAPSHOT_ID, PinKind.FORK, "fork")
    store.backend.delete(f"{sample.RUN}/{layout.manifest_path(sample.SNAPSHOT_ID)}")
    assert store.collect_orphans([], 1, grace=0, now=1000) == [layout.pin_path(sample.SNAPSHOT_ID, 1)]
    assert not store.pins.logs()


def test_half_written_files_are_collected(tmp_path: Path) -> None:
    """What a killed writer left is removed after the grace time too."""
    store = new_store(FileSystemBackend(tmp_path))
    store.take_claim(Claim(1, "a", "x"))
    (tmp_path / sample.RUN / "claims" / ".writing-0123").write_bytes(b"half")
    assert store.collect_orphans([], 5, grace=60, now=1000) == []
    assert store.collect_orphans([], 5, grace=60, now=1060) == ["claims/.writing-0123"]
    assert store.backend.leftovers() == []


# ---- runs


def test_runs_are_listed_by_their_names() -> None:
    """Any names live side by side in one backend and never see each other's files."""
    backend = MemoryBackend()
    names = ["a", "a/b", "../a", "a__b", "a::b", "ü" * 300, "\0", "claims"]
    for name in names:
        assert RunStore(backend, name).take_claim(Claim(1, name, "x"))
        assert RunStore(backend, name).write_manifest(Aborted(name, 1))
    assert runs(backend) == sorted(names)
    assert all(RunStore(backend, name).read_claim(1) == Claim(1, name, "x") for name in names)
