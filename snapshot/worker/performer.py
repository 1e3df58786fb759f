"""Perform tasks and uploads of a worker, and turn each result or failure into the event of the worker's machine.

Has no thread, no clock and no file. A host calls the performer in its lanes: the worker on its threads, the simulator
in its steps. Calls of a store of aggregates are made by `snapshot.modes.totals.store_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from cutline.snapshot.coordinator.control import SnapshotAcknowledged, SnapshotDeclined
from cutline.snapshot.error_text import printable
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.worker.events import PartsStored, Performed
from cutline.snapshot.worker.ledger import AnyTask, CollectorTask, TaskFailed
from cutline.snapshot.worker.storage_tasks import StorageWork
from cutline.snapshot.worker.upload_batcher import PendingUpload


@dataclass(frozen=True, slots=True)
class Performer:
    """The performer of one incarnation."""

    store: RunStore
    work: StorageWork
    #: returns the seconds of `PendingUpload.at`
    now: Callable[[], float]
    #: errors that are results, because snapshots wait for an answer. Others are raised
    failures: type[Exception]

    def perform(self, task: AnyTask) -> Performed:
        """Perform a task and the tasks that follow it."""
        while not isinstance(ended := self.step(task), Performed):
            task = ended
        return ended

    def step(self, task: AnyTask) -> Performed | CollectorTask:
        """Perform a task. Return its end, or the task that follows it."""
        try:
            result = task.run(self.store) if isinstance(task, CollectorTask) else self.work.perform(task)
        except self.failures as error:
            result = TaskFailed(printable(str(error) or repr(error)))
        return result if isinstance(result, CollectorTask) else Performed(self.work.incarnation, task, result)

    def upload(self, uploads: Sequence[PendingUpload]) -> PartsStored:
        """Store all parts of `uploads` together. All are acknowledged when all are durable, or all are declined."""
        incarnation = self.work.incarnation
        try:
            parts = [parts_of(upload.taken, self.store.run, incarnation) for upload in uploads]
            handles = iter(self.store.put_parts(list(chain.from_iterable(parts))))
            return PartsStored(
                tuple(
                    self._acknowledgement(upload, list(islice(handles, len(own))))
                    for upload, own in zip(uploads, parts, strict=True)
                )
            )
        except self.failures as error:
            return PartsStored(tuple(self._refusal(upload, error) for upload in uploads))

    def _acknowledgement(self, upload: PendingUpload, handles: list[Handle]) -> SnapshotAcknowledged:
        taken, incarnation = upload.taken, self.work.incarnation
        timings = replace(taken.timings, upload=self.now() - upload.at)
        return SnapshotAcknowledged(incarnation, taken.snapshot_id, record_of(taken, incarnation, handles), timings)

    def _refusal(self, upload: PendingUpload, why: Exception) -> SnapshotDeclined:
        subtask = upload.taken.subtask
        reason = printable(f"{subtask} could not be stored: {why}")  # a file name may be no UTF-8
        return SnapshotDeclined(self.work.incarnation, upload.taken.snapshot_id, subtask, reason)
