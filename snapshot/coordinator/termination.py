"""The end of a run: what a consistent snapshot says of it, and who has still to commit the last snapshot.

Termination of a cyclic part is a stable property (Chandy & Lamport 1985, section 4): if it holds in a
consistent cut, it holds from then on. So it is read from snapshots, never from counters that were polled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snapshot.coordinator.pending_snapshot import SnapshotRequest
from snapshot.coordinator.run_state import Outcome
from snapshot.ids import Subtask
from snapshot.plan.topology import Component, Topology
from snapshot.stored.certificate import SubtaskRecord


class RunTermination:
    """The end of one run, as far as this life of its coordinator knows of it.

    Parameters
    ----------
    subtasks : sequence of Subtask
        All of the run's.
    """

    def __init__(self, subtasks: Sequence[Subtask]) -> None:
        #: the driver's request for the snapshot after which the run is to stop
        self.stop_request: int | None = None
        #: that snapshot is published: the run ends as soon as everybody has committed it, whatever fails until then
        self.is_stopping = False
        #: when the commits of the last snapshot take too long; None: the last one is not published, or not deployed
        self.until: float | None = None
        self._subtasks = subtasks
        self._waiting: dict[Subtask, None] = {}

    def is_last(self, requests: Sequence[SnapshotRequest], *, is_final: bool) -> bool:
        """Whether the run ends with the snapshot that was just published and met `requests`."""
        self.is_stopping |= not is_final and any(request.request_id == self.stop_request for request in requests)
        return is_final or self.is_stopping

    def await_commits(self, until: float) -> None:
        """The last snapshot is published: everybody is to commit it."""
        self._waiting = dict.fromkeys(self._subtasks)
        self.until = until

    def committed(self, subtasks: Sequence[Subtask]) -> bool:
        """Note commits of the last snapshot; True once nobody is awaited."""
        for subtask in subtasks:
            self._waiting.pop(subtask, None)
        return not self._waiting

    def roll_back(self) -> None:
        """Commits are repeated by the restore; nobody is awaited until then."""
        self.until = None

    def who_is_late(self) -> str:
        """For people: those who have not committed."""
        return f"{', '.join(map(str, self._waiting))} have not committed the last snapshot in time"

    def result(self) -> tuple[Outcome, str]:
        """How the run has ended, and why."""
        if self.is_stopping:
            return Outcome.STOPPED, "stopped by the driver, after a snapshot"
        return Outcome.FINISHED, "all nodes have ended"


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
