"""What a subtask tells whoever hosts it: small frozen facts, taken from it after each turn."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.channel.channel_cuts import ReceivedCut, SentCut
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.envelope import Buffer


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """All that this subtask contributes to a snapshot: to be stored, then acknowledged."""

    snapshot_id: int
    subtask: Subtask
    #: the encoded `NodeState`, in pieces
    state: tuple[Buffer, ...]
    received: dict[ChannelId, ReceivedCut]
    sent: dict[ChannelId, SentCut]
    status: SubtaskStatus
    #: up to now: nothing is uploaded yet
    timings: SnapshotTimings


@dataclass(frozen=True, slots=True)
class SnapshotTimings:
    """Seconds that one subtask spent on a snapshot: three stretches without a gap, on the clock of its host."""

    #: from its first sight of the snapshot until nothing could change its part any more (every input's marker was in,
    #: its own had left), less `capture`
    align: float
    #: asking the node for its state (prepareCommit, snapshotState) and serialising it, between two events
    capture: float
    #: from then on until all its parts were stored
    upload: float


@dataclass(frozen=True, slots=True)
class SubtaskStatus:
    """How far the subtask was at its cut; termination is decided from it (PROTOCOL 5)."""

    #: it has sent the end of its stream
    ended: bool
    #: it acts on nothing but messages: no source, or one that returned END
    passive: bool
    has_timers: bool
    #: every input from outside its strongly connected component has ended
    outer_inputs_ended: bool
    #: snapshots whose prepared output is held here and not known to be committed
    uncommitted: tuple[int, ...]


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
