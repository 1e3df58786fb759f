"""Perform the recorder's effects on a subtask's channel ends, and gather the results.

The recorder decides by markers alone. The snapshotter applies the decisions to numbers, buffers and the node's state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.cut_assigner import CutAssigner
from cutline.snapshot.subtask.events import (
    CaptureState,
    CompleteRecording,
    DiscardRecording,
    Effect,
    Event,
    HoldChannel,
    OvertakeWithMarkers,
    ReleaseChannel,
    SendMarker,
    StartAlignmentTimer,
    StartRecording,
    StopRecording,
)
from cutline.snapshot.subtask.pending_snapshots import PendingSnapshots
from cutline.snapshot.subtask.recorder import Recorder
from cutline.snapshot.subtask.reports import AlignmentStarted, Report, SnapshotFailed


@dataclass(frozen=True, slots=True)
class CutSettings:
    """Settings of the graph and the host for the cuts of one subtask."""

    #: bytes of channel state that open recordings may hold together (PROTOCOL 1.7, cap)
    recorded_bytes_max: int
    #: seconds; the shortest alignment timeout among the subtask's edges, or None for no limit
    alignment_timeout: float | None
    #: returns seconds of a monotonic clock. Only differences are used, and only in statistics
    stopwatch: Callable[[], float]

    @classmethod
    def of(cls, core: SubtaskCore) -> CutSettings:
        """Return the settings of a subtask."""
        topology = core.topology
        channels = topology.inputs_of(core.subtask) + topology.outputs_of(core.subtask)
        timeouts = [topology.edge_of(channel).alignment.timeout for channel in channels]
        shortest = min((timeout for timeout in timeouts if timeout is not None), default=None)
        return cls(core.environment.limits.recorded_bytes_max, shortest, core.environment.stopwatch)


class Snapshotter:
    """Take one subtask's part in snapshots.

    Parameters
    ----------
    recorder : Recorder
    inputs, outputs : mapping of ChannelId to the subtask's ends
    capture : callable
        Returns the encoded state and the subtask status for a snapshot id, or raises SnapshotAborted. Any other
        error ends the subtask.
    settings : CutSettings
    assigner : CutAssigner
        Where its cuts are no moments, messages are counted, and none is recorded.
    """

    def __init__(
        self,
        recorder: Recorder,
        inputs: Mapping[ChannelId, ChannelReceiver],
        outputs: Mapping[ChannelId, ChannelSender],
        capture: Callable[[int], tuple[tuple[Buffer, ...], SubtaskStatus]],
        settings: CutSettings,
        assigner: CutAssigner,
    ) -> None:
        self.recorder = recorder
        self._inputs = inputs
        self._outputs = outputs
        self._capture = capture
        self._recorded_bytes_max = settings.recorded_bytes_max
        self._alignment_timeout = settings.alignment_timeout
        self._assigner = assigner
        self._pending = PendingSnapshots(recorder.subtask, tuple(inputs), tuple(outputs), settings.stopwatch)
        self._reports: list[Report] = []

    def step(self, event: Event) -> None:
        """Process one event, and perform the recorder's effects."""
        for effect in self.recorder.step(event):
            self._perform(effect)

    def limit_recordings(self, *starting: int) -> None:
        """Fail the unfinished snapshots and the `starting` snapshots if their recordings exceed the limit."""
        if sum(end.recorded_bytes for end in self._inputs.values()) <= self._recorded_bytes_max:
            return
        for snapshot_id in dict.fromkeys([*self.recorder.unfinished(), *starting]):
            for end in self._inputs.values():
                end.empty_recording(snapshot_id)
            self._fail_by_limit(snapshot_id)

    def take_reports(self) -> list[Report]:
        """Return the reports since the last call. A snapshot is reported when this subtask's part is final."""
        if not self._reports and self._pending.is_empty:
            return []
        for snapshot_id in self._pending.awaiting_markers():
            for channel in self._pending.unsettled_outputs(snapshot_id):
                cut = self._outputs[channel].buffer.settled(snapshot_id)
                if cut is not None and not self._assigner.is_moment:
                    sent = self._assigner.sent(channel, snapshot_id)
                    cut = SentCut(sent, sent, ())
                if cut is not None:
                    self._pending.sent(snapshot_id, channel, cut)
        reports, self._reports = [*self._reports, *self._pending.take_finished()], []
        return reports

    def _perform(self, effect: Effect) -> None:
        match effect:
            case CaptureState(snapshot_id):
                self._capture_state(snapshot_id)
            case SendMarker(channel, snapshot_id, aligned):
                saves = not self._pending.has_failed(snapshot_id)
                is_final = self._assigner.is_final(snapshot_id)
                self._outputs[channel].put_marker(
                    snapshot_id, self.recorder.min_snapshot_id, aligned=aligned, saves=saves, is_final=is_final
                )
            case StartRecording(channel, snapshot_id) if not self._assigner.is_moment:
                received = self._assigner.received(channel, snapshot_id)
                self._pending.received(snapshot_id, channel, ReceivedCut(received, received, ()))
            case StopRecording() if not self._assigner.is_moment:
                pass
            case StartRecording(channel, snapshot_id):
                self._inputs[channel].start_recording(snapshot_id)
                self.limit_recordings(snapshot_id)
            case StopRecording(channel, snapshot_id, written):
                cut = self._inputs[channel].stop_recording(snapshot_id, written)
                self._pending.received(snapshot_id, channel, cut)
            case HoldChannel(channel):
                self._inputs[channel].held = True
            case ReleaseChannel(channel):
                self._inputs[channel].held = False
            case StartAlignmentTimer(snapshot_id):
                self._pending.see(snapshot_id)
                if self._alignment_timeout is not None:
                    self._reports.append(AlignmentStarted(snapshot_id, self.recorder.subtask, self._alignment_timeout))
            case OvertakeWithMarkers(snapshot_id):
                for end in self._outputs.values():
                    end.buffer.overtake(snapshot_id)
            case CompleteRecording(snapshot_id):
                self._pending.completed(snapshot_id)
            case DiscardRecording(snapshot_id):
                self._discard(snapshot_id)
            case _:
                assert_never(effect)

    def _capture_state(self, snapshot_id: int) -> None:
        self._pending.open(snapshot_id)
        try:
            state, status = self._capture(snapshot_id)
        except SnapshotAborted as error:
            # Markers are sent all the same, because other subtasks need the markers until they receive the abort.
            self._fail(snapshot_id, str(error))
        else:
            self._pending.captured(snapshot_id, state, status)
        # Check before any marker is sent, because a cycle may have spilled more than memory holds.
        if sum(end.waiting_bytes for end in self._outputs.values()) > self._recorded_bytes_max:
            self._fail_by_limit(snapshot_id)

    def _fail_by_limit(self, snapshot_id: int) -> None:
        limit = f"recorded_bytes_max = {self._recorded_bytes_max:,} bytes"
        self._fail(snapshot_id, f"{self.recorder.subtask} had to record more than {limit}")

    def _discard(self, snapshot_id: int) -> None:
        self._pending.discard(snapshot_id)
        for end in self._inputs.values():
            end.discard(snapshot_id)
        for output in self._outputs.values():
            output.buffer.discard(snapshot_id)

    def _fail(self, snapshot_id: int, reason: str) -> None:
        if self._pending.fail(snapshot_id):
            self._reports.append(SnapshotFailed(snapshot_id, self.recorder.subtask, reason))
