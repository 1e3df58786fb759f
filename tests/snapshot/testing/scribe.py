"""Histories written by hand, event by event, as a witness would write them; mistakes on request."""

from __future__ import annotations

from typing import Any

from cutline import Snapshot, Subtask
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.testing.checkers import Verdict
from cutline.snapshot.testing.history import Cut, History
from cutline.snapshot.testing.payload import pack
from cutline.snapshot.trace_events import Event, Kind, pack_counts
from tests.snapshot import sample

#: A message like no other: receive what was sent.
AS_SENT = object()


class Scribe:
    """Writes a history.

    Parameters
    ----------
    topology : Topology
    """

    def __init__(self, topology: Topology) -> None:
        self.codec = Codec()
        self.history = History(topology, self.codec)
        self.incarnation = 0
        self.now = 0.0
        self._subtasks = topology.subtasks
        self._clocks: dict[Subtask, list[int]] = {}
        self._sent: dict[ChannelId, int] = {}
        self._processed: dict[ChannelId, int] = {}
        self._stamps: dict[tuple[int, ChannelId, int], list[int]] = {}

    def note(self, kind: Kind, snapshot_id: int = 0, text: str = "", incarnation: int | None = None) -> None:
        """Something that happens to the run."""
        at = self.incarnation if incarnation is None else incarnation
        self.history.events.append(Event(self.now, kind, at, None, snapshot_id=snapshot_id, text=text))

    def note_event(self, subtask: Subtask, kind: Kind, **fields: Any) -> None:
        """Something that happens to a subtask."""
        clock = self._clocks[subtask]
        clock[self._subtasks.index(subtask)] += 1
        self.history.events.append(Event(self.now, kind, self.incarnation, subtask, tuple(clock), **fields))

    def deploy(self, incarnation: int, origin: tuple[int, int] | None = None) -> None:
        """An incarnation begins, afresh or from (incarnation, snapshot_id)."""
        history = self.history
        self.incarnation = incarnation
        history.origins[incarnation] = origin
        snapshot_id = 0 if origin is None else origin[1]
        self.note(Kind.DEPLOYED, snapshot_id)
        for subtask in self._subtasks:
            cut = None if origin is None else history.cuts[*origin, subtask]
            self._clocks[subtask] = [0] * len(self._subtasks) if cut is None else list(cut.clock)
        for channel in history.topology.channels:
            self._restore(channel, origin)
        for subtask in self._subtasks:
            self.note_event(subtask, Kind.RESTORED, snapshot_id=snapshot_id, payload=self._counts(subtask))

    def _restore(self, channel: ChannelId, origin: tuple[int, int] | None) -> None:
        log = self.history.sent[self.incarnation, channel] = {}
        self._sent[channel] = self._processed[channel] = 0
        if origin is None:
            return
        self._sent[channel] = self.history.cuts[*origin, channel.source].sent[channel]
        self._processed[channel] = self.history.cuts[*origin, channel.target].processed[channel]
        for number in range(self._processed[channel] + 1, self._sent[channel] + 1):
            log[number] = self.history.sent[origin[0], channel][number]
            self._stamps[self.incarnation, channel, number] = self._stamps[origin[0], channel, number]

    def send(self, channel: ChannelId, *messages: Any) -> None:
        """The sender sends."""
        for message in messages:
            self._send(channel, Kind.SEND, pack(message, self.codec))

    def end(self, channel: ChannelId) -> None:
        """The sender ends its stream."""
        self._send(channel, Kind.END_SENT, None)

    def _send(self, channel: ChannelId, kind: Kind, packed: bytes | None) -> None:
        number = self._sent[channel] = self._sent[channel] + 1
        self.history.sent[self.incarnation, channel][number] = packed
        self.note_event(channel.source, kind, channel=channel, number=number, payload=packed or b"")
        self._stamps[self.incarnation, channel, number] = list(self._clocks[channel.source])

    def receive(self, channel: ChannelId, message: Any = AS_SENT) -> None:
        """The receiver takes the next message: the one that was sent, or another one."""
        number = self._processed[channel] = self._processed[channel] + 1
        packed = self.history.sent[self.incarnation, channel].get(number, b"")
        stamp = self._stamps.get((self.incarnation, channel, number), [0] * len(self._subtasks))
        clock = self._clocks[channel.target]
        clock[:] = map(max, clock, stamp)
        if message is not AS_SENT:
            packed = pack(message, self.codec)
        kind = Kind.END_RECEIVED if packed is None else Kind.RECEIVE
        self.note_event(channel.target, kind, channel=channel, number=number, payload=packed or b"")

    def cut(self, subtask: Subtask, snapshot_id: int) -> None:
        """A subtask records its state, and sends markers."""
        topology = self.history.topology
        self.note_event(subtask, Kind.CUT, snapshot_id=snapshot_id, payload=self._counts(subtask))
        self.history.cuts[self.incarnation, snapshot_id, subtask] = Cut(
            self.incarnation,
            snapshot_id,
            subtask,
            tuple(self._clocks[subtask]),
            {channel: self._sent[channel] for channel in topology.outputs_of(subtask)},
            {channel: self._processed[channel] for channel in topology.inputs_of(subtask)},
        )
        for channel in topology.outputs_of(subtask):
            self.marker(Kind.MARKER_SENT, channel, snapshot_id)

    def _counts(self, subtask: Subtask) -> bytes:
        topology = self.history.topology
        sent = [self._sent[channel] for channel in topology.outputs_of(subtask)]
        return pack_counts(sent, [self._processed[channel] for channel in topology.inputs_of(subtask)])

    def marker(self, kind: Kind, channel: ChannelId, snapshot_id: int) -> None:
        """A marker goes on the wire, or comes from it."""
        subtask = channel.source if kind is Kind.MARKER_SENT else channel.target
        clock = tuple(self._clocks[subtask])
        event = Event(self.now, kind, self.incarnation, subtask, clock, channel, snapshot_id=snapshot_id)
        self.history.events.append(event)

    def publish(self, snapshot: Snapshot) -> None:
        """The coordinator publishes."""
        self.history.snapshots.append(snapshot)
        self.note(Kind.PUBLISHED, snapshot.id, incarnation=snapshot.manifest.incarnation)

    def finish(self, outcome: Outcome | None = Outcome.FINISHED, reason: str = "") -> History:
        """The run ends."""
        self.history.outcome, self.history.reason, self.history.now = outcome, reason, self.now
        return self.history


def sample_snapshot() -> Snapshot:
    """The one small snapshot of everything."""
    return Snapshot(sample.manifest(), nothing_stored, sample.CODEC)


def nothing_stored(handle: Handle) -> bytes:
    """For a snapshot whose parts are all inline."""
    raise AssertionError(f"{handle.name} was read")


def sample_scribe(
    in_flight: tuple[Any, ...] = ("three", (4, "four"), (5, "five"), {"x": 6}, {"x": 7}, {"eight": 8}),
) -> Scribe:
    """What led to the sample; the snapshot is taken, and not published."""
    scribe = Scribe(sample.TOPOLOGY)
    scribe.deploy(sample.INCARNATION)
    scribe.send(sample.PQ, "one", "two")
    scribe.receive(sample.PQ)
    scribe.receive(sample.PQ)
    scribe.send(sample.QP, "back")
    scribe.receive(sample.QP)
    scribe.send(sample.PQ, *in_flight)
    scribe.end(sample.QP)
    for subtask, channel in ((sample.P, sample.PQ), (sample.Q, sample.QP)):
        scribe.now += 0.5
        scribe.cut(subtask, sample.SNAPSHOT_ID)
        scribe.marker(Kind.MARKER, channel, sample.SNAPSHOT_ID)
    return scribe


def sample_history(rolled_back: bool = False) -> History:
    """A whole run around the sample: it is published; with `rolled_back`, a crash follows; all is received."""
    scribe = sample_scribe()
    scribe.publish(sample_snapshot())
    scribe.now = 2.0
    if rolled_back:
        scribe.receive(sample.PQ)
        scribe.note(Kind.FAULT, text="Crash('Q')")
        scribe.deploy(sample.INCARNATION + 1, (sample.INCARNATION, sample.SNAPSHOT_ID))
        scribe.note(Kind.REFUSED, text="an acknowledgement", incarnation=sample.INCARNATION)
    for _ in range(6):
        scribe.receive(sample.PQ)
    scribe.receive(sample.QP)
    return scribe.finish()


def assert_broken(verdict: Verdict, *words: str) -> None:
    """It is against the run, and says so in these words."""
    assert not verdict.holds, verdict
    for word in words:
        assert word in verdict.text, verdict
