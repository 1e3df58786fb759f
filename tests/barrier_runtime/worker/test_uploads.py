"""A worker's storage threads: what hangs, and what is too much to travel to the coordinator."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import pytest

from cutline import FileSystemBackend, HeapState, MemoryBackend
from cutline.barrier_runtime import clock
from cutline.barrier_runtime.control_codec import encode_message
from cutline.barrier_runtime.worker.uploads import STORAGE_THREADS, Storage
from cutline.channels.limits import CONTROL_BYTES_MAX
from cutline.snapshot.channel import kept_memory
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask, SnapshotAcknowledged, SnapshotDeclined
from cutline.snapshot.coordinator.deploy_chunks import DEPLOY_CHUNK_BYTES, deploy_chunks
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.plan.validation import NAME_CHARACTERS_MAX
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.contribution import Contribution, parts_of
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.worker.acknowledgements import ACKNOWLEDGED_BYTES_MAX, Acknowledgements
from cutline.snapshot.worker.events import PartsRead, PartsStored, PartsUnreadable, Performed
from cutline.snapshot.worker.generations import EncodeRows
from cutline.snapshot.worker.ledger import TaskFailed
from cutline.snapshot.worker.upload_batcher import PendingUpload
from tests.leaks import LeakCheck
from tests.snapshot import sample

#: Milliseconds are enough; a test that passes does not wait for this.
DEADLINE_S = 20.0
INCARNATION = sample.INCARNATION


class Hanging(MemoryBackend):
    """Stores nothing inline, and once told so no write comes back before `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.inline_bytes_max = 0
        self.hangs = False
        self.released = threading.Event()
        #: one for every write that hangs
        self.hanging = threading.Semaphore(0)

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        if self.hangs:
            self.hanging.release()
            self.released.wait(DEADLINE_S)
        return super()._put_if_absent(path, chunks)


class Host:
    """A worker's part of it: a storage that is deployed for so many subtasks, and what it has done."""

    def __init__(self, backend: StateBackend, subtask_count: int = 1, *, safe: bool = False) -> None:
        self.store = RunStore(backend, sample.RUN)
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.storage = Storage(
            self.store, lambda: self._woken.put(None), HeapState(), sample.compiled(), codec=Codec(safe=safe)
        )
        subtasks = tuple(RestoredSubtask(Subtask("S", index), None, (), (), ()) for index in range(subtask_count))
        self.storage.read(Deploy(INCARNATION, subtasks, has_more=False))
        self.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.close()

    def upload(self, *taken: Contribution) -> None:
        """Have contributions stored together."""
        self.storage.upload(tuple(PendingUpload(each, clock.now()) for each in taken), INCARNATION)

    def stored(self) -> tuple[Any, ...]:
        """The coordinator's messages about the next upload."""
        finished = self.next()
        assert isinstance(finished, PartsStored)
        return finished.messages

    def next(self) -> Any:
        """What is done next; queue.Empty if nothing comes."""
        self._woken.get(timeout=DEADLINE_S)
        return self.storage.take()


def test_a_hanging_store_does_not_hold_up_a_restore(leak_check: LeakCheck) -> None:
    """All uploads of the incarnation before hang; the parts of the next one are read all the same."""
    backend, taken = Hanging(), sample.taken()[0]
    with Host(backend) as host:
        state, received, _ = host.store.put_parts(parts_of(taken, sample.RUN, INCARNATION))
        backend.hangs = True
        for number in range(1, STORAGE_THREADS + 1):
            host.upload(replace(taken, snapshot_id=taken.snapshot_id + number))
            assert backend.hanging.acquire(timeout=DEADLINE_S)
        restore = RestoredSubtask(sample.P, state, (), (), (received,))
        host.storage.read(Deploy(INCARNATION + 1, (restore,), has_more=False))
        try:
            restored = host.next()
        finally:
            backend.released.set()
    assert isinstance(restored, PartsRead), "an upload came back first"
    assert restored.parts.deploy.incarnation == INCARNATION + 1
    assert restored.parts.states == {sample.P: memoryview(b"".join(taken.state))}
    assert restored.parts.channels[sample.P].frames == {sample.QP: taken.received[sample.QP].frames}


def test_an_upload_of_an_earlier_incarnation_is_skipped(leak_check: LeakCheck) -> None:
    """Parts of an aborted snapshot would only fill the store, and their acknowledgement would be dropped."""
    backend = MemoryBackend()
    backend.inline_bytes_max = 0
    with Host(backend) as host:
        host.storage.read(Deploy(INCARNATION + 1, (), has_more=False))
        host.next()
        host.upload(sample.taken()[0])
        host.storage._pool.shutdown(wait=True)
        assert host.storage.take() is None
    assert backend.files() == []


def test_memory_for_copies_is_not_kept_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no snapshot needed for long goes with the housekeeping, and all of it when a state is to be restored."""
    large = memoryview(bytes(2 * kept_memory.KEPT_BYTES_MIN))
    with Host(MemoryBackend()) as host:
        memory = host.storage.memory
        memory.copy(large)
        host.storage.release_memory()
        assert memory.idle_bytes
        monkeypatch.setattr(kept_memory, "KEPT_SECONDS_MAX", 0.0)
        host.storage.release_memory()
        assert not memory.idle_bytes
        memory.copy(large)
        host.storage.read(Deploy(INCARNATION + 1, (), has_more=False))
        assert not memory.idle_bytes
        host.next()


def of_bytes(state: int, received: int) -> Contribution:
    """What a subtask took, with a state and a message of so many bytes."""
    taken = sample.taken()[0]
    cut = replace(taken.received[sample.QP], processed=1, frames=(sample.values(2, bytes(received)),))
    return replace(taken, state=(bytes(state),), received={sample.QP: cut})


def uploaded(backend: StateBackend, taken: Contribution) -> Any:
    """What the coordinator is told of it."""
    with Host(backend) as host:
        host.upload(taken)
        (reported,) = Acknowledgements(INCARNATION, {}).parts_stored(host.stored()).messages
    return reported


def test_what_may_travel_fits_into_one_control_message(leak_check: LeakCheck) -> None:
    """Close to the limit a memory backend's parts are acknowledged; the line takes that, and takes it back."""
    reported = uploaded(MemoryBackend(), of_bytes(ACKNOWLEDGED_BYTES_MAX // 2, ACKNOWLEDGED_BYTES_MAX // 2 - 4096))
    assert isinstance(reported, SnapshotAcknowledged)
    assert (reported.timings.align, reported.timings.capture) == (sample.TIMINGS.align, sample.TIMINGS.capture)
    assert reported.timings.upload > 0.0, "the subtask's own, and the time until all was stored"
    assert ACKNOWLEDGED_BYTES_MAX - 4096 < len(encode_message(reported)) <= CONTROL_BYTES_MAX
    record = reported.record
    parts = tuple(handle for handle in record.handles if handle.channel is not None)
    cut = deploy_chunks([RestoredSubtask(record.subtask, record.state, (), (), 2 * parts)])
    sizes = [len(encode_message(Deploy(INCARNATION, each, has_more=True))) for each in cut]
    assert sum(sizes) > len(encode_message(reported)) >= max(sizes)


def test_an_estimate_is_never_too_small_for_the_line() -> None:
    """The longest names there can be, in an instalment that is full of them by its estimate."""
    longest = "\U00010400" * NAME_CHARACTERS_MAX
    subtask = Subtask(longest, 32_767)
    channel = ChannelId(subtask, subtask)
    handle = Handle(
        PartKind.RECEIVED, longest, 2**63, 2**63, subtask, channel, 2**63, 2**63, 2**63, bytes(16), "", None
    )  # fmt: skip
    stored = replace(handle, path=layout.parts_path(handle), offset=2**63)
    first, *_ = deploy_chunks([RestoredSubtask(subtask, None, (), (), 2 * DEPLOY_CHUNK_BYTES // 1024 * (stored,))])
    assert len(first[0].channel_parts) > 1000
    assert len(encode_message(Deploy(2**63, first, has_more=True))) <= CONTROL_BYTES_MAX


def test_more_than_may_travel_is_declined(leak_check: LeakCheck, tmp_path: Path) -> None:
    """Neither part is too large, both are: that snapshot is declined by name, and the way out that it names is one."""
    taken = of_bytes(ACKNOWLEDGED_BYTES_MAX // 2, ACKNOWLEDGED_BYTES_MAX // 2)
    reported = uploaded(MemoryBackend(), taken)
    assert isinstance(reported, SnapshotDeclined)
    assert (reported.snapshot_id, reported.subtask) == (taken.snapshot_id, sample.P)
    assert f"inline_total_bytes_max is {ACKNOWLEDGED_BYTES_MAX:,}" in reported.reason
    assert "With a MemoryBackend" in reported.reason and "use a FileSystemBackend" in reported.reason
    backend = FileSystemBackend(tmp_path / "inline", inlineBytesMax=2 * ACKNOWLEDGED_BYTES_MAX)
    assert "inlineBytesMax of a worker do: lower it" in uploaded(backend, taken).reason
    reported = uploaded(FileSystemBackend(tmp_path), taken)
    assert isinstance(reported, SnapshotAcknowledged)


def test_as_much_as_may_travel_is_acknowledged(leak_check: LeakCheck) -> None:
    """The limit itself is allowed."""
    reported = uploaded(MemoryBackend(), of_bytes(0, 0))
    assert isinstance(reported, SnapshotAcknowledged)
    head = sum(len(handle.inline or b"") for handle in reported.record.handles)
    for state, kind in ((0, SnapshotAcknowledged), (1, SnapshotDeclined)):
        taken = of_bytes(ACKNOWLEDGED_BYTES_MAX - head + state, 0)
        assert isinstance(uploaded(MemoryBackend(), taken), kind)


def test_the_subtasks_of_a_worker_are_stored_together(leak_check: LeakCheck, tmp_path: Path) -> None:
    """The last one's coming stores all in one file, and all are acknowledged at once, each with its own."""
    first, second = sample.taken()
    store = RunStore(backend := FileSystemBackend(tmp_path, inlineBytesMax=0), sample.RUN)
    with Host(backend, subtask_count=2) as host:
        host.upload(first, second)
        reported = host.stored()
    assert [type(each) for each in reported] == [SnapshotAcknowledged] * 2
    assert len(backend.files()) == 1
    for taken, each in zip((first, second), reported, strict=True):
        assert (each.snapshot_id, each.record.subtask) == (taken.snapshot_id, taken.subtask)
        bodies = [bytes(store.read_part(handle)) for handle in each.record.handles]
        expected = parts_of(taken, sample.RUN, INCARNATION)
        assert [h.kind for h in each.record.handles] == [part.handle.kind for part in expected]
        assert bodies[0] == b"".join(taken.state)


def test_what_cannot_be_stored_together_is_declined_together(leak_check: LeakCheck, tmp_path: Path) -> None:
    """The coordinator hears of each subtask, with the reason."""
    folder = tmp_path / "file"
    folder.write_bytes(b"no folder")
    with Host(FileSystemBackend(folder, inlineBytesMax=0), subtask_count=2) as host:
        host.upload(*sample.taken())
        reported = host.stored()
    assert [(type(each), each.subtask) for each in reported] == [(SnapshotDeclined, t.subtask) for t in sample.taken()]
    assert {(each.incarnation, each.snapshot_id) for each in reported} == {(INCARNATION, sample.SNAPSHOT_ID)}
    assert all("could not be stored" in each.reason and str(folder) in each.reason for each in reported)


@pytest.mark.parametrize("safe", [False, True])
def test_rows_that_need_pickle_are_refused_where_values_are_safe(safe: bool, leak_check: LeakCheck) -> None:
    """A snapshot of a safe run holds no pickle, and its abortion says why."""
    table = DirtyTable(StateSpec("halves", StateKind.VALUE), {"a": Fraction(1, 2)})
    captured = CapturedRows(0.0, range(KEY_GROUPS), (table,))
    with Host(MemoryBackend(), safe=safe) as host:
        host.storage.perform(EncodeRows(sample.P, 1, captured), INCARNATION)
        worked = host.next()
    assert isinstance(worked, Performed)
    if safe:
        assert isinstance(worked.result, TaskFailed) and "Fraction needs pickle" in worked.result.reason
    else:
        assert isinstance(worked.result, tuple) and len(worked.result) == 1


def test_a_part_that_cannot_be_read_is_reported(leak_check: LeakCheck) -> None:
    """With the incarnation and the store's own error, so that the worker can name it."""
    backend, taken = MemoryBackend(), sample.taken()[0]
    backend.inline_bytes_max = 0
    with Host(backend) as host:
        state, *_ = host.store.put_parts(parts_of(taken, sample.RUN, INCARNATION))
        for path in backend.files():
            backend.delete(path)
        restore = RestoredSubtask(sample.P, state, (), (), ())
        host.storage.read(Deploy(INCARNATION + 1, (restore,), has_more=False))
        unreadable = host.next()
    assert isinstance(unreadable, PartsUnreadable)
    assert unreadable.incarnation == INCARNATION + 1
    assert isinstance(unreadable.error, SnapshotCorrupt)
