"""Decide the termination of a run from a consistent snapshot, and track the commits of the last snapshot.

Termination of a cycle is a stable property (Chandy & Lamport 1985, section 4): a stable property that holds in a
consistent cut holds from then on. Termination is therefore read from snapshots, never from polled counters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cutline.snapshot.coordinator.pending_snapshot import SnapshotRequest
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Component, Topology
from cutline.snapshot.stored.certificate import SubtaskRecord


class RunTermination:
    """The termination of one run, as this coordinator instance knows it.

    Parameters
    ----------
    subtasks : sequence of Subtask
        All subtasks of the run.
    """

    def __init__(self, subtasks: Sequence[Subtask]) -> None:
        #: ids of the driver's requests for a snapshot after which the run stops; several callers may stop it
        self.stop_requests: set[int] = set()
        #: whether that snapshot is published. The run then ends after all commits, whatever fails until then
        self.is_stopping = False
        #: monotonic deadline of the commits; None while the last snapshot is not published or not deployed
        self.until: float | None = None
        self._subtasks = subtasks
        self._waiting: dict[Subtask, None] = {}

    def is_last(self, requests: Sequence[SnapshotRequest], *, is_final: bool) -> bool:
        """Return whether the run ends with the snapshot that was just published for `requests`."""
        self.is_stopping |= not is_final and any(request.request_id in self.stop_requests for request in requests)
        return is_final or self.is_stopping

    def await_commits(self, until: float) -> None:
        """Wait until the monotonic time `until` for all commits, because the last snapshot is published."""
        self._waiting = dict.fromkeys(self._subtasks)
        self.until = until

    def committed(self, subtasks: Sequence[Subtask]) -> bool:
        """Record commits of the last snapshot. Return whether all subtasks have committed."""
        for subtask in subtasks:
            self._waiting.pop(subtask, None)
        return not self._waiting

    def waits_only_for(self, subtasks: Collection[Subtask]) -> bool:
        """Return whether all commits that are missing are of these subtasks."""
        return all(subtask in subtasks for subtask in self._waiting)

    def roll_back(self) -> None:
        """Await no commits until the restore, because the restore repeats all commits."""
        self.until = None

    def who_is_late(self) -> str:
        """Name the subtasks that have not committed, for an error message."""
        return f"{', '.join(map(str, self._waiting))} have not committed the last snapshot in time"

    def result(self) -> tuple[Outcome, str]:
        """Return the outcome of the run, and the reason."""
        if self.is_stopping:
            return Outcome.STOPPED, "stopped by the driver, after a snapshot"
        return Outcome.FINISHED, "all nodes have ended"


def is_final(records: Sequence[SubtaskRecord]) -> bool:
    """Return whether the run has ended: every subtask has ended, and every channel is empty."""
    return all(record.status.ended for record in records) and not any(
        handle.channel is not None for record in records for handle in record.handles
    )


def ended_components(topology: Topology, records: Sequence[SubtaskRecord]) -> list[Component]:
    """Return the terminated cycles whose members have not all ended.

    A terminated cycle is passive and empty, has no timers, and all its outer inputs have ended.
    """
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
