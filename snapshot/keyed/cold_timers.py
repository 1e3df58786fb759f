"""The keyed timers that a cold tier keeps outside memory: all at or after a horizon.

Near timers, those before the horizon, are in memory. Each timer is a row of the store too, or of changed rows that are
not applied yet. The horizon moves forward when the near timers are used up, and back when they become too many::

    near timers │ horizon │ far timers: rows of the store, and changed rows, whose times are in heaps

A search in the store begins at the horizon, because it would cross the tombstones of all fired timers elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from cutline.snapshot.keyed.cold_rows import RowsBelow
from cutline.snapshot.keyed.row_keys import TIMERS_END, TIMERS_START, split_timer, timer_row
from cutline.snapshot.keyed.rows import TIMERS_STATE, DirtyTable
from cutline.snapshot.keyed.rows_codec import decode_key, encode_key

#: (row in the store, key) of timers, as `heapq` arranges them
_Heap = list[tuple[bytes, Any]]

#: {key: {time: True, or None for a tombstone}}
_Changes = dict[Any, dict[float, bool | None]]


class ColdTimers:
    """The far timers of one subtask.

    Parameters
    ----------
    below : RowsBelow
    near_max : int
        Near timers beyond which half of them become far.
    loaded : int
        Timers that become near together.
    is_restored : bool
        Whether the store may hold timers.
    discard : callable
        Frees a list of many elements.
    """

    def __init__(
        self, below: RowsBelow, near_max: int, loaded: int, *, is_restored: bool, discard: Callable[[list[Any]], None]
    ) -> None:
        self._below = below
        self.near_max = near_max
        self._loaded, self._discard = loaded, discard
        #: a timer is near if its row is less; and the time in this row, infinite if all timers are near
        self._horizon = TIMERS_START if is_restored else TIMERS_END
        self.horizon_at = float("-inf") if is_restored else float("inf")
        #: far timers in the changed rows that are not sealed
        self._changed: _Heap = []
        #: sealed rows that are not in the store yet, oldest first, and the far timers among them
        self._sealed: list[tuple[DirtyTable, _Heap]] = []

    def is_near(self, at: float, key: Any) -> bool:
        """Return whether a timer is before the horizon."""
        return at < self.horizon_at if at != self.horizon_at else _row(at, key) < self._horizon

    def holds(self, at: float, key: Any, changes: _Changes) -> bool:
        """Return whether a far timer is registered. `changes` are the changed rows that are not sealed."""
        change = self._change(at, key, changes)
        return self._below.store.get(_row(at, key)) is not None if change is None else change

    def add(self, at: float, key: Any) -> None:
        """Add a far timer, which is in the changed rows that are not sealed."""
        heapq.heappush(self._changed, (_row(at, key), key))

    def sealed(self, table: DirtyTable | None) -> None:
        """Note that the changed rows were taken, or that there were none. Takes constant time."""
        self._drop_applied()  # because a run may never load a timer, and the heaps would take all memory
        if table is not None:
            self._sealed.append((table, self._changed))
        self._changed = []

    def each(self, changes: _Changes) -> Iterator[tuple[float, Any]]:
        """Yield (time, key) of all far timers, in no sequence."""
        seen: dict[tuple[float, Any], None] = {}
        for rows in (changes, *(table.rows for table in self._below.changed_tables(TIMERS_STATE))):
            for key, times in rows.items():
                for at, change in times.items():
                    if (at, key) not in seen and change and not self.is_near(at, key):
                        yield at, key
                    seen[at, key] = None
        for row, _ in self._below.store.scan(self._horizon, TIMERS_END):
            at, encoded = split_timer(row)
            if (timer := (at, decode_key(encoded))) not in seen:
                yield timer

    # ---------------------------------------------------------------- the horizon

    def load(self, changes: _Changes) -> list[tuple[float, Any]]:
        """Move the horizon forward. Return (time, key) of timers that are near now, by time."""
        self._drop_applied()
        found: dict[tuple[float, Any], None] = {}
        for row, at, key, is_stored in self._far():
            change = self._change(at, key, changes)
            if change or (is_stored and change is None):
                found[at, key] = None
            self._horizon, self.horizon_at = row + b"\0", at
            if len(found) == self._loaded:
                return list(found)
        self._horizon, self.horizon_at = TIMERS_END, float("inf")
        return list(found)

    def far_of(self, near: list[tuple[float, Any]], changes: _Changes) -> list[tuple[float, Any]]:
        """Move the horizon back, so that half of the near timers become far. Return these timers."""
        near.sort(key=lambda timer: timer[0])
        boundary = near[len(near) // 2][0]
        # Only timers of the time of the boundary need the sequence of their rows.
        before = sum(at < boundary for at, _ in near)
        tied = sorted(_row(at, key) for at, key in near[before:] if at == boundary)
        self._horizon, self.horizon_at = tied[len(near) // 2 - before], boundary
        far = [timer for timer in near[before:] if not self.is_near(*timer)]
        self._drop_applied()
        for at, key in far:
            if changes.get(key, {}).get(at):
                self.add(at, key)
                continue
            for table, heap in reversed(self._sealed):
                if table.rows.get(key, {}).get(at):
                    heapq.heappush(heap, (_row(at, key), key))
                    break
        return far

    def _far(self) -> Iterator[tuple[bytes, float, Any, bool]]:
        """Yield the row, the time and the key of each far timer in their sequence, and whether the store has the row.

        What the heaps have is removed from them.
        """
        stored = self._below.store.scan(self._horizon, TIMERS_END)
        row, heaps = next(stored, (None, b""))[0], [self._changed, *(heap for _, heap in self._sealed)]
        while True:
            heap = min(filter(None, heaps), key=lambda heap: heap[0][0], default=None)
            if heap is not None and (row is None or heap[0][0] <= row):
                changed, key = heapq.heappop(heap)
                yield changed, split_timer(changed)[0], key, False
            elif row is not None:
                at, encoded = split_timer(row)
                yield row, at, decode_key(encoded), True
                row = next(stored, (None, b""))[0]
            else:
                return

    def _change(self, at: float, key: Any, changes: _Changes) -> bool | None:
        """Return whether the newest changed row registers a timer, or None if no changed row is of the timer."""
        rows = changes.get(key)
        if rows is not None and at in rows:
            return rows[at] is not None
        for table in self._below.changed_tables(TIMERS_STATE):
            rows = table.rows.get(key)
            if rows is not None and at in rows:
                return rows[at] is not None
        return None

    def _drop_applied(self) -> None:
        waiting = [id(table) for table in self._below.changed_tables(TIMERS_STATE)]
        while self._sealed and id(self._sealed[0][0]) not in waiting:
            self._discard(self._sealed.pop(0)[1])


def _row(at: float, key: Any) -> bytes:
    return timer_row(at, encode_key(key))
