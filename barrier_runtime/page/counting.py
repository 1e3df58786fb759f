"""Counters that never go back, and rates, from reports whose counters begin anew with each incarnation.

Knows nothing of what is counted. Seconds are monotonic and come from outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

#: Seconds over which rates are taken: workers report about twice a second, so shorter ones would flicker.
RATE_SECONDS = 2.0


class CumulativeCounters(Generic[Key]):
    """Counts over all incarnations, with the work that was rolled back and done again.

    A coordinator that began anew hears of its workers one by one: what seems to have become less in one incarnation
    is waited for, not counted again.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._before: dict[Key, float] = {}
        self._now: dict[Key, float] = {}

    def see(self, incarnation: int, counts: Mapping[Key, float]) -> None:
        """Take a report."""
        if incarnation != self._incarnation:
            self._before = self.totals()
            self._now = {}
            self._incarnation = incarnation
        for key, count in counts.items():
            self._now[key] = max(self._now.get(key, 0), count)

    def totals(self) -> dict[Key, float]:
        """By key, in the order in which they came."""
        keys = dict.fromkeys([*self._before, *self._now])
        return {key: self._before.get(key, 0) + self._now.get(key, 0) for key in keys}


class Rates(Generic[Key]):
    """Rates of counters over the last `RATE_SECONDS` of the present incarnation."""

    def __init__(self) -> None:
        self._incarnation = 0
        self._seen: deque[tuple[float, Mapping[Key, float]]] = deque()

    def see(self, now: float, incarnation: int, counts: Mapping[Key, float]) -> None:
        """Take a report; `counts` must not change any more."""
        if incarnation != self._incarnation:
            self._seen.clear()
            self._incarnation = incarnation
        self._seen.append((now, counts))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:
            self._seen.popleft()

    def stop(self) -> None:
        """Nothing is counted any more."""
        self._seen.clear()

    def per_second(self, key: Key) -> float:
        """0 where there is no earlier report of this incarnation that knows the counter."""
        if not self._seen:
            return 0.0
        (then, old), (now, new) = self._seen[0], self._seen[-1]
        if now <= then or key not in old:
            return 0.0
        return max(0.0, new.get(key, 0) - old[key]) / (now - then)
