"""Hold the timers of one subtask: the next due timer, and all timers for the snapshot."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

from snapshot.error_text import shown

#: deleted entries that the heap may always hold, because removing so few costs more than keeping them
_DEAD_ENTRIES_MIN = 64


#: largest time of a timer or poll, in seconds since the epoch: the end of the year 9999, the last that `datetime` has.
#: A run waits for its timers, so a time in milliseconds would keep the run alive for 50,000 years.
TIME_MAX: Final = 253_402_300_799.0


def checked_seconds(value: Any, since: float = 0.0) -> float:
    """Return the time that is `value` seconds after `since`, both in seconds since the epoch.

    Raises
    ------
    TypeError
        if `value` is not exactly an int or a float. A NumPy scalar would make the sum inexact.
    ValueError
        if `value` or the time is not finite, or the time is after the year 9999.
    """
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"seconds are an int or a float, not {shown(value)}, a {type(value).__qualname__}")
    if not -TIME_MAX <= value <= TIME_MAX - since:
        raise ValueError(f"seconds must be finite, and the time before the year 10000, but are {shown(value)}")
    return since + value


class Timers:
    """Timers in the order of time, then registration. A second registration of the same (time, key) has no effect."""

    def __init__(self) -> None:
        #: {(at, key): number of the registration}
        self._registered: dict[tuple[float, Any], int] = {}
        #: (at, registration, key); entries without a match in `_registered` are skipped
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._registered)

    def register(self, at: float, key: Any) -> None:
        """Register a timer that fires at `at` (seconds since the epoch) for `key`."""
        if (at, key) not in self._registered:
            self._count += 1
            self._registered[at, key] = self._count
            heapq.heappush(self._heap, (at, self._count, key))

    def delete(self, at: float, key: Any) -> None:
        """Delete a timer, if the timer is registered."""
        self._registered.pop((at, key), None)
        # Rebuild the heap when over half of it is dead, because a timer set again for each message leaves dead entries.
        if len(self._heap) > 2 * len(self._registered) + _DEAD_ENTRIES_MIN:
            self._heap = [entry for entry in self._heap if self._registered.get((entry[0], entry[2])) == entry[1]]
            heapq.heapify(self._heap)

    def next_at(self) -> float | None:
        """Return the time of the next timer in seconds since the epoch, or None without timers."""
        while self._heap:
            at, number, key = self._heap[0]
            if self._registered.get((at, key)) == number:
                return at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> tuple[float, Any] | None:
        """Remove and return the first timer due at `now`, or return None."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._registered[at, key]
        return at, key

    def state(self) -> list[tuple[float, Any]]:
        """Return all timers, in the order in which they fire."""
        return sorted(self._registered, key=lambda timer: (timer[0], self._registered[timer]))

    def restore(self, state: Iterable[tuple[float, Any]]) -> None:
        """Register the timers that `state` returned."""
        for at, key in state:
            self.register(at, key)
