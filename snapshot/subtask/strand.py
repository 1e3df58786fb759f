"""Strands of a subtask: what a cut takes from it, and what no later cut can take again.

A state is made anew at each cut. A change is not: rows that have changed, a delta, a step, a difference of totals. So a
change is reported as soon as it is captured, apart from the contribution to the snapshot, and a ledger of the worker
keeps it, whatever becomes of the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.keyed.versions import PendingVersion
from cutline.snapshot.plan.modes import CutContent
from cutline.snapshot.stored.own_changes import OwnChange


class Strand(Enum):
    """Names of the strands."""

    ROWS = "rows"
    OWN = "own"
    STEPS = "steps"
    VERSIONS = "versions"
    TOTALS = "totals"


@dataclass(frozen=True, slots=True)
class RowsCaptured:
    """The rows of keyed state that have changed since the last cut."""

    #: key groups that the subtask owns
    groups: range
    #: None when no row has changed
    rows: CapturedRows | None


@dataclass(frozen=True, slots=True)
class VersionBegun:
    """A version of the subtask's local database."""

    #: key groups that the subtask owns
    groups: range
    version: PendingVersion


@dataclass(frozen=True, slots=True)
class StepCaptured:
    """A step that has ended, whose determinants are to be stored."""

    #: whole for the first step of a log
    step: OwnChange
    #: whether the snapshot stores the state of all subtasks
    is_base: bool
    #: numbers of the last messages sent and processed, by output and by input channel
    sent: tuple[int, ...]
    processed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DifferenceCaptured:
    """What an aggregate has added since the last cut."""

    #: {key: what was added}
    states: dict[Any, Any]
    #: bytes in memory, about
    size: int


#: Rows of a cut, or rows that leave memory between two cuts, or rows that replace the restored list, because they were
#: brought to another `Node.stateVersion`.
RowChange = RowsCaptured | CapturedRows | MigratedRows

#: What a strand reports. None: own state has not changed since the last cut.
Change = RowChange | OwnChange | StepCaptured | VersionBegun | DifferenceCaptured | None


@dataclass(frozen=True, slots=True)
class ChangeCaptured:
    """A strand of the subtask has a change. Comes before the contribution of the same cut."""

    subtask: Subtask
    strand: Strand
    #: snapshot whose cut has captured the change; None between two cuts and at a restore
    snapshot_id: int | None
    change: Change


@dataclass(frozen=True, slots=True)
class SubtaskCut:
    """A cut of the subtask, as strands are captured at it."""

    snapshot_id: int
    content: CutContent


class StrandCapture(Protocol):
    """What captures the changes of one strand. It must not fail, because no later cut has what was taken."""

    @property
    def strand(self) -> Strand:
        """The name of the strand."""
        ...

    def holds(self, content: CutContent) -> bool:
        """Return whether a cut with this content has a change of the strand."""
        ...

    def capture(self, cut: SubtaskCut) -> Change:
        """Return what has changed since the last cut."""
        ...
