"""Group the snapshot parts of one worker's subtasks into uploads. No I/O and no threads.

Small parts wait for the parts of the worker's other subtasks, because a snapshot needs all subtasks. Each stored file
costs several waits for the disk, and each acknowledgement wakes the coordinator. Large parts are uploaded at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from cutline.snapshot.stored.contribution import Contribution

#: bytes that are uploaded without waiting, because writing so many bytes takes longer than creating a file
BATCH_BYTES_MAX = 4 * 1024 * 1024

#: seconds that parts wait for other subtasks, because a slow subtask must not delay the store's first error
BATCH_SECONDS_MAX = 1.0


class PendingUpload(NamedTuple):
    """Contribution of one subtask to a snapshot, before the upload."""

    taken: Contribution
    #: time of the contribution, in seconds of the machine's `now`
    at: float


@dataclass(slots=True)
class _Batch:
    """Parts of one snapshot."""

    #: number of subtasks that have contributed, uploaded or not
    count: int = 0
    waiting: list[PendingUpload] = field(default_factory=list)
    waiting_bytes: int = 0

    def release(self) -> tuple[PendingUpload, ...]:
        """Remove and return the waiting contributions."""
        released, self.waiting, self.waiting_bytes = tuple(self.waiting), [], 0
        return released


class UploadBatcher:
    """Collect the contributions of one worker's subtasks to snapshots.

    Parameters
    ----------
    subtask_count : int
        Number of the worker's subtasks. Each subtask contributes to every snapshot.
    batch_bytes_max : int
        Bytes that are uploaded without waiting. With 0, every contribution is uploaded alone.
    """

    def __init__(self, subtask_count: int, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self._subtask_count = subtask_count
        self._batch_bytes_max = batch_bytes_max
        #: {snapshot_id: batch}, while contributions are missing
        self._open: dict[int, _Batch] = {}

    def add(self, taken: Contribution, now: float) -> tuple[PendingUpload, ...]:
        """Add a contribution. Return the contributions to upload together now, or nothing while more are awaited."""
        batch = self._open.setdefault(taken.snapshot_id, _Batch())
        batch.count += 1
        batch.waiting.append(PendingUpload(taken, now))
        batch.waiting_bytes += _bytes_of(taken)
        is_whole = batch.count == self._subtask_count
        if is_whole:
            del self._open[taken.snapshot_id]
        return batch.release() if is_whole or batch.waiting_bytes >= self._batch_bytes_max else ()

    def release(self, snapshot_id: int) -> tuple[PendingUpload, ...]:
        """Remove and return the waiting contributions of a snapshot, although other contributions are missing."""
        batch = self._open.get(snapshot_id)
        return () if batch is None else batch.release()

    def discard_below(self, snapshot_id: int) -> None:
        """Drop snapshots below `snapshot_id`, because they are published or aborted."""
        for each in [each for each in self._open if each < snapshot_id]:
            del self._open[each]


def _bytes_of(taken: Contribution) -> int:
    received = (frame for cut in taken.received.values() for frame in cut.frames)
    sent = (frame for cut in taken.sent.values() for frame in cut.frames)
    buffers = (*taken.state, *(frame.payload for frame in chain(received, sent)))
    return sum(memoryview(buffer).nbytes for buffer in buffers)
