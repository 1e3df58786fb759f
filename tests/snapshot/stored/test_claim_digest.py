"""A start reads few records however old the run is, and finds the same records as if it read all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_answers import perform
from cutline.snapshot.coordinator.fence_events import (
    Continue,
    FenceEffect,
    ListClaims,
    ListHistory,
    Rollback,
    Start,
    StoreEffect,
    TakeClaim,
    WriteBase,
)
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import first_snapshot_id
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.claim_digest import CLAIMS_PER_CHECKPOINT
from cutline.snapshot.stored.history import Base, Claim, history
from cutline.snapshot.stored.manifest import Aborted
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.run_store import RunStore, stored_history
from tests.snapshot import sample

#: Starts of the old run below.
_STARTS = 120

#: Records that one start or rollback may read: about two checkpoints' worth of claims and bases, and the snapshots.
_READS_MAX = 40


class _Counting(MemoryFiles):
    """Memory that counts reads, and can remove a file between a listing and the next read."""

    def __init__(self) -> None:
        super().__init__({})
        self.reads = 0
        self.vanishing: list[str] = []

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        self.reads += 1
        if any(each in path for each in self.vanishing):
            self._delete([path])
        return super()._get(path, offset, size)


def _performed(store: RunStore, fence: Fence, effects: list[FenceEffect]) -> Continue:
    while not isinstance(effects[0], Continue):
        assert isinstance(effects[0], StoreEffect)
        effects = fence.step(perform(store, effects[0], None))
    return effects[0]


def test_starts_and_rollbacks_read_few_records() -> None:
    """An old run with void manifests and aborted records: the reads stay bounded, and the history is right."""
    backend = _Counting()
    reads: list[int] = []
    newest = None
    for number in range(_STARTS):
        fence, store = Fence(f"driver {number}", f"instance {number}"), RunStore(backend, sample.RUN)
        backend.reads = 0
        continued = _performed(store, fence, fence.step(Start()))
        reads.append(backend.reads)
        assert continued.snapshot_id == newest
        backend.reads = 0
        continued = _performed(store, fence, fence.step(Rollback()))
        reads.append(backend.reads)
        assert continued.snapshot_id == newest
        first = first_snapshot_id(fence.claim)
        assert store.write_manifest(Aborted(sample.RUN, first))
        assert store.write_manifest(replace(sample.manifest(), pinned=False, snapshot_id=first + 1))
        if newest is not None:
            assert store.delete_snapshot(newest, keep=[], claim=9)
        newest = first + 1
        void = first_snapshot_id(fence.claim - 1) + 5  # written by the coordinator before, too late
        assert store.write_manifest(replace(sample.manifest(), pinned=False, snapshot_id=void))
    print(f"reads of the last starts and rollbacks: {reads[-40:]}")
    assert max(reads) <= _READS_MAX
    assert len([path for path in backend.files() if "/checkpoints/" in path]) == 1, "older checkpoints are removed"


_TAKE, _BASE, _LATE, _LIST, _FORGET = range(5)


@given(st.lists(st.sampled_from((_TAKE, _BASE, _LATE, _LIST, _FORGET)), max_size=60))
def test_any_checkpoint_or_none_finds_the_same(steps: list[int]) -> None:
    """Claims, bases at once or late, listings and lost checkpoints in any order: a reader finds what is stored."""
    backend = MemoryFiles({})
    writer, old_reader = RunStore(backend, sample.RUN), RunStore(backend, sample.RUN)
    claims: list[Claim] = []
    bases: dict[int, Base] = {}
    for step in steps:
        number = len(claims)
        if step == _TAKE:
            claims.append(Claim(number + 1, f"o{number % 3}", f"i{number}"))
            assert writer.take_claim(claims[-1])
        elif step in (_BASE, _LATE) and number:
            below = number if step == _BASE else max(1, number - CLAIMS_PER_CHECKPOINT)
            bases.setdefault(below, Base(below, None))
            assert writer.write_base(bases[below])
        elif step == _LIST and number:
            perform(writer, ListHistory(number), None)
        elif step == _FORGET:
            backend.delete(*backend.files(f"{sample.RUN}/checkpoints"))
        for reader in (old_reader, RunStore(backend, sample.RUN)):
            assert reader.claims() == tuple(claims)
            assert reader.bases() == tuple(bases[claim] for claim in sorted(bases))


def _with_checkpoint(claims: int) -> tuple[_Counting, RunStore]:
    backend = _Counting()
    store = RunStore(backend, sample.RUN)
    for number in range(1, claims + 1):
        take, write = TakeClaim(Claim(number, "o", f"i{number}")), WriteBase(Base(number, None))
        for effect in (ListClaims(), take, ListHistory(number), write):
            perform(store, effect, None)
    return backend, store


def test_a_checkpoint_is_written_every_few_claims() -> None:
    """The newest stays, the older go, and none is written by a reader."""
    for claims in range(1, 4 * CLAIMS_PER_CHECKPOINT):
        backend, _ = _with_checkpoint(claims)
        newest = claims // CLAIMS_PER_CHECKPOINT * CLAIMS_PER_CHECKPOINT
        expected = [f"{sample.RUN}/{layout.checkpoint_path(newest)}"] if newest else []
        stored_history(RunStore(backend, sample.RUN))
        assert backend.files(f"{sample.RUN}/checkpoints") == expected


def test_a_gap_below_a_checkpoint_is_still_seen() -> None:
    """A claim or base that was lost is not replaced by its copy: the fence must refuse the gap."""
    backend, _ = _with_checkpoint(CLAIMS_PER_CHECKPOINT)
    for path in (layout.claim_path(3), layout.base_path(3)):
        backend.delete(f"{sample.RUN}/{path}")
    reader = RunStore(backend, sample.RUN)
    assert 3 not in [claim.number for claim in reader.claims()]
    assert 3 not in [base.claim for base in reader.bases()]
    with pytest.raises(SnapshotCorrupt, match="claim 3 is missing"):
        fence = Fence("driver", "instance")
        _performed(reader, fence, fence.step(Start()))


def test_a_checkpoint_that_is_replaced_while_it_is_read() -> None:
    """The reader lists again. Where no checkpoint can be read at all, the records themselves are."""
    backend, _ = _with_checkpoint(CLAIMS_PER_CHECKPOINT)
    backend.vanishing = ["/checkpoints/"]
    reader = RunStore(backend, sample.RUN)
    backend.reads = 0
    assert reader.claims() == tuple(Claim(n, "o", f"i{n}") for n in range(1, CLAIMS_PER_CHECKPOINT + 1))
    assert backend.reads == 1 + CLAIMS_PER_CHECKPOINT


def test_a_damaged_checkpoint_is_named_with_the_way_out() -> None:
    """It can be removed without a loss."""
    backend, _ = _with_checkpoint(CLAIMS_PER_CHECKPOINT)
    path = f"{sample.RUN}/{layout.checkpoint_path(CLAIMS_PER_CHECKPOINT)}"
    data = bytearray(backend.get(path))
    backend.delete(path)
    data[-1] ^= 1
    backend.put_if_absent(path, [bytes(data)])
    reader = RunStore(backend, sample.RUN)
    with pytest.raises(SnapshotCorrupt, match=f"{path}: .*Remove this checkpoint"):
        reader.claims()
    backend.delete(path)
    assert len(reader.claims()) == CLAIMS_PER_CHECKPOINT


def test_only_manifests_of_the_chain_are_read() -> None:
    """Void manifests are not read at a start, and do not count in any listing by bases."""
    backend = _Counting()
    store = RunStore(backend, sample.RUN)
    ids = [first_snapshot_id(claim) + number for claim in (1, 2, 3) for number in range(4)]
    for snapshot_id in ids:
        store.write_manifest(replace(sample.manifest(), pinned=False, snapshot_id=snapshot_id))
    bases = (Base(1, None), Base(2, ids[1]), Base(3, ids[1]))
    fresh = RunStore(backend, sample.RUN)
    backend.reads = 0
    assert fresh.manifests(bases) == history(bases, ids) == (*ids[:2], *ids[8:])
    assert backend.reads == len((*ids[:2], *ids[8:]))
    assert fresh.manifests() == tuple(ids)
