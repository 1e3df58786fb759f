"""Snapshot requests that wait for a snapshot to start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cutline.snapshot.coordinator.pending_snapshot import PendingSnapshot, SnapshotRequest


class RequestQueue:
    """The waiting snapshot requests of one coordinator instance, oldest first."""

    def __init__(self) -> None:
        self.waiting: list[SnapshotRequest] = []

    def take(self, requests: Sequence[SnapshotRequest]) -> list[SnapshotRequest]:
        """Remove and return `requests`, and all waiting requests without named initiators."""
        taken = [each for each in self.waiting if each in requests or each.initiators is None]
        self._remove(taken)
        return taken

    def take_expired(self, now: float) -> list[SnapshotRequest]:
        """Remove and return the requests for which no snapshot was started in time."""
        expired = [each for each in self.waiting if each.deadline is not None and now >= each.deadline]
        self._remove(expired)
        return expired

    def take_all(self) -> list[SnapshotRequest]:
        """Remove and return all waiting requests."""
        taken, self.waiting = self.waiting, []
        return taken

    def put_back(self, snapshots: Iterable[PendingSnapshot]) -> None:
        """Let the requests of given up snapshots wait again, before all others."""
        self.waiting = [request for snapshot in snapshots for request in snapshot.requests] + self.waiting

    def next_deadline(self) -> float | None:
        """Return the monotonic time of the next timeout of a request, or None."""
        return min((each.deadline for each in self.waiting if each.deadline is not None), default=None)

    def _remove(self, taken: Sequence[SnapshotRequest]) -> None:
        self.waiting = [each for each in self.waiting if each not in taken]
