"""Mutants of PROTOCOL 3, 4 and 5: ids, order and abort, alignment, ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from cutline.snapshot.channel.channel_cuts import ReceivedCut
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.output_buffer import OutputBuffer
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.subtask.acts import Acts, Status
from cutline.snapshot.subtask.events import (
    ControlEvent,
    DiscardRecording,
    Effect,
    Event,
    HoldChannel,
    MarkerArrived,
    MinSnapshotIdRaised,
    SnapshotRequested,
)
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.recorder import Recorder

Patch = pytest.MonkeyPatch


def order_rule_removed(patch: Patch) -> None:
    on_request = Recorder._on_request
    patch.setattr(Recorder, "_on_request", lambda self, snapshot_id, running: on_request(self, snapshot_id, ()))


def order_rule_removed_while_aligning(patch: Patch) -> None:
    cut = Recorder._cut

    def mutant(self: Recorder, snapshot_id: int) -> list[Effect]:
        hidden = {s: self._snapshots.pop(s) for s in list(self._snapshots) if s < snapshot_id}
        effects = cut(self, snapshot_id)
        self._snapshots = {**hidden, **self._snapshots}
        return effects

    patch.setattr(Recorder, "_cut", mutant)


def min_snapshot_id_ignored(patch: Patch) -> None:
    patch.setattr(Recorder, "_raise_min_snapshot_id", lambda self, min_snapshot_id: [])


def late_marker_obeyed(patch: Patch) -> None:
    step = Recorder.step

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        if isinstance(event, MarkerArrived) and event.marker.snapshot_id < self.min_snapshot_id:
            self.min_snapshot_id = event.marker.snapshot_id
        return step(self, event)

    patch.setattr(Recorder, "step", mutant)


# ---------------------------------------------------------------- 4: alignment


def aligned_channel_not_held(patch: Patch) -> None:
    step = Recorder.step

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        return [effect for effect in step(self, event) if not isinstance(effect, HoldChannel)]

    patch.setattr(Recorder, "step", mutant)
    patch.setattr(Recorder, "validate", lambda self: None)  # it would notice sooner, but not what comes of it


def held_channel_not_released_by_an_abort(patch: Patch) -> None:
    step = Recorder.step

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        effects = step(self, event)
        return (
            [e for e in effects if isinstance(e, DiscardRecording)]
            if isinstance(event, MinSnapshotIdRaised)
            else effects
        )

    patch.setattr(Recorder, "step", mutant)


# ---------------------------------------------------------------- 5: ends


def end_not_numbered(patch: Patch) -> None:
    """The end of a stream has no number, so it is neither counted nor recorded."""
    advance = ChannelReceiver.advance

    def advanced(self: ChannelReceiver, count: int) -> None:
        head = self.head
        advance(self, 0 if isinstance(head, Frame) and head.is_control else count)

    patch.setattr(
        sys.modules[ChannelSender.__module__],
        "control_frame",
        lambda first, _: Frame(first, 0, PayloadKind.CONTROL, b""),
    )
    patch.setattr(ChannelReceiver, "advance", advanced)
    patch.setattr(ChannelReceiver, "validate", lambda self: None)
    _record_no_ends(patch)


def end_not_recorded(patch: Patch) -> None:
    _record_no_ends(patch)


def _record_no_ends(patch: Patch) -> None:
    stop, unwritten = ChannelReceiver.stop_recording, OutputBuffer._unwritten

    def without_ends(frames: Sequence[Frame]) -> tuple[Frame, ...]:
        return tuple(frame for frame in frames if not frame.is_control)

    def stopped(self: ChannelReceiver, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        return replace(cut, frames=without_ends(cut.frames))

    patch.setattr(ChannelReceiver, "stop_recording", stopped)
    patch.setattr(OutputBuffer, "_unwritten", lambda self, through: without_ends(unwritten(self, through)))


def closed_on_arrival(patch: Patch) -> None:
    """A channel is closed when its end arrives, not when it is processed."""
    deliver, ended = SubtaskMachine.deliver, Acts.input_ended

    def mutant(self: SubtaskMachine, channel: ChannelId, frame: Frame) -> None:
        deliver(self, channel, frame)
        if isinstance(frame, Frame) and frame.is_control:
            ended(self._acts, channel)
            self._acts.end_if_over()

    patch.setattr(SubtaskMachine, "deliver", mutant)
    patch.setattr(Acts, "input_ended", lambda self, channel: None)


def finished_subtask_is_gone(patch: Patch) -> None:
    step = SubtaskMachine.step

    def mutant(self: SubtaskMachine, event: ControlEvent, now: float) -> None:
        if self.status is not Status.ENDED or not isinstance(event, SnapshotRequested | MarkerArrived):
            step(self, event, now)

    patch.setattr(SubtaskMachine, "step", mutant)


def on_start_after_a_marker(patch: Patch) -> None:
    start, run = SubtaskMachine._start, SubtaskMachine.run
    late: list[tuple[SubtaskMachine, Callable[[], None]]] = []

    def started(self: SubtaskMachine) -> None:
        if self.status is Status.RESTORED and self._is_fresh and self._acts.exhausted:
            self._acts.status = Status.RUNNING
            late.append((self, lambda: start(self)))
        else:
            start(self)

    def mutant(self: SubtaskMachine, now: float, limit: int) -> int:
        for machine, begin in list(late):
            if machine is self:
                late.remove((machine, begin))
                self._acts.status = Status.RESTORED
                begin()
        return run(self, now, limit)

    patch.setattr(SubtaskMachine, "_start", started)
    patch.setattr(SubtaskMachine, "run", mutant)
