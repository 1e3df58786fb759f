"""Add the differences of aggregates, whose totals are in a store."""

from __future__ import annotations

from collections.abc import Iterator

from cutline.snapshot.modes.room import LedgerSite, Room
from cutline.snapshot.modes.totals.difference_capture import DifferenceCapture
from cutline.snapshot.modes.totals.difference_gate import DifferenceGate, gate_of
from cutline.snapshot.modes.totals.ledger import TotalsLedger
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.ledger import Ledger


class Totals(Room):
    """The room of totals."""

    def equip(self, made: SubtaskComponents) -> None:
        """Let cuts take differences, and a gate hold messages while these fill memory."""
        core = made.core
        if isinstance(core.node, PersistentAggregate):
            made.strands += (DifferenceCapture(core.node, made.assigner),)
            made.listeners += (DifferenceGate(core.node, core.backpressure, core.topology.row.difference_bytes_max),)

    def ledgers(self, at: LedgerSite) -> Iterator[tuple[Strand, Ledger]]:
        """Yield the ledger of an aggregate's differences."""
        node, gate = at.components.core.node, gate_of(at.components)
        if isinstance(node, PersistentAggregate) and gate is not None:
            yield Strand.TOTALS, TotalsLedger(at.subtask, node.monoid, gate.hold)
