"""Plan a recovery: from a manifest to the restored state of each subtask.

A changed graph may lose data. `plan_restore` names the loss, and refuses the restore unless the loss was allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from snapshot.coordinator.control import RestoredSubtask
from snapshot.coordinator.partition_assignment import DROPPED_STATE, Assignment, assign_afresh, assign_again
from snapshot.errors import RestoreRefused
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.manifest import Manifest
from snapshot.stored.part import Handle, PartKind
from snapshot.stored.topology_record import topology_of_record

#: names that `submit(allow=...)` accepts
CHANGED_GRAPH = "changedGraph"
DROPPED_MESSAGES = "droppedMessages"
REPEATED_OUTPUT = "repeatedOutput"
ALLOWANCES = (CHANGED_GRAPH, DROPPED_MESSAGES, DROPPED_STATE, REPEATED_OUTPUT)


def check_allowances(allow: Collection[str]) -> tuple[str, ...]:
    """Return the allowances in order.

    Raises
    ------
    ValueError
        if a name is not in `ALLOWANCES`.
    """
    unknown = [each for each in allow if each not in ALLOWANCES]
    if unknown:
        raise ValueError(f"allow={set(unknown)} is unknown; there are {', '.join(ALLOWANCES)}")
    return tuple(sorted(allow))


#: {source: names that its `partitions` hook listed, in that order}
Partitions = Mapping[str, tuple[str, ...]]


def fresh_start(topology: Topology, partitions: Partitions) -> list[RestoredSubtask]:
    """Return the plan of a fresh start, with every subtask as submitted."""
    assigned = {
        node.name: assign_afresh(partitions[node.name], node.parallelism)
        for node in topology.nodes
        if node.name in partitions
    }
    return [RestoredSubtask(each, None, (), (), (), _share(assigned, each)) for each in topology.subtasks]


def plan_restore(
    topology: Topology, manifest: Manifest, allow: Collection[str], partitions: Partitions
) -> list[RestoredSubtask]:
    """Return the restored state of every subtask of `topology`, from the snapshot of `manifest`.

    Raises
    ------
    RestoreRefused
        if the snapshot is of another graph, or of partitions that are no longer listed, and this was not allowed. The
        error names each difference.
    """
    stored = topology_of_record(manifest.topology)
    where = f"run {manifest.run!r}, snapshot {manifest.snapshot_id}"
    differences = topology.difference(stored)
    if differences and CHANGED_GRAPH not in allow:
        raise RestoreRefused(
            f"{where} is of another graph:\n  " + "\n  ".join(differences)
            + f"\nSubmit the graph that it was taken of, under another name, or with allow={{'{CHANGED_GRAPH}'}}"
        )  # fmt: skip
    _refuse_rescaling(where, topology, stored)
    _refuse_dropping(where, topology, manifest, allow)
    _refuse_edges_into_ended(where, topology, stored, manifest)
    assigned = _assigned(where, topology, manifest, allow, partitions)
    return _Plan(topology, manifest, assigned, _missing_ends(topology, stored, manifest)).subtasks()


def _assigned(
    where: str, topology: Topology, manifest: Manifest, allow: Collection[str], partitions: Partitions
) -> dict[str, Assignment]:
    """Assign the partitions of each source that lists some, or whose snapshot holds some."""
    statuses = {record.subtask: record.status for record in manifest.records}
    assigned = {}
    for node in topology.nodes:
        subtasks = [Subtask(node.name, index) for index in range(node.parallelism)]
        stored = [statuses[each] for each in subtasks if each in statuses]
        if not stored and node.name in partitions:
            assigned[node.name] = assign_afresh(partitions[node.name], node.parallelism)
        elif node.name in partitions or any(status.partitions is not None for status in stored):
            source = f"{where}: source {node.name!r}"
            assigned[node.name] = assign_again(source, partitions.get(node.name, ()), stored, allow)
    return assigned


def _share(assigned: Mapping[str, Assignment], subtask: Subtask) -> tuple[str, ...] | None:
    return assigned[subtask.node][subtask.index] if subtask.node in assigned else None


def _refuse_rescaling(where: str, topology: Topology, stored: Topology) -> None:
    before = {node.name: node.parallelism for node in stored.nodes}
    for node in topology.nodes:
        if before.get(node.name, node.parallelism) != node.parallelism:
            raise RestoreRefused(
                f"{where}: node {node.name!r} had parallelism {before[node.name]}, now {node.parallelism}; "
                "state is not redistributed: submit it with the parallelism that it had"
            )


def _refuse_dropping(where: str, topology: Topology, manifest: Manifest, allow: Collection[str]) -> None:
    channels = dict.fromkeys(topology.channels)
    lost = [h for record in manifest.records for h in record.handles if h.channel and h.channel not in channels]
    if lost and DROPPED_MESSAGES not in allow:
        counts = [f"{h.channel}: {h.last - h.first + 1} messages" for h in lost]
        raise RestoreRefused(
            f"{where} holds messages of channels that the graph no longer has:\n  " + "\n  ".join(counts)
            + f"\nallow={{'{DROPPED_MESSAGES}'}} drops them"
        )  # fmt: skip


def _refuse_edges_into_ended(where: str, topology: Topology, stored: Topology, manifest: Manifest) -> None:
    """Refuse a new edge to a node that has ended, because an ended node processes no message."""
    ended = _ended_subtasks(manifest)
    known = dict.fromkeys(stored.channels)
    for channel in topology.channels:
        if channel not in known and channel.target in ended and channel.source not in ended:
            raise RestoreRefused(
                f"{where}: the edge {topology.edge_of(channel)} is new, and {channel.target} has ended in the "
                "snapshot: it would take no message. Lead the edge to a new node, or restore an earlier snapshot"
            )


def _missing_ends(topology: Topology, stored: Topology, manifest: Manifest) -> list[ChannelId]:
    """Return the channels behind ended subtasks that the stored graph did not end (PROTOCOL 6.7).

    Such a channel is new, or lay inside a cycle of the stored graph, where channels carry no end. A subtask that has
    ended needs no end.
    """
    ended = _ended_subtasks(manifest)
    had_end = dict.fromkeys(channel for channel in stored.channels if _carries_end(stored, channel))
    return [
        channel
        for channel in topology.channels
        if channel.source in ended
        and channel.target not in ended
        and channel not in had_end
        and _carries_end(topology, channel)
    ]


def _ended_subtasks(manifest: Manifest) -> Collection[Subtask]:
    return dict.fromkeys(record.subtask for record in manifest.records if record.status.ended)


def _carries_end(topology: Topology, channel: ChannelId) -> bool:
    """Return whether the end of the sender is a message of the channel. A cycle ends as a whole (PROTOCOL 5)."""
    return channel.target.node not in topology.component_of(channel.source.node).nodes


class _Plan:
    """Index the numbers and parts of a manifest by channel, because a manifest lists them by subtask."""

    def __init__(
        self,
        topology: Topology,
        manifest: Manifest,
        assigned: Mapping[str, Assignment],
        missing_ends: Collection[ChannelId],
    ) -> None:
        self._topology = topology
        self._assigned = assigned
        self._missing_ends = missing_ends
        self._records = {record.subtask: record for record in manifest.records}
        known = dict.fromkeys(topology.channels)
        sent = {entry.channel: entry.sent for record in manifest.records for entry in record.sent}
        #: {channel: (p, S)} of the channels that the graph still has
        self._numbers = {
            entry.channel: (entry.processed, sent[entry.channel])
            for record in manifest.records
            for entry in record.received
            if entry.channel in known
        }
        self._parts: dict[tuple[PartKind, ChannelId], Handle] = {
            (handle.kind, handle.channel): handle
            for record in manifest.records
            for handle in record.handles
            if handle.channel is not None
        }

    def subtasks(self) -> list[RestoredSubtask]:
        return [self._subtask(subtask) for subtask in self._topology.subtasks]

    def _subtask(self, subtask: Subtask) -> RestoredSubtask:
        record = self._records.get(subtask)
        inputs = [c for c in self._topology.inputs_of(subtask) if c in self._numbers]
        outputs = [c for c in self._topology.outputs_of(subtask) if c in self._numbers]
        # The receiver's part comes before the sender's (PROTOCOL 1.3).
        parts = (self._parts.get((kind, c)) for c in inputs for kind in (PartKind.RECEIVED, PartKind.SENT))
        return RestoredSubtask(
            subtask=subtask,
            state=None if record is None else record.state,
            processed=tuple((channel, self._numbers[channel][0]) for channel in inputs),
            sent=tuple((channel, self._numbers[channel][1]) for channel in outputs),
            channel_parts=tuple(part for part in parts if part is not None),
            partitions=_share(self._assigned, subtask),
            missing_ends=tuple(channel for channel in self._missing_ends if channel.source == subtask),
        )
