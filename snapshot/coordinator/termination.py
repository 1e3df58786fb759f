"""What a consistent snapshot says of the end: which cycles are over, and whether all is.

Termination of a cyclic part is a stable property (Chandy & Lamport 1985, section 4): if it holds in a
consistent cut, it holds from then on. So it is read from snapshots, never from counters that were polled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snapshot.ids import Subtask
from snapshot.plan.topology import Component, Topology
from snapshot.stored.certificate import SubtaskRecord


def is_final(records: Sequence[SubtaskRecord]) -> bool:
    """Every subtask has sent its end, and every channel is empty: the run's result."""
    return all(record.status.ended for record in records) and not any(
        handle.channel is not None for record in records for handle in record.handles
    )


def ended_components(topology: Topology, records: Sequence[SubtaskRecord]) -> list[Component]:
    """The cycles that are over and whose members have not all ended: passive, empty, no timers, outer inputs ended."""
    by_subtask = {record.subtask: record for record in records}
    return [part for part in topology.components if part.cyclic and _is_over(part, topology, by_subtask)]


def _is_over(part: Component, topology: Topology, records: Mapping[Subtask, SubtaskRecord]) -> bool:
    members = [subtask for subtask in topology.subtasks if subtask.node in part.nodes]
    statuses = [records[subtask].status for subtask in members]
    if all(status.ended for status in statuses):
        return False
    if not all(s.passive and not s.has_timers and s.outer_inputs_ended for s in statuses):
        return False
    sent = {entry.channel: entry.sent for subtask in members for entry in records[subtask].sent}
    return all(
        entry.processed == sent[entry.channel]
        for subtask in members
        for entry in records[subtask].received
        if entry.channel.source.node in part.nodes
    )
