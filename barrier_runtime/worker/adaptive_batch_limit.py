"""How many messages a subtask may take in one turn: few where user code is slow, so that markers do not wait for it."""

from __future__ import annotations

from snapshot.subtask.limits import SLICE_MESSAGES_MAX

#: Seconds that a turn should take at most. A marker, and every other subtask of the worker, waits as long.
SLICE_SECONDS_MAX = 0.01

#: Messages of the first turn, of which nothing is known yet.
_FIRST = 16


class AdaptiveBatchLimit:
    """The limit of one subtask; doubled after a short turn, halved after a long one."""

    def __init__(self) -> None:
        self.limit = _FIRST
        #: of turns, since they were last taken
        self._seconds = 0.0

    def record(self, seconds: float) -> None:
        """Learn how long a turn took."""
        self._seconds += seconds
        if seconds > SLICE_SECONDS_MAX:
            self.limit = max(1, self.limit // 2)
        elif seconds < SLICE_SECONDS_MAX / 4:
            self.limit = min(SLICE_MESSAGES_MAX, self.limit * 2)

    def take_seconds(self) -> float:
        """Of all turns since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
