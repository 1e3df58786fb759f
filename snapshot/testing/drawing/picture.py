"""What a space-time diagram shows, before it is known how: events in places, arrows between them, cuts through them.

Must not know about characters, colours or inches. The place of an event is its index in the slice that is drawn: time
in a diagram is the order of events, for most of them happen at the same virtual second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask, claim_of_snapshot
from snapshot.testing.checking.values import shortened, shown
from snapshot.testing.history import Event, History, Kind

#: Characters of a message that a diagram has room for.
_VALUE_CHARACTERS = 24

_MESSAGES = (Kind.SEND, Kind.RECEIVE)
_STARTS = (Kind.SEND, Kind.END_SENT, Kind.MARKER_SENT)
_ENDS = (Kind.RECEIVE, Kind.END_RECEIVED, Kind.MARKER)


class Cargo(Enum):
    """What an arrow carries."""

    MESSAGE = "message"
    END = "end of the stream"
    MARKER = "marker"


@dataclass(slots=True)
class Arrow:
    """Something on its way from one subtask to another."""

    channel: ChannelId
    incarnation: int
    cargo: Cargo
    #: of the message on its channel; 0 for a marker
    number: int
    #: of a marker; 0 for a message
    snapshot_id: int
    #: ids of the snapshots across whose cuts it is in flight
    crosses: tuple[int, ...]
    #: it came out of a snapshot, so nobody sent it in this incarnation
    is_restored: bool
    #: place of its sending; None: before the slice, or restored
    start: int | None = None
    #: place of its receipt; None: behind the slice, or never
    end: int | None = None


@dataclass(frozen=True, slots=True)
class CutLine:
    """The cut of one snapshot, as far as it is in the slice."""

    snapshot_id: int
    is_published: bool
    #: (place, subtask), by the order of columns
    points: tuple[tuple[int, Subtask], ...]


#: A channel's message or marker in one incarnation.
_ArrowKey = tuple[int, ChannelId, Cargo, int]


class Picture:
    """A slice of a history, ready to be drawn.

    Parameters
    ----------
    history : History
    start, stop : int or None
        As in ``history.events[start:stop]``.
    """

    def __init__(self, history: History, start: int | None, stop: int | None) -> None:
        self.history = history
        chosen = range(len(history.events))[start:stop]
        #: index in the history of the first event
        self.first = chosen.start
        self.events: list[Event] = [history.events[index] for index in chosen]
        self.subtasks = self._appearing()
        #: the highest incarnation that has begun, at each place
        self._begun = [*accumulate(map(_begun, history.events[: chosen.stop]), max)][chosen.start :]
        self._claims = dict.fromkeys(
            claim_of_snapshot(event.snapshot_id) for event in history.events if event.snapshot_id
        )
        #: in the order of their first places
        self.cuts: list[CutLine] = self._cuts()
        self._arrows: dict[_ArrowKey, Arrow] = {}
        #: {place: the arrow that starts or ends there}
        self.arrow_at: dict[int, Arrow] = dict(self._find_arrows())

    @property
    def arrows(self) -> list[Arrow]:
        """All arrows, in the order of their first places."""
        return list(self._arrows.values())

    @property
    def title(self) -> str:
        """What is drawn of what."""
        name, count = self.history.topology.name, len(self.history.events)
        if not self.events:
            return f"{name}: no events of {count}"
        return f"{name}: events {self.first + 1} to {self.first + len(self.events)} of {count}"

    def label(self, snapshot_id: int) -> str:
        """A snapshot's id, short: within its claim, where all are of one."""
        number = snapshot_id % SNAPSHOT_IDS_PER_CLAIM
        return str(number) if len(self._claims) == 1 else f"{claim_of_snapshot(snapshot_id)}.{number}"

    def name(self, subtask: Subtask) -> str:
        """A subtask's name, short: that of its node, where there is one."""
        return subtask.node if self.history.topology.node(subtask.node).parallelism == 1 else str(subtask)

    def value(self, event: Event) -> str:
        """What a message says, short; empty for all other events."""
        if event.kind not in _MESSAGES and event.kind is not Kind.INJECT:
            return ""
        return shortened(shown(event.payload, self.history.codec), _VALUE_CHARACTERS)

    def announcement(self, event: Event) -> str:
        """An event of the run, in words."""
        label = self.label(event.snapshot_id) if event.snapshot_id else ""
        match event.kind:
            case Kind.DEPLOYED:
                return f"incarnation {event.incarnation}, " + (f"from snapshot {label}" if label else "afresh")
            case Kind.FAULT:
                return event.text
            case _:
                words = [event.kind.value, label, f"({event.text})" if event.text else ""]
                return " ".join(word for word in words if word)

    def is_stale(self, place: int) -> bool:
        """Whether the event belongs to an incarnation whose successor has begun: a zombie's."""
        return self.events[place].incarnation < self._begun[place]

    # ---------------------------------------------------------------- finding

    def _appearing(self) -> tuple[Subtask, ...]:
        """The subtasks that do something in the slice, or to which something is on its way."""
        seen: dict[Subtask | None, None] = {}
        for event in self.events:
            seen.update(dict.fromkeys((event.subtask, *(event.channel or ()))))
        return tuple(subtask for subtask in self.history.topology.subtasks if subtask in seen)

    def _cuts(self) -> list[CutLine]:
        found: dict[int, dict[Subtask, int]] = {}
        for place, event in enumerate(self.events):
            if event.kind is Kind.CUT and event.subtask is not None:
                found.setdefault(event.snapshot_id, {})[event.subtask] = place
        published = [snapshot.id for snapshot in self.history.snapshots]
        return [
            CutLine(snapshot_id, snapshot_id in published, tuple((at[s], s) for s in self.subtasks if s in at))
            for snapshot_id, at in found.items()
        ]

    def _find_arrows(self) -> Iterator[tuple[int, Arrow]]:
        for place, event in enumerate(self.events):
            if event.kind in _STARTS or event.kind in _ENDS:
                arrow = self._arrow_of(event)
                if event.kind in _STARTS:
                    arrow.start = place
                else:
                    arrow.end = place
                yield place, arrow

    def _arrow_of(self, event: Event) -> Arrow:
        assert event.channel is not None, "what is sent has a channel"
        cargo = _cargo(event.kind)
        number = 0 if cargo is Cargo.MARKER else event.number
        snapshot_id = event.snapshot_id if cargo is Cargo.MARKER else 0
        key = (event.incarnation, event.channel, cargo, number or snapshot_id)
        if key not in self._arrows:
            crosses = tuple(self._crossed(event.incarnation, event.channel, number)) if number else ()
            is_restored = bool(number) and number <= self._restored_through(event.incarnation, event.channel)
            self._arrows[key] = Arrow(
                event.channel, event.incarnation, cargo, number, snapshot_id, crosses, is_restored
            )
        return self._arrows[key]

    def _crossed(self, incarnation: int, channel: ChannelId, number: int) -> Iterator[int]:
        """The cuts of the slice at which the message was sent, and not yet processed."""
        for cut in self.cuts:
            sender = self.history.cuts.get((incarnation, cut.snapshot_id, channel.source))
            receiver = self.history.cuts.get((incarnation, cut.snapshot_id, channel.target))
            if sender is None or receiver is None:
                continue
            if receiver.processed.get(channel, 0) < number <= sender.sent.get(channel, 0):
                yield cut.snapshot_id

    def _restored_through(self, incarnation: int, channel: ChannelId) -> int:
        """Number of the last message that came out of the snapshot from which the incarnation was restored."""
        origin = self.history.origins.get(incarnation)
        return 0 if origin is None else self.history.cuts[*origin, channel.source].sent.get(channel, 0)


def _begun(event: Event) -> int:
    return event.incarnation if event.kind is Kind.RESTORED else 0


def _cargo(kind: Kind) -> Cargo:
    if kind in (Kind.MARKER_SENT, Kind.MARKER):
        return Cargo.MARKER
    return Cargo.END if kind in (Kind.END_SENT, Kind.END_RECEIVED) else Cargo.MESSAGE
