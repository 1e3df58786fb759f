"""Ledgers over the lists of a subtask: rows of keyed state, changes of own state, and steps of a log.

A list is in `snapshot.worker.generations`. A ledger here knows what its strand reports, and which fields of a record
have the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, assert_never

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.stored.list_rules import ListEntry, StepBase
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.subtask.strand import RowChange, RowsCaptured, StepCaptured
from cutline.snapshot.worker.generations import GenerationLog, RowTask
from cutline.snapshot.worker.ledger import Declined, Listed


@dataclass(frozen=True, slots=True)
class RestoredList:
    """A list as a deployment gives it, and where its parts are stored."""

    subtask: Subtask
    run: str
    entries: tuple[ListEntry, ...]
    #: bytes of the subtask's changes that may go inside the manifest
    inline_bytes_max: int
    #: restored snapshot, or 0
    snapshot_id: int
    needs_base: bool

    def log(self, kind: PartKind) -> GenerationLog:
        """Return a log that goes on with the list."""
        at = (self.subtask, self.run, self.entries, self.inline_bytes_max, self.snapshot_id, kind)
        return GenerationLog(*at, needs_base=self.needs_base)


class _ListLedger:
    is_repeated: ClassVar[bool] = False

    def __init__(self, log: GenerationLog) -> None:
        self._log = log

    def done(self, task: RowTask, result: Any) -> list[RowTask | Declined]:
        """Take the result of a task."""
        return self._log.done(task, result)

    def left(self, cut: int) -> None:
        """Forget a cut."""
        self._log.forget(cut)

    def settled(self, published: int, below: int) -> list[RowTask]:
        """Forget the cuts of snapshots that are over. Their changes stay."""
        self._log.discard_below(below)
        return []


class RowLedger(_ListLedger):
    """The rows of a subtask.

    Parameters
    ----------
    restored : RestoredList
    """

    def __init__(self, restored: RestoredList) -> None:
        super().__init__(restored.log(PartKind.ROWS))
        self._restored = restored
        #: first and end of the subtask's key groups; None before the first cut
        self._groups: tuple[int, int] | None = None

    def captured(self, cut: int | None, change: RowChange) -> list[RowTask | Declined]:
        """Add the rows of a cut, or rows that leave memory between two cuts, or put migrated rows in place of all."""
        match change:
            case RowsCaptured(groups, rows):
                assert cut is not None
                self._groups = (groups.start, groups.stop)
                return self._log.captured(cut, rows)
            case CapturedRows():
                return self._log.sealed(change)
            case MigratedRows():
                at = self._restored
                self._log = GenerationLog(at.subtask, at.run, (), at.inline_bytes_max, at.snapshot_id)
                return self._log.migrated(change)
            case _:
                assert_never(change)

    def ready(self, cut: int) -> Listed | None:
        """Return the list of rows of a cut."""
        entries = self._log.list_of(cut)
        return None if entries is None else {"groups": self._groups, "rows": entries or None}


class OwnStateLedger(_ListLedger):
    """The changes of own state of a subtask.

    Parameters
    ----------
    restored : RestoredList
    """

    def __init__(self, restored: RestoredList) -> None:
        super().__init__(restored.log(PartKind.OWN))

    def captured(self, cut: int | None, change: OwnChange | None) -> list[RowTask | Declined]:
        """Add the change of a cut."""
        assert cut is not None
        return self._log.captured_change(cut, change)

    def ready(self, cut: int) -> Listed | None:
        """Return the changes of a cut."""
        entries = self._log.list_of(cut)
        return None if entries is None else {"own": _handles(entries)}


@dataclass(frozen=True, slots=True)
class _CutStep:
    """A step without its bytes, which the log holds."""

    generation: int
    captured: StepCaptured


class StepLedger(_ListLedger):
    """The log of the steps of a subtask.

    Parameters
    ----------
    restored : RestoredList
    incarnation : int
    """

    def __init__(self, restored: RestoredList, incarnation: int) -> None:
        super().__init__(restored.log(PartKind.STEPS))
        self._incarnation = incarnation
        #: {snapshot_id: the step that its cut has ended} of snapshots that are not over
        self._steps: dict[int, _CutStep] = {}

    def captured(self, cut: int | None, change: StepCaptured) -> list[RowTask | Declined]:
        """Add the step that a cut has ended."""
        assert cut is not None
        decisions = self._log.captured_change(cut, change.step)
        bare = StepCaptured(OwnChange(False, ()), change.is_base, change.sent, change.processed)
        self._steps[cut] = _CutStep(self._log.newest, bare)
        return decisions

    def ready(self, cut: int) -> Listed | None:
        """Return the log of a cut. Where all state is stored, a later log goes on after that state."""
        entries = self._log.list_of(cut)
        if entries is None:
            return None
        step = self._steps[cut]
        if not step.captured.is_base:
            return {"steps": _handles(entries)}
        sent, processed = step.captured.sent, step.captured.processed
        return {"base": StepBase(cut, self._incarnation, step.generation, sent, processed)}

    def settled(self, published: int, below: int) -> list[RowTask]:
        """Drop the steps before a published snapshot that has the state of all subtasks."""
        step = self._steps.get(published)
        if step is not None and step.captured.is_base:
            self._log.drop_through(step.generation)
        self._steps = {at: each for at, each in self._steps.items() if at >= below}
        return super().settled(published, below)


def _handles(entries: Sequence[ListEntry]) -> tuple[Handle, ...] | None:
    return tuple(entry.handle for entry in entries) or None
