"""Keep the totals of one column: values are added by the numbers of their groups.

Keys and names are outside. Values are 64-bit integers or floats, without nulls.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot.operators.integer_table import Integers, grown

#: kinds of totals. A mean is computed from a sum and a count
Measure = Literal["count", "sum", "min", "max"]

Values = npt.NDArray[Any]

_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 63) - 1

_HALF_BITS: Final = 32
_LOW_HALF: Final = (1 << _HALF_BITS) - 1


class SumOverflow(ArithmeticError):
    """The sum of the group with number `group` does not fit 64 bits."""

    def __init__(self, group: int) -> None:
        super().__init__(group)
        self.group = group


class Total(Protocol):
    """Totals of all groups, one total for each group."""

    #: type of totals in the state and in the result
    kind: pa.DataType

    def add(self, groups: Integers, values: Values, group_count: int) -> None:
        """Add each value to the total of its group. Raise `SumOverflow`, after which the totals are unusable."""

    def values(self, group_count: int) -> Values:
        """Return a view of the totals, in the order of group numbers."""

    def merge(self, groups: Integers, totals: Values, group_count: int) -> None:
        """Add totals of other values. Raise as `add` does."""

    def clear(self) -> None:
        """Reset all totals. Arrays that `values` returned before change too."""


def total_type(measure: Measure, kind: pa.DataType) -> pa.DataType:
    """Return the type of the totals of a column of `kind`.

    Raises
    ------
    TypeError
        if such a column has no such totals.
    """
    if measure == "count":
        return pa.int64()
    if pa.types.is_integer(kind):
        return pa.int64() if measure == "sum" else kind
    if pa.types.is_floating(kind):
        return pa.float64() if measure == "sum" else kind
    raise TypeError(f"a column of {kind} has no {measure}: only integers and floats have")


def make_total(measure: Measure, kind: pa.DataType) -> Total:
    """Make an empty total. `kind` is its `total_type`."""
    is_integer = pa.types.is_integer(kind)
    match measure:
        case "count":
            return _Counts(kind)
        case "sum":
            return _IntegerSums(kind) if is_integer else _Accumulated(kind, np.add, 0.0)
        case "min":
            # NaN is greater than all numbers, as in Spark and PostgreSQL; fmin therefore prefers a number to NaN.
            return _Accumulated(kind, np.minimum, _INTEGER_MAX) if is_integer else _Accumulated(kind, np.fmin, np.nan)
        case "max":
            return _Accumulated(kind, np.maximum, _INTEGER_MIN if is_integer else -np.inf)


class _Accumulated:
    """Totals computed by a ufunc, with the initial value `start`."""

    def __init__(self, kind: pa.DataType, ufunc: np.ufunc, start: float) -> None:
        self.kind = kind
        self._ufunc = ufunc
        self._start = start
        self._totals: Values = np.full(0, start, dtype=np.int64 if isinstance(start, int) else np.float64)

    def add(self, groups: Integers, values: Values, group_count: int) -> None:
        self._totals = grown(self._totals, group_count, self._start)
        with np.errstate(all="ignore"):  # because infinities and NaN are ordinary results of floats
            self._ufunc.at(self._totals, groups, values)

    def values(self, group_count: int) -> Values:
        self._totals = grown(self._totals, group_count, self._start)
        return self._totals[:group_count]

    def merge(self, groups: Integers, totals: Values, group_count: int) -> None:
        self.add(groups, totals, group_count)

    def clear(self) -> None:
        self._totals.fill(self._start)


class _Counts(_Accumulated):
    """Counts of values."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind, np.add, 0)

    def add(self, groups: Integers, values: Values, group_count: int) -> None:
        self._totals = grown(self._totals, group_count, 0)
        np.add.at(self._totals, groups, 1)

    def merge(self, groups: Integers, totals: Values, group_count: int) -> None:
        super().add(groups, totals, group_count)


class _IntegerSums(_Accumulated):
    """Exact sums of integers."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind, np.add, 0)
        #: upper bound of the absolute values of all totals
        self._reach = 0

    def add(self, groups: Integers, values: Values, group_count: int) -> None:
        if not len(values):
            return
        self._totals = grown(self._totals, group_count, 0)
        added = _reach(values) * len(values)
        if self._reach + added > _INTEGER_MAX:
            self._reach = _reach(self._totals)
        if self._reach + added > _INTEGER_MAX:
            self._add_halves(groups, values)
            self._reach = _reach(self._totals)
            return
        self._reach += added
        np.add.at(self._totals, groups, values)

    def _add_halves(self, groups: Integers, values: Values) -> None:
        """Add upper and lower halves separately, because an overflow is then detected."""
        low, high = self._totals & _LOW_HALF, self._totals >> _HALF_BITS
        np.add.at(low, groups, values & _LOW_HALF)
        np.add.at(high, groups, values >> _HALF_BITS)
        high += low >> _HALF_BITS
        overflown = np.flatnonzero((high >> (_HALF_BITS - 1) != 0) & (high >> (_HALF_BITS - 1) != -1))
        if len(overflown):
            raise SumOverflow(int(overflown[0]))
        self._totals = high << _HALF_BITS | low & _LOW_HALF


def _reach(values: Values) -> int:
    return max(int(values.max()), -int(values.min()))


def numbers_of(column: pa.Array) -> Values:
    """Return the values of a column of integers or floats without nulls, in 64 bits.

    Raises
    ------
    pyarrow.ArrowInvalid
        if an unsigned value is beyond 63 bits.
    """
    wide = pa.int64() if pa.types.is_integer(column.type) else pa.float64()
    return cast("Values", column.cast(wide).to_numpy(zero_copy_only=False))
