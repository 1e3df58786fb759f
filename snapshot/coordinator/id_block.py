"""The ids that a claim may give to snapshots (PROTOCOL 3.2, blocks of ids)."""

from __future__ import annotations

from cutline.snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, first_snapshot_id


class IdBlock:
    """The ids of a claim's block. Each id is used once.

    Parameters
    ----------
    state_multiple : int
        Snapshots whose ids are multiples store all state.
    """

    def __init__(self, state_multiple: int) -> None:
        self._state_multiple = state_multiple
        self._next_id = 0
        #: unused ids below `_next_id` that subtasks may still start: an ordered set
        self._skipped: dict[int, None] = {}
        #: first id of the next claim's block
        self._end = 0

    @property
    def first_id(self) -> int:
        """First id of the block."""
        return self._end - SNAPSHOT_IDS_PER_CLAIM

    @property
    def lowest_unused(self) -> int:
        """Lowest id that may still be started."""
        return min(self._skipped, default=self._next_id)

    @property
    def is_used_up(self) -> bool:
        """Return whether the ids are used, but for those that a snapshot with state may skip.

        The next block belongs to the next claim.
        """
        return self._next_id + self._state_multiple > self._end

    def is_free(self, snapshot_id: int) -> bool:
        """Return whether subtasks may start a snapshot of this id."""
        return self._next_id <= snapshot_id < self._end or snapshot_id in self._skipped

    def begin(self, claim: int) -> None:
        """Use the ids of a new claim. The ids of the old claim are never used again."""
        self._skipped.clear()
        self._next_id, self._end = first_snapshot_id(claim), first_snapshot_id(claim + 1)

    def use_next(self, *, has_state: bool) -> int:
        """Use the next id, or the next id of a snapshot that stores all state."""
        if has_state:
            self._next_id += -self._next_id % self._state_multiple
        self._next_id += 1
        return self._next_id - 1

    def use(self, snapshot_id: int) -> None:
        """Use a free id. Lower unused ids stay free, because independent initiators agree on no order."""
        assert self.is_free(snapshot_id)
        if snapshot_id in self._skipped:
            del self._skipped[snapshot_id]
        else:
            self._skipped |= dict.fromkeys(range(self._next_id, snapshot_id))
            self._next_id = snapshot_id + 1

    def drop_skipped(self, last: int | None = None) -> None:
        """Never use the skipped ids up to `last`, or any skipped id without `last`."""
        self._skipped = {skipped: None for skipped in self._skipped if last is not None and skipped > last}
