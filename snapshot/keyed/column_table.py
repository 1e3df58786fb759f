"""The table of a reducing state whose totals are kept by the column, for nodes that get batches.

Owns the totals, which keys have one, and when a total expires. Rows are those of `RowTable`, so a snapshot of either
table is restored into the other. A key has a slot of its own, also after its total is gone::

    slot        0     1     2     3 ...
    totals     12     0     7     0      int64, float64 or objects; at a dead slot, what adding begins with
    alive       1     0     1     0
    ends        5   inf   inf   inf      seconds at which the total expires, for timed states
    dirty       1     1     0     0      changed since the last capture; slot 1 becomes a tombstone
    fresh       1     0     0     0      the key has no older row, so its removal leaves no tombstone
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from cutline.snapshot.columns.integer_table import Integers
from cutline.snapshot.columns.key_slots import KeySlots, Part
from cutline.snapshot.columns.reductions import Reduction, SumOverflow, exact_reduction, make_reduction
from cutline.snapshot.columns.slot_blocks import BLOCK_SLOTS, Column, Fill, Flags, SlotBlocks
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.keyed.bulk import key_list
from cutline.snapshot.keyed.decoding import DecodedRows, unexpired
from cutline.snapshot.keyed.dirty_columns import DirtyColumns, encode_totals
from cutline.snapshot.keyed.key_columns import key_parts
from cutline.snapshot.keyed.number_columns import Added, NoNumber, number_column, one_each
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.keyed.table import NEVER, StateTable
from cutline.snapshot.state import NamedReduction


class ColumnTable(StateTable):
    """Totals by the column.

    Parameters
    ----------
    spec : StateSpec
    owner : KeyedStateSettings
    plus : str
        Name of the reduction.
    is_timed : bool
        As in `RowTable`.
    """

    def __init__(self, spec: StateSpec, owner: KeyedStateSettings, plus: NamedReduction, *, is_timed: bool) -> None:
        super().__init__(spec, owner)
        self.is_timed = is_timed
        self._plus: NamedReduction = plus
        self._keys = KeySlots()
        #: None until the first number has fixed the type of totals
        self._reduction: Reduction | None = None
        self._blocks = SlotBlocks(())
        #: first slot that the next sweep searches
        self._swept_to = 0
        if plus == "count":
            self._fix_type(np.dtype(np.int64))

    def _fix_type(self, kind: np.dtype[Any]) -> Reduction:
        """Fix the type of totals: that of the first numbers."""
        if kind == np.object_:
            made = exact_reduction(self._plus)
        else:
            made = make_reduction(self._plus, is_integer=kind == np.int64)
        self._reduction = made
        fills = [Fill(made.kind, made.start), Fill(np.bool_, False)]
        if self.is_timed:
            fills.append(Fill(np.float64, NEVER))
        self._blocks = SlotBlocks(fills)
        self._blocks.grow(len(self._keys))
        return made

    # ---------------------------------------------------------------- slots

    def _parts_of(self, keys: Any) -> tuple[list[Part], int]:
        try:
            return key_parts(keys, self)
        except (TypeError, ValueError) as error:
            raise self.error(f"keys of a bulk call: {error}") from error

    def _slots_of(self, parts: list[Part], count: int) -> Integers:
        """Return the slot of each key of a bulk call. A key that was not used before gets a dead slot."""
        slots = self._keys.slots(parts, count)
        if len(self._keys) > self._blocks.capacity:
            if not self.iterations and self._rebuild():  # because a running `items` goes on by slots
                slots = self._keys.slots(parts, count)
            self._blocks.grow(len(self._keys))
        return slots

    def _rebuild(self) -> bool:
        """Forget dead slots if half of a full table is dead. Slots whose tombstones are due stay."""
        blocks = self._blocks
        kept = np.flatnonzero(blocks.columns[1] | blocks.is_dirty(slice(None)))
        if 2 * len(kept) > blocks.capacity:
            return False
        self._keys, to = self._keys.only(kept)
        blocks.rearrange(kept, to, len(kept))
        self._swept_to = 0
        return True

    def _live(self, slots: Integers) -> Flags:
        """Return whether each slot has a total that has not expired."""
        columns = self._blocks.columns
        live: Flags = columns[1][slots]
        if self.is_timed:
            live &= columns[2][slots] > self.context.now
        return live

    def _kill(self, slots: Integers) -> None:
        """Reset slots whose totals are gone. `SlotBlocks.will_write` was called."""
        assert self._reduction is not None
        totals, alive = self._blocks.columns[:2]
        totals[slots] = self._reduction.start
        alive[slots] = False
        if self.is_timed:
            self._blocks.columns[2][slots] = NEVER

    # ---------------------------------------------------------------- reads

    def read_all(self, keys: Any) -> list[Any]:
        """Return the total of each key, and None for each absent total."""
        parts, count = self._parts_of(keys)
        if self._reduction is None:
            return [None] * count
        slots = self._slots_of(parts, count)
        totals: list[Any] = self._blocks.columns[0][slots].tolist()
        live = self._live(slots)
        if not live.all():
            for place in np.flatnonzero(~live).tolist():
                totals[place] = None
        return totals

    def contents(self) -> Iterator[tuple[Any, Any]]:
        """See `StateTable`."""
        for start in range(0, min(len(self._keys), self._blocks.capacity), BLOCK_SLOTS):
            slots = np.arange(start, min(start + BLOCK_SLOTS, len(self._keys)))
            slots = slots[self._live(slots)]
            yield from zip(self._keys.keys_at(slots), self._blocks.columns[0][slots].tolist(), strict=True)

    # ---------------------------------------------------------------- writes

    def add_all(self, keys: Any, values: Any) -> None:
        """Add the value of each key. Null values are skipped. Either all are added, or none where an error is raised.

        Raises
        ------
        NodeError
            if a value is no number.
        """
        added, count = self._added(keys, values)
        parts, key_count = self._parts_of(keys)
        if key_count != count:
            raise self.error(f"{key_count:,} keys and {count:,} values; each key needs one value")
        numbers = added.numbers
        if not len(numbers):
            return
        reduction = self._reduction_of(numbers)
        slots = self._slots_of(parts, count)
        self.changed()
        self._write(slots if added.places is None else slots[added.places], numbers, reduction)

    def _added(self, keys: Any, values: Any) -> tuple[Added, int]:
        try:
            return one_each(values) if self._plus == "count" else number_column(values)
        except TypeError as error:
            raise self.error(f"values of a bulk call: {error}") from error
        except NoNumber as error:
            raise self.error(f"{self._plus!r} adds numbers: {error.why}", _key_at(keys, error.place)) from None

    def _reduction_of(self, numbers: Column) -> Reduction:
        """Return the reduction of totals that `numbers` can be added to as they are."""
        if self._reduction is None:
            return self._fix_type(numbers.dtype)
        return self._reduction if self._reduction.kind in (numbers.dtype, np.object_) else self._become_exact()

    def _become_exact(self) -> Reduction:
        """Make numbers of Python of the totals, because a total or a number does not fit their type."""
        self._reduction = exact = exact_reduction(self._plus)
        self._blocks.refill(0, Fill(exact.kind, exact.start))
        totals, alive = self._blocks.columns[:2]
        totals[~alive] = exact.start
        return exact

    def _write(self, slots: Integers, numbers: Column, reduction: Reduction) -> None:
        blocks = self._blocks
        totals, alive = blocks.columns[:2]
        dead = slots[~alive[slots]]
        first = dead[~blocks.is_dirty(dead)]
        is_expired = alive[slots] & ~self._live(slots) if self.is_timed else None
        blocks.copy_frozen(slots)
        if is_expired is not None and is_expired.any():
            totals[slots[is_expired]] = reduction.start
            reduction.replaced()
        try:
            reduction.add(totals, slots, numbers)
        except SumOverflow:
            exact = self._become_exact()
            totals, alive = blocks.columns[:2]
            exact.add(totals, slots, numbers)
        blocks.written(slots)
        alive[dead] = True
        blocks.written_first(first)
        if self.is_timed:
            blocks.columns[2][slots] = NEVER if self.spec.ttl is None else self.context.now + self.spec.ttl

    def remove(self, key: Any) -> None:
        """See `StateTable`."""
        self.remove_all([key])

    def remove_all(self, keys: Any) -> None:
        """Remove the totals of many keys."""
        parts, count = self._parts_of(keys)
        self.changed()
        if self._reduction is None:
            return
        slots = self._slots_of(parts, count)
        self._bury(slots[self._blocks.columns[1][slots]], leaves_tombstones=True)

    def _bury(self, slots: Integers, *, leaves_tombstones: bool) -> None:
        """Mark live slots dead. Totals without an older row leave no tombstone."""
        if not len(slots):
            return
        blocks = self._blocks
        blocks.copy_frozen(slots)
        self._kill(slots)
        if leaves_tombstones:
            blocks.written(slots)
        blocks.forget(slots[blocks.is_fresh(slots)])

    def sweep(self, limit: int) -> int:
        """See `StateTable`. A call searches one block."""
        if not self.is_timed or self._reduction is None:
            return 0
        end = min(len(self._keys), self._blocks.capacity)
        start = self._swept_to if self._swept_to < end else 0
        slots = np.arange(start, min(start + BLOCK_SLOTS, end))
        expired = slots[self._blocks.columns[1][slots] & ~self._live(slots)][:limit]
        self._bury(expired, leaves_tombstones=False)
        if len(expired) < limit:
            self._swept_to = start + BLOCK_SLOTS
        return len(expired)

    # ---------------------------------------------------------------- capture and restore

    def take_dirty(self) -> DirtyColumns | None:
        """See `StateTable`."""
        if not self._blocks.has_changes:
            return None
        encode = partial(encode_totals, codec=self.owner.codec)
        return DirtyColumns(self.spec, self._keys, self._blocks.capture(), encode)

    def restore(self, rows: DecodedRows, now: float) -> None:
        """See `StateTable`.

        Raises
        ------
        RestoreRefused
            if a value is no number.
        """
        keys, _, values, ends = rows
        if ends is not None:
            values = [stored for _, stored, _ in unexpired(keys, values, ends, now)]
        is_alive = np.fromiter((value is not None for value in values), np.bool_, len(values))
        numbers = self._restored_numbers([self.value_of(value) for value in values if value is not None])
        if not len(numbers) and self._reduction is None:
            return
        reduction = self._reduction_of(numbers) if len(numbers) else self._reduction
        assert reduction is not None
        slots = self._slots_of(*self._parts_of(keys))
        self._kill(slots[~is_alive])
        totals, alive = self._blocks.columns[:2]
        totals[slots[is_alive]] = numbers
        alive[slots[is_alive]] = True
        reduction.replaced()
        if self.is_timed:
            found = [NEVER] * len(slots) if ends is None else [NEVER if end is None else end for end in ends]
            self._blocks.columns[2][slots] = np.where(is_alive, found, NEVER)

    def _restored_numbers(self, values: list[Any]) -> Column:
        try:
            return number_column(values)[0].numbers
        except NoNumber as error:
            raise self._refusal(f"{self._plus!r} adds numbers, and a row holds another value: {error.why}") from None

    def _refusal(self, why: str) -> RestoreRefused:
        return RestoreRefused(f"{self.owner.subtask}: state {self.spec.name!r}: {why}: give the new state another name")


def _key_at(keys: Any, place: int) -> Any:
    listed = key_list(keys)
    return listed[place] if place < len(listed) else listed
