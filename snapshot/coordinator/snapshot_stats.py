"""Report the snapshots of one coordinator instance: state, result, sizes and durations.

People, the page and the metrics read these reports and their keys. This module decides nothing. Durations of subtasks
come from their hosts' clocks, all others from the coordinator's clock. Times of two clocks are never subtracted, only
durations, because the clocks differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from cutline.snapshot.coordinator.pending_snapshot import PendingSnapshot
from cutline.snapshot.stored.part import Handle

#: number of the newest reports to keep. At two snapshots a second, these cover most of a minute; at one in ten seconds,
#: a quarter of an hour. Every query of the run's status sends all of these reports.
REPORTS_MAX = 100


class SnapshotState(Enum):
    """State of a snapshot, as this coordinator instance knows the state."""

    PENDING = "pending"
    PUBLISHED = "published"
    ABORTED = "aborted"


class SnapshotStats:
    """Reports of the snapshots of one coordinator instance.

    `reports` may run on another thread, because a snapshot is reported as closed before the snapshot stops pending.

    Parameters
    ----------
    subtask_count : int
        Number of the run's subtasks.
    epoch_offset : float
        Seconds to add to the times of snapshots, giving seconds since the epoch.
    """

    def __init__(self, subtask_count: int, epoch_offset: float) -> None:
        self._subtask_count = subtask_count
        self._epoch_offset = epoch_offset
        self._closed: deque[dict[str, Any]] = deque(maxlen=REPORTS_MAX)
        #: {snapshot_id: (snapshot, reason if aborted)}; only the next claim decides (PROTOCOL 7.6, undecided manifest)
        self._undecided: dict[int, tuple[PendingSnapshot, str]] = {}

    def published(self, snapshot: PendingSnapshot, now: float) -> None:
        """Report a published snapshot."""
        self._closed.append(self._report(snapshot, SnapshotState.PUBLISHED, "", now))

    def aborted(self, snapshot: PendingSnapshot, reason: str, now: float) -> None:
        """Report a snapshot that was aborted, or that can never be complete."""
        self._closed.append(self._report(snapshot, SnapshotState.ABORTED, reason, now))

    def undecided(self, snapshot: PendingSnapshot, reason: str) -> None:
        """Record a snapshot whose manifest has an unknown outcome. `reason` applies if the write failed."""
        self._undecided[snapshot.snapshot_id] = (snapshot, reason)

    def decide(self, history: Sequence[int], now: float) -> None:
        """Decide the undecided snapshots after a listing: those in `history` are published, the rest are aborted."""
        for snapshot, reason in self._undecided.values():
            if snapshot.snapshot_id in history:
                self.published(snapshot, now)
            else:
                self.aborted(snapshot, reason, now)
        self._undecided = {}

    def set_pinned(self, snapshot_id: int, is_pinned: bool) -> None:
        """Report the changed pin of a published snapshot. A report that is not kept any more stays away."""
        for index, report in enumerate(self._closed):
            if report["id"] == snapshot_id:
                self._closed[index] = {**report, "pinned": is_pinned}

    def reports(self, pending: Iterable[PendingSnapshot], now: float) -> list[dict[str, Any]]:
        """Return the newest `REPORTS_MAX` reports, oldest first, including pending snapshots."""
        still_open = [*pending, *(snapshot for snapshot, _ in list(self._undecided.values()))]
        open_reports = [self._report(snapshot, SnapshotState.PENDING, "", now) for snapshot in still_open]
        by_id = {report["id"]: report for report in (*open_reports, *list(self._closed))}
        return [by_id[snapshot_id] for snapshot_id in sorted(by_id)][-REPORTS_MAX:]

    def _report(self, snapshot: PendingSnapshot, state: SnapshotState, reason: str, until: float) -> dict[str, Any]:
        handles = [handle for record in list(snapshot.records.values()) for handle in record.all_handles]
        on_channels = [handle for handle in handles if handle.channel is not None]
        return {
            "id": snapshot.snapshot_id,
            "state": state.value,
            "reason": reason,
            "pinned": snapshot.pinned,
            "initiator": snapshot.initiator.value,
            "timestamp": snapshot.started_at + self._epoch_offset,
            "durationMs": _milliseconds(until - snapshot.started_at),
            **self._split(snapshot, until if state is SnapshotState.PUBLISHED else None),
            "bytes": _size(handles),
            "channelBytes": _size(on_channels),
            "channelMessages": sum(handle.last - handle.first + 1 for handle in on_channels),
            "acknowledged": len(snapshot.records),
            "subtasks": self._subtask_count,
        }

    def _split(self, snapshot: PendingSnapshot, published_at: float | None) -> dict[str, Any]:
        """Return the durations of the last subtask to acknowledge, or None values while parts are missing."""
        last = snapshot.last
        if last is None or len(snapshot.records) < self._subtask_count:
            return dict.fromkeys(("slowest", "triggerMs", "alignMs", "captureMs", "uploadMs", "publishMs"))
        timings = last.timings
        trigger = last.at - snapshot.started_at - (timings.align + timings.capture + timings.upload)
        return {
            "slowest": str(last.subtask),
            # Negative only by the drift of two clocks, or if a simulation starts a snapshot before the event.
            "triggerMs": _milliseconds(max(0.0, trigger)),
            "alignMs": _milliseconds(timings.align),
            "captureMs": _milliseconds(timings.capture),
            "uploadMs": _milliseconds(timings.upload),
            "publishMs": None if published_at is None else _milliseconds(published_at - last.at),
        }


def _size(handles: Iterable[Handle]) -> int:
    return sum(handle.size for handle in handles)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)
