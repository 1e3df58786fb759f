"""The observer of a subtask in a run that is traced. Runs without a trace have no observer, and pay nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from barrier_runtime.tracing.chunks import TraceChunk, WorkerTrace, frequent_events_max
from barrier_runtime.tracing.payloads import Encoded, Kept
from barrier_runtime.tracing.subtask_log import SubtaskLog
from snapshot.channel.frame import Marker
from snapshot.ids import ChannelId, Subtask
from snapshot.node import Node
from snapshot.plan.topology import Topology
from snapshot.subtask.machine import SubtaskMachine
from snapshot.subtask.observer import Inputs, Observer, Outputs
from snapshot.trace import Kind, pack_counts

#: Hooks that are events of their own, noted once they returned, at the time at which they began.
_HOOKS = {"poll": Kind.POLL, "onTimer": Kind.TIMER}


class TraceObserver(Observer):
    """Notes what one subtask does in its log.

    Parameters
    ----------
    subtask : Subtask
    topology : Topology
    incarnation : int
    snapshot_id : int
        Of the snapshot that it is restored from; 0: it begins afresh.
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
        """Return the counts of all channels: with them a diagram knows what is in flight, whatever was dropped."""
        sent = (end.sent for end in self._outputs.values())
        return Encoded(pack_counts(sent, (end.processed for end in self._inputs.values())))


def trace_of(worker: int, machines: Mapping[Subtask, SubtaskMachine]) -> WorkerTrace | None:
    """Return what the machines of a worker noted since the last call, or None."""
    chunks: list[TraceChunk] = []
    for machine in machines.values():
        if isinstance(machine.observer, TraceObserver):
            chunks += machine.observer.log.take()
    return WorkerTrace(worker, tuple(chunks)) if chunks else None
