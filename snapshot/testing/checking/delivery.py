"""Checkers of messages: 7 delivery, 3 conservation.

7. Each channel delivers what was sent on the channel: nothing lost, doubled, out of order or changed.
3. A sum that the application conserves is the same in every snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.drawing.labels import shortened, shown
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checking.values import named, same
from cutline.snapshot.testing.checking.verdict import Verdict, verdict_of
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Event, Kind


def conservation(history: History, measure: Callable[[Snapshot], Any]) -> Verdict:
    """Check that `measure` gives the same for all snapshots of a run. A finished run ends with its last snapshot.

    Parameters
    ----------
    history : History
    measure : callable
        Function of a snapshot, as a rule a sum over node states *and* channel states. Values are compared by ``==``.

    Returns
    -------
    Verdict
        Problems name both snapshots and their measures.
    """
    measured = [(snapshot, measure(snapshot)) for snapshot in history.snapshots]
    if not measured:
        return Verdict("conservation", True, "nothing to measure: no snapshot was published")
    first, due = measured[0]
    was = f"{shortened(repr(due))} in {named(first)}"
    problems = [
        f"{named(snapshot)} measures {shortened(repr(value))}, but it was {was}"
        for snapshot, value in measured
        if value != due
    ]
    return verdict_of("conservation", problems, f"{shortened(repr(due))} in each of {len(measured)} snapshots")


_SENT = (Kind.SEND, Kind.END_SENT)
_RECEIVED = (Kind.RECEIVE, Kind.END_RECEIVED)

#: A channel in one incarnation.
_End = tuple[int, ChannelId]


def delivery(history: History) -> Verdict:
    """Check that every received message is the next message that was sent on its channel, in its incarnation's past.

    After a rollback a channel goes on from the cut of the snapshot: messages in flight at the cut count as sent. In a
    finished run, everything that was sent in the last incarnation was received.

    Returns
    -------
    Verdict
        Problems name the channel, the incarnation, and the message by number and value.
    """
    checker = _Delivery(history)
    for event in history.events:
        if event.kind in _SENT:
            checker.on_sent(event)
        elif event.kind in _RECEIVED:
            checker.on_received(event)
    checker.on_end()
    fine = f"{checker.count} messages were received as they were sent, in {max(len(history.origins), 1)} incarnations"
    return verdict_of("delivery", checker.problems, fine)


class _Delivery:
    """The sent and received counts of every channel."""

    def __init__(self, history: History) -> None:
        self.problems: list[str] = []
        self.count = 0
        self._history = history
        self._sent: dict[_End, int] = {}
        self._received: dict[_End, int] = {}

    def on_sent(self, event: Event) -> None:
        """Check that the sender's numbers have no gap."""
        end = _end(event)
        if end not in self._sent:
            self._sent[end] = self._start(end)[0]
        self._sent[end] += 1
        if event.number != self._sent[end]:
            self.problems.append(f"{_at(end)}: message {event.number} was sent where {self._sent[end]} was due")
            self._sent[end] = event.number

    def on_received(self, event: Event) -> None:
        """Check that the message is the next message, and was sent before."""
        end = _end(event)
        sent, processed = self._start(end)
        due = self._received[end] = self._received.get(end, processed) + 1
        self.count += 1
        if event.number != due:
            self.problems.append(f"{_at(end)}: {self._value(event)} was received as {event.number} where {due} was due")
            self._received[end] = event.number
        elif due > self._sent.get(end, sent):
            self.problems.append(f"{_at(end)}: {self._value(event)} was received as message {due}, which nobody sent")
        elif not self._is(event, due):
            self.problems.append(f"{_at(end)}: {self._mistake(event, due)}")

    def on_end(self) -> None:
        """Check that a finished run lost nothing on the way. No message marks the end of a cycle."""
        history = self._history
        begun = [event.incarnation for event in history.events if event.kind is Kind.RESTORED]
        if history.outcome is not Outcome.FINISHED or not begun:
            return
        last = max(begun)
        for channel in history.topology.channels:
            end = (last, channel)
            sent, processed = self._start(end)
            sent, processed = self._sent.get(end, sent), self._received.get(end, processed)
            if processed < sent:
                value = shown(self._log(end).get(processed + 1), history.codec)
                lost = f"message {processed + 1} ({value}) was lost: the run finished, {processed} of {sent} received"
                self.problems.append(f"{_at(end)}: {lost}")

    def _start(self, end: _End) -> tuple[int, int]:
        """Return the sent and processed numbers with which an incarnation begins."""
        incarnation, channel = end
        if (start := self._history.starts.get(end)) is not None:
            return start.sent, start.processed
        origin = self._history.origins.get(incarnation)
        if origin is None:
            return 0, 0
        sender, receiver = (self._history.cuts[*origin, subtask] for subtask in channel)
        return sender.sent[channel], receiver.processed[channel]

    def _log(self, end: _End) -> dict[int, bytes | None]:
        return self._history.sent.get(end, {})

    def _is(self, event: Event, number: int) -> bool:
        log = self._log(_end(event))
        return number in log and same(log[number], _packed(event), self._history.codec)

    def _mistake(self, event: Event, due: int) -> str:
        """Describe that another message came in the place of message `due`."""
        log = self._log(_end(event))
        wanted = f"message {due} ({shown(log.get(due), self._history.codec)})"
        what = f"{self._value(event)} was received in its place"
        for number in (due - 1, due + 1, *log):
            if number in log and self._is(event, number):
                how = "doubled" if number < due else f"so {wanted} is lost or late"
                return f"{wanted} was due, but {what}: that is message {number}, {how}"
        return f"{wanted} was changed on the way: {what}"

    def _value(self, event: Event) -> str:
        return shown(_packed(event), self._history.codec)


def _end(event: Event) -> _End:
    assert event.channel is not None, "messages have a channel"
    return event.incarnation, event.channel


def _packed(event: Event) -> bytes | None:
    return None if event.kind in (Kind.END_SENT, Kind.END_RECEIVED) else event.payload


def _at(end: _End) -> str:
    return f"{end[1]} in incarnation {end[0]}"
