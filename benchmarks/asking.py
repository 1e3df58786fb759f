"""A source that asks for snapshots in every other stretch of a run.

A file of its own, with few imports: workers that are forked import it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from snapshot import END, Context, Graph, Source
from snapshot.node import End

#: A run touches one more: the first and the last are not whole, and half of the others have snapshots.
COUNT = 31


class Stretches(NamedTuple):
    """How a run is cut; those with odd numbers have snapshots."""

    #: of each
    seconds: float
    #: between two snapshots; there is one at least
    interval: float

    @property
    def run_seconds(self) -> float:
        """Of all."""
        return self.seconds * COUNT

    def ask(self, graph: Graph) -> None:
        """Add who asks for the snapshots."""
        graph.add("asks", Asking(self), parallelism=1)

    @property
    def _first(self) -> float:
        return min(self.interval, self.seconds) / 2

    def next_at(self, now: float) -> float:
        """When the next snapshot is due, by ``time.monotonic``."""
        number = int(now // self.seconds)
        if number % 2:
            due = number * self.seconds + self._first
            while due <= now:
                due += self.interval
            if due < (number + 1) * self.seconds:
                return due
            number += 1
        return (number + 1) * self.seconds + self._first


class Asking(Source):
    """Asks for snapshots where a stretch should have them, until the run has lasted long enough. State: until when."""

    def __init__(self, stretches: Stretches) -> None:
        self.stretches = stretches
        self.until = self.next_at = 0.0

    def poll(self, context: Context) -> float | End | None:
        now = time.monotonic()
        if not self.until:
            self.until = now + self.stretches.run_seconds
        elif now >= self.until:
            return END
        elif now >= self.next_at:
            context.requestSnapshot()
        self.next_at = self.stretches.next_at(now)
        return min(self.next_at, self.until) - now

    def snapshotState(self, snapshotId: int, timestamp: float) -> float:
        return self.until

    def restoreState(self, state: float) -> None:
        self.until = state
