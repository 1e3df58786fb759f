"""Cumulative counters that never decrease, and rates, from reports whose counters restart with each incarnation.

The keys may be of any kind. Callers pass times in monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

#: seconds over which rates are taken, because workers report about twice a second and shorter rates would flicker
RATE_SECONDS = 2.0


def flow_ends(nodes: Iterable[tuple[str, bool, bool]]) -> tuple[list[str], list[str]]:
    """Return the nodes whose sent messages enter the graph, and the nodes whose processed messages leave the graph.

    A graph without sources has a closed flow, so the messages that all its nodes send are counted. A graph without
    sinks counts the messages that all its nodes process.

    Parameters
    ----------
    nodes : iterable of (str, bool, bool)
        Name of each node, whether the node is a source, and whether the node is a sink.
    """
    known = [*nodes]
    names = [name for name, _, _ in known]
    sources = [name for name, is_source, _ in known if is_source]
    sinks = [name for name, _, is_sink in known if is_sink]
    return sources or names, sinks or names


class CumulativeCounters(Generic[Key]):
    """Counts over all incarnations, including work that was rolled back and repeated.

    A new coordinator instance receives the reports of its workers one after another. A count that decreases within
    an incarnation therefore keeps its largest value, and only a larger count changes the total.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._before: dict[Key, float] = {}
        self._now: dict[Key, float] = {}

    def see(self, incarnation: int, counts: Mapping[Key, float]) -> None:
        """Add the counts of a report."""
        if incarnation != self._incarnation:
            self._before = self.totals()
            self._now = {}
            self._incarnation = incarnation
        for key, count in counts.items():
            self._now[key] = max(self._now.get(key, 0), count)

    def totals(self) -> dict[Key, float]:
        """Return the totals by key, in the order in which the keys first appeared."""
        keys = dict.fromkeys([*self._before, *self._now])
        return {key: self._before.get(key, 0) + self._now.get(key, 0) for key in keys}


class Rates(Generic[Key]):
    """Rates of counters over the last `RATE_SECONDS` of the present incarnation."""

    def __init__(self) -> None:
        self._incarnation = 0
        self._seen: deque[tuple[float, Mapping[Key, float]]] = deque()

    def see(self, now: float, incarnation: int, counts: Mapping[Key, float]) -> None:
        """Add the counts of a report at `now`. The caller must not change `counts` any more."""
        if incarnation != self._incarnation:
            self._seen.clear()
            self._incarnation = incarnation
        self._seen.append((now, counts))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:
            self._seen.popleft()

    def stop(self) -> None:
        """Set all rates to 0, because the run has ended."""
        self._seen.clear()

    def per_second(self, key: Key) -> float:
        """Return the rate of a counter, or 0 when no earlier report of this incarnation has the counter."""
        if not self._seen:
            return 0.0
        (then, old), (now, new) = self._seen[0], self._seen[-1]
        if now <= then or key not in old:
            return 0.0
        return max(0.0, new.get(key, 0) - old[key]) / (now - then)
