"""Writes the history of a simulated run, beside the machines and without asking them.

Counts what is sent and handled on every channel itself, keeps a vector clock for every subtask, and stamps every
message with its sender's. After a restore both go on from the cut of the snapshot.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from snapshot.channel.frame import Frame, Marker, PayloadKind
from snapshot.channel.frame_codec import messages_of
from snapshot.channel.serialization import Codec
from snapshot.ids import ChannelId, Subtask
from snapshot.subtask.machine import SubtaskMachine
from snapshot.testing.history import Cut, Event, History, Kind
from snapshot.testing.payload import pack, pack_rows
from snapshot.testing.simulation.agenda import Agenda


class Witness:
    """Sees every event.

    Parameters
    ----------
    history : History
        Where it is written.
    agenda : Agenda
        Whose clock it reads.
    seals_each : bool
        Close a frame behind every message, so that each one can be delivered alone.
    """

    def __init__(self, history: History, agenda: Agenda, codec: Codec, *, seals_each: bool) -> None:
        self.history = history
        self.seals_each = seals_each
        self._agenda = agenda
        self._codec = codec
        self._numbers = {subtask: number for number, subtask in enumerate(history.topology.subtasks)}
        #: {(incarnation, channel): {number: the sender's clock}}
        self._stamps: dict[tuple[int, ChannelId], dict[int, tuple[int, ...]]] = {}

    def watch(self, machine: SubtaskMachine, incarnation: int, origin: tuple[int, int] | None) -> Life:
        """A subtask begins a life: afresh, or from the cut of a snapshot, named by its incarnation and id."""
        subtask = machine.subtask
        cut = None if origin is None else self.history.cuts[*origin, subtask]
        zero = (0,) * len(self._numbers)
        life = Life(self, machine, incarnation, self._numbers[subtask], list(zero if cut is None else cut.clock))
        for channel in machine.outputs:
            life.sent[channel] = 0 if cut is None else cut.sent[channel]
        for channel in machine.inputs:
            life.processed[channel] = 0 if cut is None else cut.processed[channel]
            self._restore_channel(channel, incarnation, origin)
        self.history.origins.setdefault(incarnation, origin)
        life.note(Kind.RESTORED, snapshot_id=0 if origin is None else origin[1])
        return life

    def _restore_channel(self, channel: ChannelId, incarnation: int, origin: tuple[int, int] | None) -> None:
        """What was in flight at the cut is sent already in the new incarnation."""
        log, stamps = self.log(incarnation, channel), self.stamps(incarnation, channel)
        if origin is None:
            return
        earlier, snapshot_id = origin
        first = self.history.cuts[earlier, snapshot_id, channel.target].processed[channel] + 1
        last = self.history.cuts[earlier, snapshot_id, channel.source].sent[channel]
        for number in range(first, last + 1):
            log[number] = self.log(earlier, channel)[number]
            stamps[number] = self.stamps(earlier, channel)[number]

    def log(self, incarnation: int, channel: ChannelId) -> dict[int, bytes | None]:
        """What was sent on a channel."""
        return self.history.sent.setdefault((incarnation, channel), {})

    def stamps(self, incarnation: int, channel: ChannelId) -> dict[int, tuple[int, ...]]:
        """The clocks of what was sent on a channel."""
        return self._stamps.setdefault((incarnation, channel), {})

    def note(
        self, kind: Kind, incarnation: int = 0, subtask: Subtask | None = None, *, snapshot_id: int = 0, text: str = ""
    ) -> None:
        """Something happened to the run, or to a subtask that is not alive."""
        event = Event(self._agenda.now, kind, incarnation, subtask, snapshot_id=snapshot_id, text=text)
        self.history.events.append(event)

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self._agenda.now

    @property
    def codec(self) -> Codec:
        """By which messages are packed."""
        return self._codec


class Life:
    """One subtask in one incarnation: its clock and its counts."""

    def __init__(
        self, witness: Witness, machine: SubtaskMachine, incarnation: int, number: int, clock: list[int]
    ) -> None:
        self.sent: dict[ChannelId, int] = {}
        self.processed: dict[ChannelId, int] = {}
        self._witness = witness
        self._events = witness.history.events
        self._incarnation = incarnation
        self._subtask = machine.subtask
        self._number = number
        self._clock = clock
        for channel, end in machine.outputs.items():
            self._tap(channel, end)

    def note(self, kind: Kind, *, snapshot_id: int = 0, payload: bytes = b"", text: str = "") -> None:
        """Something that counts for its clock."""
        self._clock[self._number] += 1
        at, clock = self._witness.now, tuple(self._clock)
        self._events.append(
            Event(at, kind, self._incarnation, self._subtask, clock, None, 0, snapshot_id, payload, text)
        )

    # ---------------------------------------------------------------- sending

    def _tap(self, channel: ChannelId, end: Any) -> None:
        """Hear what a sending end is given. Set on the instance: production code has no hook, and pays nothing."""
        send, send_batch, send_end, codec = end.send, end.send_batch, end.send_end, self._witness.codec
        seals_each = self._witness.seals_each

        def heard_send(message: Any) -> None:
            packed = pack(message, codec)
            send(message)
            if seals_each:
                end.seal()
            self._sent(channel, Kind.SEND, packed)

        def heard_batch(batch: pa.RecordBatch) -> None:
            rows = pack_rows(batch, codec)
            send_batch(batch)
            for row in rows:
                self._sent(channel, Kind.SEND, row)

        def heard_end() -> None:
            send_end()
            self._sent(channel, Kind.END_SENT, None)

        end.send, end.send_batch, end.send_end = heard_send, heard_batch, heard_end

    def _sent(self, channel: ChannelId, kind: Kind, packed: bytes | None) -> None:
        number = self.sent[channel] = self.sent[channel] + 1
        self._clock[self._number] += 1
        clock = tuple(self._clock)
        witness, incarnation = self._witness, self._incarnation
        witness.log(incarnation, channel)[number] = packed
        witness.stamps(incarnation, channel)[number] = clock
        self._events.append(
            Event(witness.now, kind, incarnation, self._subtask, clock, channel, number, 0, packed or b"")
        )

    # ---------------------------------------------------------------- receiving

    def receives(self, channel: ChannelId, frame: Frame, processed: int, *, is_whole: bool) -> None:
        """The next message of the head frame is about to be handled, or all that are left of it."""
        if frame.kind is PayloadKind.END:
            self._received(channel, Kind.END_RECEIVED, b"")
            return
        messages, codec = messages_of(frame, self._witness.codec), self._witness.codec
        start = processed + 1 - frame.first
        stop = frame.count if is_whole else start + 1
        if isinstance(messages, pa.RecordBatch):
            packed = pack_rows(messages.slice(start, stop - start), codec)
        else:
            packed = [pack(message, codec) for message in messages[start:stop]]
        for each in packed:
            self._received(channel, Kind.RECEIVE, each)

    def _received(self, channel: ChannelId, kind: Kind, packed: bytes) -> None:
        number = self.processed[channel] = self.processed[channel] + 1
        stamp = self._witness.stamps(self._incarnation, channel).get(number)
        clock = self._clock
        if stamp is not None:
            clock[:] = map(max, clock, stamp)
        clock[self._number] += 1
        self._events.append(
            Event(self._witness.now, kind, self._incarnation, self._subtask, tuple(clock), channel, number, 0, packed)
        )

    # ---------------------------------------------------------------- snapshots

    def marker(self, kind: Kind, channel: ChannelId, marker: Marker) -> None:
        """A marker goes on the wire, or comes from it."""
        at, clock = self._witness.now, tuple(self._clock)
        self._events.append(
            Event(at, kind, self._incarnation, self._subtask, clock, channel, marker.written, marker.snapshot_id)
        )

    def cuts(self, snapshot_id: int) -> None:
        """The subtask records its state now."""
        self.note(Kind.CUT, snapshot_id=snapshot_id)
        cut = Cut(
            self._incarnation, snapshot_id, self._subtask, tuple(self._clock), dict(self.sent), dict(self.processed)
        )
        self._witness.history.cuts[self._incarnation, snapshot_id, self._subtask] = cut
