"""Reports of a subtask to its host: small frozen records, taken after each turn."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.channel.stamps import Numbers
from cutline.snapshot.failed_event import Suspect
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.stored.local_checkpoint import SourceProgress
from cutline.snapshot.subtask.strand import ChangeCaptured


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
class ClockGiven:
    """An aggregate has seen the slices below these numbers, and no others. It takes no message now."""

    snapshot_id: int
    subtask: Subtask
    seen: Numbers
    #: whether its inputs have ended
    has_ended: bool


@dataclass(frozen=True, slots=True)
class RecordTaken:
    """The subtask has captured a record of itself alone."""

    taken: Contribution
    #: what the subtask has read, if it is a source
    progress: SourceProgress


@dataclass(frozen=True, slots=True)
class Replayed:
    """The subtask has repeated all restored steps. From now on its events are new."""

    subtask: Subtask


Report = (
    Contribution
    | SnapshotFailed
    | SnapshotAsked
    | PublicationHandled
    | SubtaskEnded
    | SuspectHandled
    | AlignmentStarted
    | ChangeCaptured
    | ClockGiven
    | RecordTaken
    | Replayed
)
