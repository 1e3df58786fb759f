"""Ask each subtask for a record of its own (PROTOCOL 14.7, snapshots on request)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from cutline.snapshot.coordinator.cut_start import StartAtOnce
from cutline.snapshot.ids import Subtask


class EachAlone(StartAtOnce):
    """Start each snapshot at all subtasks, because no marker reaches any. Their own time starts their records."""

    is_triggered: ClassVar[bool] = False

    def initiators(self, wanted: Iterable[Subtask]) -> tuple[Subtask, ...]:
        """Return all subtasks."""
        return self._topology.subtasks
