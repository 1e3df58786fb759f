"""Record the coordinator's snapshots: due, pending, published and aborted.

The table has no I/O. Time is a parameter, in monotonic seconds. The table assigns ids (PROTOCOL 3), decides when a
snapshot may start, collects acknowledgements, and detects complete snapshots. The fence publishes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from cutline.snapshot.coordinator.id_block import IdBlock
from cutline.snapshot.coordinator.pending_snapshot import (
    Acknowledgement,
    Initiator,
    PendingSnapshot,
    SnapshotPolicy,
    SnapshotRequest,
)
from cutline.snapshot.coordinator.request_queue import RequestQueue
from cutline.snapshot.coordinator.snapshot_stats import SnapshotStats
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.contribution import SnapshotTimings


class SnapshotTable:
    """The snapshots of one coordinator instance.

    Parameters
    ----------
    policy : SnapshotPolicy
    subtask_count : int
        Number of acknowledgements that complete a snapshot.
    epoch_offset : float
        Seconds to add to monotonic time, giving seconds since the epoch, for reports.
    state_multiple : int
        Snapshots whose ids are multiples store all state. Requested snapshots do (PROTOCOL 12.11).
    aggregates : collection of Subtask
        Subtasks that write to a store before their acknowledgement. One snapshot at a time may be pending then, and
        one for which only these are missing has no timeout (PROTOCOL 13.5, one at a time).
    """

    def __init__(
        self,
        policy: SnapshotPolicy,
        subtask_count: int,
        epoch_offset: float,
        state_multiple: int = 1,
        aggregates: Collection[Subtask] = (),
    ) -> None:
        self.policy = replace(policy, max_concurrent=1) if aggregates else policy
        self.aggregates = tuple(aggregates)
        #: {snapshot_id: pending snapshot}, ascending
        self.pending: dict[int, PendingSnapshot] = {}
        self.requests = RequestQueue()
        self._subtask_count = subtask_count
        self._state_multiple = state_multiple
        self.ids = IdBlock(state_multiple)
        #: whether the next snapshots store all state, because no later one could list an older state
        self.needs_state = False
        self.stats = SnapshotStats(subtask_count, epoch_offset)
        self.failures_in_a_row = 0
        #: monotonic seconds of the first of the snapshots in a row that have not started, or None
        self._unstarted_since: float | None = None
        self._trigger_at: float | None = None
        self._pause_until = 0.0

    @property
    def min_snapshot_id(self) -> int:
        """Lowest id that still runs, or may still be started. All lower ids are settled (PROTOCOL 3.4, minimum id)."""
        return min([*self.pending, self.ids.lowest_unused])

    def take_block(self, claim: int, history: Sequence[int], now: float) -> None:
        """Use the ids of a new claim. The ids of the old claim are never used again (PROTOCOL 3.2, blocks of ids).

        `history` lists the published snapshots that the claim found.
        """
        assert not self.pending
        self.ids.begin(claim)
        self.stats.decide(history, now)
        if self.policy.interval is not None:
            self._trigger_at = now + self.policy.interval

    def trigger_at(self, *, waits_for_idle: bool = False) -> float | None:
        """Return the monotonic time of the next snapshot that nobody requests, or None without such a snapshot.

        A timed snapshot starts after the interval. A snapshot of an idle run starts as soon as the policy allows.
        """
        at = self._pause_until if waits_for_idle else self._trigger_at
        return None if at is None or not self.has_room else max(at, self._pause_until)

    @property
    def has_room(self) -> bool:
        """Whether a further snapshot may be pending."""
        return len(self.pending) < self.policy.max_concurrent and not self.ids.is_used_up and not self._awaits_state

    @property
    def _awaits_state(self) -> bool:
        """Whether state is being stored that a snapshot without state would overtake each time (PROTOCOL 12.12)."""
        multiple = self._state_multiple
        return multiple > 1 and any(each.snapshot_id % multiple == 0 for each in self.collecting())

    @property
    def has_failed_too_often(self) -> bool:
        """Whether more snapshots in a row failed than the policy tolerates."""
        return self.failures_in_a_row > self.policy.tolerable_failures

    def may_ask(self, now: float) -> bool:
        """Return whether the policy lets a snapshot start now because a node asks, or because the run is idle."""
        return self.has_room and now >= self._pause_until

    def open(self, now: float, requests: Sequence[SnapshotRequest], initiator: Initiator) -> PendingSnapshot:
        """Start a snapshot for `requests`, and for all waiting requests without named initiators.

        A snapshot of a restore answers no request, because its cut is older than they are.
        """
        taken = [] if initiator is Initiator.RESTORE else self.requests.take(requests)
        snapshot_id = self.ids.use_next(has_state=bool(taken) or self.needs_state)
        snapshot = self.pending[snapshot_id] = PendingSnapshot(snapshot_id, now, taken, initiator)
        if self.policy.interval is not None:
            self._trigger_at = now + self.policy.interval
        return snapshot

    def open_given(self, snapshot_id: int, now: float) -> None:
        """Start a snapshot that subtasks have started, under an unused id of this claim.

        Lower unused ids may be started until this snapshot ends, because independent initiators agree on no order.
        """
        self.ids.use(snapshot_id)
        self.pending[snapshot_id] = PendingSnapshot(snapshot_id, now, [], Initiator.NODE)
        self.pending = dict(sorted(self.pending.items()))

    def running_below(self, snapshot_id: int) -> tuple[int, ...]:
        """Return the ids that an initiator must record first (PROTOCOL 3.3, ascending cuts)."""
        return tuple(pending for pending in self.pending if pending < snapshot_id)

    def acknowledge(
        self, snapshot_id: int, record: SubtaskRecord, timings: SnapshotTimings, now: float
    ) -> PendingSnapshot | None:
        """Record the part of one subtask. Return the snapshot after the last part, else None."""
        snapshot = self.pending.get(snapshot_id)
        if snapshot is None or snapshot.is_publishing:
            return None
        snapshot.records[record.subtask] = record
        snapshot.last = Acknowledgement(record.subtask, now, timings)
        return snapshot if len(snapshot.records) == self._subtask_count else None

    def is_collecting(self, snapshot_id: int) -> bool:
        """Return whether the snapshot is pending and incomplete."""
        snapshot = self.pending.get(snapshot_id)
        return snapshot is not None and not snapshot.is_publishing

    def collecting(self) -> list[PendingSnapshot]:
        """Return the pending snapshots that are incomplete."""
        return [pending for pending in self.pending.values() if not pending.is_publishing]

    def overdue(self, now: float) -> list[PendingSnapshot]:
        """Return the incomplete snapshots whose timeout has passed."""
        return [p for p in self.collecting() if (at := self._timeout_at(p)) is not None and now >= at]

    def _timeout_at(self, snapshot: PendingSnapshot) -> float | None:
        if snapshot.start_until is not None:
            return snapshot.start_until
        return snapshot.started_at + self.policy.timeout if self._may_be_late(snapshot) else None

    def _may_be_late(self, snapshot: PendingSnapshot) -> bool:
        """Return whether a timeout ends a snapshot: not while only stores are waited for, unless others wait for it."""
        stored = sum(subtask in snapshot.records for subtask in self.aggregates)
        others = self._subtask_count - len(self.aggregates)
        return not self.aggregates or len(snapshot.records) - stored < others or len(self.pending) > 1

    def next_deadline(self) -> float | None:
        """Return the monotonic time of the next timeout of a snapshot or a request, or None."""
        times = [*map(self._timeout_at, self.collecting()), self.requests.next_deadline()]
        return min((at for at in times if at is not None), default=None)

    def close_published(self, snapshot_id: int, now: float) -> PendingSnapshot:
        """Close a published snapshot."""
        self.failures_in_a_row, self._unstarted_since = 0, None
        self.stats.published(self.pending[snapshot_id], now)
        return self._close(snapshot_id, now)

    def close_failed(self, snapshot_id: int, reason: str, now: float) -> PendingSnapshot:
        """Close an aborted snapshot, and count the failure.

        Snapshots that did not start count when together they have taken as long as one may (PROTOCOL 13.19).
        """
        if self.pending[snapshot_id].start_until is None:
            self.failures_in_a_row, self._unstarted_since = self.failures_in_a_row + 1, None
        elif self._unstarted_since is None:
            self._unstarted_since = self.pending[snapshot_id].started_at
        elif now - self._unstarted_since >= self.policy.timeout:
            self.failures_in_a_row, self._unstarted_since = self.failures_in_a_row + 1, None
        self.stats.aborted(self.pending[snapshot_id], reason, now)
        return self._close(snapshot_id, now)

    def close_superseded(self, snapshot_id: int, by: int, reason: str, now: float) -> None:
        """Close a snapshot, because the later snapshot `by` was complete first. Its requests wait for `by`."""
        self.stats.aborted(self.pending[snapshot_id], reason, now)
        superseded = self._close(snapshot_id, now)
        self.pending[by].requests += superseded.requests

    def give_up_all(self, reason: str, now: float) -> None:
        """Drop all pending snapshots, because a rollback makes them impossible. Requests wait for the next snapshot."""
        for pending in self.pending.values():
            if pending.is_publishing:
                self.stats.undecided(pending, reason)
            else:
                self.stats.aborted(pending, reason, now)
        self.requests.put_back(self.pending.values())
        self.pending.clear()
        self.ids.drop_skipped()
        self.failures_in_a_row, self._unstarted_since = 0, None

    def end(self, now: float) -> None:
        """Report undecided snapshots as aborted, because no further claim of this instance decides them."""
        self.stats.decide((), now)

    def reports(self, now: float) -> list[dict[str, Any]]:
        """Return the reports of the newest snapshots as plain data, oldest first. Any thread may call this method."""
        return self.stats.reports(list(self.pending.values()), now)

    def _close(self, snapshot_id: int, now: float) -> PendingSnapshot:
        self._pause_until = now + self.policy.min_pause
        self.ids.drop_skipped(snapshot_id)
        return self.pending.pop(snapshot_id)
