"""The observer of a subtask in a traced run. Runs without a trace have no observer.

The newest events stay in memory until the worker sends them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa

from cutline.barrier_runtime import clock
from cutline.barrier_runtime.tracing.chunks import (
    KINDS,
    RARE_EVENTS_MAX,
    TraceChunk,
    WorkerTrace,
    chunk_of,
    frequent_events_max,
)
from cutline.barrier_runtime.tracing.payloads import NOTHING, Encoded, Kept, Payloads
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import Node
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.observer import Inputs, Observer, Outputs
from cutline.snapshot.trace_events import Kind, pack_counts

_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}

#: a record before encoding of the payload: serial, at, kind, channel, number, snapshot_id, kept message
_Noted = tuple[int, float, int, int, int, int, Kept]


class SubtaskLog:
    """A ring buffer of frequent events and a ring buffer of rare events. Serials give their common order.

    Parameters
    ----------
    subtask : Subtask
    incarnation : int
    frequent_events_max : int
    """

    def __init__(self, subtask: Subtask, incarnation: int, frequent_events_max: int) -> None:
        self.payloads = Payloads()
        self._subtask = subtask
        self._incarnation = incarnation
        self._serials = count()
        self._frequent: deque[_Noted] = deque(maxlen=frequent_events_max)
        self._rare: deque[_Noted] = deque(maxlen=RARE_EVENTS_MAX)

    def note(
        self, kind: Kind, *, channel: int = -1, number: int = 0, snapshot_id: int = 0, payload: Encoded = NOTHING
    ) -> None:
        """Note a rare event."""
        self._rare.append((next(self._serials), clock.now(), _NUMBERS[kind], channel, number, snapshot_id, payload))

    def note_message(self, kind: Kind, channel: int, number: int, kept: Kept) -> None:
        """Note a message that is sent or received."""
        self._frequent.append((next(self._serials), clock.now(), _NUMBERS[kind], channel, number, 0, kept))

    def note_rows(self, kind: Kind, channel: int, first: int, kept: Sequence[Kept]) -> None:
        """Note the rows of a batch that is sent or received. The first row has the number `first`."""
        at, number, serials = clock.now(), _NUMBERS[kind], self._serials
        start = max(0, len(kept) - (self._frequent.maxlen or 0))
        self._frequent.extend(
            (next(serials), at, number, channel, first + row, 0, kept[row]) for row in range(start, len(kept))
        )

    def begin(self) -> tuple[int, float]:
        """Reserve a serial and a time for an event that begins, to be passed to `note_begun` after the event."""
        return next(self._serials), clock.now()

    def note_begun(self, begun: tuple[int, float], kind: Kind) -> None:
        """Note a poll or a timer that began at the serial and time `begun`. Leave out a poll without further events."""
        # Waiting sources are polled all the time, and polls without effect would displace all other events.
        if kind is not Kind.POLL or any(ring and ring[-1][0] > begun[0] for ring in (self._frequent, self._rare)):
            self._frequent.append((*begun, _NUMBERS[kind], -1, 0, 0, NOTHING))

    def take(self) -> list[TraceChunk]:
        """Return the events since the last call that newer events have not displaced."""
        return [self._chunk(ring, is_frequent=ring is self._frequent) for ring in (self._frequent, self._rare) if ring]

    def _chunk(self, ring: deque[_Noted], *, is_frequent: bool) -> TraceChunk:
        encoded = self.payloads.encoded
        records = [(*event, encoded(kept)) for *event, kept in ring]
        ring.clear()
        return chunk_of(self._subtask, self._incarnation, records, is_frequent=is_frequent)


#: hooks that are events themselves, noted after their return with the time of their begin
_HOOKS = {"poll": Kind.POLL, "onTimer": Kind.TIMER}


class TraceObserver(Observer):
    """Notes the events of one subtask in its log.

    Parameters
    ----------
    subtask : Subtask
    topology : Topology
    incarnation : int
    snapshot_id : int
        Id of the snapshot that the subtask is restored from; 0: a fresh start.
    """

    def __init__(self, subtask: Subtask, topology: Topology, incarnation: int, snapshot_id: int) -> None:
        self.log = SubtaskLog(subtask, incarnation, frequent_events_max(topology))
        self._restored_from = snapshot_id
        self._numbers = {channel: number for number, channel in enumerate(topology.channels)}
        self._begun: tuple[int, float] | None = None

    def attached(self, node: Node, inputs: Inputs, outputs: Outputs) -> None:
        self._inputs, self._outputs = inputs, outputs
        self._sent = {channel: end.sent for channel, end in outputs.items()}
        self._received = {channel: end.processed for channel, end in inputs.items()}

    def restoring(self) -> None:
        self.log.note(Kind.RESTORED, snapshot_id=self._restored_from, payload=self._counts())

    def hook_begins(self, hook: str) -> None:
        if hook in _HOOKS:
            self._begun = self.log.begin()

    def hook_ended(self, hook: str) -> None:
        if hook in _HOOKS:
            assert self._begun is not None
            self.log.note_begun(self._begun, _HOOKS[hook])

    def marker_arrived(self, channel: ChannelId, marker: Marker) -> None:
        self._note_marker(Kind.MARKER, channel, marker)

    def marker_sent(self, channel: ChannelId, marker: Marker) -> None:
        self._note_marker(Kind.MARKER_SENT, channel, marker)

    def cut(self, snapshot_id: int) -> None:
        self.log.note(Kind.CUT, snapshot_id=snapshot_id, payload=self._counts())

    def committed(self, snapshot_id: int) -> None:
        self.log.note(Kind.COMMIT, snapshot_id=snapshot_id)

    def message_sending(self, channel: ChannelId, message: Any) -> Kept:
        return self.log.payloads.keep(message)

    def message_sent(self, channel: ChannelId, kept: Kept) -> None:
        number = self._sent[channel] = self._sent[channel] + 1
        self.log.note_message(Kind.SEND, self._numbers[channel], number, kept)

    def rows_sending(self, channel: ChannelId, batch: pa.RecordBatch) -> Sequence[Kept]:
        return self.log.payloads.keep_rows(batch)

    def rows_sent(self, channel: ChannelId, kept: Sequence[Kept]) -> None:
        self.log.note_rows(Kind.SEND, self._numbers[channel], self._sent[channel] + 1, kept)
        self._sent[channel] += len(kept)

    def end_sent(self, channel: ChannelId) -> None:
        number = self._sent[channel] = self._sent[channel] + 1
        self.log.note(Kind.END_SENT, channel=self._numbers[channel], number=number)

    def message_received(self, channel: ChannelId, message: Any) -> None:
        number = self._received[channel] = self._received[channel] + 1
        self.log.note_message(Kind.RECEIVE, self._numbers[channel], number, self.log.payloads.keep(message))

    def rows_received(self, channel: ChannelId, batch: pa.RecordBatch) -> None:
        first = self._received[channel] + 1
        self.log.note_rows(Kind.RECEIVE, self._numbers[channel], first, self.log.payloads.keep_rows(batch))
        self._received[channel] += int(batch.num_rows)

    def end_received(self, channel: ChannelId) -> None:
        number = self._received[channel] = self._received[channel] + 1
        self.log.note(Kind.END_RECEIVED, channel=self._numbers[channel], number=number)

    def _note_marker(self, kind: Kind, channel: ChannelId, marker: Marker) -> None:
        self.log.note(kind, channel=self._numbers[channel], number=marker.written, snapshot_id=marker.snapshot_id)

    def _counts(self) -> Encoded:
        """Return the counts of all channels, so that a diagram shows what is in flight even if events were dropped."""
        sent = (end.sent for end in self._outputs.values())
        return Encoded(pack_counts(sent, (end.processed for end in self._inputs.values())))


def trace_of(worker: int, machines: Mapping[Subtask, SubtaskMachine]) -> WorkerTrace | None:
    """Return the events that the machines of a worker noted since the last call, or None without events."""
    chunks: list[TraceChunk] = []
    for machine in machines.values():
        if isinstance(machine.core.observer, TraceObserver):
            chunks += machine.core.observer.log.take()
    return WorkerTrace(worker, tuple(chunks)) if chunks else None
