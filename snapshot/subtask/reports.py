"""What a subtask tells whoever hosts it: small frozen facts, taken from it after each turn."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.ids import Subtask
from snapshot.stored.contribution import SnapshotTaken


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """This subtask could not take its part; the snapshot is to be aborted, the run goes on."""

    snapshot_id: int
    subtask: Subtask
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotAsked:
    """The node called `requestSnapshot`; the subtask waits for the answer."""

    subtask: Subtask


@dataclass(frozen=True, slots=True)
class PublicationHandled:
    """What was prepared up to the snapshot is committed, and the node was told."""

    snapshot_id: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class SubtaskEnded:
    """The subtask has sent the end of its stream."""

    subtask: Subtask


@dataclass(frozen=True, slots=True)
class AlignmentStarted:
    """A snapshot began to align here; `SubtaskMachine.alignment_timed_out` is due after `timeout` seconds."""

    snapshot_id: int
    subtask: Subtask
    timeout: float


Report = SnapshotTaken | SnapshotFailed | SnapshotAsked | PublicationHandled | SubtaskEnded | AlignmentStarted
