"""A source that requests snapshots in every second window of a run.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from cutline import END, Context, Graph, Source
from cutline.snapshot.node import End

#: Number of windows of a run. A run touches one more, because its first and its last window are cut short.
COUNT = 17


class InterleavedWindows(NamedTuple):
    """Windows of the monotonic clock. Windows with odd numbers have snapshots."""

    #: seconds of each window
    seconds: float
    #: seconds between two snapshots of a window, which has at least one
    interval: float

    @property
    def run_seconds(self) -> float:
        """The seconds of all windows."""
        return self.seconds * COUNT

    def add_trigger(self, graph: Graph) -> None:
        """Add the source that requests the snapshots."""
        graph.add("snapshot-trigger", SnapshotTriggerSource(self), parallelism=1)

    @property
    def _first(self) -> float:
        return min(self.interval, self.seconds) / 2

    def next_at(self, now: float) -> float:
        """Return when the next snapshot is due, by ``time.monotonic``."""
        number = int(now // self.seconds)
        if number % 2:
            due = number * self.seconds + self._first
            while due <= now:
                due += self.interval
            if due < (number + 1) * self.seconds:
                return due
            number += 1
        return (number + 1) * self.seconds + self._first


class SnapshotTriggerSource(Source):
    """Requests snapshots in odd windows until the run has lasted `run_seconds`. State: when the run ends."""

    def __init__(self, windows: InterleavedWindows) -> None:
        self.windows = windows
        self.until = self.next_at = 0.0

    def poll(self, context: Context) -> float | End | None:
        now = time.monotonic()
        if not self.until:
            self.until = now + self.windows.run_seconds
        elif now >= self.until:
            return END
        elif now >= self.next_at:
            context.requestSnapshot()
        self.next_at = self.windows.next_at(now)
        return min(self.next_at, self.until) - now

    def snapshotState(self, snapshotId: int, timestamp: float) -> float:
        return self.until

    def restoreState(self, state: float) -> None:
        self.until = state
