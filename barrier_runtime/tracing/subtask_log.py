"""What one subtask writes down in one incarnation: the newest events, in memory, until its worker sends them off."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count

from barrier_runtime import clock
from barrier_runtime.tracing.chunks import KINDS, RARE_EVENTS_MAX, TraceChunk, chunk_of
from barrier_runtime.tracing.payloads import NOTHING, Encoded, Kept, Payloads
from snapshot.ids import Subtask
from snapshot.trace import Kind

_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}

#: A record before its payload is encoded: serial, at, kind, channel, number, snapshot_id, what is kept of the message.
_Noted = tuple[int, float, int, int, int, int, Kept]


class SubtaskLog:
    """A ring of frequent events and one of rare ones; together they are in order, by their serials.

    Parameters
    ----------
    subtask : Subtask
    incarnation : int
    frequent_events_max : int
    """

    def __init__(self, subtask: Subtask, incarnation: int, frequent_events_max: int) -> None:
        self.payloads = Payloads()
        self._subtask = subtask
        self._incarnation = incarnation
        self._serials = count()
        self._frequent: deque[_Noted] = deque(maxlen=frequent_events_max)
        self._rare: deque[_Noted] = deque(maxlen=RARE_EVENTS_MAX)

    def note(
        self, kind: Kind, *, channel: int = -1, number: int = 0, snapshot_id: int = 0, payload: Encoded = NOTHING
    ) -> None:
        """A rare event happens."""
        self._rare.append((next(self._serials), clock.now(), _NUMBERS[kind], channel, number, snapshot_id, payload))

    def note_message(self, kind: Kind, channel: int, number: int, kept: Kept) -> None:
        """A message is sent or received."""
        self._frequent.append((next(self._serials), clock.now(), _NUMBERS[kind], channel, number, 0, kept))

    def note_rows(self, kind: Kind, channel: int, first: int, kept: Sequence[Kept]) -> None:
        """The rows of a batch are, of which the first has the number `first`."""
        at, number, serials = clock.now(), _NUMBERS[kind], self._serials
        start = max(0, len(kept) - (self._frequent.maxlen or 0))
        self._frequent.extend(
            (next(serials), at, number, channel, first + row, 0, kept[row]) for row in range(start, len(kept))
        )

    def begin(self) -> tuple[int, float]:
        """A place for an event of which it is known only afterwards whether it is worth a note: see `note_begun`."""
        return next(self._serials), clock.now()

    def note_begun(self, begun: tuple[int, float], kind: Kind) -> None:
        """A poll or a timer happened, and began at that place."""
        # Sources that wait are polled all the time; what led to nothing would drive out all else.
        if kind is not Kind.POLL or any(ring and ring[-1][0] > begun[0] for ring in (self._frequent, self._rare)):
            self._frequent.append((*begun, _NUMBERS[kind], -1, 0, 0, NOTHING))

    def take(self) -> list[TraceChunk]:
        """What was written down since the last call and is not driven out."""
        return [self._chunk(ring, is_frequent=ring is self._frequent) for ring in (self._frequent, self._rare) if ring]

    def _chunk(self, ring: deque[_Noted], *, is_frequent: bool) -> TraceChunk:
        encoded = self.payloads.encoded
        records = [(*event, encoded(kept)) for *event, kept in ring]
        ring.clear()
        return chunk_of(self._subtask, self._incarnation, records, is_frequent=is_frequent)
