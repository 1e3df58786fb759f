"""Complete the records of a snapshot that stores no state but that of sinks, in a run that stores state in some.

Owns which state such a snapshot lists: that of the newest published snapshot that has the state of all subtasks. The
coordinator decides, because a worker may not know yet that a snapshot was published (PROTOCOL 12.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cutline.snapshot.coordinator.completion import Acknowledged, CompletionParts, CompletionResult, Whole
from cutline.snapshot.coordinator.control import SnapshotAcknowledged
from cutline.snapshot.coordinator.pending_snapshot import PendingSnapshot
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.modes import content
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import StepBase, SubtaskRecord
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.stored.topology_record import topology_of_record


class StepCompletion(Acknowledged):
    """Complete each snapshot by acknowledgements. Those without state list the state of an older snapshot.

    Parameters
    ----------
    parts : CompletionParts
    """

    def __init__(self, parts: CompletionParts) -> None:
        super().__init__(parts)
        self._run = parts.settings.run
        self._topology = parts.settings.topology
        self._deployment = parts.deployment

    def begun(self, *, is_adopted: bool) -> None:
        """Let the first snapshot store all state, if no snapshot can list that of the restored one."""
        known = self._deployment.known
        self._tracker.table.needs_state = known is not None and is_foreign(known, self._run, self._topology)

    def published(self, manifest: Manifest) -> None:
        """Let the next snapshots list the state of this one."""
        self._tracker.table.needs_state = False

    def acknowledged(self, message: SnapshotAcknowledged) -> CompletionResult | None:
        """Take the part of one subtask. Return the snapshot with its state after the last part."""
        result = super().acknowledged(message)
        if isinstance(result, Whole):
            self._add_state(result.snapshot)
        return result

    def _add_state(self, snapshot: PendingSnapshot) -> None:
        """Add to a snapshot without state the newest state that is stored for all subtasks (PROTOCOL 12.11).

        A snapshot that is being published counts, because its state is stored whatever becomes of its manifest.
        """
        if content(self._topology.row, snapshot.snapshot_id, is_sink=False).is_base:
            return
        manifests, known = self._tracker.manifests, self._deployment.known
        found = [manifest for number, manifest in manifests.items() if number < snapshot.snapshot_id]
        if known is not None and not is_foreign(known, self._run, self._topology):
            found.append(known)
        newest = max(found, key=lambda manifest: manifest.snapshot_id, default=None)
        snapshot.records.update(with_state(snapshot.records, self._topology, newest))


def with_state(
    records: Mapping[Subtask, SubtaskRecord], topology: Topology, newest: Manifest | None
) -> dict[Subtask, SubtaskRecord]:
    """Return the records, each with the state after which its log of steps goes on.

    Parameters
    ----------
    records : mapping of Subtask to SubtaskRecord
        Records without state, but for sinks.
    topology : Topology
    newest : Manifest or None
        The snapshot of this run that was published or restored last, or None before the first.
    """
    before = {} if newest is None else {record.subtask: record for record in newest.records}
    return {
        subtask: _completed(record, before.get(subtask), is_sink=topology.node(subtask.node).is_sink)
        for subtask, record in records.items()
    }


def is_foreign(manifest: Manifest, run: str, topology: Topology) -> bool:
    """Return whether a snapshot is of another run or graph, so that no later record can list its state.

    Another edge or another version of a node's states counts too: the state of the snapshot has the numbers of its
    channels, and values of its versions.
    """
    if manifest.run != run:
        return True
    before = topology_of_record(manifest.topology)
    return (before.nodes, before.edges) != (topology.nodes, topology.edges)


def _completed(record: SubtaskRecord, before: SubtaskRecord | None, *, is_sink: bool) -> SubtaskRecord:
    if before is None or before.base is None:
        return record
    steps = tuple(handle for handle in record.steps or () if not _is_behind(handle, record.subtask, before.base))
    logged = replace(record, base=before.base, steps=steps or None)
    if is_sink:
        return logged
    others = tuple(handle for handle in record.handles if handle.kind is not PartKind.STATE)
    return replace(
        logged,
        handles=(before.state, *others),
        groups=before.groups,
        rows=before.rows,
        own=before.own,
        version=before.version,
    )


def _is_behind(handle: Handle, subtask: Subtask, base: StepBase) -> bool:
    """Return whether all steps of a part came before the state."""
    if (handle.incarnation, handle.subtask) == (base.incarnation, subtask):
        return handle.last <= base.generation
    return handle.incarnation <= base.incarnation
