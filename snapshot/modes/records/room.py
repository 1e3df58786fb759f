"""Add records of subtasks alone."""

from __future__ import annotations

from collections.abc import Mapping

from cutline.snapshot.coordinator.completion import Completion, CompletionParts
from cutline.snapshot.coordinator.cut_start import CutStart
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.records.composition import Composition
from cutline.snapshot.modes.records.each_alone import EachAlone
from cutline.snapshot.modes.records.record_collector import LocalCheckpointCollector
from cutline.snapshot.modes.records.recording import LocalCheckpointing
from cutline.snapshot.modes.room import Room
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.worker.collector import Collector
from cutline.snapshot.worker.restored_parts import RestoredParts


class Records(Room):
    """The room of records."""

    def equip(self, made: SubtaskComponents) -> None:
        """Let the subtask record itself."""
        row = made.core.topology.row
        if row.is_alone:
            made.recording = LocalCheckpointing(made.core, row.record_seconds)

    def collector(self, parts: RestoredParts, run: str, machines: Mapping[Subtask, SubtaskMachine]) -> Collector | None:
        """Return who writes the records of a deployment."""
        is_alone = any(machine.components.recording is not None for machine in machines.values())
        return LocalCheckpointCollector(parts, run, machines) if is_alone else None

    def cut_start(self, topology: Topology) -> CutStart | None:
        """Return the start of cuts that no marker makes."""
        return EachAlone(topology) if topology.row.is_alone else None

    def completion(self, parts: CompletionParts) -> Completion | None:
        """Return the completion of snapshots that are composed of records."""
        return Composition(parts) if parts.settings.topology.row.is_alone else None
