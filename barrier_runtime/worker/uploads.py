"""Stores the parts of snapshots and reads parts to restore, on threads beside processing. Knows no protocol."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice

from barrier_runtime import clock
from channels.limits import CONTROL_BYTES_MAX
from snapshot.channel.kept_memory import KeptMemory
from snapshot.coordinator.control import Deploy, SnapshotAcknowledged, SnapshotDeclined
from snapshot.error_text import printable
from snapshot.stored.contribution import SnapshotTaken, parts_of, record_of
from snapshot.stored.part import Handle
from snapshot.stored.run_store import RunStore
from snapshot.worker.events import PartsRead, PartsStored, PartsUnreadable
from snapshot.worker.restored_parts import read_parts
from snapshot.worker.upload_batcher import PendingUpload

#: uploads at one time in a worker: enough to hide the round trips of an object store
STORAGE_THREADS = 4


#: Bytes of one subtask's parts that may travel inside its acknowledgement, as all parts of a memory backend do. The
#: limit is half of a control message, because names and numbers need room too. The bytes return in `Deploy`, where one
#: message never holds more than one acknowledgement did (`snapshot.coordinator.deploy_chunks`).
INLINE_TOTAL_BYTES_MAX = CONTROL_BYTES_MAX // 2


#: a message to the coordinator about the contribution of one subtask
StoredMessage = SnapshotAcknowledged | SnapshotDeclined

#: the result of a finished read or upload
Finished = PartsStored | PartsRead | PartsUnreadable


class Storage:
    """The worker's threads for storage. Collect results with `take` after `wake` was called.

    Parameters
    ----------
    store : RunStore
    wake : callable
        Called on a storage thread when a result is ready.
    """

    def __init__(self, store: RunStore, wake: Callable[[], None]) -> None:
        #: memory for the copies that wait to be stored
        self.memory = KeptMemory()
        self._store = store
        self._wake = wake
        self._pool = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="cutline-storage")
        # A separate pool, because a restore must not wait for uploads of dropped snapshots.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="cutline-restore")
        #: incarnation of the last deployment; uploads of earlier incarnations are useless, and are skipped
        self._incarnation = 0
        self._finished: deque[Finished] = deque()

    def upload(self, uploads: tuple[PendingUpload, ...], incarnation: int) -> None:
        """Store all parts of `uploads` together. Acknowledge them when all are durable."""
        self._pool.submit(self._upload, uploads, incarnation)

    def release_memory(self) -> None:
        """Release memory that no copy has needed for long. Call this regularly."""
        self.memory.release_idle(time.monotonic())

    def read(self, deploy: Deploy) -> None:
        """Read and check all parts that `deploy` names."""
        self._incarnation = deploy.incarnation
        self.memory.give_back()  # because restored parts need as much memory
        self._reader.submit(self._read, deploy)

    def take(self) -> Finished | None:
        """Return the oldest finished read or upload that was not taken yet, or None.

        Call until None is returned, because remaining results cause no further `wake`.
        """
        return self._finished.popleft() if self._finished else None

    def close(self) -> None:
        """Start no more work. Does not wait, because the process ends anyway."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._reader.shutdown(wait=False, cancel_futures=True)

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

    def _read(self, deploy: Deploy) -> None:
        try:
            self._finish(PartsRead(read_parts(deploy, self._store.read_part)))
        except Exception as error:  # noqa: BLE001  # any error: the worker waits for an answer
            self._finish(PartsUnreadable(deploy.incarnation, error))

    def _finish(self, result: Finished) -> None:
        self._finished.append(result)
        self._wake()


def _acknowledgement(upload: PendingUpload, incarnation: int, handles: list[Handle]) -> StoredMessage:
    taken = upload.taken
    inline_bytes = sum(len(handle.inline or b"") for handle in handles)
    if inline_bytes > INLINE_TOTAL_BYTES_MAX:
        return _refusal(
            taken,
            incarnation,
            f"{inline_bytes:,} bytes of state and messages are too many to travel to the coordinator "
            f"(inline_total_bytes_max is {INLINE_TOTAL_BYTES_MAX:,}). With a MemoryBackend all parts do: use a "
            "FileSystemBackend or an ObjectStoreBackend; with these only up to inlineBytesMax of a worker do: lower it",
        )
    timings = replace(taken.timings, upload=clock.now() - upload.at)
    return SnapshotAcknowledged(incarnation, taken.snapshot_id, record_of(taken, incarnation, handles), timings)


def _refusal(taken: SnapshotTaken, incarnation: int, why: object) -> StoredMessage:
    reason = printable(f"{taken.subtask} could not be stored: {why}")  # a file name may be no UTF-8
    return SnapshotDeclined(incarnation, taken.snapshot_id, taken.subtask, reason)
