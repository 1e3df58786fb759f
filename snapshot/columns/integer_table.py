"""Map 64-bit integers to their numbers 0, 1, 2, ... by a hash table that is searched a column at a time.

This module only probes; `snapshot.columns.group_keys` handles nulls, types and text. The table uses open addressing
in two NumPy arrays, because a search of a whole column is then a few vector steps. A search takes 3 ns a value while
the table is in the cache. A new Arrow or pandas index for each batch takes 10 to 60 ns a value.

::

    value ──mixed──> slot ──taken by another?──> slot + 1 ──> + 2 ──> + 3 ...    (each slot of a power of two once)
                      └─ empty: the value is not there
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt


def grown(array: npt.NDArray[Any], length: int, fill: Any) -> npt.NDArray[Any]:
    """Return `array` if it has `length` elements, else a longer copy whose new elements are `fill`."""
    if length <= len(array):
        return array
    longer = np.full(max(length, 2 * len(array)), fill, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


Integers = npt.NDArray[np.int64]

#: slots of an empty table, as an exponent of two
_FIRST_SLOTS_LOG2: Final = 10

#: slots for each value, below which a table is doubled; with 2 or more, a search takes 1.5 probes or less
_SLOTS_PER_VALUE_MIN: Final = 2

#: the golden ratio's bits (Knuth, The Art of Computer Programming 3, 6.4), which place neighbours far apart
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)

_EMPTY: Final = -1

#: values below this limit have a direct index of at most 8 MB, because ids are often small numbers
_SMALL_MAX: Final = 1 << 20

#: values of one search, because the intermediate arrays must stay in the cache (128 KiB an array)
_BLOCK_ROWS: Final = 16 * 1024


class IntegerTable:
    """Number distinct integers in the order of addition. New integers of one `numbers` call are numbered ascending."""

    def __init__(self) -> None:
        self._values: Integers = np.zeros(0, dtype=np.int64)
        self._count = 0
        #: number of each small value searched so far, by value, because this index needs one step only
        self._of_small: Integers = np.full(0, _EMPTY, dtype=np.int64)
        self._make_slots(_FIRST_SLOTS_LOG2)

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> Integers:
        """The integers, in the order of their numbers. Neither callers nor the table may change the array."""
        return self._values[: self._count]

    def numbers(self, values: Integers) -> Integers:
        """Return the number of each value. Add new values."""
        greatest = int(values.max()) if len(values) else _EMPTY
        if not 0 <= greatest < _SMALL_MAX or values.min() < 0:
            return self._lookup(values)
        self._of_small = grown(self._of_small, greatest + 1, _EMPTY)
        numbers: Integers = self._of_small.take(values)
        if numbers.min() == _EMPTY:
            absent = np.flatnonzero(numbers == _EMPTY)
            numbers[absent] = found = self._lookup(values[absent])
            self._of_small[values[absent]] = found
        return numbers

    def _lookup(self, values: Integers) -> Integers:
        numbers = np.empty(len(values), dtype=np.int64)
        for start in range(0, len(values), _BLOCK_ROWS):
            numbers[start : start + _BLOCK_ROWS] = self._find(values[start : start + _BLOCK_ROWS])
        absent = np.flatnonzero(numbers == _EMPTY)
        if len(absent):
            self._add(np.unique(values[absent]))
            numbers[absent] = self._find(values[absent])
        return numbers

    def _find(self, values: Integers) -> Integers:
        """Return the number of each value, or `_EMPTY`."""
        at = self._home(values)
        numbers: Integers = self._slot_numbers.take(at)
        rest = np.flatnonzero(self._slot_values.take(at) != values)
        rest = rest[numbers[rest] != _EMPTY]
        at, step = at[rest], 0
        while len(rest):
            step += 1
            at = (at + step) & self._last_slot
            numbers[rest] = found = self._slot_numbers.take(at)
            astray = (found != _EMPTY) & (self._slot_values.take(at) != values[rest])
            rest, at = rest[astray], at[astray]
        return numbers

    def _add(self, values: Integers) -> None:
        """Add `values`, which must be distinct and absent."""
        first, self._count = self._count, self._count + len(values)
        self._values = grown(self._values, self._count, 0)
        self._values[first : self._count] = values
        slots_min = self._count * _SLOTS_PER_VALUE_MIN
        if slots_min > self._last_slot + 1:
            self._make_slots(slots_min.bit_length())
            values, first = self.values, 0
        self._place(values, first)

    def _make_slots(self, log2: int) -> None:
        self._shift = np.uint64(64 - log2)
        self._last_slot = (1 << log2) - 1
        self._slot_values = np.zeros(1 << log2, dtype=np.int64)
        self._slot_numbers = np.full(1 << log2, _EMPTY, dtype=np.int64)

    def _place(self, values: Integers, first: int) -> None:
        """Place each value in a slot. The numbers of the values begin at `first`."""
        numbers = np.arange(first, first + len(values))
        at, step = self._home(values), 0
        while len(values):
            free = np.flatnonzero(self._slot_numbers[at] == _EMPTY)
            self._slot_values[at[free]] = values[free]
            self._slot_numbers[at[free]] = numbers[free]
            # Of several values for the same slot, NumPy stores the last.
            left = np.flatnonzero(self._slot_numbers[at] != numbers)
            step += 1
            values, numbers, at = values[left], numbers[left], (at[left] + step) & self._last_slot

    def _home(self, values: Integers) -> Integers:
        """Return the first slot of the search for each value."""
        bits = values.view(np.uint64)
        return (((bits ^ (bits >> np.uint64(32))) * _GOLDEN) >> self._shift).view(np.int64)
