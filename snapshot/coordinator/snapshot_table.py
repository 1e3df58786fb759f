"""The coordinator's book of snapshots: which one is due, which are pending, what came of each.

Pure: time comes in as seconds of a monotonic clock. It gives the ids (PROTOCOL 3), decides when one may
start, collects acknowledgements, and says when one is whole; publishing is the fence's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapshot.coordinator.pending_snapshot import (
    Acknowledgement,
    Initiator,
    PendingSnapshot,
    SnapshotPolicy,
    SnapshotRequest,
)
from snapshot.coordinator.snapshot_stats import SnapshotStats
from snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, first_snapshot_id
from snapshot.stored.certificate import SubtaskRecord
from snapshot.stored.contribution import SnapshotTimings


class SnapshotTable:
    """All that is known of snapshots in one life of a coordinator.

    Parameters
    ----------
    policy : SnapshotPolicy
    subtask_count : int
        Acknowledgements that make one whole.
    epoch_offset : float
        Seconds from monotonic time to seconds since the epoch, for reports.
    """

    def __init__(self, policy: SnapshotPolicy, subtask_count: int, epoch_offset: float) -> None:
        self.policy = policy
        #: {snapshot_id: it}, ascending
        self.pending: dict[int, PendingSnapshot] = {}
        self.requests: list[SnapshotRequest] = []
        self._subtask_count = subtask_count
        self._log = SnapshotStats(subtask_count, epoch_offset)
        self.failures_in_a_row = 0
        self._next_id = 0
        #: first id of the next claim's block
        self._ids_end = 0
        self._trigger_at: float | None = None
        self._pause_until = 0.0

    @property
    def min_snapshot_id(self) -> int:
        """The lowest id that is still running; everything below it is settled (PROTOCOL 3.4)."""
        return min(self.pending, default=self._next_id)

    def take_block(self, claim: int, history: Sequence[int], now: float) -> None:
        """Use the ids of a new claim; those of the old one are never used again (PROTOCOL 3.2).

        `history` is what the claim found published.
        """
        assert not self.pending
        self._log.decide(history, now)
        self._next_id, self._ids_end = first_snapshot_id(claim), first_snapshot_id(claim + 1)
        if self.policy.interval is not None:
            self._trigger_at = now + self.policy.interval

    def trigger_at(self) -> float | None:
        """When time triggers the next one; None: never, or not while so many are pending."""
        if self._trigger_at is None or not self.has_room:
            return None
        return max(self._trigger_at, self._pause_until)

    @property
    def has_room(self) -> bool:
        """One more may be pending."""
        return len(self.pending) < self.policy.max_concurrent and not self.is_used_up

    @property
    def is_used_up(self) -> bool:
        """The ids of the claim's block are given out; the next block is the next claim's."""
        return self._next_id >= self._ids_end

    @property
    def has_failed_too_often(self) -> bool:
        """More snapshots in a row failed than the policy tolerates."""
        return self.failures_in_a_row > self.policy.tolerable_failures

    def may_ask(self, now: float) -> bool:
        """Whether policy lets a node start one now."""
        return self.has_room and now >= self._pause_until

    def open(self, now: float, requests: Sequence[SnapshotRequest], initiator: Initiator) -> PendingSnapshot:
        """Begin one, for `requests` and for all others that wait and do not name their initiators."""
        taken = [request for request in self.requests if request in requests or request.initiators is None]
        self.requests = [request for request in self.requests if request not in taken]
        snapshot = PendingSnapshot(self._next_id, now, taken, initiator)
        self.pending[snapshot.snapshot_id] = snapshot
        self._next_id += 1
        if self.policy.interval is not None:
            self._trigger_at = now + self.policy.interval
        return snapshot

    def open_given(self, snapshot_id: int, now: float) -> None:
        """Begin one that others have started, under an id of this claim that was not used."""
        assert self._next_id <= snapshot_id < self._ids_end
        self.pending[snapshot_id] = PendingSnapshot(snapshot_id, now, [], Initiator.NODE)
        self._next_id = snapshot_id + 1

    @property
    def first_id(self) -> int:
        """The first id of its claim's block."""
        return self._ids_end - SNAPSHOT_IDS_PER_CLAIM

    def is_free(self, snapshot_id: int) -> bool:
        """Whether an id can still be given."""
        return self._next_id <= snapshot_id < self._ids_end

    def running_below(self, snapshot_id: int) -> tuple[int, ...]:
        """Ids that an initiator must have recorded first (PROTOCOL 3.3)."""
        return tuple(pending for pending in self.pending if pending < snapshot_id)

    def acknowledge(
        self, snapshot_id: int, record: SubtaskRecord, timings: SnapshotTimings, now: float
    ) -> PendingSnapshot | None:
        """Note one subtask's part; the snapshot when that was the last one."""
        snapshot = self.pending.get(snapshot_id)
        if snapshot is None or snapshot.is_publishing:
            return None
        snapshot.records[record.subtask] = record
        snapshot.last = Acknowledgement(record.subtask, now, timings)
        return snapshot if len(snapshot.records) == self._subtask_count else None

    def is_collecting(self, snapshot_id: int) -> bool:
        """Whether it is pending and not whole."""
        snapshot = self.pending.get(snapshot_id)
        return snapshot is not None and not snapshot.is_publishing

    def collecting(self) -> list[PendingSnapshot]:
        """Those that are not whole."""
        return [pending for pending in self.pending.values() if not pending.is_publishing]

    def overdue(self, now: float) -> list[PendingSnapshot]:
        """Those whose time is over."""
        return [p for p in self.collecting() if now >= p.started_at + self.policy.timeout]

    def next_deadline(self) -> float | None:
        """When the next pending one, or the next order, runs out of time."""
        times = [p.started_at + self.policy.timeout for p in self.collecting()]
        times += [request.deadline for request in self.requests if request.deadline is not None]
        return min(times, default=None)

    def expire_requests(self, now: float) -> list[SnapshotRequest]:
        """Remove and return the orders for which no snapshot could be started in time."""
        expired = [request for request in self.requests if request.deadline is not None and now >= request.deadline]
        self.requests = [request for request in self.requests if request not in expired]
        return expired

    def close_published(self, snapshot_id: int, now: float) -> PendingSnapshot:
        """It is published."""
        self.failures_in_a_row = 0
        self._log.published(self.pending[snapshot_id], now)
        return self._close(snapshot_id, now)

    def close_failed(self, snapshot_id: int, reason: str, now: float) -> PendingSnapshot:
        """It was aborted, and that counts."""
        self.failures_in_a_row += 1
        self._log.aborted(self.pending[snapshot_id], reason, now)
        return self._close(snapshot_id, now)

    def close_superseded(self, snapshot_id: int, by: int, reason: str, now: float) -> None:
        """A later one was whole first; whoever waits for this one gets that one."""
        self._log.aborted(self.pending[snapshot_id], reason, now)
        superseded = self._close(snapshot_id, now)
        self.pending[by].requests += superseded.requests

    def give_up_all(self, reason: str, now: float) -> None:
        """The run rolls back: nothing pending can be whole any more. Orders wait for the next one."""
        for pending in self.pending.values():
            if pending.is_publishing:
                self._log.undecided(pending, reason)
            else:
                self._log.aborted(pending, reason, now)
        self.requests = [request for pending in self.pending.values() for request in pending.requests] + self.requests
        self.pending.clear()
        self.failures_in_a_row = 0

    def end(self, now: float) -> None:
        """No claim follows that would tell what became of the undecided: for this life they are aborted."""
        self._log.decide((), now)

    def reports(self, now: float) -> list[dict[str, Any]]:
        """How the newest snapshots stand or ended, as plain data, oldest first. May be called on any thread."""
        return self._log.reports(list(self.pending.values()), now)

    def take_requests(self) -> list[SnapshotRequest]:
        """Remove and return all orders that wait."""
        requests, self.requests = self.requests, []
        return requests

    def _close(self, snapshot_id: int, now: float) -> PendingSnapshot:
        self._pause_until = now + self.policy.min_pause
        return self.pending.pop(snapshot_id)
