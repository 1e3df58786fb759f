"""The marker rules of one subtask, and nothing else (Chandy & Lamport 1985, section 3; PROTOCOL 1, 3, 4).

The recorder knows which markers came and which are awaited. It knows neither messages nor their numbers
nor the node. ``step`` is its one door.

::

                     request, or first marker (unaligned)
            ┌──────────────────────────────────────────────────┐
    unknown ┤                                                  ├─> RECORDING ──all markers──> DONE
            └─ first aligned marker ─> ALIGNING ─ all reached,─┘
                                                  timed out, or
                                                  overtaken

A snapshot below min_snapshot_id leaves from anywhere to "forgotten", and whatever comes for it later is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from snapshot.channel.frame import Marker
from snapshot.errors import ChannelError
from snapshot.ids import ChannelId, Subtask
from snapshot.subtask.events import (
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
    """Where one snapshot stands at one subtask; the diagram is the module's."""

    ALIGNING = "aligning"
    RECORDING = "recording"
    DONE = "done"


@dataclass(slots=True)
class _Snapshot:
    """One snapshot at this subtask."""

    phase: Phase
    #: markers that came: {channel: w of the marker}. Ordered by arrival.
    arrived: dict[ChannelId, int] = field(default_factory=dict)
    #: channels held because their aligned marker was reached; only while ALIGNING
    held: dict[ChannelId, None] = field(default_factory=dict)


class Recorder:
    """The marker rules of one subtask.

    Parameters
    ----------
    subtask : Subtask
        Named in errors only.
    inputs, outputs : tuple of ChannelId
        All channels of the subtask, ended ones included: a finished subtask goes on sending markers (PROTOCOL 5.2).
    aligned_inputs : bool
        True if the edges into this subtask align (all of them agree, PROTOCOL 4.1).
    aligned_outputs : frozenset of ChannelId
        The outputs on which a marker keeps its place among the messages.
    """

    def __init__(
        self,
        subtask: Subtask,
        inputs: tuple[ChannelId, ...],
        outputs: tuple[ChannelId, ...],
        *,
        aligned_inputs: bool,
        aligned_outputs: frozenset[ChannelId],
    ) -> None:
        self.subtask = subtask
        self.inputs = inputs
        self.outputs = outputs
        self.aligned_inputs = aligned_inputs
        self.aligned_outputs = aligned_outputs
        self.min_snapshot_id = 0
        #: {snapshot_id: its standing}, for ids at or above min_snapshot_id
        self._snapshots: dict[int, _Snapshot] = {}

    def step(self, event: Event) -> list[Effect]:
        """Take one event; the effects are to be performed in order, before anything else happens.

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
        """Where `snapshot_id` stands here; None if it is unknown or forgotten."""
        snapshot = self._snapshots.get(snapshot_id)
        return snapshot.phase if snapshot else None

    def unfinished(self) -> list[int]:
        """Ids that still align or record here, ascending."""
        return sorted(s for s, snapshot in self._snapshots.items() if snapshot.phase is not Phase.DONE)

    def validate(self) -> None:
        """Assert every invariant; called by tests after each step and by the simulator."""
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
            return []  # PROTOCOL 3.4: settled already
        # PROTOCOL 3.3: every lower id that runs is recorded first, so that all subtasks cut in one order.
        effects: list[Effect] = []
        for lower in sorted(running):
            if self.min_snapshot_id <= lower < snapshot_id:
                effects += self._cut_unless_cut(lower)
        return effects + self._cut_unless_cut(snapshot_id)

    def _cut_unless_cut(self, snapshot_id: int) -> list[Effect]:
        # "Already recorded" is a state: the request may come after the first marker did.
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
            return self._cut(snapshot_id) if overtaken else []  # PROTOCOL 4.3: whoever meets one cuts at once
        if snapshot is None:
            # Marker-receiving rule, first marker: the marker's own channel is closed at once, with what waits
            # in its queue, which is not empty in general (PROTOCOL 1.4).
            self._snapshots[snapshot_id] = _Snapshot(Phase.RECORDING, {channel: marker.written})
            return self._cut(snapshot_id)
        snapshot.arrived[channel] = marker.written
        # Marker-receiving rule, later marker: the state of the channel is what came since the cut.
        return [StopRecording(channel, snapshot_id, marker.written), *self._complete(snapshot_id)]

    def _on_reached(self, channel: ChannelId, snapshot_id: int) -> list[Effect]:
        snapshot = self._snapshots.get(snapshot_id)
        if snapshot is None or snapshot.phase is not Phase.ALIGNING:
            return []  # aborted, or cut without waiting: the marker has nothing more to say
        snapshot.held[channel] = None
        if len(snapshot.held) < len(self.inputs):
            return [HoldChannel(channel)]
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
        # PROTOCOL 3.3 again: what cuts a snapshot before its time does not pass those that still align here.
        for lower in sorted(s for s, other in self._snapshots.items() if other.phase is Phase.ALIGNING):
            if lower < snapshot_id:
                effects += self._cut(lower)
        snapshot = self._snapshots.setdefault(snapshot_id, _Snapshot(Phase.RECORDING))
        waited = len(snapshot.held) == len(self.inputs)  # aligned to the end, or nothing to wait for
        effects.append(CaptureState(snapshot_id))
        # Marker-sending rule: before anything else is sent on the channel.
        for output in self.outputs:
            effects.append(SendMarker(output, snapshot_id, waited and output in self.aligned_outputs))
        for channel in self.inputs:
            effects.append(StartRecording(channel, snapshot_id))
            if channel in snapshot.arrived:
                effects.append(StopRecording(channel, snapshot_id, snapshot.arrived[channel]))
        effects += [ReleaseChannel(channel) for channel in snapshot.held]
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
            effects += [ReleaseChannel(channel) for channel in snapshot.held]
            effects.append(DiscardRecording(snapshot_id))
        return effects
