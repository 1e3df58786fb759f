"""Mutants of PROTOCOL 6, 8 and 9: restore and rollback, output in two phases, flow control."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot import assembly
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.output_buffer import OutputBuffer
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.two_phase import PreparedOutput

Patch = pytest.MonkeyPatch


def restored_messages_not_recorded(patch: Patch) -> None:
    start = ChannelReceiver.start_recording

    def mutant(self: ChannelReceiver, snapshot_id: int) -> None:
        start(self, snapshot_id)
        recording = self._recordings[snapshot_id]
        forgotten, recording.frames = recording.frames[: self._uncharged], recording.frames[self._uncharged :]
        self.recorded_bytes -= sum(frame.size for frame in forgotten)

    patch.setattr(ChannelReceiver, "start_recording", mutant)


def restored_messages_dropped(patch: Patch) -> None:
    assemble = assembly.assemble

    def mutant(subtask: Any, compiled: Any, environment: Any, restored: RestoredChannels) -> Any:
        processed = {**restored.processed, **{c: frames[-1].last for c, frames in restored.frames.items()}}
        return assemble(subtask, compiled, environment, RestoredChannels(processed, {}, restored.sent))

    patch.setattr("cutline.snapshot.testing.simulation.host.assemble", mutant)


# ---------------------------------------------------------------- 8: output in two phases


def prepared_after_the_state(patch: Patch) -> None:
    capture = SubtaskMachine._capture

    def mutant(self: SubtaskMachine, snapshot_id: int) -> Any:
        two_phase, self._prepared.is_two_phase = self._prepared.is_two_phase, False
        captured = capture(self, snapshot_id)
        self._prepared.is_two_phase = two_phase
        if two_phase:
            self._prepared.prepare(snapshot_id)
        return captured

    patch.setattr(SubtaskMachine, "_capture", mutant)


def all_committed_at_once(patch: Patch) -> None:
    patch.setattr(PreparedOutput, "commit_through", lambda self, snapshot_id: self.commit_all())


def not_committed_again(patch: Patch) -> None:
    patch.setattr(PreparedOutput, "commit_all", lambda self: self._values.clear())


def discarded_before_the_commit(patch: Patch) -> None:
    commit_all = PreparedOutput.commit_all

    def mutant(self: PreparedOutput) -> None:
        node: Any = self._node
        node.outside.discard(node.name, node.incarnation)
        commit_all(self)

    patch.setattr(PreparedOutput, "commit_all", mutant)


# ---------------------------------------------------------------- 9: flow control


def spilled_frames_not_saved(patch: Patch) -> None:
    unwritten = OutputBuffer._unwritten

    def mutant(self: OutputBuffer, through: int) -> tuple[Frame, ...]:
        spill, self._spill = self._spill, None
        try:
            return unwritten(self, through)
        finally:
            self._spill = spill

    patch.setattr(OutputBuffer, "_unwritten", mutant)
