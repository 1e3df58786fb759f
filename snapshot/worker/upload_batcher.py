"""Groups the snapshot parts of one worker's subtasks into uploads. No I/O and no threads.

Each stored file costs several waits for the disk, and each acknowledgement wakes the coordinator. A snapshot needs all
subtasks, so small parts wait for those of the worker's other subtasks. Large parts are uploaded at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from snapshot.stored.contribution import SnapshotTaken

#: Bytes that are uploaded without waiting for more, because writing them takes longer than what a file costs.
BATCH_BYTES_MAX = 4 * 1024 * 1024

#: Seconds that parts wait for those of other subtasks, because one slow subtask must not delay the store's first error.
BATCH_SECONDS_MAX = 1.0


class PendingUpload(NamedTuple):
    """What one subtask contributes to a snapshot, before it is stored."""

    taken: SnapshotTaken
    #: when it was taken, in seconds of the machine's `now`
    at: float


@dataclass(slots=True)
class _Batch:
    """Parts of one snapshot."""

    #: subtasks that have contributed, stored or not
    count: int = 0
    waiting: list[PendingUpload] = field(default_factory=list)
    waiting_bytes: int = 0

    def release(self) -> tuple[PendingUpload, ...]:
        """Take what waits."""
        released, self.waiting, self.waiting_bytes = tuple(self.waiting), [], 0
        return released


class UploadBatcher:
    """Collects what the subtasks of one worker contribute to snapshots.

    Parameters
    ----------
    subtask_count : int
        Subtasks of the worker; each of them contributes to every snapshot.
    batch_bytes_max : int
        Bytes that are uploaded without waiting for more; 0 uploads every contribution alone.
    """

    def __init__(self, subtask_count: int, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self._subtask_count = subtask_count
        self._batch_bytes_max = batch_bytes_max
        #: {snapshot_id: its batch}, while contributions are missing
        self._open: dict[int, _Batch] = {}

    def add(self, taken: SnapshotTaken, now: float) -> tuple[PendingUpload, ...]:
        """Add a contribution. Return what is to be uploaded now, together; nothing while more is awaited."""
        batch = self._open.setdefault(taken.snapshot_id, _Batch())
        batch.count += 1
        batch.waiting.append(PendingUpload(taken, now))
        batch.waiting_bytes += _bytes_of(taken)
        is_whole = batch.count == self._subtask_count
        if is_whole:
            del self._open[taken.snapshot_id]
        return batch.release() if is_whole or batch.waiting_bytes >= self._batch_bytes_max else ()

    def release(self, snapshot_id: int) -> tuple[PendingUpload, ...]:
        """Return what has waited long enough, although contributions are missing."""
        batch = self._open.get(snapshot_id)
        return () if batch is None else batch.release()

    def discard_below(self, snapshot_id: int) -> None:
        """Drop snapshots below `snapshot_id`: they were published, or never will be."""
        for each in [each for each in self._open if each < snapshot_id]:
            del self._open[each]


def _bytes_of(taken: SnapshotTaken) -> int:
    received = (frame for cut in taken.received.values() for frame in cut.frames)
    sent = (frame for cut in taken.sent.values() for frame in cut.frames)
    buffers = (*taken.state, *(frame.payload for frame in chain(received, sent)))
    return sum(memoryview(buffer).nbytes for buffer in buffers)
