"""Find a clock that no aggregate has reached (Jackson, "Exactly once semantics", 2014; PROTOCOL 13.15).

Each aggregate answers, for each partition, with the number after that of the last slice it has seen. The maximum of all
answers is the clock. When the inputs of all aggregates have ended, the clock is above everything. Those of some say
nothing of the others, which may have other sources.
"""

from __future__ import annotations

from collections.abc import Sequence

from cutline.snapshot.channel.stamps import Clock, Numbers
from cutline.snapshot.ids import Subtask


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
        #: whether the inputs of all that have answered have ended
        self._have_ended = True

    def begin(self, snapshot_id: int) -> None:
        """Ask for the clock of a snapshot. Answers for others are dropped from now on."""
        self._snapshot_id = snapshot_id
        self._missing = dict.fromkeys(self.aggregates)
        self._clock, self._have_ended = {}, True

    def answer(self, snapshot_id: int, subtask: Subtask, seen: Numbers, *, has_ended: bool) -> bool:
        """Take an answer. Return whether it was the last one."""
        if snapshot_id != self._snapshot_id or subtask not in self._missing:
            return False
        del self._missing[subtask]
        self._have_ended &= has_ended
        for partition, number in seen:
            self._clock[partition] = max(number, self._clock.get(partition, 0))
        return not self._missing

    @property
    def clock(self) -> Clock:
        """The clock of all answers."""
        return None if self._have_ended else tuple(self._clock.items())

    @property
    def missing(self) -> tuple[Subtask, ...]:
        """Aggregates that have not answered."""
        return tuple(self._missing)
