"""Reduce numbers to totals: two numbers to one, and columns of values to the totals at their slots.

Owns what a sum, a count, a minimum and a maximum are. Must not know keys, nor who holds the totals. Columns hold 64-bit
integers, floats, or numbers of Python where these do not fit, and no nulls.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutline.snapshot.columns.integer_table import Integers
from cutline.snapshot.values.fitting import fit_array

#: kinds of totals. A mean is computed from a sum and a count
Measure = Literal["count", "sum", "min", "max"]

Values = npt.NDArray[Any]


def _least(total: Any, value: Any) -> Any:
    """Return the smaller number. NaN is greater than all numbers, so that the sequence of values does not matter."""
    return value if value < total or total != total else total


def _greatest(total: Any, value: Any) -> Any:
    """Return the greater number. NaN is greater than all numbers."""
    return value if value > total or value != value else total


#: {measure: function of a total and an added number}. A count adds ones.
PLUS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": operator.add,
    "count": operator.add,
    "min": _least,
    "max": _greatest,
}

_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 63) - 1

_HALF_BITS: Final = 32
_LOW_HALF: Final = (1 << _HALF_BITS) - 1


class SumOverflow(ArithmeticError):
    """The sum at a slot does not fit 64 bits."""

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.slot = slot


class Reduction(Protocol):
    """How values are added to totals."""

    #: type of totals in memory: int64, float64 or object
    kind: type[np.generic]
    #: total of no values
    start: float | None

    def add(self, totals: Values, slots: Integers, values: Values) -> None:
        """Add each value to the total at its slot. Raise `SumOverflow`, after which no total has changed."""

    def merge(self, totals: Values, slots: Integers, others: Values) -> None:
        """Add totals of other values. Raise as `add` does."""

    def replaced(self) -> None:
        """Note that totals were written otherwise."""


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


def make_reduction(measure: Measure, *, is_integer: bool) -> Reduction:
    """Make the reduction of one array of totals. A count is an integer, whatever is counted."""
    match measure:
        case "count":
            return _Counts()
        case "sum":
            # 0.0 would make the sum of -0.0 another zero.
            return _IntegerSums() if is_integer else _Accumulated(np.add, -0.0)
        case "min":
            # NaN is greater than all numbers, as in Spark and PostgreSQL; fmin therefore prefers a number to NaN.
            return _Accumulated(np.minimum, _INTEGER_MAX) if is_integer else _Accumulated(np.fmin, np.nan)
        case "max":
            return _Accumulated(np.maximum, _INTEGER_MIN if is_integer else -np.inf)


def exact_reduction(measure: Measure) -> Reduction:
    """Make the reduction of totals that are numbers of Python, which `PLUS` adds one by one."""
    return _Exact(PLUS[measure])


class _Exact:
    """Totals of any size, integers beside floats, as rows of single keys have them."""

    def __init__(self, plus: Callable[[Any, Any], Any]) -> None:
        self.kind: type[np.generic] = np.object_
        self.start: float | None = None
        self._plus = plus

    def add(self, totals: Values, slots: Integers, values: Values) -> None:
        plus = self._plus
        for slot, value in zip(slots.tolist(), values.tolist(), strict=True):
            total = totals[slot]
            totals[slot] = value if total is None else plus(total, value)

    def merge(self, totals: Values, slots: Integers, others: Values) -> None:
        self.add(totals, slots, others)

    def replaced(self) -> None:
        pass


class _Accumulated:
    """Totals computed by a ufunc, with the initial value `start`."""

    def __init__(self, ufunc: np.ufunc, start: float) -> None:
        self.kind: type[np.generic] = np.int64 if isinstance(start, int) else np.float64
        self.start: float | None = start
        self._ufunc = ufunc

    def add(self, totals: Values, slots: Integers, values: Values) -> None:
        with np.errstate(all="ignore"):  # because infinities and NaN are ordinary results of floats
            self._ufunc.at(totals, slots, values)

    def merge(self, totals: Values, slots: Integers, others: Values) -> None:
        self.add(totals, slots, others)

    def replaced(self) -> None:
        pass


class _Counts(_Accumulated):
    """Counts of values."""

    def __init__(self) -> None:
        super().__init__(np.add, 0)

    def add(self, totals: Values, slots: Integers, values: Values) -> None:
        np.add.at(totals, slots, 1)

    def merge(self, totals: Values, slots: Integers, others: Values) -> None:
        super().add(totals, slots, others)


class _IntegerSums(_Accumulated):
    """Exact sums of integers."""

    def __init__(self) -> None:
        super().__init__(np.add, 0)
        #: upper bound of the absolute values of all totals, or None when it is unknown
        self._bound: int | None = 0

    def add(self, totals: Values, slots: Integers, values: Values) -> None:
        if not len(values):
            return
        added = _reach(values) * len(values)
        if self._bound is None or self._bound + added > _INTEGER_MAX:
            self._bound = _reach(totals)
        if self._bound + added > _INTEGER_MAX:
            _add_halves(totals, slots, values)
            self._bound = None
            return
        self._bound += added
        np.add.at(totals, slots, values)

    def replaced(self) -> None:
        self._bound = None


def _add_halves(totals: Values, slots: Integers, values: Values) -> None:
    """Add upper and lower halves separately, because an overflow is then detected before a total changes."""
    touched, places = np.unique(slots, return_inverse=True)
    before = totals[touched]
    low, high = before & _LOW_HALF, before >> _HALF_BITS
    np.add.at(low, places, values & _LOW_HALF)
    np.add.at(high, places, values >> _HALF_BITS)
    high += low >> _HALF_BITS
    overflown = np.flatnonzero((high >> (_HALF_BITS - 1) != 0) & (high >> (_HALF_BITS - 1) != -1))
    if len(overflown):
        raise SumOverflow(int(touched[overflown[0]]))
    totals[touched] = high << _HALF_BITS | low & _LOW_HALF


def _reach(values: Values) -> int:
    return max(int(values.max()), -int(values.min()))


def numbers_of(column: pa.Array) -> Values:
    """Return the values of a column of integers or floats without nulls, in 64 bits.

    Raises
    ------
    DoesNotFit
        if an unsigned value is beyond 63 bits.
    """
    wide = pa.int64() if pa.types.is_integer(column.type) else pa.float64()
    return cast("Values", fit_array(column, wide).to_numpy(zero_copy_only=False))
