"""Every control event of a subtask, every event of its marker rules, and every effect of these rules.

Events are in the past tense, effects in the imperative. Both hold names and ids, never messages, counters or states.
An effect takes those from the channel ends when it is performed, because nothing happens in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.channel.frame import Marker
from snapshot.ids import ChannelId


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """This subtask is to start `snapshot_id`. `running` are the ids that are not settled, ascending."""

    snapshot_id: int
    running: tuple[int, ...]
    min_snapshot_id: int


@dataclass(frozen=True, slots=True)
class MarkerArrived:
    """A marker came off the link. It may have overtaken data that still waits in the in-queue."""

    channel: ChannelId
    marker: Marker


@dataclass(frozen=True, slots=True)
class MarkerReached:
    """All messages ahead of an aligned marker have been processed."""

    channel: ChannelId
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class AlignmentTimedOut:
    """The time that `snapshot_id` was given to align at this subtask is over."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class MinSnapshotIdRaised:
    """Every snapshot below `min_snapshot_id` is settled: published or aborted."""

    min_snapshot_id: int


#: What the marker rules know (`snapshot.subtask.recorder`).
Event = SnapshotRequested | MarkerArrived | MarkerReached | AlignmentTimedOut | MinSnapshotIdRaised


@dataclass(frozen=True, slots=True)
class Started:
    """All subtasks of the run are restored and connected: this subtask may act."""


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """The node's `requestSnapshot` was answered, refused, or came too late: events go on."""


@dataclass(frozen=True, slots=True)
class SnapshotPublished:
    """A snapshot was published: what was prepared up to its cut is to be committed (PROTOCOL 8)."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class ComponentEnded:
    """The cycle of this subtask is over (PROTOCOL 5; termination is a stable property)."""


#: What a host passes to `SubtaskMachine.step`.
ControlEvent = (
    Started
    | SnapshotRequested
    | RequestAnswered
    | MarkerArrived
    | AlignmentTimedOut
    | MinSnapshotIdRaised
    | SnapshotPublished
    | ComponentEnded
)


@dataclass(frozen=True, slots=True)
class CaptureState:
    """Record the node's state, now."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class SendMarker:
    """Put a marker on `channel`: at its head, or, when `aligned`, behind all that was sent."""

    channel: ChannelId
    snapshot_id: int
    aligned: bool


@dataclass(frozen=True, slots=True)
class StartRecording:
    """Keep every message of `channel` that is not processed yet, and those that will arrive."""

    channel: ChannelId
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class StopRecording:
    """The marker came: what was kept up to message `written` is the receiver's part."""

    channel: ChannelId
    snapshot_id: int
    written: int


@dataclass(frozen=True, slots=True)
class HoldChannel:
    """Process nothing more from `channel` until it is released."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class ReleaseChannel:
    """Go on with `channel`."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class StartAlignmentTimer:
    """Alignment of `snapshot_id` began here; say so when its time is over."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class OvertakeWithMarkers:
    """Markers of `snapshot_id`, and lower ones, that still wait in out-buffers go to the head."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class CompleteRecording:
    """A marker came on every input since the cut: nothing more belongs to `snapshot_id` here."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class DiscardRecording:
    """`snapshot_id` was aborted: forget what was kept for it."""

    snapshot_id: int


Effect = (
    CaptureState
    | SendMarker
    | StartRecording
    | StopRecording
    | HoldChannel
    | ReleaseChannel
    | StartAlignmentTimer
    | OvertakeWithMarkers
    | CompleteRecording
    | DiscardRecording
)
