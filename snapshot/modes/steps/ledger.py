"""Ledger of the log of a subtask's steps, which begins anew after each snapshot that has all state."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.stored.list_rules import StepBase
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.stored.part import PartKind
from cutline.snapshot.subtask.strand import StepCaptured
from cutline.snapshot.worker.generations import StorageTask
from cutline.snapshot.worker.ledger import Declined, Listed
from cutline.snapshot.worker.list_ledgers import ListLedger, RestoredList, handles_of


@dataclass(frozen=True, slots=True)
class _CutStep:
    """A step without its bytes, which the log holds."""

    generation: int
    captured: StepCaptured


class StepLedger(ListLedger):
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

    def captured(self, cut: int | None, change: StepCaptured) -> list[StorageTask | Declined]:
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
            return {"steps": handles_of(entries)}
        sent, processed = step.captured.sent, step.captured.processed
        return {"base": StepBase(cut, self._incarnation, step.generation, sent, processed)}

    def settled(self, published: int, below: int) -> list[StorageTask]:
        """Drop the steps before a published snapshot that has the state of all subtasks."""
        step = self._steps.get(published)
        if step is not None and step.captured.is_base:
            self._log.drop_through(step.generation)
        self._steps = {at: each for at, each in self._steps.items() if at >= below}
        return super().settled(published, below)
