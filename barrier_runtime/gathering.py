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
        if not is_whole and gathered.waiting_bytes < GATHERED_BYTES_MAX:
            return []
        released, gathered.waiting, gathered.waiting_bytes = gathered.waiting, [], 0
        return released

    def settle(self, floor: int) -> None:
        """Forget snapshots below `floor`: they were published, or never will be."""
        for snapshot_id in [each for each in self._open if each < floor]:
            del self._open[snapshot_id]


def _bytes_of(taken: SnapshotTaken) -> int:
    received = (frame for cut in taken.received.values() for frame in cut.frames)
    sent = (frame for cut in taken.sent.values() for frame in cut.frames)
    buffers = (*taken.state, *(frame.payload for frame in chain(received, sent)))
    return sum(memoryview(buffer).nbytes for buffer in buffers)
