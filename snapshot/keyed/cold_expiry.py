"""Remove the rows of a store that have expired, by index rows, in the order of time.

Memory does not grow with the rows that may expire: the store holds an index row for each row and each step of its
time-to-live in which the row was written. All but `is_due` is used by jobs of the store's writer, one after another. So
no row is written between the check of its expiry and its removal.
"""

from __future__ import annotations

from typing import Final

from cutline.snapshot.keyed.cold_values import expiry_of
from cutline.snapshot.keyed.row_keys import EXPIRIES_START, TIME_HEAD_BYTES, TIMERS_START, split_expiry
from cutline.snapshot.keyed.row_store import Job, RowStore, removing

#: Index rows that one job reads. 250 rows take some 0.5 ms.
SWEPT_MAX: Final = 250


class ExpiredRows:
    """The expired rows of one store."""

    def __init__(self) -> None:
        #: no index row is before this key. A search begins here, because it would cross all removed rows elsewhere.
        self._start = EXPIRIES_START
        #: no index row is before this time, in seconds since the epoch
        self._next_at = float("inf")
        self._is_removing = False

    def listed(self, first: bytes) -> None:
        """Note index rows that were added. `first` is the least key of them."""
        self._start = min(self._start, first)
        self._next_at = min(self._next_at, split_expiry(first)[0])

    def is_due(self, now: float) -> bool:
        """Return whether `removing` has work. `now` is in seconds since the epoch."""
        return self._next_at <= now and not self._is_removing

    def removing(self, store: RowStore, now: float) -> Job:
        """Return a job that removes some rows that have expired at `now`, and their index rows."""
        self._is_removing = True
        return self._remove(store, now)

    def _remove(self, store: RowStore, now: float) -> Job:
        index, next_at = _due(store, self._start, now)
        names = list(dict.fromkeys(row[TIME_HEAD_BYTES:] for row in index))
        # A row that was written again expires later, and a later index row lists it.
        ends = [None if stored is None else expiry_of(stored) for stored in store.get_many(names)]
        expired = [name for name, end in zip(names, ends, strict=True) if end is not None and end <= now]
        yield from removing(store, expired)
        yield from removing(store, index)
        if index:
            self._start = index[-1] + b"\0"
        self._next_at = next_at
        self._is_removing = False


def _due(store: RowStore, start: bytes, now: float) -> tuple[list[bytes], float]:
    """Return the first index rows that are due at `now`, and the time of the next index row."""
    found: list[bytes] = []
    for row, _ in store.scan(start, TIMERS_START):
        at, _ = split_expiry(row)
        if at > now or len(found) == SWEPT_MAX:
            return found, at
        found.append(row)
    return found, float("inf")
