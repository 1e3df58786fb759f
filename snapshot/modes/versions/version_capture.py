"""Begin a version of the local database at a cut."""

from __future__ import annotations

from typing import ClassVar

from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.plan.modes import CutContent
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.strand import Strand, SubtaskCut, VersionBegun


class VersionCapture:
    """The strand of versions. Comes after the strand of rows.

    Parameters
    ----------
    keyed : KeyedStates
    context : SubtaskContext
    """

    strand: ClassVar = Strand.VERSIONS

    def __init__(self, keyed: KeyedStates, context: SubtaskContext) -> None:
        self._keyed = keyed
        self._context = context

    def holds(self, content: CutContent) -> bool:
        """Return whether a cut with this content has a version."""
        return content.version and self._keyed.is_keyed

    def capture(self, cut: SubtaskCut) -> VersionBegun:
        """Begin a version that has all rows."""
        if not cut.content.rows:
            self._keyed.capture(self._context.now)  # the version alone has them
        return VersionBegun(self._context.keyGroups, self._keyed.begin_version(cut.snapshot_id))
