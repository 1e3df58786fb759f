"""Mutants of PROTOCOL 1: what a cut records, and where its markers go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutline.snapshot.channel import frame_codec
from cutline.snapshot.channel.channel_cuts import ReceivedCut
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.channel.object_frame import AnyFrame, ObjectFrame
from cutline.snapshot.channel.output_buffer import OutputBuffer
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.subtask.events import CaptureState, Effect, Event, MarkerArrived, StopRecording
from cutline.snapshot.subtask.recorder import Recorder

Patch = pytest.MonkeyPatch


def only_after_the_cut(patch: Patch) -> None:
    start = ChannelReceiver.start_recording

    def mutant(self: ChannelReceiver, snapshot_id: int) -> None:
        start(self, snapshot_id)
        self.recorded_bytes -= sum(f.size for f in self._recordings[snapshot_id].frames)
        self._recordings[snapshot_id].frames = []

    patch.setattr(ChannelReceiver, "start_recording", mutant)


def first_channel_empty(patch: Patch) -> None:
    step, stop = Recorder.step, ChannelReceiver.stop_recording
    first: list[tuple[ChannelId, int]] = []

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        effects = step(self, event)
        if isinstance(event, MarkerArrived) and any(isinstance(effect, CaptureState) for effect in effects):
            first.append((event.channel, event.marker.snapshot_id))
        return effects

    def emptied(self: ChannelReceiver, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        return replace(cut, frames=()) if (self.channel, snapshot_id) in first else cut

    patch.setattr(Recorder, "step", mutant)
    patch.setattr(ChannelReceiver, "stop_recording", emptied)


def overtaken_recorded_again(patch: Patch) -> None:
    stop, deliver = ChannelReceiver.stop_recording, ChannelReceiver.deliver
    open_parts: dict[ChannelId, list[list[Frame]]] = {}

    def mutant(self: ChannelReceiver, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        frames = list(cut.frames)
        open_parts.setdefault(self.channel, []).append(frames)
        return replace(cut, frames=frames)  # type: ignore[arg-type]

    def delivered(self: ChannelReceiver, frame: AnyFrame) -> None:
        deliver(self, frame)
        for frames in open_parts.get(self.channel, []):
            frames.append(frame_codec.encoded_frame(frame))

    patch.setattr(ChannelReceiver, "stop_recording", mutant)
    patch.setattr(ChannelReceiver, "deliver", delivered)


def after_the_marker_recorded(patch: Patch) -> None:
    stop = ChannelReceiver.stop_recording
    patch.setattr(
        ChannelReceiver, "stop_recording", lambda self, s, w: replace(stop(self, s, max(w, self.arrived)), written=w)
    )


def closing_skipped(patch: Patch) -> None:
    step = Recorder.step

    def mutant(self: Recorder, event: Event) -> list[Effect]:
        effects = step(self, event)
        is_later = isinstance(event, MarkerArrived) and bool(effects) and isinstance(effects[0], StopRecording)
        return [] if is_later else effects

    patch.setattr(Recorder, "step", mutant)


def last_message_dropped(patch: Patch) -> None:
    stop = ChannelReceiver.stop_recording

    def mutant(self: ChannelReceiver, snapshot_id: int, written: int) -> ReceivedCut:
        cut = stop(self, snapshot_id, written)
        return replace(cut, frames=cut.frames[:-1])

    patch.setattr(ChannelReceiver, "stop_recording", mutant)


def marker_behind_data(patch: Patch) -> None:
    """The marker lets everything pass, what is sent after the cut too."""
    append = OutputBuffer.append

    def mutant(self: OutputBuffer, snapshot_id: int, min_snapshot_id: int, *, aligned: bool, **_: bool) -> None:
        self._waiting[snapshot_id] = self.framed
        self._queue.append(Marker(snapshot_id, min_snapshot_id, self.framed, aligned=False))

    def appended(self: OutputBuffer, frame: Frame) -> None:
        markers: list[Marker] = []
        while self._queue and isinstance(self._queue[-1], Marker):
            markers.insert(0, self._queue.pop())  # type: ignore[arg-type]  # just looked
        append(self, frame)
        self._queue.extend(marker._replace(written=self.framed) for marker in markers)

    patch.setattr(OutputBuffer, "put_marker", mutant)
    patch.setattr(OutputBuffer, "append", appended)


def marker_waits_but_says_head(patch: Patch) -> None:
    def mutant(self: OutputBuffer, snapshot_id: int, min_snapshot_id: int, *, aligned: bool, **_: bool) -> None:
        self._waiting[snapshot_id] = self.framed
        self._queue.append(Marker(snapshot_id, min_snapshot_id, self.written, aligned=False))

    patch.setattr(OutputBuffer, "put_marker", mutant)


def later_marker_first(patch: Patch) -> None:
    put = OutputBuffer._put_at_head

    def mutant(self: OutputBuffer, marker: Marker, sent: int, *, saves: bool = True) -> None:
        put(self, marker, sent, saves=saves)
        self._head.rotate(1)

    patch.setattr(OutputBuffer, "_put_at_head", mutant)


def senders_part_omitted(patch: Patch) -> None:
    patch.setattr(OutputBuffer, "_unwritten", lambda self, through: ())


def senders_part_beyond_its_cut(patch: Patch) -> None:
    unwritten = OutputBuffer._unwritten
    patch.setattr(OutputBuffer, "_unwritten", lambda self, through: unwritten(self, self.framed))


def recorded_message_aliased(patch: Patch) -> None:
    """Recordings keep the decoded messages that the handler is given, and encode them when they are closed."""
    decode, stop = frame_codec.messages_of, ChannelReceiver.stop_recording
    shared: dict[int, tuple[AnyFrame, Any]] = {}

    def decoded(frame: AnyFrame, codec: Codec) -> Any:
        messages = decode(frame, codec)
        shared[id(frame)] = (frame, messages)
        return messages

    def late(frame: AnyFrame) -> AnyFrame:
        messages = shared.get(id(frame), (frame, None))[1]
        if isinstance(frame, ObjectFrame) or not messages or frame.kind not in (PayloadKind.VALUES, PayloadKind.TUPLES):
            return frame
        plain = [list(m) if frame.kind is PayloadKind.TUPLES else m for m in messages]
        return frame_codec.frame_of_pieces(frame.first, frame.kind, [Codec().encode(m) for m in plain])

    def mutant(self: ChannelReceiver, snapshot_id: int, written: int) -> ReceivedCut:
        recording = self._recordings[snapshot_id]
        before = sum(f.size for f in recording.frames)
        recording.frames = [late(frame) for frame in recording.frames]
        self.recorded_bytes += sum(f.size for f in recording.frames) - before
        return stop(self, snapshot_id, written)

    patch.setattr("cutline.snapshot.subtask.input_processor.messages_of", decoded)
    patch.setattr(ChannelReceiver, "stop_recording", mutant)
