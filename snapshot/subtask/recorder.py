"""Decide the marker rules of one subtask, and nothing else (Chandy & Lamport 1985, section 3; PROTOCOL 1, 3, 4).

The recorder knows the markers that came and the markers that are awaited. The recorder knows neither messages nor
their numbers nor the node. Only ``step`` changes the recorder.

::

                     request, or first marker (unaligned)
            ┌──────────────────────────────────────────────────┐
    unknown ┤                                                  ├─> RECORDING ──all markers──> DONE
            └─ first aligned marker ─> ALIGNING ─ all reached,─┘
                                                  timed out, or
                                                  overtaken

From each phase, a snapshot below min_snapshot_id becomes "forgotten". Later events of a forgotten snapshot are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.subtask.events import (
    AlignmentTimedOut,
    CaptureState,
    CompleteRecording,
    DiscardRecording,
    Effect,
    Event,
    HoldChannel,
    MarkerArrived,
    MarkerReached,
    MinSnapshotIdRaised,
    OvertakeWithMarkers,
    ReleaseChannel,
    SendMarker,
    SnapshotRequested,
    StartAlignmentTimer,
    StartRecording,
    StopRecording,
)


class Phase(Enum):
    """Phase of one snapshot at one subtask. The module's docstring has the diagram."""

    ALIGNING = "aligning"
    RECORDING = "recording"
    DONE = "done"


@dataclass(slots=True)
class _Snapshot:
    """One snapshot at this subtask."""

    phase: Phase
    #: {channel: w of the arrived marker}, in the order of arrival
    arrived: dict[ChannelId, int] = field(default_factory=dict)
    #: channels whose aligned marker was reached, and which are held for that; empty unless ALIGNING
    held: dict[ChannelId, None] = field(default_factory=dict)


class Recorder:
    """The marker rules of one subtask.

    Parameters
    ----------
    subtask : Subtask
        Used in errors only.
    inputs, outputs : tuple of ChannelId
        All channels of the subtask, including ended channels, because an ended subtask still sends markers
        (PROTOCOL 5.2, finished subtasks).
    aligned_inputs : bool
        True if the edges into this subtask align. All of these edges have the same alignment (PROTOCOL 4.1, aligned).
    aligned_outputs : frozenset of ChannelId
        Outputs on which a marker keeps its place among the messages.
    holds : bool
        Whether an input is held after its aligned marker. Not where messages have epochs (PROTOCOL 13.10).
    """

    def __init__(
        self,
        subtask: Subtask,
        inputs: tuple[ChannelId, ...],
        outputs: tuple[ChannelId, ...],
        *,
        aligned_inputs: bool,
        aligned_outputs: frozenset[ChannelId],
        holds: bool = True,
    ) -> None:
        self.subtask = subtask
        self.inputs = inputs
        self.outputs = outputs
        self.aligned_inputs = aligned_inputs
        self.aligned_outputs = aligned_outputs
        self._holds = holds
        self.min_snapshot_id = 0
        #: {snapshot_id: phase and markers}, for ids at or above min_snapshot_id
        self._snapshots: dict[int, _Snapshot] = {}

    def step(self, event: Event) -> list[Effect]:
        """Process one event. The caller must perform the effects in order, before the next event.

        Raises
        ------
        ChannelError
            if a marker comes twice on a channel.
        """
        match event:
            case SnapshotRequested(snapshot_id, running, min_snapshot_id):
                return self._raise_min_snapshot_id(min_snapshot_id) + self._on_request(snapshot_id, running)
            case MarkerArrived(channel, marker):
                return self._raise_min_snapshot_id(marker.min_snapshot_id) + self._on_arrival(channel, marker)
            case MarkerReached(channel, snapshot_id):
                return self._on_reached(channel, snapshot_id)
            case AlignmentTimedOut(snapshot_id):
                return self._on_timeout(snapshot_id)
            case MinSnapshotIdRaised(min_snapshot_id):
                return self._raise_min_snapshot_id(min_snapshot_id)
        assert_never(event)

    def phase(self, snapshot_id: int) -> Phase | None:
        """Return the phase of `snapshot_id`, or None if the snapshot is unknown or forgotten."""
        snapshot = self._snapshots.get(snapshot_id)
        return snapshot.phase if snapshot else None

    def unfinished(self) -> list[int]:
        """Return the ids that still align or record at this subtask, ascending."""
        return sorted(s for s, snapshot in self._snapshots.items() if snapshot.phase is not Phase.DONE)

    def validate(self) -> None:
        """Assert every invariant. Tests call this method after each step, and so does the simulator."""
        if not self._snapshots:
            return
        held: list[ChannelId] = []
        for snapshot_id, snapshot in self._snapshots.items():
            assert snapshot_id >= self.min_snapshot_id, (snapshot_id, self.min_snapshot_id)
            assert all(channel in self.inputs for channel in snapshot.arrived)
            assert all(channel in snapshot.arrived for channel in snapshot.held)
            assert not snapshot.held or snapshot.phase is Phase.ALIGNING
            if snapshot.phase is Phase.ALIGNING:
                assert self.aligned_inputs
                assert len(snapshot.held) < len(self.inputs)
            held += snapshot.held
        assert len(held) == len(dict.fromkeys(held)), f"held for two snapshots: {held}"

    def _on_request(self, snapshot_id: int, running: tuple[int, ...]) -> list[Effect]:
        if snapshot_id < self.min_snapshot_id:
            return []  # PROTOCOL 3.4: the snapshot is settled
        # PROTOCOL 3.3: lower running ids are recorded first, because all subtasks must cut in the same order.
        effects: list[Effect] = []
        for lower in sorted(running):
            if self.min_snapshot_id <= lower < snapshot_id:
                effects += self._cut_unless_cut(lower)
        return effects + self._cut_unless_cut(snapshot_id)

    def _cut_unless_cut(self, snapshot_id: int) -> list[Effect]:
        # "Already recorded" is a state, because the request may come after the first marker.
        if self.phase(snapshot_id) in (None, Phase.ALIGNING):
            return self._cut(snapshot_id)
        return []

    def _on_arrival(self, channel: ChannelId, marker: Marker) -> list[Effect]:
        snapshot_id = marker.snapshot_id
        if snapshot_id < self.min_snapshot_id:
            return []  # PROTOCOL 3.4: a late marker of an aborted snapshot
        snapshot = self._snapshots.get(snapshot_id)
        if snapshot and channel in snapshot.arrived:
            raise ChannelError(f"{channel}: a second marker of snapshot {snapshot_id} came to {self.subtask}")
        if snapshot is None and marker.aligned:
            self._snapshots[snapshot_id] = _Snapshot(Phase.ALIGNING, {channel: marker.written})
            return [StartAlignmentTimer(snapshot_id)]
        if snapshot is not None and snapshot.phase is not Phase.RECORDING:
            snapshot.arrived[channel] = marker.written
            overtaken = snapshot.phase is Phase.ALIGNING and not marker.aligned
            return self._cut(snapshot_id) if overtaken else []  # PROTOCOL 4.3: an unaligned marker forces the cut
        if snapshot is None:
            # Marker-receiving rule, first marker: the marker's own channel is closed at once. The messages in its
            # queue are the channel state, which is not empty in general (PROTOCOL 1.4, first marker).
            self._snapshots[snapshot_id] = _Snapshot(Phase.RECORDING, {channel: marker.written})
            return self._cut(snapshot_id)
        snapshot.arrived[channel] = marker.written
        # Marker-receiving rule, later marker: the channel state is the messages received since the cut.
        return [StopRecording(channel, snapshot_id, marker.written), *self._complete(snapshot_id)]

    def _on_reached(self, channel: ChannelId, snapshot_id: int) -> list[Effect]:
        snapshot = self._snapshots.get(snapshot_id)
        if snapshot is None or snapshot.phase is not Phase.ALIGNING:
            return []  # the snapshot was aborted, or cut without waiting
        snapshot.held[channel] = None
        if len(snapshot.held) < len(self.inputs):
            return [HoldChannel(channel)] if self._holds else []
        return self._cut(snapshot_id)

    def _on_timeout(self, snapshot_id: int) -> list[Effect]:
        match self.phase(snapshot_id):
            case Phase.ALIGNING:
                return self._cut(snapshot_id)
            case Phase.RECORDING | Phase.DONE:
                return [OvertakeWithMarkers(snapshot_id)]
            case None:
                return []

    def _cut(self, snapshot_id: int) -> list[Effect]:
        """Record the state, send markers, and open every input whose marker has not come."""
        effects: list[Effect] = []
        # PROTOCOL 3.3 again: lower snapshots that still align are cut first, because a forced cut must not pass them.
        for lower in sorted(s for s, other in self._snapshots.items() if other.phase is Phase.ALIGNING):
            if lower < snapshot_id:
                effects += self._cut(lower)
        snapshot = self._snapshots.setdefault(snapshot_id, _Snapshot(Phase.RECORDING))
        waited = len(snapshot.held) == len(self.inputs)  # fully aligned, or no inputs
        effects.append(CaptureState(snapshot_id))
        # Marker-sending rule: the marker is sent before any later message on the channel.
        for output in self.outputs:
            effects.append(SendMarker(output, snapshot_id, waited and output in self.aligned_outputs))
        for channel in self.inputs:
            effects.append(StartRecording(channel, snapshot_id))
            if channel in snapshot.arrived:
                effects.append(StopRecording(channel, snapshot_id, snapshot.arrived[channel]))
        effects += [ReleaseChannel(channel) for channel in snapshot.held if self._holds]
        snapshot.held.clear()
        snapshot.phase = Phase.RECORDING
        if any(output in self.aligned_outputs for output in self.outputs) and not self.inputs:
            effects.append(StartAlignmentTimer(snapshot_id))
        return effects + self._complete(snapshot_id)

    def _complete(self, snapshot_id: int) -> list[Effect]:
        snapshot = self._snapshots[snapshot_id]
        if len(snapshot.arrived) < len(self.inputs):
            return []
        snapshot.phase = Phase.DONE
        return [CompleteRecording(snapshot_id)]

    def _raise_min_snapshot_id(self, min_snapshot_id: int) -> list[Effect]:
        if min_snapshot_id <= self.min_snapshot_id:
            return []
        self.min_snapshot_id = min_snapshot_id
        effects: list[Effect] = []
        for snapshot_id in [s for s in self._snapshots if s < min_snapshot_id]:
            snapshot = self._snapshots.pop(snapshot_id)
            effects += [ReleaseChannel(channel) for channel in snapshot.held if self._holds]
            effects.append(DiscardRecording(snapshot_id))
        return effects
