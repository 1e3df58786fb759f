"""Events of a run, simulated or real, each at its subtask, in an order in which they can be drawn.

Owns the kinds of events, and the order of events that several hosts recorded. Must not know which component records
events, nor how they are drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

import msgpack

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology


class Kind(Enum):
    """Kinds of events: first those of a subtask, then those of the run."""

    RESTORED = "restored"  #: the subtask begins an incarnation, afresh or from `snapshot_id`
    POLL = "poll"
    TIMER = "timer"
    INJECT = "inject"  #: a message from outside the graph: `payload`
    SEND = "send"  #: message `number` on `channel`: `payload`
    RECEIVE = "receive"  #: message `number` on `channel`: `payload`; the handler begins
    END_SENT = "end sent"  #: the end of the stream, which is a numbered message too
    END_RECEIVED = "end received"
    CUT = "cut"  #: the subtask records its state for `snapshot_id`
    MARKER_SENT = "marker sent"  #: the link takes the marker
    MARKER = "marker"  #: the marker reaches the receiver
    COMMIT = "commit"  #: a sink makes the output visible that it prepared for `snapshot_id`
    FAILED = "failed"  #: the node raised, or the worker gave up; `text` has the reason
    DEPLOYED = "deployed"  #: the coordinator deploys an incarnation, from `snapshot_id` or, with 0, afresh
    PUBLISHED = "published"  #: `snapshot_id` was published
    ABORTED = "aborted"  #: `snapshot_id` was aborted; `text` has the reason
    REFUSED = "refused"  #: a message of another incarnation was dropped; `text` has the details
    FAULT = "fault"  #: a fault of the simulator; `text` has the step


class Event(NamedTuple):
    """An event of a run. Fields that its kind does not need are empty."""

    at: float  #: seconds: virtual seconds, or since the epoch by a real host's clock
    kind: Kind
    incarnation: int
    subtask: Subtask | None
    #: vector clock after the event, by the topology's order of subtasks; Lamport's clock in wide graphs; empty in
    #: real runs
    clock: tuple[int, ...] = ()
    channel: ChannelId | None = None
    number: int = 0  #: number of the message on its channel, from 1
    snapshot_id: int = 0
    #: message, encoded by the trace's codec; empty if the message was too large to keep. For RESTORED and CUT: counts
    #: of the subtask's channels at that moment, by `pack_counts`; empty if not counted
    payload: bytes = b""
    text: str = ""


class Counts(NamedTuple):
    """Numbers of a subtask's last messages when it was restored or recorded its state."""

    sent: dict[ChannelId, int]
    processed: dict[ChannelId, int]


def pack_counts(sent: Iterable[int], processed: Iterable[int]) -> bytes:
    """Encode the payload of RESTORED or CUT: numbers by `Topology.outputs_of` and by `Topology.inputs_of`."""
    return bytes(msgpack.packb([list(sent), list(processed)]))


def counts_of(event: Event, topology: Topology) -> Counts:
    """Return the counts in RESTORED or CUT. They are empty if nothing was counted."""
    assert event.subtask is not None, "who begins a life, or records its state, is a subtask"
    if not event.payload:
        return Counts({}, {})
    sent, processed = msgpack.unpackb(event.payload)
    outputs, inputs = topology.outputs_of(event.subtask), topology.inputs_of(event.subtask)
    return Counts(dict(zip(outputs, sent, strict=True)), dict(zip(inputs, processed, strict=True)))


@dataclass(frozen=True, slots=True)
class EventLog:
    """The events of a run, of one topology and in one encoding.

    Parameters
    ----------
    topology : Topology
    events : sequence of Event
        Events in the order of drawing. Their order, channels and numbers give the "happened before" relation. Old
        events may be missing, so a receipt may lack its sending, or a sending its receipt.
    codec : Codec
        Codec of the messages.
    """

    topology: Topology
    events: Sequence[Event]
    codec: Codec


# ---------------------------------------------------------------- the order of events

#: Key of an event that must happen before the event that waits for it.
_Cause = tuple[object, ...]
#: Key of a sequence of events in order: those of a subtask in one incarnation, or those of the run (None).
_Log = tuple[int, Subtask] | None


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events in an order in which every cause precedes its effect, and otherwise by their clocks.

    A sending precedes its receipt, a deployment its restores, the cuts of a snapshot its publication, and the
    publication its commits (Lamport 1978: "happened before"). Where two logs contradict each other, as logs of a faulty
    channel do, the clocks decide. Events of one log (a subtask in one incarnation, or the run) stay in order.
    """
    merge = _Merge(events)
    ordered = []
    while (event := merge.next()) is not None:
        ordered.append(event)
    return ordered


class _Merge:
    """Merge of many logs. Takes the earliest event that waits for nothing."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._logs: defaultdict[_Log, deque[tuple[float, int, Event]]] = defaultdict(deque)
        #: {cause: number of events that still have to happen}
        self._awaited: Counter[_Cause] = Counter()
        for index, event in enumerate(events):
            log = None if event.subtask is None else (event.incarnation, event.subtask)
            self._logs[log].append((event.at, index, event))
            self._expect(event)
        #: heap of the log heads that wait for nothing: (seconds, index, log)
        self._ready: list[tuple[float, int, _Log]] = []
        self._waiting: defaultdict[_Cause, list[_Log]] = defaultdict(list)
        for log in self._logs:
            self._check(log)

    def next(self) -> Event | None:
        """Take the next event. Return None when no event is left."""
        while self._ready or self._break_a_circle():
            index, log = heappop(self._ready)[1:]
            queue = self._logs[log]
            if queue and queue[0][1] == index:  # else the event was taken when a circle was broken
                event = queue.popleft()[2]
                self._happened(event)
                self._check(log)
                return event
        return None

    def _break_a_circle(self) -> bool:
        """Release the earliest head when all heads wait for each other. Return False when no event is left."""
        heads = [(*queue[0][:2], log) for log, queue in self._logs.items() if queue]
        self._ready = sorted(heads, key=lambda head: head[:2])[:1]
        return bool(heads)

    def _expect(self, event: Event) -> None:
        cause = _cause_made(event)
        if cause is not None:
            # All cuts of a snapshot have to happen before its publication. Of other causes the first event suffices.
            self._awaited[cause] += event.kind is Kind.CUT or cause not in self._awaited

    def _happened(self, event: Event) -> None:
        cause = _cause_made(event)
        if cause is None:
            return
        self._awaited[cause] -= 1
        if self._awaited[cause] <= 0:
            for log in self._waiting.pop(cause, ()):
                self._check(log)

    def _check(self, log: _Log) -> None:
        queue = self._logs[log]
        if not queue:
            return
        at, index, event = queue[0]
        cause = _cause_awaited(event)
        if cause is not None and self._awaited[cause] > 0:
            self._waiting[cause].append(log)
        else:
            heappush(self._ready, (at, index, log))


def _cause_made(event: Event) -> _Cause | None:
    match event.kind:
        case Kind.SEND | Kind.END_SENT:
            return ("message", event.incarnation, event.channel, event.number)
        case Kind.MARKER_SENT:
            return ("marker", event.incarnation, event.channel, event.snapshot_id)
        case Kind.DEPLOYED:
            return ("deployed", event.incarnation)
        case Kind.CUT | Kind.PUBLISHED:
            return (event.kind, event.snapshot_id)
        case _:
            return None


def _cause_awaited(event: Event) -> _Cause | None:
    match event.kind:
        case Kind.RECEIVE | Kind.END_RECEIVED:
            return ("message", event.incarnation, event.channel, event.number)
        case Kind.MARKER:
            return ("marker", event.incarnation, event.channel, event.snapshot_id)
        case Kind.RESTORED:
            return ("deployed", event.incarnation)
        case Kind.PUBLISHED:
            return (Kind.CUT, event.snapshot_id)
        case Kind.COMMIT:
            return (Kind.PUBLISHED, event.snapshot_id)
        case _:
            return None
