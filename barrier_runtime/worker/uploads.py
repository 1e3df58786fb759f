"""Stores the parts of snapshots and reads parts to restore, on threads beside processing. Knows no protocol."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cutline.barrier_runtime import clock
from cutline.barrier_runtime.worker.totals import AggregateOf, TotalsThreads
from cutline.snapshot.channel.kept_memory import KeptMemory
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import Deploy
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.worker.events import PartsRead, PartsStored, PartsUnreadable, Performed
from cutline.snapshot.worker.ledger import AnyTask, Lane
from cutline.snapshot.worker.performer import Performer
from cutline.snapshot.worker.restored_parts import read_parts
from cutline.snapshot.worker.storage_tasks import StorageWork
from cutline.snapshot.worker.upload_batcher import PendingUpload
from cutline.state_backends.keyed_state import HeapState, RocksDBState
from cutline.state_backends.local_versions import LocalVersions

_logger = logging.getLogger("cutline.worker")

#: uploads at one time in a worker: enough to hide the round trips of an object store
STORAGE_THREADS = 4

#: the result of a finished read, upload or task
Finished = PartsStored | Performed | PartsRead | PartsUnreadable


class Storage:
    """The worker's threads for storage. Collect results with `take` after `wake` was called.

    Parameters
    ----------
    store : RunStore
    wake : callable
        Called on a storage thread when a result is ready.
    versions : LocalVersions or None
        Versions of the databases of the subtasks.
    codec : Codec
        Of keyed rows, and of messages that a restore divides anew.
    keyed_state : HeapState or RocksDBState
        Says where encoded rows wait, and whether keyed rows are read before the restore, as `read_parts` says.
    compiled : CompiledGraph
        See `read_parts`.
    aggregate_of : callable
        See `TotalsThreads`.
    """

    def __init__(
        self,
        store: RunStore,
        wake: Callable[[], None],
        keyed_state: HeapState | RocksDBState,
        compiled: CompiledGraph,
        versions: LocalVersions | None = None,
        aggregate_of: AggregateOf = lambda _: None,
        *,
        codec: Codec,
    ) -> None:
        #: memory for the copies that wait to be stored
        self.memory = KeptMemory()
        self._store = store
        self._wake = wake
        self._compiled = compiled
        #: the stores of aggregates
        self.totals = TotalsThreads(store.run, aggregate_of, self._finish)
        self._pool = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="cutline-storage")
        # A separate pool, because a restore must not wait for uploads of dropped snapshots.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="cutline-restore")
        # Separate threads, because encoding must wait neither for a store that hangs nor for a long compaction.
        encoder = ThreadPoolExecutor(1, thread_name_prefix="cutline-rows")
        self._compactor = ThreadPoolExecutor(1, thread_name_prefix="cutline-compact")
        self._lanes = {Lane.ENCODE: encoder, Lane.STORE: self._pool, Lane.COMPACT: self._compactor}
        self._codec = codec
        #: versions of local databases, or None where the mode makes none
        self.versions = versions
        self._keyed_state = keyed_state
        self._performer = self._performer_of(0)
        self._finished: deque[Finished] = deque()

    def upload(self, uploads: tuple[PendingUpload, ...], incarnation: int) -> None:
        """Store all parts of `uploads` together. Acknowledge them when all are durable."""
        self._pool.submit(self._perform, incarnation, lambda performer: performer.upload(uploads))

    def perform(self, task: AnyTask, incarnation: int) -> None:
        """Perform a task in its lane."""
        if task.lane is Lane.IN_ORDER:
            self.totals.work(task, incarnation)
        else:
            self._lanes[task.lane].submit(self._perform, incarnation, lambda performer: performer.perform(task))

    def release_memory(self) -> None:
        """Release memory that no copy has needed for long. Call this regularly."""
        self.memory.release_idle(time.monotonic())

    def read(self, deploy: Deploy) -> None:
        """Read and check all parts that `deploy` names."""
        self._performer.work.spool.close()
        self.totals.close()
        self._performer = self._performer_of(deploy.incarnation)
        self.memory.give_back()  # because restored parts need as much memory
        self._reader.submit(self._read, deploy)

    def remove_versions(self, kept: tuple[int, ...]) -> None:
        """Remove versions of databases that no stored snapshot lists, as `LocalVersions.prune` does."""
        if self.versions is not None:
            self._compactor.submit(self._prune, self.versions, kept)

    def take(self) -> Finished | None:
        """Return the oldest finished read or upload that was not taken yet, or None.

        Call until None is returned, because remaining results cause no further `wake`.
        """
        return self._finished.popleft() if self._finished else None

    def close(self) -> None:
        """Start no more work. Does not wait, because the process ends anyway."""
        for pool in (self._reader, *self._lanes.values()):
            pool.shutdown(wait=False, cancel_futures=True)
        self.totals.close()
        self._performer.work.spool.close()

    def _performer_of(self, incarnation: int) -> Performer:
        work = StorageWork(
            self._store.run,
            incarnation,
            self._codec,
            self._store.put_rows,
            self._store.read_part,
            _let_others_run,
            self._keyed_state.spool(incarnation),
            "" if self.versions is None else self.versions.disk,
        )
        return Performer(self._store, work, clock.now, Exception)  # even MemoryError is a result

    def _perform(self, incarnation: int, call: Callable[[Performer], Finished]) -> None:
        performer = self._performer
        if incarnation == performer.work.incarnation:  # because work for dropped data is useless
            self._finish(call(performer))

    def _prune(self, versions: LocalVersions, kept: tuple[int, ...]) -> None:
        try:
            versions.prune(kept)
        except OSError as error:  # the next call tries again
            _logger.warning("local versions could not be removed: %s", error)

    def _read(self, deploy: Deploy) -> None:
        try:
            parts = read_parts(
                deploy, self._store.read_part, self._compiled, self._codec,
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
