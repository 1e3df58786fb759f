"""Turn a mode into objects: for the machines, the shells and the simulator.

The machines know strands, listeners, turns, ledgers, collectors, starts of cuts and completions by their contracts. The
rooms of `snapshot.modes` implement them, and here alone stand all rooms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cutline.snapshot.coordinator.completion import Acknowledged, Completion, CompletionParts
from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask
from cutline.snapshot.coordinator.cut_start import CutStart, StartAtOnce
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.clocks.room import Clocks
from cutline.snapshot.modes.records.room import Records
from cutline.snapshot.modes.room import LedgerSite, Room
from cutline.snapshot.modes.steps.room import Steps
from cutline.snapshot.modes.totals.room import Totals
from cutline.snapshot.modes.versions.room import Versions
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.subtask.assembly import core_of
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.state_capture import RowCapture
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.collector import Collector, ToCoordinator
from cutline.snapshot.worker.ledger import Ledger
from cutline.snapshot.worker.list_ledgers import OwnStateLedger, RestoredList, RowLedger, entries_of
from cutline.snapshot.worker.restored_parts import RestoredParts

#: All rooms. Totals need the assigner of clocks, and steps end a cut.
_ROOMS: Final[tuple[Room, ...]] = (
    Clocks(),
    Versions(),
    Totals(),
    Steps(),
    Records(),
)


def assemble(
    subtask: Subtask, compiled: CompiledGraph, environment: SubtaskEnvironment, restored: RestoredChannels
) -> SubtaskComponents:
    """Unpickle a fresh copy of the node, and make its components. Raises as `core_of`."""
    for room in _ROOMS:
        restored = room.channels(restored, subtask, compiled.topology)
    core = core_of(subtask, compiled, environment, restored)
    made = SubtaskComponents(core, (RowCapture(core.keyed, core.context),))
    for room in _ROOMS:
        room.equip(made)
    return made


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
        for strand, ledger in _ledgers(_site(each, deploy, run, machines[each.subtask], inline_bytes_max))
    }


def _site(
    restored: RestoredSubtask, deploy: Deploy, run: str, machine: SubtaskMachine, inline_bytes_max: int
) -> LedgerSite:
    snapshot_id = 0 if restored.origin is None else restored.origin.snapshot_id

    def list_of(entries: Iterable[ListEntry]) -> RestoredList:
        return RestoredList(restored.subtask, run, tuple(entries), inline_bytes_max, snapshot_id, restored.needs_base)

    return LedgerSite(restored, machine.components, deploy.incarnation, list_of)


def _ledgers(at: LedgerSite) -> Iterator[tuple[Strand, Ledger]]:
    yield Strand.ROWS, RowLedger(at.list_of(at.restored.rows))
    yield Strand.OWN, OwnStateLedger(at.list_of(entries_of(at.restored.own)))
    for room in _ROOMS:
        yield from room.ledgers(at)


def collector_of(
    parts: RestoredParts, run: str, machines: Mapping[Subtask, SubtaskMachine], request_seconds: float
) -> Collector:
    """Return who takes the contributions of the subtasks of a deployment.

    Parameters
    ----------
    parts : RestoredParts
    run : str
    machines : mapping of Subtask to SubtaskMachine
    request_seconds : float
        Seconds that a node waits for the answer to `requestSnapshot`.
    """
    for room in _ROOMS:
        if (collector := room.collector(parts, run, machines)) is not None:
            return collector
    return ToCoordinator(parts.deploy.incarnation, request_seconds)


def cut_start_of(topology: Topology) -> CutStart:
    """Return how the cuts of a graph start."""
    for room in _ROOMS:
        if (start := room.cut_start(topology)) is not None:
            return start
    return StartAtOnce(topology)


def completion_of(parts: CompletionParts) -> Completion:
    """Return how the snapshots of a coordinator instance become whole."""
    for room in _ROOMS:
        if (completion := room.completion(parts)) is not None:
            return completion
    return Acknowledged(parts)
