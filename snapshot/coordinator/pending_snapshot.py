"""A snapshot from its request to its publication: the small records that the coordinator keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from snapshot.ids import Subtask
from snapshot.stored.certificate import SubtaskRecord
from snapshot.stored.contribution import SnapshotTimings


@dataclass(frozen=True)
class SnapshotPolicy:
    """When snapshots are taken and given up. Times in seconds."""

    #: between two that are triggered by time; None: none is
    interval: float | None
    #: from the trigger to the last acknowledgement; then it is aborted
    timeout: float
    #: from the end of one to the next that time or a node triggers
    min_pause: float
    #: pending at one time
    max_concurrent: int
    #: failures in a row that are only noted; one more rolls the run back
    tolerable_failures: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """Somebody in the driver asked for a snapshot and waits for it."""

    request_id: int
    pinned: bool
    #: None: those of the topology
    initiators: tuple[Subtask, ...] | None
    #: monotonic time after which nobody waits any more; None: never
    deadline: float | None


class Initiator(Enum):
    """Why a snapshot was started."""

    INTERVAL = "interval"
    #: somebody in the driver asked for it
    REQUEST = "order"
    #: a node did, or subtasks started it themselves
    NODE = "node"
    #: all workers are idle: it tells whether the run, or a cycle, is over
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A subtask's part came, at a time of the coordinator; what the subtask spent, on its own clock."""

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
    #: the last that came so far
    last: Acknowledgement | None = None
    #: all acknowledged; the fence has it, and only the store can end it now (PROTOCOL 7.6)
    is_publishing: bool = False

    @property
    def pinned(self) -> bool:
        """Somebody wants it kept."""
        return any(request.pinned for request in self.requests)

    def missing(self, subtasks: Sequence[Subtask]) -> list[Subtask]:
        """Those of `subtasks` that have not acknowledged."""
        return [subtask for subtask in subtasks if subtask not in self.records]
