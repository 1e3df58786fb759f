"""Checkers of one snapshot: 1 exact cut, 2 causality, 4 completeness.

1. The channel state of a snapshot is exactly what was in flight at its cut, as the history log counted.
2. No subtask's cut depends on events after another subtask's cut: by vector clocks, not by numbers.
4. Every subtask contributed to a snapshot, once, in one incarnation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cutline.snapshot.drawing.labels import format_event, shown
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.certificate import problems
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checking.values import named, same
from cutline.snapshot.testing.checking.verdict import Verdict, verdict_of
from cutline.snapshot.testing.history import VECTOR_CLOCKS_MAX, CutKey, History
from cutline.snapshot.testing.payload import pack
from cutline.snapshot.trace_events import Kind


def causality(history: History, snapshot: Snapshot) -> Verdict:
    """Check ``V_i[i] >= V_j[i]`` for the clocks of all subtasks *i*, *j* at their cuts (Mattern 1989).

    Returns
    -------
    Verdict
        Problems name the two subtasks, the snapshot, and the last event of *i* in the past of *j*. As a rule the event
        is the message that crosses the cut from its far side.
    """
    subtasks = history.topology.subtasks
    keys: list[CutKey] = [(snapshot.manifest.incarnation, snapshot.id, subtask) for subtask in subtasks]
    if len(subtasks) > VECTOR_CLOCKS_MAX:
        return Verdict(
            "causality", True, f"not looked at: beyond {VECTOR_CLOCKS_MAX} subtasks there are no vector clocks"
        )
    problems = [f"{key[2]} was never seen to cut" for key in keys if key not in history.cuts]
    if not problems:
        clocks = [history.cuts[key].clock for key in keys]
        for number, subtask in enumerate(subtasks):
            for other, clock in zip(subtasks, clocks, strict=True):
                if clock[number] > clocks[number][number]:
                    what = _event_at(history, snapshot, subtask, number, clock[number])
                    problems.append(f"the cut of {other} knows what {subtask} did behind its own cut: {what}")
    fine = f"{named(snapshot)}: the cuts of {len(subtasks)} subtasks know nothing from behind each other's"
    return verdict_of("causality", [f"{named(snapshot)}: {problem}" for problem in problems], fine)


def _event_at(history: History, snapshot: Snapshot, subtask: Subtask, number: int, count: int) -> str:
    """Describe the event of `subtask` that its own clock numbers `count`."""
    for event in history.events:
        is_of_incarnation = event.subtask == subtask and event.incarnation == snapshot.manifest.incarnation
        if is_of_incarnation and event.clock and event.clock[number] == count:
            return format_event(event, history.codec)
    return f"its event {count}"


def completeness(history: History, snapshot: Snapshot) -> Verdict:
    """Check for one state from every subtask and one entry from each end of every channel, all of one incarnation.

    The graph that ran decides which subtasks and channels are due, not the manifest. The history log must have seen
    each subtask record its state once.

    Returns
    -------
    Verdict
        Problems name the subtask or the channel, and the snapshot.
    """
    topology, manifest = history.topology, snapshot.manifest
    found = problems(
        topology.channels, topology.subtasks, manifest.records, manifest.incarnation,
        run=manifest.run, former_names=topology.former_names,
    )  # fmt: skip
    found += _cut_problems(history, snapshot)
    counts = f"{len(topology.subtasks)} states, {len(topology.channels)} channels, both ends each"
    return verdict_of(
        "completeness", [f"{named(snapshot)}: {problem}" for problem in found], f"{named(snapshot)}: {counts}"
    )


def _cut_problems(history: History, snapshot: Snapshot) -> Iterator[str]:
    counts = dict.fromkeys(history.topology.subtasks, 0)
    own = (snapshot.manifest.incarnation, snapshot.id)
    kind = Kind.CUT  # once, because looking up a member is slow, and there are many events
    for event in [each for each in history.events if each.kind is kind]:
        if event.subtask is not None:
            due = history.composed.get((snapshot.id, event.subtask), own)
            counts[event.subtask] += (event.incarnation, event.snapshot_id) == due
    for subtask, count in counts.items():
        if count != 1:
            yield f"{subtask} recorded its state {count} times instead of once"


class _Line(NamedTuple):
    """The counts of one channel at the cut, from the history log."""

    channel: ChannelId
    sent: int
    processed: int
    #: {number: encoded message}
    log: dict[int, bytes | None]

    @property
    def in_flight(self) -> range:
        """Numbers of the messages that the channel state must hold, ends among them."""
        return range(self.processed + 1, self.sent + 1)


def exactCut(history: History, snapshot: Snapshot) -> Verdict:
    """Check that each channel state is the messages (processed at the receiver's cut, sent at the sender's], in order.

    The due numbers and values come from the history, because the history log counts by itself. The end of a stream has
    a number, and no value.

    Parameters
    ----------
    history : History
        History of the run that took the snapshot.
    snapshot : Snapshot

    Returns
    -------
    Verdict
        Problems name the channel, the message by number and value, and the snapshot.
    """
    said = _said(snapshot)
    problems: list[str] = []
    in_flight = 0
    for channel in history.topology.channels:
        line = _line(history, snapshot, channel)
        if isinstance(line, str):
            problems.append(line)
            continue
        in_flight += len(line.in_flight)
        problems += _count_problems(line, *said.get(channel, (0, 0)))
        problems += _value_problems(history, snapshot, line)
    fine = f"{named(snapshot)}: {len(history.topology.channels)} channels exact, {in_flight} messages in flight"
    return verdict_of("exact cut", [f"{named(snapshot)}: {problem}" for problem in problems], fine)


def _said(snapshot: Snapshot) -> dict[ChannelId, tuple[int, int]]:
    """Return the sent and processed counts of the manifest."""
    sent = {entry.channel: entry.sent for record in snapshot.manifest.records for entry in record.sent}
    received = {entry.channel: entry.processed for record in snapshot.manifest.records for entry in record.received}
    return {channel: (sent[channel], received[channel]) for channel in sent if channel in received}


def _line(history: History, snapshot: Snapshot, channel: ChannelId) -> _Line | str:
    incarnation = snapshot.manifest.incarnation
    sender, receiver = (history.cuts.get((incarnation, snapshot.id, subtask)) for subtask in channel)
    if sender is None or receiver is None:
        return f"{channel}: {channel.source if sender is None else channel.target} was never seen to cut"
    log = history.sent.get((incarnation, channel), {})
    return _Line(channel, sender.sent[channel], receiver.processed[channel], log)


def _count_problems(line: _Line, sent: int, processed: int) -> Iterator[str]:
    channel = line.channel
    if line.sent != sent:
        yield f"{channel}: {channel.source} had sent {line.sent} messages at its cut, the snapshot says {sent}"
    if line.processed != processed:
        had = f"{channel.target} had processed {line.processed} messages at its cut"
        yield f"{channel}: {had}, the snapshot says {processed}"


def _value_problems(history: History, snapshot: Snapshot, line: _Line) -> Iterator[str]:
    codec = history.codec
    if line.processed > line.sent:
        value = shown(line.log.get(line.sent + 1), codec)
        yield f"{line.channel}: message {line.sent + 1} ({value}) was processed before the cut and sent behind it"
        return
    unseen = [number for number in line.in_flight if number not in line.log]
    if unseen:
        yield f"{line.channel}: message {unseen[0]} is in flight, but nobody saw it sent"
        return
    try:
        stored = [pack(message, codec) for message in _messages(snapshot, line.channel)]
    except CutlineError as error:
        yield f"{line.channel}: its state cannot be read: {error}"
        return
    due = [(number, packed) for number in line.in_flight if (packed := line.log[number]) is not None]
    for (number, packed), found in zip(due, stored, strict=False):
        if not same(packed, found, codec):
            yield _difference(history, line, number, found, len(stored) - len(due))
            return
    if len(stored) > len(due):
        yield _excess(history, line, stored[len(due)])
    elif len(stored) < len(due):
        number, packed = due[len(stored)]
        yield f"{line.channel}: message {number} ({shown(packed, codec)}) was in flight and is not in the channel state"


def _messages(snapshot: Snapshot, channel: ChannelId) -> list[object]:
    """Return the stored messages of a channel. Most channels are empty: handles show that without reading parts."""
    handles = (handle for record in snapshot.manifest.records for handle in record.handles)
    if all(handle.channel != channel for handle in handles):
        return []
    return snapshot.channel(*channel).messages


def _difference(history: History, line: _Line, number: int, found: bytes, excess: int) -> str:
    """Describe that the channel state has something else in the place of message `number`."""
    codec = history.codec
    if excess > 0:
        return _excess(history, line, found)
    due = f"{line.channel}: message {number} ({shown(line.log[number], codec)}) was in flight"
    if excess < 0:
        return f"{due} and is not in the channel state, where {shown(found, codec)} has its place"
    return f"{due}, the channel state holds {shown(found, codec)} in its place"


def _excess(history: History, line: _Line, found: bytes) -> str:
    """Describe that the channel state holds a message that was not in flight."""
    codec = history.codec
    what = f"{line.channel}: the channel state holds {shown(found, codec)}"
    for number, packed in line.log.items():
        if number not in line.in_flight and same(packed, found, codec):
            why = "sent behind the cut" if number > line.sent else "processed before it"
            return f"{what}, message {number}, which was {why}: it was not in flight"
    return f"{what} beyond the {len(line.in_flight)} messages that were in flight"
