"""What is told of the snapshots of one life of a coordinator: how each stands or ended, and where its time went.

Owns the reports and their words, which people, the page and the metrics read. Decides nothing. Durations of subtasks
come from their own hosts, the rest from the coordinator's clock: times of two clocks are never subtracted, only spans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from snapshot.coordinator.pending_snapshot import PendingSnapshot
from snapshot.stored.part import Handle

#: Reports that are kept, the newest: at two snapshots a second most of a minute, at one in ten seconds a quarter of
#: an hour. They are told again whenever somebody asks how the run stands.
REPORTS_MAX = 100


class SnapshotState(Enum):
    """How a snapshot stands, as this life of the coordinator knows it."""

    PENDING = "pending"
    PUBLISHED = "published"
    ABORTED = "aborted"


class SnapshotStats:
    """Reports of the snapshots of one life of a coordinator.

    `reports` may be called on another thread than the rest: a snapshot is reported as closed before it stops pending.

    Parameters
    ----------
    subtask_count : int
        All of the run's.
    epoch_offset : float
        Seconds to add to the times of snapshots for seconds since the epoch.
    """

    def __init__(self, subtask_count: int, epoch_offset: float) -> None:
        self._subtask_count = subtask_count
        self._epoch_offset = epoch_offset
        self._closed: deque[dict[str, Any]] = deque(maxlen=REPORTS_MAX)
        #: {snapshot_id: it, and why it would be aborted}; only the next claim tells (PROTOCOL 7.6)
        self._undecided: dict[int, tuple[PendingSnapshot, str]] = {}

    def published(self, snapshot: PendingSnapshot, now: float) -> None:
        """It is."""
        self._closed.append(self._report(snapshot, SnapshotState.PUBLISHED, "", now))

    def aborted(self, snapshot: PendingSnapshot, reason: str, now: float) -> None:
        """It is, or will never be whole."""
        self._closed.append(self._report(snapshot, SnapshotState.ABORTED, reason, now))

    def undecided(self, snapshot: PendingSnapshot, reason: str) -> None:
        """Its manifest may have been written or not; `reason` is why, if not."""
        self._undecided[snapshot.snapshot_id] = (snapshot, reason)

    def decide(self, history: Sequence[int], now: float) -> None:
        """The store was listed: what was undecided is published if `history` has it, and else is not."""
        for snapshot, reason in self._undecided.values():
            if snapshot.snapshot_id in history:
                self.published(snapshot, now)
            else:
                self.aborted(snapshot, reason, now)
        self._undecided = {}

    def reports(self, pending: Iterable[PendingSnapshot], now: float) -> list[dict[str, Any]]:
        """The newest `REPORTS_MAX`, oldest first, those that are pending included."""
        still_open = [*pending, *(snapshot for snapshot, _ in list(self._undecided.values()))]
        open_reports = [self._report(snapshot, SnapshotState.PENDING, "", now) for snapshot in still_open]
        by_id = {report["id"]: report for report in (*open_reports, *list(self._closed))}
        return [by_id[snapshot_id] for snapshot_id in sorted(by_id)][-REPORTS_MAX:]

    def _report(self, snapshot: PendingSnapshot, state: SnapshotState, reason: str, until: float) -> dict[str, Any]:
        handles = [handle for record in list(snapshot.records.values()) for handle in record.handles]
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
        """Where the time went: the way of the subtask that acknowledged last, once there is no later one."""
        last = snapshot.last
        if last is None or len(snapshot.records) < self._subtask_count:
            return dict.fromkeys(("slowest", "triggerMs", "alignMs", "captureMs", "uploadMs", "publishMs"))
        timings = last.timings
        trigger = last.at - snapshot.started_at - (timings.align + timings.capture + timings.upload)
        return {
            "slowest": str(last.subtask),
            # Below zero only by the drift of two clocks, or where a simulation starts one that is told of later.
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
