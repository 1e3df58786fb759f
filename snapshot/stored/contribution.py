"""From what a subtask took to what is stored of it: its parts, and then its record for the manifest.

Owns the two steps around the writing; must not know how or where parts are written. In between, each part
becomes a handle (`Part.inline` or `Part.stored`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snapshot.channel.channel_cuts import ReceivedCut, SentCut
from snapshot.channel.frame import Buffer
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord, SubtaskStatus
from snapshot.stored.part import Handle, Part, PartKind, channel_part, state_part


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


def parts_of(taken: SnapshotTaken, run: str, incarnation: int) -> list[Part]:
    """Everything of `taken` that is to be stored: the state, and each channel end that held messages."""
    at = (run, incarnation, taken.snapshot_id)
    parts = [state_part(*at, taken.subtask, taken.state)]
    for channel, received in taken.received.items():
        if received.frames:
            parts.append(channel_part(PartKind.RECEIVED, *at, channel, received.frames))
    for channel, sent in taken.sent.items():
        if sent.frames:
            parts.append(channel_part(PartKind.SENT, *at, channel, sent.frames))
    return parts


def record_of(taken: SnapshotTaken, incarnation: int, handles: Sequence[Handle]) -> SubtaskRecord:
    """The subtask's record, once all of its parts are durable.

    The numbers of stored messages are the handles', which were read from the messages themselves (PROTOCOL 2).
    """
    stored: dict[tuple[PartKind, ChannelId | None], tuple[int, int]] = {
        (handle.kind, handle.channel): (handle.first, handle.last) for handle in handles
    }
    return SubtaskRecord(
        subtask=taken.subtask,
        incarnation=incarnation,
        handles=tuple(handles),
        sent=tuple(
            SentEntry(channel, cut.sent, cut.written, *stored.get((PartKind.SENT, channel), (0, 0)))
            for channel, cut in taken.sent.items()
        ),
        received=tuple(
            ReceivedEntry(channel, cut.processed, cut.written, *stored.get((PartKind.RECEIVED, channel), (0, 0)))
            for channel, cut in taken.received.items()
        ),
        status=taken.status,
    )
