"""Make an ordinary cut of the newest record of each subtask (PROTOCOL 14.5, restore). No I/O.

Chooses which stored parts have the messages between two records, and where they are cut. The certificate judges the
result, as it judges every cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord
from cutline.snapshot.stored.independent_record import IndependentRecord
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, PartKind


@dataclass(frozen=True, slots=True)
class ChannelState:
    """Messages of one channel between the record of its receiver and that of its sender."""

    channel: ChannelId
    #: number of the last message that the receiver had processed, and of the last message sent
    processed: int
    sent: int
    #: parts that have all messages between the two numbers, in order; they may have more
    parts: tuple[Handle, ...]

    @property
    def is_whole_part(self) -> bool:
        """Whether one part has these messages and no others, so that the cut can list the part."""
        only = self.parts[0]
        is_exact = (only.first, only.last) == (self.processed + 1, self.sent)
        return len(self.parts) == 1 and is_exact and only.kind is PartKind.SENT

    @property
    def is_cut_inside(self) -> bool:
        """Whether a part has messages that the receiver has processed already."""
        return bool(self.parts) and self.parts[0].first <= self.processed


@dataclass(frozen=True, slots=True)
class CutPlan:
    """Records of a cut, without messages, and the messages of each channel that has some."""

    records: tuple[SubtaskRecord, ...]
    channels: tuple[ChannelState, ...]

    def records_with(self, messages: Mapping[ChannelId, Handle], incarnation: int) -> tuple[SubtaskRecord, ...]:
        """Return the records of the cut.

        Parameters
        ----------
        messages : mapping of ChannelId to Handle
            The part with the messages of each channel of `channels`.
        incarnation : int
            Incarnation of the snapshot.
        """
        return tuple(with_messages(record, messages, incarnation) for record in self.records)


def plan_cut(run: str, topology: Topology, base: Manifest | None, records: Sequence[IndependentRecord]) -> CutPlan:
    """Plan the cut of the newest records.

    Parameters
    ----------
    run : str
    topology : Topology
    base : Manifest or None
        Snapshot with which the incarnation of the records began, or None for a fresh start. A fork begins with that of
        another run.
    records : sequence of IndependentRecord
        The newest record of each subtask that has one. A subtask without one is as in `base`.

    Raises
    ------
    RestoreRefused
        if a message between two records is in no part, or a subtask has no record.
    """
    chosen = {} if base is None or base.run != run else {record.subtask: record for record in base.records}
    chosen |= {each.subtask: each.record for each in records}
    if missing := [subtask for subtask in topology.subtasks if subtask not in chosen]:
        raise RestoreRefused(f"run {run!r}: there is no record of {missing[0]}")
    stored = _parts([] if base is None else base.records, records)
    sent = {entry.channel: entry.sent for record in chosen.values() for entry in record.sent}
    processed = {entry.channel: entry.processed for record in chosen.values() for entry in record.received}
    channels = [
        ChannelState(
            channel, processed[channel], sent[channel],
            _covering(channel, stored.get(channel, ()), processed[channel], sent[channel]),
        )
        for channel in topology.channels
    ]  # fmt: skip
    return CutPlan(
        tuple(chosen[subtask] for subtask in topology.subtasks), tuple(each for each in channels if each.parts)
    )


def _parts(restored: Iterable[SubtaskRecord], records: Iterable[IndependentRecord]) -> dict[ChannelId, list[Handle]]:
    """Return all parts with messages, by channel."""
    handles = [handle for record in restored for handle in record.handles]
    handles += [handle for each in records for handle in each.log]
    found: dict[ChannelId, list[Handle]] = {}
    for handle in handles:
        if handle.channel is not None:
            found.setdefault(handle.channel, []).append(handle)
    return found


def _covering(channel: ChannelId, parts: Sequence[Handle], after: int, through: int) -> tuple[Handle, ...]:
    """Return parts that have the messages (after, through], each the longest at its place."""
    chosen: list[Handle] = []
    while after < through:
        found = max(
            (each for each in parts if each.first <= after + 1 <= each.last), key=lambda each: each.last, default=None
        )
        if found is None:
            there = ", ".join(f"{each.first} to {each.last}" for each in sorted(parts, key=lambda each: each.first))
            raise RestoreRefused(f"channel {channel}: the log has {there or 'nothing'}, but {after + 1} is needed")
        chosen.append(found)
        after = found.last
    return tuple(chosen)


def with_messages(record: SubtaskRecord, messages: Mapping[ChannelId, Handle], incarnation: int) -> SubtaskRecord:
    """Return a record with its state, its lists and its numbers, and these messages of its outputs only."""
    own = {entry.channel: messages.get(entry.channel) for entry in record.sent}
    parts = [handle for handle in own.values() if handle is not None]
    return replace(
        record,
        incarnation=incarnation,
        handles=(record.state, *parts),
        sent=tuple(_sent(entry, own[entry.channel]) for entry in record.sent),
        received=tuple(
            ReceivedEntry(entry.channel, entry.processed, entry.processed, 0, 0) for entry in record.received
        ),
    )


def _sent(entry: SentEntry, part: Handle | None) -> SentEntry:
    if part is None:
        return SentEntry(entry.channel, entry.sent, entry.sent, 0, 0)
    return SentEntry(entry.channel, entry.sent, part.first - 1, part.first, part.last)
