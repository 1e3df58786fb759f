"""Contribution of a subtask to a snapshot: its parts, and then its record for the manifest.

Owns the step before the parts are written and the step after. Must not know how or where parts are written. Between
the two steps each part becomes a handle (`Part.inline` or `Part.stored`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.certificate import ChannelWaves, ReceivedEntry, SentEntry, SubtaskRecord, SubtaskStatus
from cutline.snapshot.stored.part import Handle, Part, PartKind, channel_part, state_part


@dataclass(frozen=True, slots=True)
class SnapshotTimings:
    """Seconds that one subtask spent on a snapshot, in three intervals without a gap, on the clock of its host."""

    #: seconds from the first request or marker until every input's marker was in and its own marker had left, so that
    #: nothing could change the subtask's part; less `capture`
    align: float
    #: seconds of prepareCommit, snapshotState and encoding their results, between two events
    capture: float
    #: seconds from then on until all its parts were stored
    upload: float


@dataclass(frozen=True, slots=True)
class Contribution:
    """Contribution of a subtask to a snapshot, ready to be stored and then acknowledged."""

    snapshot_id: int
    subtask: Subtask
    #: the encoded `NodeState`, in pieces
    state: tuple[Buffer, ...]
    received: dict[ChannelId, ReceivedCut]
    sent: dict[ChannelId, SentCut]
    status: SubtaskStatus
    #: timings so far; `upload` is not known yet
    timings: SnapshotTimings


def parts_of(taken: Contribution, run: str, incarnation: int) -> list[Part]:
    """Return all parts of `taken`: the state, and each channel end that held messages."""
    at = (run, incarnation, taken.snapshot_id)
    parts = [state_part(*at, taken.subtask, taken.state)]
    for channel, received in taken.received.items():
        if received.frames:
            parts.append(channel_part(PartKind.RECEIVED, *at, channel, received.frames))
    for channel, sent in taken.sent.items():
        if sent.frames:
            parts.append(channel_part(PartKind.SENT, *at, channel, sent.frames))
    return parts


def record_of(taken: Contribution, incarnation: int, handles: Sequence[Handle]) -> SubtaskRecord:
    """Return the record of a subtask all of whose parts are durable.

    The numbers of stored messages are taken from the handles, which read them from the messages (PROTOCOL 2).
    """
    stored: dict[tuple[PartKind, ChannelId | None], tuple[int, int]] = {
        (handle.kind, handle.channel): (handle.first, handle.last) for handle in handles
    }
    waves = tuple(ChannelWaves(channel, cut.waves) for channel, cut in taken.received.items() if cut.waves)
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
        waves=waves or None,
    )
