"""Capture what an aggregate has added since the last cut."""

from __future__ import annotations

from typing import ClassVar

from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.modes import CutContent
from cutline.snapshot.subtask.cut_assigner import CutAssigner
from cutline.snapshot.subtask.strand import DifferenceCaptured, Strand, SubtaskCut


class DifferenceCapture:
    """The strand of totals.

    Parameters
    ----------
    node : PersistentAggregate
    assigner : CutAssigner
        Says what belongs to the snapshot.
    """

    strand: ClassVar = Strand.TOTALS

    def __init__(self, node: PersistentAggregate, assigner: CutAssigner) -> None:
        self._node = node
        self._assigner = assigner

    def holds(self, content: CutContent) -> bool:
        """Return True, because each cut has a difference."""
        return True

    def capture(self, cut: SubtaskCut) -> DifferenceCaptured:
        """Return the difference up to the cut."""
        return DifferenceCaptured(*self._node.take_difference(self._assigner.bound(cut.snapshot_id)))
