"""Reports of a subtask to its host: small frozen records, taken after each turn."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.ids import Subtask
from snapshot.stored.contribution import SnapshotTaken


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
class AlignmentStarted:
    """A snapshot began to align at this subtask. `AlignmentTimedOut` is due after `timeout` seconds."""

    snapshot_id: int
    subtask: Subtask
    timeout: float


Report = SnapshotTaken | SnapshotFailed | SnapshotAsked | PublicationHandled | SubtaskEnded | AlignmentStarted
