"""Checker 1: what a snapshot holds of a channel is exactly what was in flight at its cut, as the witness counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from snapshot.drawing.labels import shown
from snapshot.errors import CutlineError
from snapshot.ids import ChannelId
from snapshot.snapshot import Snapshot
from snapshot.testing.checking.values import named, same
from snapshot.testing.checking.verdict import Verdict, verdict_of
from snapshot.testing.history import History
from snapshot.testing.payload import pack


class _Line(NamedTuple):
    """One channel at the cut, as the witness saw it."""

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
    """For every channel, its state is the messages (processed at the receiver's cut, sent at the sender's], in order.

    The numbers and the values that are due come from the history, whose witness counts by itself; the end of a
    stream has a number, and no value.

    Parameters
    ----------
    history : History
        Of the run that took the snapshot.
    snapshot : Snapshot

    Returns
    -------
    Verdict
        A problem names the channel, the message by number and value, and the snapshot.
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
    """Sent and processed counts of the manifest."""
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
    """What the snapshot holds of a channel. Most channels are empty, and the parts say so without being read."""
    handles = (handle for record in snapshot.manifest.records for handle in record.handles)
    if all(handle.channel != channel for handle in handles):
        return []
    return snapshot.channel(*channel).messages


def _difference(history: History, line: _Line, number: int, found: bytes, excess: int) -> str:
    """Message `number` was due, and something else is there."""
    codec = history.codec
    if excess > 0:
        return _excess(history, line, found)
    due = f"{line.channel}: message {number} ({shown(line.log[number], codec)}) was in flight"
    if excess < 0:
        return f"{due} and is not in the channel state, where {shown(found, codec)} has its place"
    return f"{due}, the channel state holds {shown(found, codec)} in its place"


def _excess(history: History, line: _Line, found: bytes) -> str:
    """The channel state holds something that was not in flight."""
    codec = history.codec
    what = f"{line.channel}: the channel state holds {shown(found, codec)}"
    for number, packed in line.log.items():
        if number not in line.in_flight and same(packed, found, codec):
            why = "sent behind the cut" if number > line.sent else "processed before it"
            return f"{what}, message {number}, which was {why}: it was not in flight"
    return f"{what} beyond the {len(line.in_flight)} messages that were in flight"
