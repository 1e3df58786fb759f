"""Add records of subtasks alone."""

from __future__ import annotations

from cutline.snapshot.modes.records.recording import IndependentRecording
from cutline.snapshot.modes.room import Room
from cutline.snapshot.subtask.components import SubtaskComponents


class Records(Room):
    """The room of records."""

    def equip(self, made: SubtaskComponents) -> None:
        """Let the subtask record itself."""
        row = made.core.topology.row
        if row.is_alone:
            made.recording = IndependentRecording(made.core, row.record_seconds)
