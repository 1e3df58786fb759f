"""The content of a space-time diagram, independent of its form: events in places, arrows between events, and cuts.

Must not know about characters, colours or inches. The place of an event is its index in the drawn slice. Places follow
the order of events, because most events happen at the same virtual second. Messages in flight across a cut are found
by the counts at cuts and restores, because these counts are correct even when events were dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from cutline.snapshot.drawing.labels import shown
from cutline.snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask, claim_of_snapshot
from cutline.snapshot.trace_events import Counts, Event, EventLog, Kind, counts_of

_NOTHING = Counts({}, {})


class Flights:
    """The counts of a trace at cuts and restores, which decide whether a message is in flight or restored."""

    def __init__(self, trace: EventLog) -> None:
        #: counts at cuts, by (incarnation, snapshot id, subtask)
        self._cuts: dict[tuple[int, int, Subtask], Counts] = {}
        #: counts at restores, by (incarnation, subtask)
        self._restored: dict[tuple[int, Subtask], Counts] = {}
        for event in trace.events:
            if event.subtask is None:
                continue
            if event.kind is Kind.CUT:
                self._cuts[event.incarnation, event.snapshot_id, event.subtask] = counts_of(event, trace.topology)
            elif event.kind is Kind.RESTORED:
                self._restored[event.incarnation, event.subtask] = counts_of(event, trace.topology)

    def crosses(self, snapshot_id: int, incarnation: int, channel: ChannelId, number: int) -> bool:
        """Return whether the message was sent before the sender's cut, and not processed before the receiver's cut."""
        sender = self._cuts.get((incarnation, snapshot_id, channel.source), _NOTHING)
        receiver = self._cuts.get((incarnation, snapshot_id, channel.target), _NOTHING)
        processed = receiver.processed.get(channel)
        return processed is not None and processed < number <= sender.sent.get(channel, 0)

    def is_restored(self, incarnation: int, channel: ChannelId, number: int) -> bool:
        """Return whether the message was restored from a snapshot, so that no subtask sent it in this incarnation."""
        return number <= self._restored.get((incarnation, channel.source), _NOTHING).sent.get(channel, 0)


#: characters of a message that are shown
_VALUE_CHARACTERS = 24

_MESSAGES = (Kind.SEND, Kind.RECEIVE)
_STARTS = (Kind.SEND, Kind.END_SENT, Kind.MARKER_SENT)
_ENDS = (Kind.RECEIVE, Kind.END_RECEIVED, Kind.MARKER)


class Cargo(Enum):
    """The cargo of an arrow."""

    MESSAGE = "message"
    END = "end of the stream"
    MARKER = "marker"


@dataclass(slots=True)
class Arrow:
    """A message, a marker or an end of the stream on its way between two subtasks."""

    channel: ChannelId
    incarnation: int
    cargo: Cargo
    #: number of the message on its channel, or 0 for a marker
    number: int
    #: snapshot id of the marker, or 0 for a message
    snapshot_id: int
    #: ids of the snapshots across whose cuts the message is in flight
    crosses: tuple[int, ...]
    #: whether the message was restored from a snapshot, so that no subtask sent it in this incarnation
    is_restored: bool
    #: place of the sending, or None when the message was sent before the slice or restored
    start: int | None = None
    #: place of the receipt, or None when the message is received after the slice or never
    end: int | None = None


@dataclass(frozen=True, slots=True)
class CutLine:
    """The points of a snapshot's cut that are in the slice."""

    snapshot_id: int
    is_published: bool
    #: (place, subtask) of each point, in the order of columns
    points: tuple[tuple[int, Subtask], ...]


#: key of an arrow: incarnation, channel, cargo, and the number of the message or the id of the snapshot
_ArrowKey = tuple[int, ChannelId, Cargo, int]


class Picture:
    """A slice of a trace, prepared for drawing.

    Parameters
    ----------
    trace : EventLog
    start, stop : int or None
        Bounds of the slice, as in ``trace.events[start:stop]``.
    """

    def __init__(self, trace: EventLog, start: int | None, stop: int | None) -> None:
        self.trace = trace
        chosen = range(len(trace.events))[start:stop]
        #: index of the first event in the trace
        self.first = chosen.start
        self.events: list[Event] = list(trace.events[chosen.start : chosen.stop])
        #: time of the first event of the trace, in seconds
        self._origin = min((event.at for event in trace.events), default=0.0)
        self._flights = Flights(trace)
        self.subtasks = self._appearing()
        #: highest incarnation that has begun, for each place
        self._begun = [*accumulate(map(_begun, trace.events[: chosen.stop]), max)][chosen.start :]
        self._claims = dict.fromkeys(
            claim_of_snapshot(event.snapshot_id) for event in trace.events if event.snapshot_id
        )
        #: cuts in the order of their first places
        self.cuts: list[CutLine] = self._cuts()
        self._arrows: dict[_ArrowKey, Arrow] = {}
        #: arrow that starts or ends at a place, by place
        self.arrow_at: dict[int, Arrow] = dict(self._find_arrows())

    @property
    def arrows(self) -> list[Arrow]:
        """All arrows, in the order of their first places."""
        return list(self._arrows.values())

    @property
    def title(self) -> str:
        """Name of the graph, and the numbers of the events that are drawn."""
        name, count = self.trace.topology.name, len(self.trace.events)
        if not self.events:
            return f"{name}: no events of {count}"
        return f"{name}: events {self.first + 1} to {self.first + len(self.events)} of {count}"

    def time(self, place: int) -> float:
        """Return the seconds from the first event of the trace to the event at `place`."""
        return self.events[place].at - self._origin

    def label(self, snapshot_id: int) -> str:
        """Return a short id of a snapshot, without its claim when all snapshots of the trace have the same claim."""
        number = snapshot_id % SNAPSHOT_IDS_PER_CLAIM
        return str(number) if len(self._claims) == 1 else f"{claim_of_snapshot(snapshot_id)}.{number}"

    def name(self, subtask: Subtask) -> str:
        """Return a short name of a subtask: the name of its node when the node has a single subtask."""
        return subtask.node if self.trace.topology.node(subtask.node).parallelism == 1 else str(subtask)

    def value(self, event: Event) -> str:
        """Return a message's value, shortened, or "" for all other events."""
        if event.kind not in _MESSAGES and event.kind is not Kind.INJECT:
            return ""
        return shown(event.payload, self.trace.codec, _VALUE_CHARACTERS) if event.payload else ""

    def announcement(self, event: Event) -> str:
        """Describe an event of the run."""
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
        """Return whether the event belongs to an incarnation whose successor has begun."""
        return self.events[place].incarnation < self._begun[place]

    # ---------------------------------------------------------------- finding

    def _appearing(self) -> tuple[Subtask, ...]:
        """Return the subtasks that have an event in the slice, or are an end of a channel of such an event."""
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
