"""Hold the timers of one subtask: the next due timer, and all timers for the snapshot."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final

from cutline.snapshot.error_text import shown
from cutline.snapshot.keyed.cold_timers import ColdTimers
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import TIMERS_STATE, DirtyTable, StateSpec

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


class NoKey(Enum):
    """Type of `NO_KEY`."""

    NO_KEY = "no key"


#: key of a timer that was registered without a current key. None is a key too.
NO_KEY: Final = NoKey.NO_KEY


class Timers:
    """Timers in the order of time. Those of one time that are in memory come in the order of their registration.

    A second registration of the same (time, key) has no effect. A timer with a key is a row of keyed state. Whether an
    older row holds the timer is known exactly, because the row of a timer has one value only: a registered timer is in
    `_dirty` if no older row holds it, and a deleted timer is in `_dirty` if an older row does.
    """

    def __init__(self) -> None:
        #: {(at, key): number of the registration}
        self._registered: dict[tuple[float, Any], int] = {}
        #: times of the timers without a key, because a cut must not read all timers
        self._keyless: dict[float, None] = {}
        #: (at, registration, key); entries without a match in `_registered` are skipped
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0
        #: {key: {at: True, or None for a tombstone}} of the timers that changed since the last capture
        self._dirty: dict[Any, dict[float, bool | None]] = {}
        #: changes since the last capture, also those that undid others
        self.changed_rows = 0
        #: keyed timers outside memory, or None if all timers are in memory
        self._cold: ColdTimers | None = None

    def attach(self, cold: ColdTimers) -> None:
        """Let a tier keep keyed timers outside memory. Called before the first keyed timer."""
        self._cold = cold

    def register(self, at: float, key: Any) -> None:
        """Register a timer that fires at `at` (seconds since the epoch) for `key`, which may be `NO_KEY`."""
        at += 0.0  # because -0.0 is equal to 0.0, and another row
        if self._is_far(at, key):
            assert self._cold is not None
            if not self._cold.holds(at, key, self._dirty):
                self._cold.add(at, key)
                self._note(at, key, True)
        elif (at, key) not in self._registered:
            self._add(at, key)
            self._note(at, key, True)
            if self._cold is not None and len(self._registered) > self._cold.near_max:
                self._make_far(self._cold)

    def delete(self, at: float, key: Any) -> None:
        """Delete a timer, if the timer is registered."""
        at += 0.0
        if self._is_far(at, key):
            assert self._cold is not None
            if self._cold.holds(at, key, self._dirty):
                self._note(at, key, None)
            return
        if self._registered.pop((at, key), None) is not None:
            self._note(at, key, None)
        self._rebuild()

    def _rebuild(self) -> None:
        # Rebuild the heap when over half of it is dead, because a timer set again for each message leaves dead entries.
        if len(self._heap) > 2 * len(self._registered) + _DEAD_ENTRIES_MIN:
            self._heap = [entry for entry in self._heap if self._registered.get((entry[0], entry[2])) == entry[1]]
            heapq.heapify(self._heap)

    def next_at(self) -> float | None:
        """Return the time of the next timer in seconds since the epoch, or None without timers."""
        at = self._near_at()
        while self._cold is not None and self._cold.horizon_at < float("inf"):
            if at is not None and at <= self._cold.horizon_at:
                break
            self.restore_rows((key, far_at) for far_at, key in self._cold.load(self._dirty))
            at = self._near_at()
        return at

    def _near_at(self) -> float | None:
        while self._heap:
            at, number, key = self._heap[0]
            if self._registered.get((at, key)) == number:
                return at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> tuple[float, Any] | None:
        """Remove and return the first timer due at `now`, or return None. Its key may be `NO_KEY`."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._registered[at, key]
        self._note(at, key, None)
        return at, key

    def holds(self, at: float, key: Any) -> bool:
        """Return whether a timer is registered."""
        if self._is_far(at, key):
            assert self._cold is not None
            return self._cold.holds(at, key, self._dirty)
        return (at, key) in self._registered

    def each(self) -> Iterator[tuple[float, Any]]:
        """Yield the time and the key of all timers, in no sequence. Takes long with many timers."""
        yield from self._registered
        if self._cold is not None:
            yield from self._cold.each(self._dirty)

    def state(self) -> list[tuple[float, None]]:
        """Return the timers without a key, in the order in which they fire."""
        return [(at, None) for at in sorted(self._keyless)]

    def restore(self, state: Iterable[tuple[float, None]]) -> None:
        """Register the timers that `state` returned."""
        for at, _ in state:
            self.register(at, NO_KEY)

    def restore_rows(self, rows: Iterable[tuple[Any, float]]) -> None:
        """Register the timers that rows hold: pairs of key and time."""
        for key, at in rows:
            if (at, key) not in self._registered:
                self._add(at, key)

    def take_dirty(self) -> DirtyTable | None:
        """Return the rows of the timers that changed since the last call, or None without any. Cannot fail."""
        taken = DirtyTable(_SPEC, self._dirty) if self._dirty else None
        self._dirty, self.changed_rows = {}, 0
        if self._cold is not None:
            self._cold.sealed(taken)
        return taken

    def _is_far(self, at: float, key: Any) -> bool:
        return self._cold is not None and key is not NO_KEY and not self._cold.is_near(at, key)

    def _make_far(self, cold: ColdTimers) -> None:
        near = [timer for timer in self._registered if timer[1] is not NO_KEY]
        if near:
            for timer in cold.far_of(near, self._dirty):
                del self._registered[timer]
            self._rebuild()

    def _add(self, at: float, key: Any) -> None:
        self._count += 1
        self._registered[at, key] = self._count
        heapq.heappush(self._heap, (at, self._count, key))

    def _note(self, at: float, key: Any, value: bool | None) -> None:
        """Note that a timer is registered (True) or gone (None). The second change of a timer undoes the first."""
        if key is NO_KEY:
            if value:
                self._keyless[at] = None
            else:
                del self._keyless[at]
            return
        self.changed_rows += 1
        rows = self._dirty.get(key)
        if rows is None:
            self._dirty[key] = {at: value}
        elif at not in rows:
            rows[at] = value
        elif len(rows) > 1:
            del rows[at]
        else:
            del self._dirty[key]


_SPEC = StateSpec(TIMERS_STATE, StateKind.TIMERS)
