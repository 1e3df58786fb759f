"""Track the run's published snapshots, and remove all except the newest few and the pinned snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: seconds between two scans for unreferenced parts. A part is removed when two scans, at least the grace time apart,
#: find the part (PROTOCOL 10). Frequent scans therefore gain nothing.
SWEEP_INTERVAL_SECONDS = 300.0


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
        #: snapshots that were not removed, because they are pinned or the store failed. This instance does not retry
        self._left: dict[int, None] = {}

    def is_sweep_due(self, now: float) -> bool:
        """Return whether a scan for orphans is due at `now`. A due scan sets the next time an interval later."""
        is_due = now >= self._next_sweep
        if is_due:
            self._next_sweep = now + SWEEP_INTERVAL_SECONDS
        return is_due

    def take_over(self, history: Iterable[int]) -> None:
        """Replace the history by the snapshots that a new claim found."""
        self.history = list(history)

    def add(self, snapshot_id: int) -> None:
        """Add a published snapshot."""
        assert not self.history or snapshot_id > self.history[-1], (snapshot_id, self.history)
        self.history.append(snapshot_id)

    def next_removal(self) -> tuple[int, ...]:
        """Return the snapshots to remove now. Return nothing until `removed` has answered the previous request."""
        if self._removing:
            return ()
        self._removing = tuple(s for s in self.history[: -self._retained] if s not in self._left)
        return self._removing

    def removed(self, snapshot_ids: Collection[int]) -> None:
        """Record the answer to `next_removal`: the removed snapshots."""
        self.history = [s for s in self.history if s not in snapshot_ids]
        self._left.update(dict.fromkeys(s for s in self._removing if s not in snapshot_ids))
        self._removing = ()
