"""Mutants of PROTOCOL 6, 8 and 9: restore and rollback, output in two phases, flow control."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from snapshot.channel.channel_receiver import ChannelReceiver
from snapshot.channel.frame import Frame
from snapshot.channel.output_buffer import OutputBuffer
from snapshot.coordinator import recovery
from snapshot.subtask import assembly as subtask_parts
from snapshot.subtask.assembly import RestoredChannels
from snapshot.subtask.machine import SubtaskMachine
from snapshot.subtask.snapshotter import Snapshotter
from snapshot.subtask.two_phase import PreparedOutput
from tests.snapshot.hosting import Hosting
from tests.snapshot.memory_spill import MemorySpill
from tests.snapshot.network import Network

Patch = pytest.MonkeyPatch


def links_survive_a_rollback(patch: Patch) -> None:
    restart = Network.restart

    def mutant(self: Network) -> None:
        links = getattr(self, "links", None)
        restart(self)
        self.links = links or self.links

    patch.setattr(Network, "restart", mutant)


def counters_restarted(patch: Patch) -> None:
    assemble = subtask_parts.assemble

    def mutant(subtask: Any, compiled: Any, environment: Any, restored: RestoredChannels) -> Any:
        return assemble(subtask, compiled, environment, RestoredChannels({}, restored.frames, {}))

    patch.setattr("tests.snapshot.hosting.assemble", mutant)


def parts_swapped(patch: Patch) -> None:
    plan = recovery.plan_restore

    def mutant(*args: Any) -> list[Any]:
        return [replace(start, channel_parts=start.channel_parts[::-1]) for start in plan(*args)]

    patch.setattr("tests.snapshot.hosting.plan_restore", mutant)


def restored_messages_not_recorded(patch: Patch) -> None:
    start = ChannelReceiver.start_recording

    def mutant(self: ChannelReceiver, snapshot_id: int) -> None:
        start(self, snapshot_id)
        recording = self._recordings[snapshot_id]
        forgotten, recording.frames = recording.frames[: self._uncharged], recording.frames[self._uncharged :]
        self.recorded_bytes -= sum(len(frame.payload) for frame in forgotten)

    patch.setattr(ChannelReceiver, "start_recording", mutant)


def restored_messages_dropped(patch: Patch) -> None:
    assemble = subtask_parts.assemble

    def mutant(subtask: Any, compiled: Any, environment: Any, restored: RestoredChannels) -> Any:
        processed = {**restored.processed, **{c: frames[-1].last for c, frames in restored.frames.items()}}
        return assemble(subtask, compiled, environment, RestoredChannels(processed, {}, restored.sent))

    patch.setattr("tests.snapshot.hosting.assemble", mutant)


# ---------------------------------------------------------------- 8: output in two phases


def prepared_output_dropped_on_abort(patch: Patch) -> None:
    discard = Snapshotter._discard

    def mutant(self: Snapshotter, snapshot_id: int) -> None:
        discard(self, snapshot_id)
        machine = self._capture.__self__  # type: ignore[attr-defined]  # it is the machine's bound method
        machine._prepared._values.pop(snapshot_id, None)

    patch.setattr(Snapshotter, "_discard", mutant)


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
        node.discardUncommitted(None)
        commit_all(self)

    patch.setattr(PreparedOutput, "commit_all", mutant)


# ---------------------------------------------------------------- 9: flow control


def cycle_does_not_spill(patch: Patch) -> None:
    begin = Hosting.__init__

    def mutant(self: Hosting, *args: Any, **named: Any) -> None:
        begin(self, *args, **{**named, "spill_of": lambda _: None})

    patch.setattr(Hosting, "__init__", mutant)


def spilled_frames_not_saved(patch: Patch) -> None:
    unwritten = OutputBuffer._unwritten

    def mutant(self: OutputBuffer, through: int) -> tuple[Frame, ...]:
        spill, self._spill = self._spill, MemorySpill()
        try:
            return unwritten(self, through)
        finally:
            self._spill = spill

    patch.setattr(OutputBuffer, "_unwritten", mutant)
