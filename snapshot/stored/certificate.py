"""Certificate: each subtask's contribution to a snapshot, and the proof that the cut is exact.

Owns PROTOCOL 2. Must not know how anything is stored or sent. The coordinator calls `problems` before it publishes a
snapshot, and every reader calls `problems` again. The rules for lists of parts are in `snapshot.stored.list_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.list_rules import (
    ListEntry as ListEntry,  # a field of the record, and so part of this module
)
from cutline.snapshot.stored.list_rules import Lists, Made, list_problems
from cutline.snapshot.stored.list_rules import LocalVersion as LocalVersion  # a field of the record, too
from cutline.snapshot.stored.list_rules import StepBase as StepBase  # a field of the record, too
from cutline.snapshot.stored.part import Handle, PartKind


class OwnStateKind(Enum):
    """How the state that a node keeps itself can be divided among other subtasks. Values are stored: never rename."""

    WHOLE = "whole"  #: not at all
    PARTITIONED = "partitioned"  #: by key groups, as `Node.partitioned` says
    INHERITED = "inherited"  #: by key groups, but only the first of each subtask, as `Node.inherited` says
    UNITED = "united"  #: the node makes one state of several itself, for each of the subtasks that take over
    OFFSETS = "offsets"  #: by the partitions of a source


@dataclass(frozen=True, slots=True)
class SubtaskStatus:
    """Progress of a subtask at its cut. Termination is decided from it (PROTOCOL 5)."""

    #: the subtask has sent the end of its stream
    ended: bool
    #: the subtask acts on messages only: it is no source, or a source that returned END
    passive: bool
    has_timers: bool
    #: every input from outside its strongly connected component has ended
    outer_inputs_ended: bool
    #: ids of snapshots whose prepared output the subtask holds and does not know to be committed
    uncommitted: tuple[int, ...]
    #: names of the partitions whose offsets the state holds; None for a node without partitions
    partitions: tuple[str, ...] | None = None
    #: how the node's own state can be divided; None without such state
    own_state: OwnStateKind | None = None


@dataclass(frozen=True, slots=True)
class SentEntry:
    """Numbers of a channel at its sender's cut."""

    channel: ChannelId
    sent: int  #: number of the last message sent (S)
    written: int  #: number of the last message before the marker (w)
    first: int  #: first number of the sender's part, read from the stored messages; 0 without a part
    last: int  #: last number of the sender's part, read from the stored messages; 0 without a part


@dataclass(frozen=True, slots=True)
class ReceivedEntry:
    """Numbers of a channel at its receiver's cut."""

    channel: ChannelId
    processed: int  #: number of the last message processed (p)
    written: int  #: the marker's w
    first: int  #: first number of the receiver's part, read from the stored messages; 0 without a part
    last: int  #: last number of the receiver's part, read from the stored messages; 0 without a part


@dataclass(frozen=True, slots=True)
class ChannelWaves:
    """Waves of the messages in flight of a channel that was put together by a restore (PROTOCOL 6.11, waves)."""

    channel: ChannelId
    waves: tuple[tuple[int, int], ...]  #: (number of the last message, wave), ascending


@dataclass(frozen=True, slots=True)
class SubtaskRecord:
    """Contribution of one subtask to one snapshot."""

    subtask: Subtask
    incarnation: int
    handles: tuple[Handle, ...]  #: one state, and a part for each channel end that held messages
    sent: tuple[SentEntry, ...]  #: one entry per outgoing channel
    received: tuple[ReceivedEntry, ...]  #: one entry per incoming channel
    status: SubtaskStatus
    groups: tuple[int, int] | None = None  #: key groups [lo, hi) of the subtask; None without keyed state
    rows: tuple[ListEntry, ...] | None = None  #: list of the keyed state, in the order of application; None: no such
    own: tuple[Handle, ...] | None = None  #: list of own state in deltas, in the order of application; None: no such
    waves: tuple[ChannelWaves, ...] | None = None  #: of the incoming channels whose messages have waves; None: no such
    steps: tuple[Handle, ...] | None = None  #: log of the steps after the state, in the order of the steps; None: none
    base: StepBase | None = None  #: snapshot after which the log goes on, and whose state is listed; None: none
    version: LocalVersion | None = None  #: keyed state on a local disk; None: no such

    @property
    def lists(self) -> Lists:
        """Lists of the subtask. A list that the subtask lacks is empty."""
        return Lists(self.groups, self.rows or (), self.own or (), self.steps or (), self.base, self.version)

    @property
    def all_handles(self) -> tuple[Handle, ...]:
        """Handles of all parts that the record needs, those of lists too."""
        listed = (entry.handle for entry in self.rows or ())
        return (*self.handles, *listed, *(self.own or ()), *(self.steps or ()))

    @property
    def state(self) -> Handle:
        """Handle of the state. Read only on a record without `problems`."""
        return next(handle for handle in self.handles if handle.kind is PartKind.STATE)

    @property
    def state_handles(self) -> tuple[Handle, ...]:
        """Handles of the state: of the own state, of its deltas and of keyed rows, each once."""
        listed = (entry.handle for entry in self.rows or ())
        return tuple(dict.fromkeys((self.state, *(self.own or ()), *listed)))

    @property
    def state_size(self) -> int:
        """Bytes of the own state, of its deltas and of keyed rows."""
        return sum(handle.size for handle in self.state_handles)


def problems(
    channels: Sequence[ChannelId],
    subtasks: Sequence[Subtask],
    records: Sequence[SubtaskRecord],
    incarnation: int,
    *,
    run: str,
    key_groups: int = KEY_GROUPS,
    former_names: Mapping[str, str] = {},
) -> list[str]:
    """Return all faults of a cut. The list is empty when the cut is complete, consistent and exact.

    Parameters
    ----------
    channels, subtasks : sequence
        All channels and subtasks of the run.
    records : sequence of SubtaskRecord
        The acknowledged records, in any order.
    incarnation : int
        The incarnation of the snapshot, which every record must have.
    run : str
        Name of the run.
    key_groups : int, optional
        Number of key groups of the snapshot.
    former_names : mapping of str to str, optional
        {node: its former name}, of nodes that have taken over the lists of a node of another name.
    """
    return [
        *_record_problems(subtasks, records, incarnation),
        *_channel_problems(channels, records),
        *list_problems(
            {record.subtask: record.lists for record in records}, Made(run, incarnation), key_groups, former_names
        ),
    ]


def _record_problems(subtasks: Sequence[Subtask], records: Sequence[SubtaskRecord], incarnation: int) -> Iterator[str]:
    yield from _count_problems("record", subtasks, [record.subtask for record in records])
    for record in records:
        if record.incarnation != incarnation:
            yield f"{record.subtask}: its record is of incarnation {record.incarnation}, the snapshot of {incarnation}"
        states = [handle for handle in record.handles if handle.kind is PartKind.STATE]
        if len(states) != 1:
            yield f"{record.subtask}: {len(states)} states instead of one"
        for handle in record.handles:
            if handle.subtask != record.subtask:
                yield f"{record.subtask}: lists a part that {handle.subtask} made: {handle.name}"
            if handle.kind.is_listed:
                yield f"{record.subtask}: has a part outside its lists: {handle.name}"


def _channel_problems(channels: Sequence[ChannelId], records: Sequence[SubtaskRecord]) -> Iterator[str]:
    sent = {entry.channel: entry for record in records for entry in record.sent}
    received = {entry.channel: entry for record in records for entry in record.received}
    yield from _count_problems("sender's entry", channels, [e.channel for record in records for e in record.sent])
    yield from _count_problems("receiver's entry", channels, [e.channel for record in records for e in record.received])
    for record in records:
        for entry in record.sent:
            if entry.channel.source != record.subtask:
                yield f"{entry.channel}: its sender's entry came from {record.subtask}"
        for other in record.received:
            if other.channel.target != record.subtask:
                yield f"{other.channel}: its receiver's entry came from {record.subtask}"
    yield from _part_problems(records)
    for channel in channels:
        if channel in sent and channel in received:
            yield from _cut_problems(channel, sent[channel], received[channel])


def _cut_problems(channel: ChannelId, sender: SentEntry, receiver: ReceivedEntry) -> Iterator[str]:
    """Check PROTOCOL 2 for one channel: 0 <= p <= w <= S, one w, and the parts abut and cover (p, S]."""
    p, w, s = receiver.processed, receiver.written, sender.sent
    if sender.written != w:
        yield f"{channel}: the sender's marker was behind message {sender.written}, the receiver's behind {w}"
    if not 0 <= p <= w:
        yield f"{channel}: {p} messages processed, but the marker was behind message {w}"
    if not 0 <= sender.written <= s:
        yield f"{channel}: {s} messages sent, but the marker was behind message {sender.written}"
    yield from _cover_problems(channel, "receiver", (receiver.first, receiver.last), p, w)
    yield from _cover_problems(channel, "sender", (sender.first, sender.last), sender.written, s)


def _cover_problems(channel: ChannelId, end: str, stored: tuple[int, int], after: int, upto: int) -> Iterator[str]:
    due = (after + 1, upto) if upto > after else (0, 0)
    if stored != due:
        yield f"{channel}: the {end}'s part holds {_span(stored)}, but {_span(due)} were due"


def _part_problems(records: Sequence[SubtaskRecord]) -> Iterator[str]:
    """Check that every entry has its part once, with the entry's numbers, and that every part has an entry."""
    for record in records:
        entries: list[tuple[PartKind, ChannelId, tuple[int, int]]] = [
            *((PartKind.SENT, entry.channel, (entry.first, entry.last)) for entry in record.sent),
            *((PartKind.RECEIVED, entry.channel, (entry.first, entry.last)) for entry in record.received),
        ]
        due = {(kind, channel): numbers for kind, channel, numbers in entries if numbers != (0, 0)}
        found: dict[tuple[PartKind, ChannelId], int] = dict.fromkeys(due, 0)
        for handle in record.handles:
            if handle.channel is None:
                continue
            key = (handle.kind, handle.channel)
            found[key] = found.get(key, 0) + 1
            if due.get(key, (0, 0)) != (handle.first, handle.last):
                says = _span(due.get(key, (0, 0)))
                yield f"{handle.name}: holds {_span((handle.first, handle.last))}, its entry says {says}"
        for (kind, channel), count in found.items():
            if count != 1:
                yield f"{channel}: {count} {kind.name.lower()} parts of {record.subtask} instead of one"


def _count_problems(what: str, due: Sequence[object], came: Sequence[object]) -> Iterator[str]:
    counts: dict[object, int] = dict.fromkeys(due, 0)
    for name in came:
        if name not in counts:
            yield f"{name}: a {what}, but the run has no such thing"
        counts[name] = counts.get(name, 0) + 1
    for name in dict.fromkeys(due):
        if counts[name] != 1:
            yield f"{name}: {counts[name]} times a {what} instead of once"


def _span(numbers: Iterable[int]) -> str:
    first, last = numbers
    return "no messages" if (first, last) == (0, 0) else f"messages {first} to {last}"
