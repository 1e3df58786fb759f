"""What a space-time diagram shows, before it is known how: events in places, arrows between them, cuts through them.

Must not know about characters, colours or inches. The place of an event is its index in the slice that is drawn: time
in a diagram is the order of events, for most of them happen at the same virtual second. Which messages are in flight
across a cut is known by the counts at cuts and restores, so that it is right also where events were dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from snapshot.drawing.labels import shown
from snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask, claim_of_snapshot
from snapshot.trace_events import Counts, Event, EventLog, Kind, counts_of

_NOTHING = Counts({}, {})


class Flights:
    """All messages of a trace."""

    def __init__(self, trace: EventLog) -> None:
        #: {(incarnation, snapshot_id, subtask)}
        self._cuts: dict[tuple[int, int, Subtask], Counts] = {}
        #: {(incarnation, subtask)}
        self._restored: dict[tuple[int, Subtask], Counts] = {}
        for event in trace.events:
            if event.subtask is None:
                continue
            if event.kind is Kind.CUT:
                self._cuts[event.incarnation, event.snapshot_id, event.subtask] = counts_of(event, trace.topology)
            elif event.kind is Kind.RESTORED:
                self._restored[event.incarnation, event.subtask] = counts_of(event, trace.topology)

    def crosses(self, snapshot_id: int, incarnation: int, channel: ChannelId, number: int) -> bool:
        """Whether the message was sent before the sender's cut, and not processed before the receiver's."""
        sender = self._cuts.get((incarnation, snapshot_id, channel.source), _NOTHING)
        receiver = self._cuts.get((incarnation, snapshot_id, channel.target), _NOTHING)
        processed = receiver.processed.get(channel)
        return processed is not None and processed < number <= sender.sent.get(channel, 0)

    def is_restored(self, incarnation: int, channel: ChannelId, number: int) -> bool:
        """Whether it came out of a snapshot, so that nobody sent it in this incarnation."""
        return number <= self._restored.get((incarnation, channel.source), _NOTHING).sent.get(channel, 0)


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
    """A slice of a trace, ready to be drawn.

    Parameters
    ----------
    trace : EventLog
    start, stop : int or None
        As in ``trace.events[start:stop]``.
    """

    def __init__(self, trace: EventLog, start: int | None, stop: int | None) -> None:
        self.trace = trace
        chosen = range(len(trace.events))[start:stop]
        #: index in the trace of the first event
        self.first = chosen.start
        self.events: list[Event] = list(trace.events[chosen.start : chosen.stop])
        #: when the trace begins
        self._origin = min((event.at for event in trace.events), default=0.0)
        self._flights = Flights(trace)
        self.subtasks = self._appearing()
        #: the highest incarnation that has begun, at each place
        self._begun = [*accumulate(map(_begun, trace.events[: chosen.stop]), max)][chosen.start :]
        self._claims = dict.fromkeys(
            claim_of_snapshot(event.snapshot_id) for event in trace.events if event.snapshot_id
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
        name, count = self.trace.topology.name, len(self.trace.events)
        if not self.events:
            return f"{name}: no events of {count}"
        return f"{name}: events {self.first + 1} to {self.first + len(self.events)} of {count}"

    def time(self, place: int) -> float:
        """Seconds from the first event of the trace."""
        return self.events[place].at - self._origin

    def label(self, snapshot_id: int) -> str:
        """A snapshot's id, short: within its claim, where all are of one."""
        number = snapshot_id % SNAPSHOT_IDS_PER_CLAIM
        return str(number) if len(self._claims) == 1 else f"{claim_of_snapshot(snapshot_id)}.{number}"

    def name(self, subtask: Subtask) -> str:
        """A subtask's name, short: that of its node, where there is one."""
        return subtask.node if self.trace.topology.node(subtask.node).parallelism == 1 else str(subtask)

    def value(self, event: Event) -> str:
        """What a message says, short; empty for all other events."""
        if event.kind not in _MESSAGES and event.kind is not Kind.INJECT:
            return ""
        return shown(event.payload, self.trace.codec, _VALUE_CHARACTERS) if event.payload else ""

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
        return tuple(subtask for subtask in self.trace.topology.subtasks if subtask in seen)

    def _cuts(self) -> list[CutLine]:
        found: dict[int, dict[Subtask, int]] = {}
        for place, event in enumerate(self.events):
            if event.kind is Kind.CUT and event.subtask is not None:
                found.setdefault(event.snapshot_id, {})[event.subtask] = place
        published = {event.snapshot_id for event in self.trace.events if event.kind is Kind.PUBLISHED}
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
            of_message = (event.incarnation, event.channel, number)
            crosses = [cut.snapshot_id for cut in self.cuts if self._flights.crosses(cut.snapshot_id, *of_message)]
            self._arrows[key] = Arrow(
                event.channel,
                event.incarnation,
                cargo,
                number,
                snapshot_id,
                crosses=tuple(crosses) if number else (),
                is_restored=bool(number) and self._flights.is_restored(*of_message),
            )
        return self._arrows[key]


def _begun(event: Event) -> int:
    return event.incarnation if event.kind is Kind.RESTORED else 0


def _cargo(kind: Kind) -> Cargo:
    if kind in (Kind.MARKER_SENT, Kind.MARKER):
        return Cargo.MARKER
    return Cargo.END if kind in (Kind.END_SENT, Kind.END_RECEIVED) else Cargo.MESSAGE
