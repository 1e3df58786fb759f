"""The run's published snapshots, and which of them are to be removed: all but the newest few and the pinned."""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: Seconds between two looks for parts that nothing refers to. They are removed when they were seen twice with their
#: grace time between (PROTOCOL 10), so looking more often gains nothing.
SWEEP_INTERVAL_SECONDS = 300.0


class Retention:
    """Keeps the newest `retained`; the newest of all, which a rollback restores, is always among them.

    Parameters
    ----------
    retained : int
        At least 1.
    """

    def __init__(self, retained: int) -> None:
        assert retained >= 1, f"{retained} snapshots are to be kept, but a rollback needs one"
        #: ids of the published snapshots, ascending
        self.history: list[int] = []
        self._retained = retained
        self._next_sweep = 0.0
        #: removal of these was asked for and is not answered
        self._removing: tuple[int, ...] = ()
        #: these were left where they are: pinned, or the store failed. They are not asked for again in this life
        self._left: dict[int, None] = {}

    def is_sweep_due(self, now: float) -> bool:
        """Whether orphans are to be looked for at `now`; if so, the next time is an interval later."""
        is_due = now >= self._next_sweep
        if is_due:
            self._next_sweep = now + SWEEP_INTERVAL_SECONDS
        return is_due

    def take_over(self, history: Iterable[int]) -> None:
        """A claim was taken; these are what it found."""
        self.history = list(history)

    def add(self, snapshot_id: int) -> None:
        """It is published."""
        assert not self.history or snapshot_id > self.history[-1], (snapshot_id, self.history)
        self.history.append(snapshot_id)

    def next_removal(self) -> tuple[int, ...]:
        """What is to be removed now; it counts as asked for, and nothing more is due until `removed` answers it."""
        if self._removing:
            return ()
        self._removing = tuple(s for s in self.history[: -self._retained] if s not in self._left)
        return self._removing

    def removed(self, snapshot_ids: Collection[int]) -> None:
        """The answer to `next_removal`: what of it is gone."""
        self.history = [s for s in self.history if s not in snapshot_ids]
        self._left.update(dict.fromkeys(s for s in self._removing if s not in snapshot_ids))
        self._removing = ()
