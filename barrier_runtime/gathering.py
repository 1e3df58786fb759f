"""Which of a worker's subtasks are stored together. No I/O and no threads.

Each file costs a handful of waits for the disk, and each acknowledgement wakes the coordinator. A snapshot needs all
subtasks anyway, so what the small ones give waits for the others of the same worker; what is large is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from snapshot.subtask.reports import SnapshotTaken

#: Bytes that are stored without waiting for more: to write them takes longer than what a file costs.
GATHERED_BYTES_MAX = 4 * 1024 * 1024

#: Seconds after which nothing waits any more: somebody takes long, and the others are not to be taken for him.
WAIT_SECONDS_MAX = 1.0


class Given(NamedTuple):
    """What one subtask gave."""

    taken: SnapshotTaken
    #: when, on the caller's clock
    at: float


@dataclass(slots=True)
class _Gathered:
    """What has come of one snapshot."""

    #: subtasks that have given theirs, stored or not
    count: int = 0
    waiting: list[Given] = field(default_factory=list)
    waiting_bytes: int = 0

    def release(self) -> list[Given]:
        """Take what waits."""
        released, self.waiting, self.waiting_bytes = self.waiting, [], 0
        return released


class Gathering:
    """What the subtasks of one worker gave to snapshots, until it is stored.

    Parameters
    ----------
    subtask_count : int
        Of the worker: each of them gives to every snapshot.
    """

    def __init__(self, subtask_count: int) -> None:
        self._subtask_count = subtask_count
        #: {snapshot_id: of it}, while some subtasks are awaited
        self._open: dict[int, _Gathered] = {}

    def add(self, taken: SnapshotTaken, now: float) -> list[Given]:
        """What is to be stored now, together; nothing while more is awaited."""
        gathered = self._open.setdefault(taken.snapshot_id, _Gathered())
        gathered.count += 1
        gathered.waiting.append(Given(taken, now))
        gathered.waiting_bytes += _bytes_of(taken)
        is_whole = gathered.count == self._subtask_count
        if is_whole:
            del self._open[taken.snapshot_id]
        return gathered.release() if is_whole or gathered.waiting_bytes >= GATHERED_BYTES_MAX else []

    def overdue(self, now: float) -> list[list[Given]]:
        """What has waited too long, each snapshot's together."""
        late = (each for each in self._open.values() if each.waiting and now - each.waiting[0].at >= WAIT_SECONDS_MAX)
        return [each.release() for each in late]

    def settle(self, floor: int) -> None:
        """Forget snapshots below `floor`: they were published, or never will be."""
        for snapshot_id in [each for each in self._open if each < floor]:
            del self._open[snapshot_id]


def _bytes_of(taken: SnapshotTaken) -> int:
    received = (frame for cut in taken.received.values() for frame in cut.frames)
    sent = (frame for cut in taken.sent.values() for frame in cut.frames)
    buffers = (*taken.state, *(frame.payload for frame in chain(received, sent)))
    return sum(memoryview(buffer).nbytes for buffer in buffers)
