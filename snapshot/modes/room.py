"""Define what a room of modes adds to a subtask and to its worker. Rooms ask the row of the run's mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.ledger import Ledger
from cutline.snapshot.worker.list_ledgers import RestoredList


@dataclass(frozen=True, slots=True)
class LedgerSite:
    """The subtask for which ledgers are made."""

    restored: RestoredSubtask
    components: SubtaskComponents
    incarnation: int
    #: returns a restored list of the subtask, from its entries
    list_of: Callable[[Iterable[ListEntry]], RestoredList]

    @property
    def subtask(self) -> Subtask:
        """The subtask."""
        return self.restored.subtask


class Room:
    """A room that adds nothing."""

    def channels(self, restored: RestoredChannels, subtask: Subtask, topology: Topology) -> RestoredChannels:
        """Return what the channels of a subtask begin with."""
        return restored

    def equip(self, made: SubtaskComponents) -> None:
        """Add strands, listeners, a log, a cut assigner or records to the components of a subtask."""

    def ledgers(self, at: LedgerSite) -> Iterator[tuple[Strand, Ledger]]:
        """Yield the ledgers of a subtask's strands."""
        yield from ()
