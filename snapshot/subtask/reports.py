"""Reports of a subtask to its host: small frozen records, taken after each turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutline.snapshot.channel.stamps import Numbers
from cutline.snapshot.culprit import Suspect
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.keyed.versions import PendingVersion
from cutline.snapshot.stored.contribution import SnapshotTaken
from cutline.snapshot.stored.independent_record import Checkpoint
from cutline.snapshot.stored.own_changes import OwnChange


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """This subtask could not take its part of a snapshot. The snapshot must be aborted; the run continues."""

    snapshot_id: int
    subtask: Subtask
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotAsked:
    """The node called `requestSnapshot`. The subtask handles no event until the answer."""

    subtask: Subtask


@dataclass(frozen=True, slots=True)
class PublicationHandled:
    """The output prepared up to the snapshot was committed, and `onPublished` was called."""

    snapshot_id: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class SubtaskEnded:
    """The subtask has sent the end of its stream."""

    subtask: Subtask


@dataclass(frozen=True, slots=True)
class SuspectHandled:
    """A message or a timer that failed before was handled."""

    suspect: Suspect


@dataclass(frozen=True, slots=True)
class AlignmentStarted:
    """A snapshot began to align at this subtask. `AlignmentTimedOut` is due after `timeout` seconds."""

    snapshot_id: int
    subtask: Subtask
    timeout: float


@dataclass(frozen=True, slots=True)
class RowsCaptured:
    """The cut of a snapshot captured the rows that changed since the last cut. Comes ahead of `SnapshotTaken`.

    The rows do not travel in `SnapshotTaken`, because a snapshot that fails while it records must not lose them.
    """

    snapshot_id: int
    subtask: Subtask
    #: key groups that the subtask owns
    groups: range
    #: None when no row has changed
    rows: CapturedRows | None


@dataclass(frozen=True, slots=True)
class RowsSealed:
    """A tier with a bounded memory gives changed rows to storage between two cuts. The next cut needs them."""

    subtask: Subtask
    rows: CapturedRows


@dataclass(frozen=True, slots=True)
class VersionBegun:
    """The cut of a snapshot began a version of the subtask's local database. Comes ahead of `SnapshotTaken`."""

    snapshot_id: int
    subtask: Subtask
    #: key groups that the subtask owns
    groups: range
    version: PendingVersion


@dataclass(frozen=True, slots=True)
class OwnStateCaptured:
    """The cut of a snapshot captured the own state of a node with deltas. Comes ahead of `SnapshotTaken`."""

    snapshot_id: int
    subtask: Subtask
    #: None when nothing has changed since the last capture
    change: OwnChange | None


@dataclass(frozen=True, slots=True)
class ClockGiven:
    """An aggregate has seen the slices below these numbers, and no others. It takes no message now."""

    snapshot_id: int
    subtask: Subtask
    seen: Numbers
    #: whether its inputs have ended
    has_ended: bool


@dataclass(frozen=True, slots=True)
class DifferenceCaptured:
    """The cut of a snapshot ended a difference of an aggregate. Comes ahead of `SnapshotTaken`."""

    snapshot_id: int
    subtask: Subtask
    #: {key: what was added since the last cut}
    states: dict[Any, Any]
    #: bytes in memory, about
    size: int


@dataclass(frozen=True, slots=True)
class StepCaptured:
    """The cut of a snapshot ended a step, whose determinants are to be stored. Comes ahead of `SnapshotTaken`."""

    snapshot_id: int
    subtask: Subtask
    #: whole for the first step of a log
    step: OwnChange
    #: whether the snapshot stores the state of this subtask, and that of all subtasks
    has_state: bool
    is_base: bool
    #: numbers of the last messages sent and processed, by output and by input channel
    sent: tuple[int, ...]
    processed: tuple[int, ...]
    #: generation of the step, which its log sets
    generation: int = 0


@dataclass(frozen=True, slots=True)
class RecordTaken:
    """The subtask has captured a record of itself alone."""

    taken: SnapshotTaken
    #: what the subtask has read, if it is a source
    progress: Checkpoint


@dataclass(frozen=True, slots=True)
class Replayed:
    """The subtask has repeated all restored steps. From now on its events are new."""

    subtask: Subtask


@dataclass(frozen=True, slots=True)
class RowsMigrated:
    """All rows of a subtask were brought to another `Node.stateVersion` at the restore. They replace the restored list.

    Comes ahead of all other reports about rows.
    """

    subtask: Subtask
    rows: MigratedRows


Report = (
    SnapshotTaken
    | SnapshotFailed
    | SnapshotAsked
    | PublicationHandled
    | SubtaskEnded
    | SuspectHandled
    | AlignmentStarted
    | RowsMigrated
    | RowsCaptured
    | RowsSealed
    | VersionBegun
    | OwnStateCaptured
    | ClockGiven
    | DifferenceCaptured
    | StepCaptured
    | RecordTaken
    | Replayed
)
