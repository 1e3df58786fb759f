"""Records of a snapshot from its request to its publication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.contribution import SnapshotTimings
from cutline.snapshot.stored.recovery_report import RecoveryReport


@dataclass(frozen=True)
class SnapshotPolicy:
    """Times and limits of snapshots. Times are in seconds."""

    #: seconds between two snapshots that time triggers, or None for no such snapshots
    interval: float | None
    #: seconds from the trigger to the last acknowledgement, after which a snapshot is aborted
    timeout: float
    #: seconds from the end of a snapshot to the next snapshot that time or a node triggers
    min_pause: float
    #: snapshots that may be pending at one time
    max_concurrent: int
    #: failures in a row that are only recorded; a further failure rolls the run back
    tolerable_failures: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request of the driver for a snapshot. The driver waits for the answer."""

    request_id: int
    pinned: bool
    #: subtasks that start the snapshot, or None for the topology's initiators
    initiators: tuple[Subtask, ...] | None
    #: monotonic seconds at which the request expires, or None for no deadline
    deadline: float | None


class Initiator(Enum):
    """Cause of a snapshot."""

    INTERVAL = "interval"
    #: the driver requested the snapshot
    REQUEST = "request"
    #: a node requested the snapshot, or subtasks started the snapshot themselves
    NODE = "node"
    #: all workers are idle; the snapshot shows whether the run, or a cycle, has terminated
    IDLE = "idle"
    #: each subtask has its first record, or its last
    RECORDS = "records"
    #: a restore makes a snapshot of the newest records of the subtasks
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Acknowledgement of a subtask's part. `at` is by the coordinator's clock, `timings` by the subtask's clock."""

    subtask: Subtask
    at: float
    timings: SnapshotTimings


@dataclass(slots=True)
class PendingSnapshot:
    """A snapshot between its trigger and its publication."""

    snapshot_id: int
    started_at: float
    requests: list[SnapshotRequest]
    initiator: Initiator
    records: dict[Subtask, SubtaskRecord] = field(default_factory=dict)
    #: newest acknowledgement, or None before the first
    last: Acknowledgement | None = None
    #: monotonic seconds at which its exchange times out, or None when the snapshot has started
    start_until: float | None = None
    #: whether all subtasks have acknowledged. From then on only the store may end the snapshot (PROTOCOL 7.6)
    is_publishing: bool = False
    #: how far the subtasks were, for a snapshot that a restore makes of their records
    recovery: RecoveryReport | None = None

    @property
    def pinned(self) -> bool:
        """Whether a request pins the snapshot."""
        return any(request.pinned for request in self.requests)

    def missing(self, subtasks: Sequence[Subtask]) -> list[Subtask]:
        """Return the subtasks of `subtasks` that have not acknowledged."""
        return [subtask for subtask in subtasks if subtask not in self.records]
