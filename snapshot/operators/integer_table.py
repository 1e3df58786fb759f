"""A hash table from 64-bit integers to their numbers 0, 1, 2, ..., that is asked a column at a time.

Owns the probing, nothing else: nulls, types and text are `snapshot.operators.group_keys`'s business. Open
addressing in two NumPy arrays, so that a look-up of a whole column is a few vector steps: 3 ns a value while the
table is in the cache, where a new Arrow or pandas index for each batch takes 10 to 60.

::

    value ──mixed──> slot ──taken by another?──> slot + 1 ──> + 2 ──> + 3 ...    (each slot of a power of two once)
                      └─ empty: the value is not there
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt


def grown(array: npt.NDArray[Any], length: int, fill: Any) -> npt.NDArray[Any]:
    """`array` itself if it has `length` elements, else a longer copy; `fill` is what the new ones hold."""
    if length <= len(array):
        return array
    longer = np.full(max(length, 2 * len(array)), fill, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


Integers = npt.NDArray[np.int64]

#: Slots of an empty table, as a power of two.
_FIRST_SLOTS_LOG2: Final = 10

#: A table is doubled when there are fewer slots for each value: at 2 or more a value is found in 1.5 probes or less.
_SLOTS_PER_VALUE_MIN: Final = 2

#: The golden ratio's bits (Knuth, The Art of Computer Programming 3, 6.4): neighbours go far apart.
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)

_EMPTY: Final = -1

#: Values from 0 to here have a place of their own in 8 MB at most: ids are often such numbers.
_SMALL_MAX: Final = 1 << 20

#: Values that are looked up at a time, so that what is between two steps stays in the cache (128 KiB an array).
_BLOCK_ROWS: Final = 16 * 1024


class IntegerTable:
    """Numbers distinct integers in the order in which they are added; those of one `numbers` call ascending."""

    def __init__(self) -> None:
        self._values: Integers = np.zeros(0, dtype=np.int64)
        self._count = 0
        #: the numbers of small values, by value, as far as they were asked for: found in one step
        self._of_small: Integers = np.full(0, _EMPTY, dtype=np.int64)
        self._make_slots(_FIRST_SLOTS_LOG2)

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> Integers:
        """The integers, by number. Not to be changed; the table never changes what it returned."""
        return self._values[: self._count]

    def numbers(self, values: Integers) -> Integers:
        """The number of each value; values that are new are added."""
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
        """The number of each value, or `_EMPTY`."""
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
        """Number `values`, which are distinct and absent."""
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
        """Give each value a slot; their numbers begin at `first`."""
        numbers = np.arange(first, first + len(values))
        at, step = self._home(values), 0
        while len(values):
            free = np.flatnonzero(self._slot_numbers[at] == _EMPTY)
            self._slot_values[at[free]] = values[free]
            self._slot_numbers[at[free]] = numbers[free]
            # Where several want one slot, the last has got it.
            left = np.flatnonzero(self._slot_numbers[at] != numbers)
            step += 1
            values, numbers, at = values[left], numbers[left], (at[left] + step) & self._last_slot

    def _home(self, values: Integers) -> Integers:
        """The slot where the search for each value begins."""
        bits = values.view(np.uint64)
        return (((bits ^ (bits >> np.uint64(32))) * _GOLDEN) >> self._shift).view(np.int64)
