"""One total a group, of one column: how values are added, column by column, by the numbers of their groups.

Knows neither keys nor names. Values come as 64-bit integers or floats, without nulls.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot.operators.integer_table import Integers, grown

#: What is kept of a column. A mean is made of a sum and a count.
Measure = Literal["count", "sum", "min", "max"]

Values = npt.NDArray[Any]

_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 63) - 1

_HALF_BITS: Final = 32
_LOW_HALF: Final = (1 << _HALF_BITS) - 1


class SumOverflow(ArithmeticError):
    """A group's sum does not fit 64 bits; `group` is its number."""

    def __init__(self, group: int) -> None:
        super().__init__(group)
        self.group = group


class Total(Protocol):
    """One total for each group."""

    #: the type that totals have when they are stored or told
    kind: pa.DataType

    def add(self, groups: Integers, values: Values, group_count: int) -> None:
        """Add each value to the total of its group. Raises `SumOverflow`, after which nothing here is of use."""

    def values(self, group_count: int) -> Values:
        """The totals, by number of group; a view."""

    def merge(self, groups: Integers, totals: Values, group_count: int) -> None:
        """Add totals that another one made of other values. Raises as `add`."""

    def clear(self) -> None:
        """Begin anew; what `values` returned before is changed too."""


def total_type(measure: Measure, kind: pa.DataType) -> pa.DataType:
    """The type of the totals of a column of `kind`.

    Raises
    ------
    TypeError
        if it has no such totals.
    """
    if measure == "count":
        return pa.int64()
    if pa.types.is_integer(kind):
        return pa.int64() if measure == "sum" else kind
    if pa.types.is_floating(kind):
        return pa.float64() if measure == "sum" else kind
    raise TypeError(f"a column of {kind} has no {measure}: only integers and floats have")


def make_total(measure: Measure, kind: pa.DataType) -> Total:
    """An empty total; `kind` is its `total_type`."""
    is_integer = pa.types.is_integer(kind)
    match measure:
        case "count":
            return _Counts(kind)
        case "sum":
            return _IntegerSums(kind) if is_integer else _Accumulated(kind, np.add, 0.0)
        case "min":
            # NaN is greater than all numbers, as Spark and PostgreSQL have it; fmin forgets it when a number comes.
            return _Accumulated(kind, np.minimum, _INTEGER_MAX) if is_integer else _Accumulated(kind, np.fmin, np.nan)
        case "max":
            return _Accumulated(kind, np.maximum, _INTEGER_MIN if is_integer else -np.inf)


class _Accumulated:
    """Totals that a ufunc makes of the values, beginning at `start`."""

    def __init__(self, kind: pa.DataType, ufunc: np.ufunc, start: float) -> None:
        self.kind = kind
        self._ufunc = ufunc
        self._start = start
        self._totals: Values = np.full(0, start, dtype=np.int64 if isinstance(start, int) else np.float64)

    def add(self, groups: Integers, values: Values, group_count: int) -> None:
        self._totals = grown(self._totals, group_count, self._start)
        with np.errstate(all="ignore"):  # infinities and NaN are results of floats like others
            self._ufunc.at(self._totals, groups, values)

    def values(self, group_count: int) -> Values:
        self._totals = grown(self._totals, group_count, self._start)
        return self._totals[:group_count]

    def merge(self, groups: Integers, totals: Values, group_count: int) -> None:
        self.add(groups, totals, group_count)

    def clear(self) -> None:
        self._totals.fill(self._start)


class _Counts(_Accumulated):
    """How many values came."""

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
        #: no total is farther from 0 than this
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
        """Add where a sum may overflow: upper and lower halves apart, so that it is seen."""
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
    """The values of a column of integers or floats without nulls, in 64 bits.

    Raises
    ------
    pyarrow.ArrowInvalid
        if an unsigned one is beyond 63 bits.
    """
    wide = pa.int64() if pa.types.is_integer(column.type) else pa.float64()
    return cast("Values", column.cast(wide).to_numpy(zero_copy_only=False))
