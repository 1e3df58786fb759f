"""Stores the parts of snapshots and reads parts to restore, on threads beside processing. Knows no protocol."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice
from typing import assert_never

from cutline.barrier_runtime import clock
from cutline.barrier_runtime.worker.totals import AggregateOf, TotalsThreads
from cutline.snapshot.channel.kept_memory import KeptMemory
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import Deploy, SnapshotAcknowledged, SnapshotDeclined
from cutline.snapshot.error_text import printable
from cutline.snapshot.keyed.row_spool import RowSpool
from cutline.snapshot.modes.records.record_files import RecordFiles
from cutline.snapshot.stored.contribution import SnapshotTaken, parts_of, record_of
from cutline.snapshot.stored.part import Handle, Part
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.worker.events import (
    PartsRead,
    PartsStored,
    PartsUnreadable,
    Performed,
    RecordNotWritten,
    RecordWritten,
    WriteRecord,
)
from cutline.snapshot.worker.ledger import Lane, Task, TaskFailed
from cutline.snapshot.worker.restored_parts import KeyOf, read_parts
from cutline.snapshot.worker.row_tasks import RowWork
from cutline.snapshot.worker.upload_batcher import PendingUpload
from cutline.state_backends.keyed_state import HeapState, RocksDBState
from cutline.state_backends.local_versions import LocalVersions

_logger = logging.getLogger("cutline.worker")

#: uploads at one time in a worker: enough to hide the round trips of an object store
STORAGE_THREADS = 4


#: a message to the coordinator about the contribution of one subtask
StoredMessage = SnapshotAcknowledged | SnapshotDeclined

#: the result of a finished read, upload or task
Finished = PartsStored | Performed | RecordWritten | RecordNotWritten | PartsRead | PartsUnreadable


class Storage:
    """The worker's threads for storage. Collect results with `take` after `wake` was called.

    Parameters
    ----------
    store : RunStore
    wake : callable
        Called on a storage thread when a result is ready.
    versions : LocalVersions or None
        Versions of the databases of the subtasks.
    safe : bool
        Whether values of keyed rows hold no pickles of classes and functions.
    keyed_state : HeapState or RocksDBState
        Says where encoded rows wait, and whether keyed rows are read ahead of the restore, as `read_parts` says.
    key_of : callable
        See `read_parts`.
    aggregate_of : callable
        See `TotalsThreads`.
    """

    def __init__(
        self,
        store: RunStore,
        wake: Callable[[], None],
        keyed_state: HeapState | RocksDBState,
        key_of: KeyOf,
        versions: LocalVersions | None = None,
        aggregate_of: AggregateOf = lambda _: None,
        *,
        safe: bool,
    ) -> None:
        #: memory for the copies that wait to be stored
        self.memory = KeptMemory()
        self._store = store
        self._wake = wake
        self._key_of = key_of
        #: the stores of aggregates
        self.totals = TotalsThreads(store.run, aggregate_of, self._finish)
        self._pool = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="cutline-storage")
        # A separate pool, because a restore must not wait for uploads of dropped snapshots.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="cutline-restore")
        # Separate threads, because encoding must wait neither for a store that hangs nor for a long compaction.
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="cutline-rows")
        self._compactor = ThreadPoolExecutor(1, thread_name_prefix="cutline-compact")
        self._safe = safe
        self._versions = versions
        self._keyed_state = keyed_state
        self._spool = keyed_state.spool(0)
        #: incarnation of the last deployment; uploads of earlier incarnations are useless, and are skipped
        self._incarnation = 0
        self._finished: deque[Finished] = deque()

    def upload(self, uploads: tuple[PendingUpload, ...], incarnation: int) -> None:
        """Store all parts of `uploads` together. Acknowledge them when all are durable."""
        self._pool.submit(self._upload, uploads, incarnation)

    def perform(self, task: Task, incarnation: int) -> None:
        """Perform a task in its lane."""
        match task.lane:
            case Lane.ENCODE:
                self._encoder.submit(self._work, task, incarnation, self._spool)
            case Lane.STORE:
                self._pool.submit(self._work, task, incarnation, self._spool)
            case Lane.COMPACT:
                self._compactor.submit(self._work, task, incarnation, self._spool)
            case Lane.IN_ORDER:
                self.totals.work(task, incarnation)
            case _:
                assert_never(task.lane)

    def write_record(self, effect: WriteRecord) -> None:
        """Store a record of a subtask alone, and then look for a claim."""
        self._pool.submit(self._write_record, effect)

    def release_memory(self) -> None:
        """Release memory that no copy has needed for long. Call this regularly."""
        self.memory.release_idle(time.monotonic())

    def read(self, deploy: Deploy) -> None:
        """Read and check all parts that `deploy` names."""
        self._spool.close()
        self.totals.close()
        self._incarnation, self._spool = deploy.incarnation, self._keyed_state.spool(deploy.incarnation)
        self.memory.give_back()  # because restored parts need as much memory
        self._reader.submit(self._read, deploy)

    def remove_versions(self, kept: tuple[int, ...]) -> None:
        """Remove versions of databases that no stored snapshot lists, as `LocalVersions.prune` does."""
        if self._versions is not None:
            self._compactor.submit(self._prune, self._versions, kept)

    def take(self) -> Finished | None:
        """Return the oldest finished read or upload that was not taken yet, or None.

        Call until None is returned, because remaining results cause no further `wake`.
        """
        return self._finished.popleft() if self._finished else None

    def close(self) -> None:
        """Start no more work. Does not wait, because the process ends anyway."""
        for pool in (self._pool, self._reader, self._encoder, self._compactor):
            pool.shutdown(wait=False, cancel_futures=True)
        self.totals.close()
        self._spool.close()

    def _upload(self, uploads: tuple[PendingUpload, ...], incarnation: int) -> None:
        if incarnation != self._incarnation:
            return
        messages: list[StoredMessage] = []
        try:
            parts = [parts_of(upload.taken, self._store.run, incarnation) for upload in uploads]
            handles = iter(self._store.put_parts(list(chain.from_iterable(parts))))
            for upload, own in zip(uploads, parts, strict=True):
                messages.append(_acknowledgement(upload, incarnation, list(islice(handles, len(own)))))
        except Exception as error:  # noqa: BLE001  # any error, even MemoryError: the coordinator waits for an answer
            messages = [_refusal(upload.taken, incarnation, error) for upload in uploads]
        self._finish(PartsStored(tuple(messages)))

    def _write_record(self, effect: WriteRecord) -> None:
        if effect.incarnation != self._incarnation:
            return
        record = effect.record
        at = (effect.incarnation, record.subtask, record.number)
        try:
            RecordFiles(self._store).write(record)
            self._finish(RecordWritten(*at, effect.next_claim, self._store.read_claim(effect.next_claim)))
        except Exception as error:  # noqa: BLE001  # any error: the next record waits for an answer
            self._finish(RecordNotWritten(*at, printable(str(error) or repr(error))))

    def _work(self, task: Task, incarnation: int, spool: RowSpool) -> None:
        if incarnation != self._incarnation:
            return
        work = RowWork(
            self._store.run,
            incarnation,
            Codec(safe=self._safe),
            self._put_rows,
            self._store.read_part,
            _let_others_run,
            spool,
            "" if self._versions is None else self._versions.disk,
        )
        try:
            result = work.perform(task)
        except Exception as error:  # noqa: BLE001  # any error, even MemoryError: snapshots wait for an answer
            result = TaskFailed(printable(str(error) or repr(error)))
        self._finish(Performed(incarnation, task, result))

    def _put_rows(self, parts: Sequence[Part], inline: bool) -> list[Handle]:
        return self._store.put_rows(parts, inline=inline)

    def _prune(self, versions: LocalVersions, kept: tuple[int, ...]) -> None:
        try:
            versions.prune(kept)
        except OSError as error:  # the next call tries again
            _logger.warning("local versions could not be removed: %s", error)

    def _read(self, deploy: Deploy) -> None:
        try:
            parts = read_parts(
                deploy, self._store.read_part, self._key_of, Codec(safe=self._safe),
                reads_rows=self._keyed_state.fits_memory,
            )  # fmt: skip
            self.totals.open(deploy)
            self._finish(PartsRead(parts))
        except Exception as error:  # noqa: BLE001  # any error: the worker waits for an answer
            self._finish(PartsUnreadable(deploy.incarnation, error))

    def _finish(self, result: Finished) -> None:
        self._finished.append(result)
        self._wake()


def _let_others_run(seconds: float) -> None:
    """Give the interpreter to the loop, which would else wait for 5 ms, also with 0 seconds."""
    time.sleep(seconds)


def _acknowledgement(upload: PendingUpload, incarnation: int, handles: list[Handle]) -> StoredMessage:
    taken = upload.taken
    timings = replace(taken.timings, upload=clock.now() - upload.at)
    return SnapshotAcknowledged(incarnation, taken.snapshot_id, record_of(taken, incarnation, handles), timings)


def _refusal(taken: SnapshotTaken, incarnation: int, why: object) -> StoredMessage:
    reason = printable(f"{taken.subtask} could not be stored: {why}")  # a file name may be no UTF-8
    return SnapshotDeclined(incarnation, taken.snapshot_id, taken.subtask, reason)
