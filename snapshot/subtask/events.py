"""Control events of a subtask, events of the marker rules, and effects of these rules.

Events are in the past tense, effects in the imperative. Both hold names and ids, never messages, counters or states.
Performing an effect reads those from the channel ends, because nothing happens between the step and the effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.stamps import Clock
from cutline.snapshot.ids import ChannelId


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """The coordinator asked this subtask to start `snapshot_id`. `running` lists the unsettled ids, ascending."""

    snapshot_id: int
    running: tuple[int, ...]
    min_snapshot_id: int


@dataclass(frozen=True, slots=True)
class MarkerArrived:
    """A marker arrived from the link. The marker may have overtaken data that still waits in the input queue."""

    channel: ChannelId
    marker: Marker


@dataclass(frozen=True, slots=True)
class MarkerReached:
    """The subtask has processed all messages before an aligned marker."""

    channel: ChannelId
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class AlignmentTimedOut:
    """The alignment timeout of `snapshot_id` at this subtask has passed."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class MinSnapshotIdRaised:
    """Every snapshot below `min_snapshot_id` is settled, that is, published or aborted."""

    min_snapshot_id: int


#: events of the marker rules (`snapshot.subtask.recorder`)
Event = SnapshotRequested | MarkerArrived | MarkerReached | AlignmentTimedOut | MinSnapshotIdRaised


@dataclass(frozen=True, slots=True)
class Started:
    """All subtasks of the run are restored and connected, so this subtask may act."""


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """The node's `requestSnapshot` was answered, refused, or came too late. The node's events continue."""


@dataclass(frozen=True, slots=True)
class SnapshotPublished:
    """A snapshot was published. The subtask commits the output that was prepared up to the cut (PROTOCOL 8)."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class RecordRequested:
    """The host asked this subtask to record itself alone, between two events (PROTOCOL 14.1, one record, one write)."""

    number: int


@dataclass(frozen=True, slots=True)
class RecordStored:
    """The record that was captured last is stored, and no coordinator has taken the run since."""


@dataclass(frozen=True, slots=True)
class ComponentEnded:
    """The cycle of this subtask has terminated (PROTOCOL 5; termination is a stable property)."""


@dataclass(frozen=True, slots=True)
class ClockAsked:
    """The coordinator asked an aggregate for the clock that it has not reached. It waits for `ClockAnnounced`."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class ClockAnnounced:
    """A snapshot has a clock."""

    snapshot_id: int
    clock: Clock


#: events that a host passes to `SubtaskMachine.step`
ControlEvent = (
    Started
    | SnapshotRequested
    | RequestAnswered
    | MarkerArrived
    | AlignmentTimedOut
    | MinSnapshotIdRaised
    | SnapshotPublished
    | RecordRequested
    | RecordStored
    | ComponentEnded
    | ClockAsked
    | ClockAnnounced
)


@dataclass(frozen=True, slots=True)
class CaptureState:
    """Record the node's state immediately."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class SendMarker:
    """Put a marker at the head of `channel`, or, when `aligned`, after all sent messages."""

    channel: ChannelId
    snapshot_id: int
    aligned: bool


@dataclass(frozen=True, slots=True)
class StartRecording:
    """Record the unprocessed messages of `channel`, and all messages that arrive later."""

    channel: ChannelId
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class StopRecording:
    """Stop recording, because the marker arrived. The receiver's part is the recorded messages up to `written`."""

    channel: ChannelId
    snapshot_id: int
    written: int


@dataclass(frozen=True, slots=True)
class HoldChannel:
    """Process no message of `channel` until `ReleaseChannel`."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class ReleaseChannel:
    """Process the messages of `channel` again."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class StartAlignmentTimer:
    """Start the alignment timeout of `snapshot_id`, because alignment began at this subtask."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class OvertakeWithMarkers:
    """Move the waiting markers of `snapshot_id` and of lower ids to the head of their output buffers."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class CompleteRecording:
    """Complete the recording of `snapshot_id`, because a marker arrived on every input."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class DiscardRecording:
    """Discard all recorded data of `snapshot_id`, because `snapshot_id` is settled."""

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
