"""Add the log of steps, and the turns that repeat it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cutline.snapshot.coordinator.completion import Completion, CompletionParts
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.room import LedgerSite, Room
from cutline.snapshot.modes.steps.ledger import StepLedger
from cutline.snapshot.modes.steps.renumbering import renumbered
from cutline.snapshot.modes.steps.replay_turns import replay_turns
from cutline.snapshot.modes.steps.step_records import StepCompletion
from cutline.snapshot.modes.steps.stepping import Stepping
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.ledger import Ledger
from cutline.snapshot.worker.list_ledgers import entries_of


class Steps(Room):
    """The room of steps."""

    def channels(self, restored: RestoredChannels, subtask: Subtask, topology: Topology) -> RestoredChannels:
        """Return the same with the numbers of a log of compacted input, if there is one."""
        return renumbered(restored, subtask, topology) or restored

    def equip(self, made: SubtaskComponents) -> None:
        """Let steps be logged, and repeated after a restore."""
        if made.core.topology.row.has_steps:
            made.log = log = Stepping(made.core)
            made.strands += (log,)
            made.listeners += (log,)
            made.repeated_turns = partial(replay_turns, log)

    def ledgers(self, at: LedgerSite) -> Iterator[tuple[Strand, Ledger]]:
        """Yield the ledger of steps."""
        if at.components.core.topology.row.has_steps:
            yield Strand.STEPS, StepLedger(at.list_of(entries_of(at.restored.steps)), at.incarnation)

    def completion(self, parts: CompletionParts) -> Completion | None:
        """Return the completion of snapshots whose steps go on from others."""
        return StepCompletion(parts) if parts.settings.topology.row.has_steps else None
