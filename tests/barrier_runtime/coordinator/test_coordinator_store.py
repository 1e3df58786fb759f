"""The coordinator's storage: answers that the fence can rely on, however the store behaves."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cutline import FileSystemBackend, MemoryBackend
from cutline.barrier_runtime.coordinator import coordinator_store
from cutline.barrier_runtime.coordinator.coordinator_store import CoordinatorStore
from cutline.snapshot.coordinator.events import AskStore, ManifestRead, RecordsUnusable, StoreAnswered
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_events import (
    BaseWritten,
    CheckForClaim,
    ClaimLost,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    Continue,
    DecideManifest,
    HistoryListed,
    ListClaims,
    ListHistory,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    Publish,
    Start,
    TakeClaim,
    Unpublished,
    WriteBase,
    WriteManifest,
)
from cutline.snapshot.ids import first_snapshot_id
from cutline.snapshot.stored.backend import StateBackend, StoreRefused
from cutline.snapshot.stored.certificate import LocalVersion
from cutline.snapshot.stored.contribution import parts_of
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.stored.pins import PinKind
from cutline.state_backends.base import CALL_SECONDS_MAX
from tests.snapshot.sample import manifest as make_manifest
from tests.snapshot.sample import taken

RUN = "bank"
Result = TypeVar("Result")
OURS, THEIRS = Claim(1, "driver-1", "life-1"), Claim(1, "driver-2", "life-2")


class _Flaky(MemoryBackend):
    """Fails a number of calls, after doing what was asked."""

    def __init__(self, failures: int, error: OSError | None = None) -> None:
        super().__init__()
        self.failures = failures
        self._error = OSError("the answer was lost") if error is None else error

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        written = super()._put_if_absent(path, chunks)
        if self.failures:
            self.failures -= 1
            raise self._error
        return written


def test_a_claim_has_one_holder() -> None:
    """The second taker is told who was first; looking tells whether the next number is free."""
    store = CoordinatorStore(MemoryBackend(), RUN)
    assert store.answer(AskStore(TakeClaim(OURS), None)).answer == ClaimTaken(TakeClaim(OURS))
    assert store.answer(AskStore(TakeClaim(THEIRS), None)).answer == ClaimLost(TakeClaim(THEIRS), OURS)
    assert store.answer(AskStore(CheckForClaim(1), None)).answer == ClaimSeen(CheckForClaim(1), OURS)
    assert store.answer(AskStore(CheckForClaim(2), None)).answer == ClaimSeen(CheckForClaim(2), None)
    assert store.answer(AskStore(ListClaims(), None)).answer == ClaimsListed(ListClaims(), (OURS,))


def test_a_claim_whose_answer_was_lost_is_ours() -> None:
    """Taking it again finds the very record that we wrote: no number is skipped."""
    store = CoordinatorStore(_Flaky(2), RUN)
    assert store.answer(AskStore(TakeClaim(OURS), None)).answer == ClaimTaken(TakeClaim(OURS))


@pytest.mark.parametrize("error", [StoreRefused(errno.ENODEV, "no such bucket"), PermissionError(errno.EACCES, "no")])
def test_what_no_second_try_can_mend_ends_the_run_at_once(error: OSError) -> None:
    """A missing bucket or right is raised by the first try, not after minutes of tries."""
    backend = _Flaky(1, error)
    with pytest.raises(type(error), match=str(error.strerror)):
        CoordinatorStore(backend, RUN).answer(AskStore(TakeClaim(OURS), None))
    assert backend.failures == 0


def test_a_store_that_stays_away_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last try the store's own error is raised, by which others decide whether it may pass."""
    monkeypatch.setattr(coordinator_store, "STORE_SECONDS_MAX", 0)
    with pytest.raises(OSError, match="away") as caught:
        CoordinatorStore(_Flaky(1, OSError(errno.EIO, "away")), RUN).answer(AskStore(TakeClaim(OURS), None))
    assert caught.value.errno == errno.EIO


def test_bases_and_manifests_are_listed() -> None:
    """The history that the fence judges is what was written. A manifest off the chain is not read."""
    store, manifest = CoordinatorStore(MemoryBackend(), RUN), replace(make_manifest(), run=RUN)
    void = replace(manifest, snapshot_id=1_000_000)
    base = WriteBase(Base(7, None))
    assert store.answer(AskStore(base, None)).answer == BaseWritten(base)
    for each in (void, manifest):
        write = WriteManifest(each.snapshot_id)
        assert store.answer(AskStore(write, each)).answer == ManifestWritten(write)
    assert store.answer(AskStore(ListHistory(8), None)).answer == HistoryListed(
        ListHistory(8), (Base(7, None),), (manifest.snapshot_id,)
    )


def test_a_manifest_and_the_check_behind_it_are_one_request() -> None:
    """The coordinator's machine is entered once for both; what is undecided is not checked (PROTOCOL 7.2, 7.6)."""
    store, manifest = CoordinatorStore(MemoryBackend(), RUN), replace(make_manifest(), run=RUN)
    write, check = WriteManifest(manifest.snapshot_id), CheckForClaim(1)
    store.answer(AskStore(TakeClaim(THEIRS), None))
    seen = ClaimSeen(check, THEIRS)
    assert store.answer(AskStore(write, manifest, check)) == StoreAnswered(ManifestWritten(write), seen)
    assert store.answer(AskStore(write, manifest, check)) == StoreAnswered(ManifestUndecided(write))


def test_a_manifest_whose_answer_was_lost_is_decided_by_reading_it() -> None:
    """PROTOCOL 7.6: undecided first; the aborted record finds the manifest in its place, so it counts."""
    store, manifest = CoordinatorStore(_Flaky(1), RUN), replace(make_manifest(), run=RUN)
    write, decide = WriteManifest(manifest.snapshot_id), DecideManifest(manifest.snapshot_id)
    assert store.answer(AskStore(write, manifest)).answer == ManifestUndecided(write)
    assert store.answer(AskStore(decide, None)).answer == ManifestWritten(decide)


class _Away(MemoryBackend):
    """A store that is away, or has lost its rights, for so many calls."""

    def __init__(self, failures: int, error: OSError) -> None:
        super().__init__()
        self.failures = failures
        self._error = error

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise self._error

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        self._fail()
        return super()._get(path, offset, size)

    def _files(self, prefix: str) -> list[str]:
        self._fail()
        return super()._files(prefix)

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        self._fail()
        return super()._put_if_absent(path, chunks)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "away"), PermissionError(errno.EACCES, "no right")])
def test_a_store_that_is_away_behind_a_snapshot_ends_no_run(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence asks for the same again, however long it takes; each call is one try, so a rollback does not wait."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    manifest = replace(make_manifest(), run=RUN)
    fence, backend = Fence("owner", "instance"), _Away(0, error)
    store = CoordinatorStore(backend, RUN)
    effect: Any = fence.step(Start())[0]
    while not isinstance(effect, Continue):
        effect = fence.step(store.answer(AskStore(effect, None)).answer)[0]
    snapshot_id = first_snapshot_id(effect.claim)
    effect = fence.step(Publish(snapshot_id))[0]
    backend.failures = 21
    written = store.answer(AskStore(effect, replace(manifest, snapshot_id=snapshot_id), fence.claim_check))
    effect, tries = fence.step(written.answer)[0], 0
    while not isinstance(effect, Unpublished):
        effect, tries = fence.step(store.answer(AskStore(effect, None, is_repeated=True)).answer)[0], tries + 1
        assert (store.error is None) is (tries > 20)
    assert effect == Unpublished(snapshot_id) and tries == 21
    assert pauses[0] == 0.05 and pauses[-1] == 5.0 and len(pauses) == 20


def test_a_check_behind_a_manifest_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest is written and is not written again; without an answer nothing is published."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    backend = _Away(0, OSError(errno.EIO, "away"))
    store, manifest = CoordinatorStore(backend, RUN), replace(make_manifest(), run=RUN)
    write, check = WriteManifest(manifest.snapshot_id), CheckForClaim(1)
    monkeypatch.setattr(backend, "_put_if_absent", lambda *how: MemoryBackend._put_if_absent(backend, *how))
    backend.failures = 1
    assert store.answer(AskStore(write, manifest, check)) == StoreAnswered(ManifestWritten(write))
    assert store.error is not None
    assert store.answer(AskStore(check, None, is_repeated=True)) == StoreAnswered(ClaimSeen(check, None))


def test_a_manifest_that_never_came_is_decided_by_an_aborted_record() -> None:
    """From then on it can never be written, and reading it says so."""
    store, manifest = CoordinatorStore(MemoryBackend(), RUN), replace(make_manifest(), run=RUN)
    write, decide = WriteManifest(manifest.snapshot_id), DecideManifest(manifest.snapshot_id)
    assert store.answer(AskStore(decide, None)).answer == ManifestAborted(decide)
    assert store.answer(AskStore(write, manifest)).answer == ManifestUndecided(write)
    assert store.answer(AskStore(decide, None)).answer == ManifestAborted(decide)
    assert isinstance(store.read_manifest(RUN, manifest.snapshot_id), RecordsUnusable)


@pytest.mark.parametrize("offset", [0, 17, -1])
def test_a_damaged_manifest_is_an_error_with_a_way_out(tmp_path: Path, offset: int) -> None:
    """Never taken for empty; the text names the file and how to choose an older snapshot."""
    store, manifest = CoordinatorStore(FileSystemBackend(tmp_path), RUN), replace(make_manifest(), run=RUN)
    store.answer(AskStore(WriteManifest(manifest.snapshot_id), manifest))
    read = store.read_manifest(RUN, manifest.snapshot_id)
    assert isinstance(read, ManifestRead) and replace(read.manifest, written_by=None) == manifest
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}." in str(read.manifest.written_by)
    (file,) = tmp_path.rglob("*.manifest")
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)
    answer = store.read_manifest(RUN, manifest.snapshot_id)
    assert isinstance(answer, RecordsUnusable)
    assert file.name in answer.reason
    assert "restoreFrom" in answer.reason


def test_a_missing_manifest_is_an_error(tmp_path: Path) -> None:
    """A history that names a snapshot whose manifest is gone must not start afresh."""
    answer = CoordinatorStore(FileSystemBackend(tmp_path), RUN).read_manifest(RUN, 1_000_000)
    assert isinstance(answer, RecordsUnusable)


def test_retention_removes_all_but_the_pinned() -> None:
    """What is gone already counts as removed; a pinned snapshot stays."""
    store, manifest = CoordinatorStore(MemoryBackend(), RUN), replace(make_manifest(), run=RUN, pinned=False)
    pinned = replace(manifest, snapshot_id=manifest.snapshot_id + 1, pinned=True)
    for each in (manifest, pinned):
        store.answer(AskStore(WriteManifest(each.snapshot_id), each))
    gone = manifest.snapshot_id - 1
    removed = store.delete_snapshots((gone, manifest.snapshot_id, pinned.snapshot_id), keep=(), claim=9)
    assert removed == (gone, manifest.snapshot_id)
    assert store.store.manifests() == (pinned.snapshot_id,)


def _in_file(handle: Handle, number: int) -> Handle:
    is_state = handle.kind is PartKind.STATE
    return replace(handle, inline=None, path=f"parts/00000001/state-{number}") if is_state else handle


def _in_files(manifest: Manifest) -> Manifest:
    """A manifest whose states are in files."""
    records = [
        replace(record, handles=tuple(_in_file(each, number) for each in record.handles))
        for number, record in enumerate(manifest.records)
    ]
    return replace(manifest, run=RUN, records=tuple(records), pinned=False)


def _files_of(store: CoordinatorStore, snapshot_id: int) -> list[str]:
    """The files of a snapshot's parts."""
    manifest = store.store.read_manifest(snapshot_id)
    assert isinstance(manifest, Manifest)
    paths = [handle.path for record in manifest.records for handle in record.all_handles]
    return [f"{store.store.run}/{path}" for path in paths if path is not None]


def test_what_stays_of_a_removal_keeps_its_parts() -> None:
    """A pinned snapshot shares parts with one that goes in the same removal, in either order (PROTOCOL 10.3)."""
    for is_first in (False, True):
        backend = MemoryBackend()
        store, manifest = CoordinatorStore(backend, RUN), replace(_in_files(make_manifest()), pinned=is_first)
        both = (manifest, replace(manifest, snapshot_id=manifest.snapshot_id + 1, pinned=not is_first))
        for each in both:
            store.answer(AskStore(WriteManifest(each.snapshot_id), each))
        files = _files_of(store, manifest.snapshot_id)
        for file in files:
            backend.put_if_absent(file, [b"part"])
        pinned, other = (each.snapshot_id for each in (both if is_first else both[::-1]))
        assert store.delete_snapshots(tuple(each.snapshot_id for each in both), keep=(), claim=9) == (other,)
        assert store.store.manifests() == (pinned,)
        assert files and set(files) <= set(backend.files())


def test_a_snapshot_off_the_chain_keeps_its_parts_though_it_is_not_pinned() -> None:
    """A fork may hold it, and it may be pinned later. Without its manifest it keeps nothing."""
    backend = MemoryBackend()
    store = _published(backend, RUN, 0, 1, 2, change=_in_files)
    left, gone, newest = 1_000_000, 1_000_001, 1_000_002
    files = _files_of(store, left)
    for file in files:
        backend.put_if_absent(file, [b"part"])
    assert store.delete_snapshots((gone,), keep=(), claim=2) == (gone,)
    assert files and set(files) <= set(backend.files())
    assert store.store.delete_snapshot(left, (), 2)
    assert store.delete_snapshots((newest,), keep=(), claim=2) == (newest,)


def _published(
    backend: StateBackend, run: str, *numbers: int, change: Callable[[Manifest], Manifest] = lambda each: each
) -> CoordinatorStore:
    """A run with a claim, its base, and snapshots with these numbers."""
    store = CoordinatorStore(backend, run)
    store.store.take_claim(Claim(1, "driver", run))
    store.store.write_base(Base(1, None))
    for number in numbers:
        manifest = replace(make_manifest(), run=run, snapshot_id=1_000_000 + number, pinned=False)
        store.store.write_manifest(change(manifest))
    return store


def test_an_unused_part_stays_until_no_upload_can_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload of a worker that was lost may still end, so a part must be found unused twice, long apart."""
    backend = MemoryBackend()
    store, path = _published(backend, RUN, 0), f"{RUN}/parts/00000001/0000000001000009-a-0-unused"
    assert coordinator_store.ORPHAN_GRACE_SECONDS > CALL_SECONDS_MAX
    backend.put_if_absent(path, [b"part"])
    for _ in range(2):
        store.collect_orphans((1_000_000,), 2)
        assert path in backend.files()
    monkeypatch.setattr(coordinator_store, "ORPHAN_GRACE_SECONDS", 0.0)
    store.collect_orphans((1_000_000,), 2)
    assert path not in backend.files()


def test_a_fork_keeps_what_it_reads_until_it_stands_alone() -> None:
    """Neither retention, nor a sweep of a claim that left the snapshot behind, takes it before (PROTOCOL 10.5)."""
    backend = MemoryBackend()
    origin, fork = _published(backend, RUN, 0, 1), CoordinatorStore(backend, "fork")
    source, newest = 1_000_000, 1_000_001
    for _ in range(2):  # at each restore anew
        assert isinstance(fork.read_manifest(RUN, source), ManifestRead)
    assert origin.delete_snapshots((source,), keep=(newest,), claim=1) == ()
    origin.store.collect_orphans([newest], 2, grace=0, now=0)
    assert origin.store.manifests() == (source, newest)
    _published(backend, "fork")
    own = replace(make_manifest(), run="fork", snapshot_id=1_000_000)
    shared = tuple(replace(each, run=RUN, path="parts/x", inline=None) for each in own.records[0].handles)
    fork.store.write_manifest(replace(own, records=(replace(own.records[0], handles=shared), *own.records[1:])))
    assert origin.delete_snapshots((source,), keep=(newest,), claim=1) == (), (
        "a part of the fork is a file of the origin"
    )
    fork.store.write_manifest(replace(own, snapshot_id=1_000_001))
    assert fork.delete_snapshots((1_000_000,), keep=(1_000_001,), claim=1) == ()
    fork.store.pins.hold(1_000_000, PinKind.UNPINNED)
    assert fork.delete_snapshots((1_000_000,), keep=(1_000_001,), claim=1) == (1_000_000,)
    assert origin.delete_snapshots((source,), keep=(newest,), claim=1) == (source,)
    assert isinstance(fork.read_manifest(RUN, source), RecordsUnusable)
    assert isinstance(fork.read_manifest(RUN, newest), ManifestRead)
    assert backend.files(f"{RUN}/pins") == [f"{RUN}/pins/{newest:016}-0001"]


def test_a_snapshot_whose_removal_is_decided_is_not_read_by_a_fork() -> None:
    """Its files may still be there. The fork is told why, and the removal goes on where it stopped."""
    backend = MemoryBackend()
    origin = _published(backend, RUN, 0, 1)
    origin.store.pins.remove(1_000_000, in_manifest=False, claim=1, is_needed_by=lambda fork: False)
    answer = CoordinatorStore(backend, "fork").read_manifest(RUN, 1_000_000)
    assert isinstance(answer, RecordsUnusable) and "is being removed" in answer.reason
    assert origin.store.read_manifest(1_000_000)
    assert origin.delete_snapshots((1_000_000,), keep=(1_000_001,), claim=1) == (1_000_000,)
    assert not origin.store.pins.logs()


def test_a_removal_and_its_decision_are_three_requests() -> None:
    """The decision takes the place of the read of the pin, so a snapshot costs the store no more than before."""

    class Counting(MemoryBackend):
        calls = 0

        def _call(self, what: str, function: Callable[[], Result]) -> Result:
            Counting.calls += 1
            return super()._call(what, function)

    origin = _published(Counting(), RUN, 0, 1, 2)
    assert origin.delete_snapshots((1_000_000,), keep=(1_000_001, 1_000_002), claim=1) == (1_000_000,)
    Counting.calls = 0
    assert origin.delete_snapshots((1_000_001,), keep=(1_000_002,), claim=1) == (1_000_001,)
    assert Counting.calls == 3


class Apart(MemoryBackend):
    """Stores no part inline."""

    def __init__(self) -> None:
        super().__init__()
        self.inline_bytes_max = 0


def test_parts_that_a_pinned_snapshot_off_the_chain_shares_stay() -> None:
    """The history went back to before the pinned snapshot, which lists the same files as what is removed now."""
    store, manifest = CoordinatorStore(Apart(), RUN), replace(make_manifest(), run=RUN, pinned=False)
    parts = [handle for each in taken() for handle in store.store.put_parts(parts_of(each, RUN, manifest.incarnation))]
    handles = {subtask: tuple(h for h in parts if h.subtask == subtask) for subtask in (each.subtask for each in parts)}
    records = tuple(replace(record, handles=handles[record.subtask]) for record in manifest.records)
    pinned = replace(manifest, snapshot_id=manifest.snapshot_id + 1, pinned=True, records=records)
    for each in (replace(manifest, records=records), pinned):
        store.answer(AskStore(WriteManifest(each.snapshot_id), each))
    assert store.delete_snapshots((manifest.snapshot_id,), keep=(), claim=manifest.incarnation) == (
        manifest.snapshot_id,
    )
    for handle in parts:
        store.store.read_part(handle)


def test_a_sweep_that_was_asked_for_before_a_removal_was_told(caplog: pytest.LogCaptureFixture) -> None:
    """Who asks counts on what is just being removed: no reason to leave the orphans for the next time."""
    store, manifest = CoordinatorStore(MemoryBackend(), RUN), replace(make_manifest(), run=RUN, pinned=False)
    kept = replace(manifest, snapshot_id=manifest.snapshot_id + 1)
    for each in (manifest, kept):
        store.answer(AskStore(WriteManifest(each.snapshot_id), each))
    store.delete_snapshots((manifest.snapshot_id,), keep=(kept.snapshot_id,), claim=9)
    store.collect_orphans((manifest.snapshot_id, kept.snapshot_id), incarnation=9)
    assert caplog.text == ""
    store.collect_orphans((manifest.snapshot_id, kept.snapshot_id + 1), incarnation=9)
    assert "orphans could not be collected" in caplog.text


def test_what_is_shared_with_a_lost_snapshot_is_not_counted_as_removed() -> None:
    """If a kept snapshot is gone, nobody knows which parts it shares: nothing is removed, nor said to be."""
    store, manifest = CoordinatorStore(MemoryBackend(), RUN), replace(make_manifest(), run=RUN, pinned=False)
    store.answer(AskStore(WriteManifest(manifest.snapshot_id), manifest))
    gone = manifest.snapshot_id + 1
    assert store.delete_snapshots((manifest.snapshot_id,), keep=(gone,), claim=9) == ()
    assert store.store.manifests() == (manifest.snapshot_id,)


def test_listed_versions_are_those_of_all_stored_snapshots() -> None:
    """Of the kept snapshots and of those that are pinned off their chain. Unknown where a manifest is missing."""
    store = CoordinatorStore(MemoryBackend(), RUN)
    for number, listed in ((1, 1), (2, 1), (4, 4), (5, 4)):
        records = tuple(
            replace(each, version=LocalVersion("disk", RUN, each.subtask, listed, 9))
            for each in make_manifest().records[:2]
        )
        store.store.write_manifest(replace(make_manifest(records), run=RUN, snapshot_id=number, pinned=False))
    assert store.versions_of((5,), 9) == (4,)
    assert store.versions_of((2, 4, 5), 9) == (1, 4)
    assert store.versions_of((3, 5), 9) == ()
    plain = make_manifest()
    store.store.write_manifest(replace(plain, run=RUN, snapshot_id=6, pinned=False))
    assert store.versions_of((6,), 9) == ()


def test_a_store_that_fails_at_the_versions_prunes_none() -> None:
    """Also where the snapshots off the chain cannot be listed. What is remembered is that of the last call."""
    backend = _Away(0, OSError(errno.EIO, "away"))
    store = CoordinatorStore(backend, RUN)
    for number in (1, 2):
        store.store.write_manifest(replace(make_manifest(), run=RUN, snapshot_id=number, pinned=False))
    assert store.versions_of((1, 2), 9) == ()
    assert set(store._versions) == {1, 2}
    store.versions_of((2,), 9)
    assert set(store._versions) == {2}
    backend.failures = 1
    assert store.versions_of((2,), 10) == ()
