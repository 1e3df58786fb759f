"""Find a clock that no aggregate has reached (Jackson, "Exactly once semantics", 2014; PROTOCOL 13.15).

Each aggregate answers with the number, for each partition, behind the last slice that it has seen. The maximum of all
answers is the clock. An answer of None is above everything, because the inputs of that aggregate have ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshot.channel.stamps import Clock
from snapshot.ids import Subtask


class Negotiator:
    """The negotiation of one snapshot at a time.

    Parameters
    ----------
    aggregates : sequence of Subtask
        All that must answer.
    """

    def __init__(self, aggregates: Sequence[Subtask]) -> None:
        self.aggregates = tuple(aggregates)
        self._snapshot_id = 0
        self._missing: dict[Subtask, None] = {}
        self._clock: dict[str, int] = {}
        self._is_above_all = False

    def begin(self, snapshot_id: int) -> None:
        """Ask for the clock of a snapshot. Answers for others are dropped from now on."""
        self._snapshot_id = snapshot_id
        self._missing = dict.fromkeys(self.aggregates)
        self._clock, self._is_above_all = {}, False

    def answer(self, snapshot_id: int, subtask: Subtask, clock: Clock) -> bool:
        """Take an answer. Return whether it was the last one."""
        if snapshot_id != self._snapshot_id or subtask not in self._missing:
            return False
        del self._missing[subtask]
        self._is_above_all |= clock is None
        for partition, number in clock or ():
            self._clock[partition] = max(number, self._clock.get(partition, 0))
        return not self._missing

    @property
    def clock(self) -> Clock:
        """The clock of all answers."""
        return None if self._is_above_all else tuple(self._clock.items())

    @property
    def missing(self) -> tuple[Subtask, ...]:
        """Aggregates that have not answered."""
        return tuple(self._missing)
