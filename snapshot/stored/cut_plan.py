"""The plan of a cut between stored records: which parts have the messages in flight. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cutline.snapshot.ids import ChannelId
from cutline.snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord
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
