"""The machine of a subtask that writes down what it does. Only made for a run that is traced: others pay nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from barrier_runtime.tracing.chunks import TraceChunk, WorkerTrace, frequent_events_max
from barrier_runtime.tracing.payloads import Encoded, Kept
from barrier_runtime.tracing.subtask_log import SubtaskLog
from snapshot.channel.frame import Frame, Marker, PayloadKind
from snapshot.channel.sending_end import SendingEnd
from snapshot.channel.tap import tap
from snapshot.ids import ChannelId, Subtask
from snapshot.node import Context, Node
from snapshot.stored.envelope import Buffer
from snapshot.stored.part import Handle
from snapshot.subtask.assembly import SubtaskParts
from snapshot.subtask.input_channel import InputChannel
from snapshot.subtask.limits import SLICE_POLLS_MAX
from snapshot.subtask.machine import SubtaskMachine
from snapshot.subtask.reports import Standing
from snapshot.trace import Kind, pack_counts


class TracedMachine(SubtaskMachine):
    """The machine itself; beside what it does, it notes it.

    Parameters
    ----------
    parts : SubtaskParts
    log : SubtaskLog
    snapshot_id : int
        What it is restored from; 0: it begins afresh.
    """

    def __init__(self, parts: SubtaskParts, log: SubtaskLog, snapshot_id: int) -> None:
        super().__init__(parts)
        self.log = log
        self._restored_from = snapshot_id
        self._numbers = {channel: number for number, channel in enumerate(parts.topology.channels)}
        for end in self.outputs.values():
            _hear_sending(end, self._numbers[end.channel], log)
            _hear_markers(end, self._numbers[end.channel], log)
        for each in parts.inputs:
            _hear_receiving(each, parts.node, self._numbers[each.end.channel], log)
        self._hear_commits()

    def restore(self, state: bytes | memoryview | None, now: float) -> None:
        """Note it, and do it."""
        self.log.note(Kind.RESTORED, snapshot_id=self._restored_from, payload=self._counts())
        super().restore(state, now)

    def _marker_arrived(self, channel: ChannelId, marker: Marker) -> None:
        number, snapshot_id = self._numbers[channel], marker.snapshot_id
        self.log.note(Kind.MARKER, channel=number, number=marker.written, snapshot_id=snapshot_id)
        super()._marker_arrived(channel, marker)

    def _capture(self, snapshot_id: int) -> tuple[tuple[Buffer, ...], Standing]:
        self.log.note(Kind.CUT, snapshot_id=snapshot_id, payload=self._counts())
        return super()._capture(snapshot_id)

    def _counts(self) -> Encoded:
        """Where it is: with it a diagram knows what is in flight, whichever messages were dropped from the trace."""
        sent = (end.sent for end in self.outputs.values())
        return Encoded(pack_counts(sent, (end.processed for end in self.inputs.values())))

    def _handle_head(self, channel: InputChannel, limit: int) -> int:
        head, end = channel.end.head, channel.end
        if isinstance(head, Frame) and head.kind is PayloadKind.END:
            self.log.note(Kind.END_RECEIVED, channel=self._numbers[end.channel], number=end.processed + 1)
        return super()._handle_head(channel, limit)

    def _fire_timers(self, limit: int) -> int:
        return self._one_by_one(Kind.TIMER, limit, super()._fire_timers)

    def _poll(self, limit: int) -> int:
        return self._one_by_one(Kind.POLL, min(limit, SLICE_POLLS_MAX), super()._poll)

    def _one_by_one(self, kind: Kind, limit: int, act: Callable[[int], int]) -> int:
        """Have polls, or timers, happen one at a time, each noted ahead of what it does."""
        done = 0
        while done < limit:
            begun = self.log.begin()
            if not act(1):
                break
            self.log.note_begun(begun, kind)
            done += 1
        return done

    def _hear_commits(self) -> None:
        taps: Any = self._prepared  # a method is not meant to be assigned to
        taps.commit_all = self._noting_commits(taps.commit_all)
        taps.commit_through = self._noting_commits(taps.commit_through)

    def _noting_commits(self, commit: Callable[..., None]) -> Callable[..., None]:
        def heard(*through: int) -> None:
            waiting = self._prepared.values()
            commit(*through)
            for snapshot_id in waiting:
                if snapshot_id not in self._prepared.ids:
                    self.log.note(Kind.COMMIT, snapshot_id=snapshot_id)

        return heard


def traced_machine(parts: SubtaskParts, incarnation: int, restored: Handle | None) -> TracedMachine:
    """A machine with a log of its own, to be restored from `restored`; None: afresh."""
    log = SubtaskLog(parts.subtask, incarnation, frequent_events_max(parts.topology))
    return TracedMachine(parts, log, 0 if restored is None else restored.snapshot_id)


def trace_of(worker: int, machines: Mapping[Subtask, SubtaskMachine]) -> WorkerTrace | None:
    """What the machines of a worker wrote down since the last call; None: nothing, or they are not traced."""
    chunks: list[TraceChunk] = []
    for machine in machines.values():
        if isinstance(machine, TracedMachine):
            chunks += machine.log.take()
    return WorkerTrace(worker, tuple(chunks)) if chunks else None


# ---------------------------------------------------------------- both ends of a channel


def _hear_sending(end: SendingEnd, channel: int, log: SubtaskLog) -> None:
    number = end.sent

    def on_message(kept: Kept) -> None:
        nonlocal number
        number += 1
        log.note_message(Kind.SEND, channel, number, kept)

    def on_rows(kept: Sequence[Kept]) -> None:
        nonlocal number
        log.note_rows(Kind.SEND, channel, number + 1, kept)
        number += len(kept)

    tap(
        end,
        pack=log.payloads.keep,
        pack_rows=log.payloads.keep_rows,
        on_message=on_message,
        on_rows=on_rows,
        on_end=lambda: log.note(Kind.END_SENT, channel=channel, number=end.sent),
    )


def _hear_markers(end: SendingEnd, channel: int, log: SubtaskLog) -> None:
    """A marker is sent when it is taken for the wire; till then it may still be moved, or dropped."""
    take = end.take

    def heard_take() -> Frame | Marker | None:
        item = take()
        if isinstance(item, Marker):
            log.note(Kind.MARKER_SENT, channel=channel, number=item.written, snapshot_id=item.snapshot_id)
        return item

    taps: Any = end
    taps.take = heard_take


def _hear_receiving(channel: InputChannel, node: Node, channel_number: int, log: SubtaskLog) -> None:
    """Stand between an input and its node, whose own attributes stay as they are: it may save them all."""
    number = channel.end.processed
    keep, keep_rows = log.payloads.keep, log.payloads.keep_rows

    def heard_message(message: Any, context: Context) -> None:
        nonlocal number
        number += 1
        log.note_message(Kind.RECEIVE, channel_number, number, keep(message))
        node.onMessage(message, context)

    def heard_batch(batch: pa.RecordBatch, context: Context) -> None:
        nonlocal number
        log.note_rows(Kind.RECEIVE, channel_number, number + 1, keep_rows(batch))
        number += batch.num_rows
        node.onBatch(batch, context)

    heard: Any = Node()
    heard.onMessage, heard.onBatch = heard_message, heard_batch
    taps: Any = channel
    taps._node = heard
