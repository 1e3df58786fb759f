"""Track the run's published snapshots, and remove all except the newest few and the pinned snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

#: seconds between two scans for unreferenced parts. A part is removed when two scans, at least the grace time apart,
#: find the part (PROTOCOL 10). Frequent scans therefore gain nothing.
SWEEP_INTERVAL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RemovalRequest:
    """A request of the driver to remove one snapshot."""

    request_id: int
    snapshot_id: int


class Retention:
    """Keep the newest `retained` snapshots, always including the newest, because a rollback restores the newest.

    Parameters
    ----------
    retained : int
        Number of snapshots to keep, at least 1.
    """

    def __init__(self, retained: int) -> None:
        assert retained >= 1, f"{retained} snapshots are to be kept, but a rollback needs one"
        #: ids of the published snapshots, ascending
        self.history: list[int] = []
        self._retained = retained
        self._next_sweep = 0.0
        #: snapshots whose removal was requested and not yet answered
        self._removing: tuple[int, ...] = ()
        #: snapshots that were not removed, because they are held or the store failed; tried again after a sweep
        self._left: dict[int, None] = {}
        #: requests that wait for the answer to `next_removal`
        self._requests: list[RemovalRequest] = []

    def is_sweep_due(self, now: float) -> bool:
        """Return whether a scan for orphans is due at `now`. A due scan sets the next time an interval later.

        What was left is tried again then, because a fork may have its own snapshot by now.
        """
        is_due = now >= self._next_sweep
        if is_due:
            self._next_sweep = now + SWEEP_INTERVAL_SECONDS
            self._left.clear()
        return is_due

    def take_over(self, history: Iterable[int]) -> None:
        """Replace the history by the snapshots that a new claim found."""
        self.history = list(history)

    def add(self, snapshot_id: int) -> None:
        """Add a published snapshot."""
        assert not self.history or snapshot_id > self.history[-1], (snapshot_id, self.history)
        self.history.append(snapshot_id)

    def request(self, request: RemovalRequest) -> bool:
        """Add a snapshot to the next removal. Return False if the history lacks the snapshot, or it is the newest."""
        if request.snapshot_id not in self.history[:-1]:
            return False
        self._requests.append(request)
        return True

    def reconsider(self, snapshot_id: int) -> None:
        """Let the next removal include a snapshot that was left, because its pin has changed."""
        self._left.pop(snapshot_id, None)

    def next_removal(self, unsettled: Iterable[int]) -> tuple[int, ...]:
        """Return the snapshots to remove now. Return nothing until `removed` has answered the previous request.

        Nor return anything while an unsettled snapshot is below the newest, because its manifest may still appear, and
        may list parts that the newest snapshot has dropped (PROTOCOL 10.3, collector).

        Parameters
        ----------
        unsettled : iterable of int
            Snapshots that are pending, or whose manifest has an unknown outcome.
        """
        if self._removing or any(snapshot_id < newest for newest in self.history[-1:] for snapshot_id in unsettled):
            return ()
        expired = [s for s in self.history[: -self._retained] if s not in self._left]
        requested = [request.snapshot_id for request in self._requests]
        self._removing = tuple(s for s in self.history[:-1] if s in expired or s in requested)
        return self._removing

    def removed(self, snapshot_ids: Collection[int]) -> list[RemovalRequest]:
        """Record the answer to `next_removal`: the removed snapshots. Return the requests that are answered."""
        open_ids = [s for s in self.history[:-1] if s not in self._removing]  # `take_over` may have changed the history
        answered = [request for request in self._requests if request.snapshot_id not in open_ids]
        self._requests = [request for request in self._requests if request not in answered]
        self.history = [s for s in self.history if s not in snapshot_ids]
        self._left.update(dict.fromkeys(s for s in self._removing if s not in snapshot_ids))
        self._removing = ()
        return answered
