"""Map key columns to numbers of groups, and back. Each distinct key, nulls included, receives a number once.

Each column is numbered separately. Several columns are joined from the left, with a pair of numbers in one integer::

    integers ──IntegerColumn──> numbers ─┐
                                         ├─ (left << 32 | right) ──IntegerTable──> numbers of pairs ─> ...
    text     ──TextColumn─────> numbers ─┘
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.columns.integer_table import Integers, IntegerTable
from cutline.snapshot.errors import NodeError

#: groups, because two numbers must fit one 64-bit integer. The state of so many groups takes more than 64 GB
GROUPS_MAX: Final = 1 << 31

_PAIR_BITS: Final = 32
_RIGHT: Final = (1 << _PAIR_BITS) - 1


class _Column(Protocol):
    """Number the distinct values of one key column."""

    def __len__(self) -> int: ...

    def numbers(self, column: pa.Array) -> Integers:
        """Return the number of each row's value."""

    def values(self, kind: pa.DataType) -> pa.Array:
        """Return the values, in the order of their numbers."""

    def values_at(self, numbers: Integers, kind: pa.DataType) -> list[Any]:
        """Return the values with the given numbers. Another thread may add values meanwhile."""


class GroupKeys:
    """The distinct keys of the types `kinds`, numbered in the order of their first batches.

    Parameters
    ----------
    kinds : sequence of pyarrow.DataType
        Type of each key column, as `key_type` returns the type.
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._kinds = kinds
        self._columns: list[_Column] = [_Integers() if _is_integer(kind) else _Texts() for kind in kinds]
        self._pairs = [IntegerTable() for _ in kinds[1:]]

    def __len__(self) -> int:
        return len(self._pairs[-1] if self._pairs else self._columns[0])

    def numbers(self, columns: Sequence[pa.Array]) -> Integers:
        """Return the number of each row's group. Add new groups.

        Raises
        ------
        NodeError
            if there are more than `GROUPS_MAX` groups.
        """
        numbers = self._columns[0].numbers(columns[0])
        for pairs, numbered, column in zip(self._pairs, self._columns[1:], columns[1:], strict=True):
            numbers = pairs.numbers(numbers << _PAIR_BITS | numbered.numbers(column))
        if len(self) > GROUPS_MAX:
            raise NodeError(f"more than {GROUPS_MAX:,} groups: aggregate by coarser keys, or with more subtasks")
        return numbers

    def columns(self) -> list[pa.Array]:
        """Return the key columns of all groups, in the order of group numbers."""
        found: list[pa.Array] = []
        pairs: Integers | None = None
        for table, numbered, kind in zip(self._pairs[::-1], self._columns[:0:-1], self._kinds[:0:-1], strict=True):
            joined = table.values if pairs is None else table.values[pairs]
            found.append(numbered.values(kind).take(pa.array(joined & _RIGHT)))
            pairs = joined >> _PAIR_BITS
        values = self._columns[0].values(self._kinds[0])
        return [values if pairs is None else values.take(pa.array(pairs)), *found[::-1]]

    def columns_at(self, numbers: Integers) -> list[list[Any]]:
        """Return the values of each key column for some groups. Another thread may add groups meanwhile."""
        found: list[list[Any]] = []
        for table, numbered, kind in zip(self._pairs[::-1], self._columns[:0:-1], self._kinds[:0:-1], strict=True):
            joined = table.values[numbers]
            found.append(numbered.values_at(joined & _RIGHT, kind))
            numbers = joined >> _PAIR_BITS
        return [self._columns[0].values_at(numbers, self._kinds[0]), *found[::-1]]


def key_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a key column of `kind` in the groups. A dictionary has its value type, a view a plain type.

    Raises
    ------
    TypeError
        if values of this type cannot be keys.
    """
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if _is_integer(value) or any(matches(value) for matches in _TEXTS):
        return _without_views(value)
    raise TypeError(f"{kind} cannot be a key: keys are bool, int, str and bytes")


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)


class _Integers:
    """A column of integers or bools. Null has a number too, between the numbers of the values."""

    def __init__(self) -> None:
        #: the values, without null
        self._table = IntegerTable()
        #: count of values before the first null, or None without a null
        self._null: int | None = None

    def __len__(self) -> int:
        return len(self._table) + (self._null is not None)

    def numbers(self, column: pa.Array) -> Integers:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if not column.null_count:
            return self._shifted(self._table.numbers(_as_integers(column)))
        known = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        if self._null is None:
            self._null = len(self._table)
        numbers = np.full(len(column), self._null, dtype=np.int64)
        numbers[known] = self._shifted(self._table.numbers(_as_integers(column.drop_null())))
        return numbers

    def values(self, kind: pa.DataType) -> pa.Array:
        values = _from_integers(self._table.values, kind)
        if self._null is None:
            return values
        return pa.concat_arrays([values[: self._null], pa.nulls(1, kind), values[self._null :]])

    def values_at(self, numbers: Integers, kind: pa.DataType) -> list[Any]:
        null = self._null  # numbers below it do not depend on whether there is a null
        values = self._table.values
        if null is None:
            return _integer_list(values[numbers], kind)
        found: list[Any] = [None] * len(numbers)
        places = np.flatnonzero(numbers != null)
        own = numbers[places]
        listed = _integer_list(values[own - (own > null)], kind)
        for place, value in zip(places.tolist(), listed, strict=True):
            found[place] = value
        return found

    def _shifted(self, numbers: Integers) -> Integers:
        return numbers if self._null is None else numbers + (numbers >= self._null)


class _Texts:
    """A column of text or bytes. For each batch, Arrow makes a table of the known values and finds all rows in it.

    A second way serves new values, and batches with fewer rows than known values: Arrow finds distinct values of the
    batch, and a dict finds their numbers. This takes 2.8 times as long for 65,536 rows of 10,000 values.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        #: keys of `_numbers` in their order, because a dict that grows cannot be read by another thread
        self._distinct: list[Any] = []
        #: keys of `_numbers` at the last search, or None before the first
        self._known: pa.Array | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, column: pa.Array) -> Integers:
        column = column.cast(_without_views(column.type))
        if len(self._numbers) <= len(column) and not pa.types.is_dictionary(column.type):
            found = pc.index_in(column, value_set=self._values_known(column.type))
            if not found.null_count:
                places: Integers = found.to_numpy().astype(np.int64)
                return places
        return self._numbers_by_value(column)

    def values(self, kind: pa.DataType) -> pa.Array:
        return pa.array(self._distinct, kind)

    def values_at(self, numbers: Integers, kind: pa.DataType) -> list[Any]:
        return list(map(self._distinct.__getitem__, numbers.tolist()))

    def _values_known(self, kind: pa.DataType) -> pa.Array:
        known = self._known
        if known is None or len(known) != len(self._numbers) or known.type != kind:
            known = self._known = self.values(kind)
        return known

    def _numbers_by_value(self, column: pa.Array) -> Integers:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        values, places = encoded.dictionary, encoded.indices
        if places.null_count:
            places = pc.fill_null(places.cast(pa.int64()), len(values))
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        rows = places.to_numpy(zero_copy_only=False)
        # Only used values become groups, because a dictionary may hold values without rows.
        used = np.flatnonzero(np.bincount(rows, minlength=len(values)))
        by_place = np.zeros(len(values), dtype=np.int64)
        by_place[used] = self._learn(values.take(pa.array(used)).to_pylist())
        found: Integers = by_place[rows]
        return found

    def _learn(self, values: list[Any]) -> list[int]:
        found = list(map(self._numbers.get, values))
        if None in found:
            for value in values:
                if value not in self._numbers:
                    self._numbers[value] = len(self._distinct)
                    self._distinct.append(value)
            return [self._numbers[value] for value in values]
        return cast("list[int]", found)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type that a view type is cast to, because Arrow can neither sort, search nor take rows of views."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _as_integers(column: pa.Array) -> Integers:
    """Return the values of a column without nulls in 64 bits. Unsigned values keep their bits."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    values = column.to_numpy(zero_copy_only=False)
    found: Integers = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64, copy=False)
    return found


def _integer_list(values: Integers, kind: pa.DataType) -> list[Any]:
    """Return what `_from_integers` would return, as a list. A bool is the int that is the same key."""
    found: list[Any] = (values.view(np.uint64) if pa.types.is_uint64(kind) else values).tolist()
    return found


def _from_integers(values: Integers, kind: pa.DataType) -> pa.Array:
    """Invert `_as_integers`. The result has its own memory."""
    if pa.types.is_uint64(kind):
        return pa.array(values.view(np.uint64).copy())
    array = pa.array(values.copy())
    return array.cast(pa.int8()).cast(kind) if pa.types.is_boolean(kind) else array.cast(kind)
