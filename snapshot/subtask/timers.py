"""The timers of one subtask: what is due next, and all of them for the snapshot."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

#: Dead entries that are not worth clearing away.
_DEAD_ENTRIES_MIN = 64


class Timers:
    """Timers ordered by time, then by registration. One per (time, key); a second registration changes nothing."""

    def __init__(self) -> None:
        #: {(at, key): number of its registration}
        self._registered: dict[tuple[float, Any], int] = {}
        #: (at, registration, key); entries that are no longer in `_registered` are passed over
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._registered)

    def register(self, at: float, key: Any) -> None:
        """Fire at `at` for `key`."""
        if (at, key) not in self._registered:
            self._count += 1
            self._registered[at, key] = self._count
            heapq.heappush(self._heap, (at, self._count, key))

    def delete(self, at: float, key: Any) -> None:
        """Forget a timer, if it is there."""
        self._registered.pop((at, key), None)
        # A timer that is set anew at each message leaves an entry each time: at most half of the heap may be such.
        if len(self._heap) > 2 * len(self._registered) + _DEAD_ENTRIES_MIN:
            self._heap = [entry for entry in self._heap if self._registered.get((entry[0], entry[2])) == entry[1]]
            heapq.heapify(self._heap)

    def next_at(self) -> float | None:
        """When the next one is due; None without any."""
        while self._heap:
            at, number, key = self._heap[0]
            if self._registered.get((at, key)) == number:
                return at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> tuple[float, Any] | None:
        """Remove and return the first timer that is due at `now`."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._registered[at, key]
        return at, key

    def state(self) -> list[tuple[float, Any]]:
        """All timers, in the order in which they fire."""
        return sorted(self._registered, key=lambda timer: (timer[0], self._registered[timer]))

    def restore(self, state: Iterable[tuple[float, Any]]) -> None:
        """Register what `state` returned."""
        for at, key in state:
            self.register(at, key)
