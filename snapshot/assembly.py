"""Turn a mode into objects: for the machines, the shells and the simulator.

The machines know strands and ledgers by their contracts. Here alone stands which mode has which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.steps.ledger import StepLedger
from cutline.snapshot.modes.totals.ledger import TotalsLedger
from cutline.snapshot.modes.versions.ledger import VersionLedger
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.ledger import Ledger
from cutline.snapshot.worker.list_ledgers import OwnStateLedger, RestoredList, RowLedger


def ledgers_of(
    deploy: Deploy, run: str, machines: Mapping[Subtask, SubtaskMachine], inline_bytes_max: int
) -> dict[tuple[Subtask, Strand], Ledger]:
    """Return the ledgers of all subtasks of a deployment.

    Parameters
    ----------
    deploy : Deploy
    run : str
    machines : mapping of Subtask to SubtaskMachine
    inline_bytes_max : int
        Bytes of one subtask's changes that may go inside the manifest.
    """
    return {
        (each.subtask, strand): ledger
        for each in deploy.subtasks
        for strand, ledger in _ledgers(each, run, deploy.incarnation, machines[each.subtask], inline_bytes_max)
    }


def _ledgers(
    restored: RestoredSubtask, run: str, incarnation: int, machine: SubtaskMachine, inline_bytes_max: int
) -> Iterator[tuple[Strand, Ledger]]:
    subtask = restored.subtask
    snapshot_id = 0 if restored.origin is None else restored.origin.snapshot_id

    def list_of(entries: tuple[ListEntry, ...]) -> RestoredList:
        return RestoredList(subtask, run, entries, inline_bytes_max, snapshot_id, restored.needs_base)

    yield Strand.ROWS, RowLedger(list_of(restored.rows))
    yield Strand.OWN, OwnStateLedger(list_of(_entries(restored.own)))
    yield Strand.STEPS, StepLedger(list_of(_entries(restored.steps)), incarnation)
    yield Strand.VERSIONS, VersionLedger(subtask)
    if machine.parts.gate is not None:
        assert isinstance(machine.node, PersistentAggregate)
        yield Strand.TOTALS, TotalsLedger(subtask, machine.node.monoid, machine.parts.gate.hold)


def _entries(handles: tuple[Handle, ...]) -> tuple[ListEntry, ...]:
    return tuple(ListEntry(handle, 0, KEY_GROUPS) for handle in handles)
