"""What a worker's loop has to end by itself when its time is over: alignments, and waits for an answer."""

from __future__ import annotations

from snapshot.ids import Subtask

#: Seconds that a node which asked for a snapshot waits for the answer (PROTOCOL 3.1); a coordinator that is
#: there answers in milliseconds, and one that is lost is back in about a second.
REQUEST_SECONDS_MAX = 5.0


class Deadlines:
    """Times are seconds of whatever clock the caller uses throughout."""

    def __init__(self) -> None:
        #: {(snapshot_id, subtask): when it has aligned for long enough}
        self._alignments: dict[tuple[int, Subtask], float] = {}
        #: {subtask: when it has waited long enough for the answer to its request}
        self._requests: dict[Subtask, float] = {}

    def align(self, snapshot_id: int, subtask: Subtask, at: float) -> None:
        """An alignment began."""
        self._alignments[snapshot_id, subtask] = at

    def settle(self, floor: int) -> None:
        """Snapshots below `floor` are over."""
        self._alignments = {key: at for key, at in self._alignments.items() if key[0] >= floor}

    def ask(self, subtask: Subtask, now: float) -> None:
        """A node asked for a snapshot."""
        self._requests[subtask] = now + REQUEST_SECONDS_MAX

    def answer(self, subtask: Subtask) -> None:
        """It was answered."""
        self._requests.pop(subtask, None)

    def clear(self) -> None:
        """Everything was dropped."""
        self._alignments.clear()
        self._requests.clear()

    def next_at(self) -> float | None:
        """When the next one is due."""
        return min((*self._alignments.values(), *self._requests.values()), default=None)

    def take_alignments(self, now: float) -> list[tuple[int, Subtask]]:
        """Remove and return the alignments that are due."""
        due = [key for key, at in self._alignments.items() if now >= at]
        for key in due:
            del self._alignments[key]
        return due

    def take_requests(self, now: float) -> list[Subtask]:
        """Remove and return the requests that are due."""
        due = [subtask for subtask, at in self._requests.items() if now >= at]
        for subtask in due:
            del self._requests[subtask]
        return due
