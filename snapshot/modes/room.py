"""Define what a room of modes adds to subtasks, workers and coordinator. Rooms ask the row of the run's mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cutline.snapshot.coordinator.completion import Completion, CompletionParts
from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.coordinator.cut_start import CutStart
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.collector import Collector
from cutline.snapshot.worker.ledger import Ledger
from cutline.snapshot.worker.list_ledgers import RestoredList
from cutline.snapshot.worker.restored_parts import RestoredParts


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

    def collector(self, parts: RestoredParts, run: str, machines: Mapping[Subtask, SubtaskMachine]) -> Collector | None:
        """Return who takes the contributions of the subtasks of a deployment, or None for the coordinator."""
        return None

    def cut_start(self, topology: Topology) -> CutStart | None:
        """Return how the cuts of a graph start, or None for at once."""
        return None

    def completion(self, parts: CompletionParts) -> Completion | None:
        """Return how the snapshots of a coordinator become whole, or None for by acknowledgements alone."""
        return None
