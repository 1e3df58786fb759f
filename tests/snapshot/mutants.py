"""The core with one rule taken away: what `test_rules` must catch, each by a checker that has a name.

A mutant replaces a method or two of the real classes for the time of one test. The names of its checkers are
those of `tests.snapshot.truth`, "sequence" for the core's own refusal of a gap, a repeat or a marker in the wrong
place, and "liveness" for a run that does not end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from snapshot import channel_ends, input_channel, subtask_parts
from snapshot.channel_ends import ReceivedCut, ReceivingEnd, SendingEnd
from snapshot.cutter import Cutter
from snapshot.events import (
    CaptureState,
    DiscardRecording,
    Effect,
    Event,
    FloorRaised,
    HoldChannel,
    MarkerArrived,
    SnapshotRequested,
    StopRecording,
)
from snapshot.frame import Frame, Marker, PayloadKind
from snapshot.frame_codec import frame_of_pieces
from snapshot.ids import ChannelId
from snapshot.recorder import Recorder
from snapshot.serialization import Codec
from snapshot.subtask import Status, SubtaskMachine
from snapshot.subtask_parts import RestoredChannels
from snapshot.two_phase import PreparedOutput
from tests.snapshot import network
from tests.snapshot.campaign import ANY, Options
from tests.snapshot.network import Network

Patch = pytest.MonkeyPatch

UNALIGNED = Options(alignments=("unaligned",), crossing=(False,))
ALIGNED = Options(alignments=("aligned",), cycles=(False,))
TIMED = Options(alignments=(2.0,), cycles=(False,))
CROWDED = Options(alignments=("unaligned",), cycles=(True,), crossing=(False,), small=(True,))


@dataclass(frozen=True)
class Mutant:
    """One rule, and how it is taken away."""

    name: str
    rule: str  #: section of PROTOCOL
    apply: Callable[[Patch], None]
    caught_by: tuple[str, ...]
    options: Options = ANY


# ---------------------------------------------------------------- 1: recording


def only_after_the_cut(patch: Patch) -> None:
    start = ReceivingEnd.start_recording

    def mutant(self: ReceivingEnd, snapshot_id: int) -> None:
        start(self, snapshot_id)
        self.recorded_bytes -= sum(len(f.payload) for f in self._recordings[snapshot_id].frames)
        self._recordings[snapshot_id].frames = []

    patch.setattr(ReceivingEnd, "start_recording", mutant)


def first_channel_empty(patch: Patch) -> None:
    step, stop = Recorder.step, ReceivingEnd.stop_recording
    first: list[tuple[ChannelId, int]] = []

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        effects = step(self, event)
        if isinstance(event, MarkerArrived) and any(isinstance(effect, CaptureState) for effect in effects):
            first.append((event.channel, event.marker.snapshot_id))
        return effects

    def emptied(self: ReceivingEnd, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        return replace(cut, frames=()) if (self.channel, snapshot_id) in first else cut

    patch.setattr(Recorder, "step", mutant)
    patch.setattr(ReceivingEnd, "stop_recording", emptied)


def overtaken_recorded_again(patch: Patch) -> None:
    stop, deliver = ReceivingEnd.stop_recording, ReceivingEnd.deliver
    open_parts: dict[ChannelId, list[list[Frame]]] = {}

    def mutant(self: ReceivingEnd, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        frames = list(cut.frames)
        open_parts.setdefault(self.channel, []).append(frames)
        return replace(cut, frames=frames)  # type: ignore[arg-type]

    def delivered(self: ReceivingEnd, frame: Frame) -> None:
        deliver(self, frame)
        for frames in open_parts.get(self.channel, []):
            frames.append(frame)

    patch.setattr(ReceivingEnd, "stop_recording", mutant)
    patch.setattr(ReceivingEnd, "deliver", delivered)


def after_the_marker_recorded(patch: Patch) -> None:
    stop = ReceivingEnd.stop_recording
    patch.setattr(
        ReceivingEnd, "stop_recording", lambda self, s, w: replace(stop(self, s, max(w, self.arrived)), written=w)
    )


def closing_skipped(patch: Patch) -> None:
    step = Recorder.step

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        effects = step(self, event)
        is_later = isinstance(event, MarkerArrived) and bool(effects) and isinstance(effects[0], StopRecording)
        return [] if is_later else effects

    patch.setattr(Recorder, "step", mutant)


def last_message_dropped(patch: Patch) -> None:
    stop = ReceivingEnd.stop_recording

    def mutant(self: ReceivingEnd, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        return replace(cut, frames=cut.frames[:-1])

    patch.setattr(ReceivingEnd, "stop_recording", mutant)


def marker_behind_data(patch: Patch) -> None:
    """The marker lets everything pass, what is sent after the cut too."""
    append = SendingEnd._append

    def mutant(self: SendingEnd, snapshot_id: int, floor: int, *, aligned: bool) -> None:
        self.seal()
        self._waiting[snapshot_id] = self.sent
        self._queue.append(Marker(snapshot_id, floor, self.sent, aligned=False))

    def appended(self: SendingEnd, frame: Frame) -> None:
        markers: list[Marker] = []
        while self._queue and isinstance(self._queue[-1], Marker):
            markers.insert(0, self._queue.pop())  # type: ignore[arg-type]  # just looked
        append(self, frame)
        self._queue.extend(marker._replace(written=self.sent) for marker in markers)

    patch.setattr(SendingEnd, "put_marker", mutant)
    patch.setattr(SendingEnd, "_append", appended)


def marker_waits_but_says_head(patch: Patch) -> None:
    def mutant(self: SendingEnd, snapshot_id: int, floor: int, *, aligned: bool) -> None:
        self.seal()
        self._waiting[snapshot_id] = self.sent
        self._queue.append(Marker(snapshot_id, floor, self.written, aligned=False))

    patch.setattr(SendingEnd, "put_marker", mutant)


def later_marker_first(patch: Patch) -> None:
    put = SendingEnd._put_at_head

    def mutant(self: SendingEnd, marker: Marker, sent: int) -> None:
        put(self, marker, sent)
        self._head.rotate(1)

    patch.setattr(SendingEnd, "_put_at_head", mutant)


def senders_part_omitted(patch: Patch) -> None:
    patch.setattr(SendingEnd, "_unwritten", lambda self, through: ())


def senders_part_beyond_its_cut(patch: Patch) -> None:
    unwritten = SendingEnd._unwritten
    patch.setattr(SendingEnd, "_unwritten", lambda self, through: unwritten(self, self.sent))


def recorded_message_aliased(patch: Patch) -> None:
    """Recordings keep the decoded messages that the handler is given, and encode them when they are closed."""
    decode, stop = input_channel.messages_of, ReceivingEnd.stop_recording
    shared: dict[int, tuple[Frame, Any]] = {}

    def decoded(frame: Frame, codec: Codec) -> Any:
        messages = decode(frame, codec)
        shared[id(frame)] = (frame, messages)
        return messages

    def late(frame: Frame) -> Frame:
        messages = shared.get(id(frame), (frame, None))[1]
        if not messages or frame.kind not in (PayloadKind.VALUES, PayloadKind.TUPLES):
            return frame
        plain = [list(m) if frame.kind is PayloadKind.TUPLES else m for m in messages]
        return frame_of_pieces(frame.first, frame.kind, [Codec().encode(m) for m in plain])

    def mutant(self: ReceivingEnd, snapshot_id: int, written: int) -> ReceivedCut:
        recording = self._recordings[snapshot_id]
        before = sum(len(f.payload) for f in recording.frames)
        recording.frames = [late(frame) for frame in recording.frames]
        self.recorded_bytes += sum(len(f.payload) for f in recording.frames) - before
        return stop(self, snapshot_id, written)

    patch.setattr(input_channel, "messages_of", decoded)
    patch.setattr(ReceivingEnd, "stop_recording", mutant)


# ---------------------------------------------------------------- 3: ids, order, abort


def id_reused(patch: Patch) -> None:
    """The next snapshot after an abort gets the same id; everybody has forgotten the first one."""
    abort = Network.abort

    def forget(machine: SubtaskMachine, snapshot_id: int) -> None:
        machine.cutter.recorder._snapshots.pop(snapshot_id, None)
        machine.cutter._discard(snapshot_id)
        for end in machine.inputs.values():
            end.held = False

    def mutant(self: Network, snapshot_id: int) -> None:
        if snapshot_id == self.next_id - 1:
            self.next_id = snapshot_id
            for machine in self.machines.values():
                forget(machine, snapshot_id)
            self.truth.points = {k: point for k, point in self.truth.points.items() if k[0] != snapshot_id}
        abort(self, snapshot_id)

    patch.setattr(Network, "abort", mutant)


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


def floor_ignored(patch: Patch) -> None:
    patch.setattr(Recorder, "_raise_floor", lambda self, floor: [])


def late_marker_obeyed(patch: Patch) -> None:
    step = Recorder.step

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        if isinstance(event, MarkerArrived) and event.marker.snapshot_id < self.floor:
            self.floor = event.marker.snapshot_id
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
        return [e for e in effects if isinstance(e, DiscardRecording)] if isinstance(event, FloorRaised) else effects

    patch.setattr(Recorder, "step", mutant)


# ---------------------------------------------------------------- 5: ends


def end_not_numbered(patch: Patch) -> None:
    """The end of a stream has no number, so it is neither counted nor recorded."""
    advance = ReceivingEnd.advance

    def advanced(self: ReceivingEnd, count: int) -> None:
        head = self.head
        advance(self, 0 if isinstance(head, Frame) and head.kind is PayloadKind.END else count)

    patch.setattr(channel_ends, "frame_of_end", lambda first: Frame(first, 0, PayloadKind.END, b""))
    patch.setattr(ReceivingEnd, "advance", advanced)
    patch.setattr(ReceivingEnd, "validate", lambda self: None)
    _record_no_ends(patch)


def end_not_recorded(patch: Patch) -> None:
    _record_no_ends(patch)


def _record_no_ends(patch: Patch) -> None:
    stop, unwritten = ReceivingEnd.stop_recording, SendingEnd._unwritten

    def without_ends(frames: Sequence[Frame]) -> tuple[Frame, ...]:
        return tuple(frame for frame in frames if frame.kind is not PayloadKind.END)

    def stopped(self: ReceivingEnd, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        return replace(cut, frames=without_ends(cut.frames))

    patch.setattr(ReceivingEnd, "stop_recording", stopped)
    patch.setattr(SendingEnd, "_unwritten", lambda self, through: without_ends(unwritten(self, through)))


def closed_on_arrival(patch: Patch) -> None:
    """A channel is closed when its end arrives, not when it is processed."""
    deliver, ended = SubtaskMachine.deliver, SubtaskMachine._input_ended

    def mutant(self: SubtaskMachine, channel: ChannelId, frame: Frame) -> None:
        deliver(self, channel, frame)
        if frame.kind is PayloadKind.END:
            ended(self, channel)
            self._end_if_over()

    patch.setattr(SubtaskMachine, "deliver", mutant)
    patch.setattr(SubtaskMachine, "_input_ended", lambda self, channel: None)


def finished_subtask_is_gone(patch: Patch) -> None:
    request, marker = SubtaskMachine.request, SubtaskMachine.deliver_marker

    def requested(self: SubtaskMachine, snapshot_id: int, running: Sequence[int], floor: int) -> None:
        if self.status is not Status.ENDED:
            request(self, snapshot_id, running, floor)

    def delivered(self: SubtaskMachine, channel: ChannelId, item: Marker) -> None:
        if self.status is not Status.ENDED:
            marker(self, channel, item)

    patch.setattr(SubtaskMachine, "request", requested)
    patch.setattr(SubtaskMachine, "deliver_marker", delivered)


def on_start_after_a_marker(patch: Patch) -> None:
    start, run = SubtaskMachine.start, SubtaskMachine.run
    late: list[tuple[SubtaskMachine, Callable[[], None]]] = []

    def started(self: SubtaskMachine, now: float) -> None:
        if self.status is Status.RESTORED and self._is_fresh and self._exhausted:
            self.status = Status.RUNNING
            late.append((self, lambda: start(self, now)))
        else:
            start(self, now)

    def mutant(self: SubtaskMachine, now: float, limit: int) -> int:
        for machine, begin in list(late):
            if machine is self:
                late.remove((machine, begin))
                self.status = Status.RESTORED
                begin()
        return run(self, now, limit)

    patch.setattr(SubtaskMachine, "start", started)
    patch.setattr(SubtaskMachine, "run", mutant)


# ---------------------------------------------------------------- 6: restore and rollback


def links_survive_a_rollback(patch: Patch) -> None:
    restart = Network.restart

    def mutant(self: Network) -> None:
        links = getattr(self, "links", None)
        restart(self)
        self.links = links or self.links

    patch.setattr(Network, "restart", mutant)


def counters_restarted(patch: Patch) -> None:
    assemble = subtask_parts.assemble

    def mutant(subtask: Any, built: Any, around: Any, restored: RestoredChannels) -> Any:
        return assemble(subtask, built, around, RestoredChannels({}, restored.frames, {}))

    patch.setattr(network, "assemble", mutant)


def parts_swapped(patch: Patch) -> None:
    plan = network.plan_restore

    def mutant(*args: Any) -> list[Any]:
        return [replace(start, channel_parts=start.channel_parts[::-1]) for start in plan(*args)]

    patch.setattr(network, "plan_restore", mutant)


def restored_messages_not_recorded(patch: Patch) -> None:
    start = ReceivingEnd.start_recording

    def mutant(self: ReceivingEnd, snapshot_id: int) -> None:
        start(self, snapshot_id)
        recording = self._recordings[snapshot_id]
        forgotten, recording.frames = recording.frames[: self._uncharged], recording.frames[self._uncharged :]
        self.recorded_bytes -= sum(len(frame.payload) for frame in forgotten)

    patch.setattr(ReceivingEnd, "start_recording", mutant)


def restored_messages_dropped(patch: Patch) -> None:
    assemble = subtask_parts.assemble

    def mutant(subtask: Any, built: Any, around: Any, restored: RestoredChannels) -> Any:
        processed = {**restored.processed, **{c: frames[-1].last for c, frames in restored.frames.items()}}
        return assemble(subtask, built, around, RestoredChannels(processed, {}, restored.sent))

    patch.setattr(network, "assemble", mutant)


# ---------------------------------------------------------------- 8: output in two phases


def prepared_output_dropped_on_abort(patch: Patch) -> None:
    discard = Cutter._discard

    def mutant(self: Cutter, snapshot_id: int) -> None:
        discard(self, snapshot_id)
        machine = self._capture.__self__  # type: ignore[attr-defined]  # it is the machine's bound method
        machine._prepared._values.pop(snapshot_id, None)

    patch.setattr(Cutter, "_discard", mutant)


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


def committed_by_id(patch: Patch) -> None:
    def mutant(self: PreparedOutput, snapshot_id: int) -> None:
        for prepared_id in sorted(self._values):
            if prepared_id <= snapshot_id:
                self._commit(prepared_id)

    patch.setattr(PreparedOutput, "commit_through", mutant)


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
    patch.setattr(Network.__init__, "__kwdefaults__", {**Network.__init__.__kwdefaults__, "spill_of": lambda _: None})


def spilled_frames_not_saved(patch: Patch) -> None:
    unwritten = SendingEnd._unwritten

    def mutant(self: SendingEnd, through: int) -> tuple[Frame, ...]:
        spill, self._spill = self._spill, deque()
        try:
            return unwritten(self, through)
        finally:
            self._spill = spill

    patch.setattr(SendingEnd, "_unwritten", mutant)


MUTANTS = (
    Mutant("records only what arrives after the cut", "1.2", only_after_the_cut, ("certificate",), UNALIGNED),
    Mutant("takes the first channel as empty", "1.4", first_channel_empty, ("certificate",), UNALIGNED),
    Mutant("records overtaken messages again", "1.2", overtaken_recorded_again, ("certificate",), UNALIGNED),
    Mutant("records messages after the marker", "1.2", after_the_marker_recorded, ("certificate",), TIMED),
    Mutant("never closes a recording", "1.4", closing_skipped, ("liveness",), UNALIGNED),
    Mutant("drops the last message in flight", "1.3", last_message_dropped, ("certificate",)),
    Mutant("puts the marker behind later data", "1.1", marker_behind_data, ("certificate", "causality"), UNALIGNED),
    Mutant("lets the marker wait, but says w", "1.1", marker_waits_but_says_head, ("sequence",), UNALIGNED),
    Mutant("lets a later marker pass an earlier one", "1.5", later_marker_first, ("order",), UNALIGNED),
    Mutant("omits the sender's part", "1.1", senders_part_omitted, ("certificate",), UNALIGNED),
    Mutant("saves more than was sent before the cut", "4.3", senders_part_beyond_its_cut, ("certificate",), TIMED),
    Mutant("shares recorded messages with handlers", "1.6", recorded_message_aliased, ("exact cut",), UNALIGNED),
    Mutant("uses an id again", "3.2", id_reused, ("certificate", "sequence", "liveness"), UNALIGNED),
    Mutant("cuts in any order", "3.3", order_rule_removed, ("order",), UNALIGNED),
    Mutant("passes what still aligns", "3.3", order_rule_removed_while_aligning, ("order",), TIMED),
    Mutant("ignores the floor", "3.4", floor_ignored, ("floor",)),
    Mutant("obeys a late marker", "3.4", late_marker_obeyed, ("floor", "completeness")),
    Mutant("does not hold an aligned channel", "4.1", aligned_channel_not_held, ("certificate",), ALIGNED),
    Mutant("holds on after an abort", "4.1", held_channel_not_released_by_an_abort, ("liveness",), ALIGNED),
    Mutant("does not number the end", "5.1", end_not_numbered, ("exact cut", "liveness")),
    Mutant("does not record the end", "5.1", end_not_recorded, ("certificate",)),
    Mutant("closes a channel when its end arrives", "5.1", closed_on_arrival, ("liveness", "equivalence")),
    Mutant("lets a finished subtask go", "5.2", finished_subtask_is_gone, ("liveness",)),
    Mutant("starts after a marker", "5.4", on_start_after_a_marker, ("equivalence",)),
    Mutant("keeps links over a rollback", "6.1", links_survive_a_rollback, ("sequence",)),
    Mutant("restarts counters", "6.2", counters_restarted, ("sequence",)),
    Mutant("restores parts in the wrong order", "1.3", parts_swapped, ("sequence",), UNALIGNED),
    Mutant("does not record restored messages", "6.2", restored_messages_not_recorded, ("certificate",)),
    Mutant("drops restored messages", "6.2", restored_messages_dropped, ("delivery", "exact cut")),
    Mutant("drops prepared output on abort", "8", prepared_output_dropped_on_abort, ("output",)),
    Mutant("prepares after the state", "8", prepared_after_the_state, ("output",)),
    Mutant("commits all at any publication", "8", all_committed_at_once, ("output",)),
    Mutant("commits by id, not by cut", "8", committed_by_id, ("output",), UNALIGNED),
    Mutant("does not commit again after a restore", "8", not_committed_again, ("output",)),
    Mutant("discards before it commits", "8", discarded_before_the_commit, ("output",)),
    Mutant("does not spill in a cycle", "9.2", cycle_does_not_spill, ("liveness",), CROWDED),
    Mutant("does not save what is spilled", "9.2", spilled_frames_not_saved, ("certificate",), CROWDED),
)
