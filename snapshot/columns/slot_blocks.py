"""Hold columns of values by slots, and capture the slots that changed without a copy.

Owns which slots changed, and what a capture has seen. Must not know keys, nor what the values mean.

Each slot has a mark: the number of the interval between two captures in which the slot was last changed. A capture
begins the next interval, and freezes all blocks. A frozen block is copied by the thread that stores
the capture, or by the first write to the block, whichever comes first::

    write ── is the block frozen? ── copy for each capture that waits ──┐
      │                                                                 ├─> setdefault: the first copy counts
      v                                       storage thread ── copy ───┘
    values

No lock is needed. A write keeps its copy before it changes a value. So a copy of the storage thread that a write could
have changed meanwhile finds the write's copy, and is dropped. `dict.setdefault` is atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutline.snapshot.columns.integer_table import Integers

#: Slots of a block, as an exponent of two. Copying the 16,384 values of a block takes some 20 microseconds.
_BLOCK_LOG2: Final = 14
BLOCK_SLOTS: Final = 1 << _BLOCK_LOG2

Column = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.uint8]

#: Intervals that marks can hold; 0 marks a slot that has not changed. Then the marks begin anew.
_INTERVAL_MAX: Final = 255


class Fill(NamedTuple):
    """What a column holds at slots that were never written."""

    kind: Any
    value: Any


class SlotValues(NamedTuple):
    """Changed slots of one block, and their values at the capture."""

    slots: Integers
    columns: tuple[Column, ...]


class CapturedSlots:
    """The slots that changed between two captures. Blocks may be copied by several threads at a time.

    Parameters
    ----------
    columns : sequence of numpy.ndarray
        The columns at the capture. The holder copies a block before it changes the block's values.
    marks : numpy.ndarray
        Interval in which each slot was last changed. Changed as the columns are.
    interval : int
        Interval that the capture has ended.
    """

    def __init__(self, columns: Sequence[Column], marks: Marks, interval: int) -> None:
        self._columns = tuple(columns)
        self._marks = marks
        self._interval = interval
        #: {block: its changed slots}; None instead once the capture is over
        self._copies: dict[int, SlotValues] | None = {}

    @property
    def block_count(self) -> int:
        """Number of blocks."""
        return len(self._marks) >> _BLOCK_LOG2

    @property
    def is_over(self) -> bool:
        """Whether no block needs a copy any more."""
        return self._copies is None

    def copy(self, block: int) -> SlotValues | None:
        """Return the changed slots of a block, as they were at the capture. None once the capture is over."""
        copies = self._copies
        if copies is None:
            return None
        found = copies.get(block)
        if found is None:
            start = block << _BLOCK_LOG2
            slots = np.flatnonzero(self._marks[start : start + BLOCK_SLOTS] == self._interval) + start
            copy = SlotValues(slots, tuple(column[slots] for column in self._columns))
            found = copies.setdefault(block, copy)
        return found

    def end(self) -> None:
        """Give up all copies, because the capture is stored."""
        self._copies = None


class SlotBlocks:
    """Columns of values by slots.

    Parameters
    ----------
    fills : sequence of Fill
        One for each column.
    """

    def __init__(self, fills: Sequence[Fill]) -> None:
        self._fills = tuple(fills)
        #: one array for each column, all of the length `capacity`
        self.columns: tuple[Column, ...] = tuple(_filled(0, fill) for fill in fills)
        #: interval in which each slot was last changed, or 0
        self._marks: Marks = np.zeros(0, np.uint8)
        #: interval in which each slot was first written, if it has no older value elsewhere, else 0
        self._first_marks: Marks = np.zeros(0, np.uint8)
        self._interval = 1
        self._has_written = False
        #: whether `forget` was called in this interval
        self._has_forgotten = False
        #: all slots below this one have changed in this interval
        self._all_written = 0
        #: whether a write to each block must search for captures that need a copy
        self._frozen: Flags = np.zeros(0, np.bool_)
        #: captures that hold the arrays of `columns`
        self._waiting: list[CapturedSlots] = []

    @property
    def capacity(self) -> int:
        """Number of slots that have a place."""
        return len(self._marks)

    @property
    def has_changes(self) -> bool:
        """Whether a slot has changed since the last capture."""
        if self._has_forgotten:
            self._has_forgotten = False
            self._has_written = bool((self._marks == self._interval).any())
        return self._has_written

    def is_dirty(self, slots: Integers | slice) -> Flags:
        """Return whether each slot has changed since the last capture."""
        found: Flags = self._marks[slots] == self._interval
        return found

    def is_fresh(self, slots: Integers) -> Flags:
        """Return whether each slot was written first since the last capture."""
        found: Flags = self._first_marks[slots] == self._interval
        return found

    def written(self, slots: Integers) -> None:
        """Note slots whose values have changed."""
        self._marks[slots] = self._interval
        self._has_written = True

    def write(self, slots: Integers, slot_count: int) -> None:
        """Call `copy_frozen` and `written`, unless all slots below `slot_count` have changed in this interval already.

        Must be called before the values at the slots change.
        """
        if slot_count == self._all_written:
            return  # so each of their blocks was copied
        self.copy_frozen(slots)
        self.written(slots)
        if len(slots) >= slot_count and (self._marks[:slot_count] == self._interval).all():
            self._all_written = slot_count

    def written_first(self, slots: Integers) -> None:
        """Note slots whose values were written, and that have no older value elsewhere."""
        self._first_marks[slots] = self._interval

    def forget(self, slots: Integers) -> None:
        """Note that no capture needs the slots, because their values came and went since the last capture."""
        if len(slots):
            self._marks[slots] = self._first_marks[slots] = 0
            self._has_forgotten, self._all_written = True, 0

    def copy_frozen(self, slots: Integers) -> None:
        """Copy the blocks of slots for captures that wait. Must be called before the values at the slots change."""
        if not self._waiting:
            return
        blocks = slots >> _BLOCK_LOG2
        blocks = blocks[self._frozen[blocks]]
        if not len(blocks):
            return
        self._waiting = [captured for captured in self._waiting if not captured.is_over]
        for block in np.flatnonzero(np.bincount(blocks)).tolist():
            for captured in self._waiting:
                captured.copy(block)
            self._frozen[block] = False

    def capture(self) -> CapturedSlots:
        """Return the slots that changed since the last call, and begin the next interval. Copies no value."""
        captured = CapturedSlots(self.columns, self._marks, self._interval)
        self._waiting = [each for each in self._waiting if not each.is_over]
        self._waiting.append(captured)
        self._frozen.fill(True)
        self._interval += 1
        self._has_written = self._has_forgotten = False
        self._all_written = 0
        if self._interval > _INTERVAL_MAX:
            self._interval = 1
            self._marks, self._first_marks = np.zeros_like(self._marks), np.zeros_like(self._marks)
        return captured

    def grow(self, slot_count: int) -> None:
        """Make places for `slot_count` slots. Captures keep the arrays so far, which nobody changes any more."""
        capacity = max(BLOCK_SLOTS, self.capacity)
        while capacity < slot_count:
            capacity *= 2
        if capacity > self.capacity:
            self._replace(np.arange(self.capacity), capacity)

    def rearrange(self, kept: Integers, to: Integers, slot_count: int) -> None:
        """Move the slots `kept` to the slots `to`, and drop all others."""
        capacity = BLOCK_SLOTS
        while capacity < slot_count:
            capacity *= 2
        self._replace(kept, capacity, to)

    def refill(self, place: int, fill: Fill) -> None:
        """Give a column another type. The values stay. Captures keep the arrays so far."""
        self._fills = (*self._fills[:place], fill, *self._fills[place + 1 :])
        self._replace(np.arange(self.capacity), self.capacity)

    def _replace(self, kept: Integers, capacity: int, to: Integers | None = None) -> None:
        places = kept if to is None else to
        columns = tuple(_filled(capacity, fill) for fill in self._fills)
        for old, new in zip(self.columns, columns, strict=True):
            new[places] = old[kept]
        marks, first_marks = np.zeros(capacity, np.uint8), np.zeros(capacity, np.uint8)
        marks[places], first_marks[places] = self._marks[kept], self._first_marks[kept]
        self.columns, self._marks, self._first_marks = columns, marks, first_marks
        self._frozen = np.zeros(capacity >> _BLOCK_LOG2, np.bool_)
        self._waiting = []
        self._all_written = 0


def _filled(length: int, fill: Fill) -> Column:
    column: Column = np.full(length, fill.value, fill.kind)
    return column
