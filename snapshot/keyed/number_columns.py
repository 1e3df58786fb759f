"""Convert added values to a column of numbers, for states that reduce by the column.

Owns which values are numbers. Must not know keys, nor what the numbers are added to.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutline.snapshot.columns.integer_table import Integers
from cutline.snapshot.columns.reductions import numbers_of
from cutline.snapshot.keyed.bulk import value_list
from cutline.snapshot.values.fitting import DoesNotFit, fit

#: A column of int64 or float64; or of objects: integers beyond 64 bits, or integers beside floats.
Numbers = npt.NDArray[Any]


_EXACT: Final = frozenset({int, float})


class NoNumber(ValueError):
    """The value at `place` is no number."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why


class Added(NamedTuple):
    """Values that a bulk call adds."""

    numbers: Numbers
    #: places of the numbers in the call, or None for all
    places: Integers | None


def number_column(values: Any) -> tuple[Added, int]:
    """Return the values of a bulk call that are not null, and the number of values.

    Raises
    ------
    TypeError
        if `values` is neither a column nor a sequence.
    NoNumber
        if a value is no number.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iuf":
        values = pa.array(values)
    if isinstance(values, pa.Array) and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return _of_column(values), len(values)
    listed = value_list(values)
    return _of_list(listed), len(listed)


def one_each(values: Any) -> tuple[Added, int]:
    """Return a 1 for each value of a bulk call that is not null, and the number of values. Raise TypeError as above."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        is_null = values.is_null().to_numpy(zero_copy_only=False) if _may_hold_nulls(values) else None
        count = len(values)
    elif isinstance(values, np.ndarray) and values.dtype.kind != "O":
        is_null, count = None, len(values)
    else:
        listed = value_list(values)
        is_null = np.fromiter((value is None for value in listed), np.bool_, len(listed))
        count = len(listed)
    if is_null is None or not is_null.any():
        return Added(np.ones(count, np.int64), None), count
    places = np.flatnonzero(~is_null)
    return Added(np.ones(len(places), np.int64), places), count


def _may_hold_nulls(column: pa.Array) -> bool:
    return bool(column.null_count) or pa.types.is_dictionary(column.type) or pa.types.is_null(column.type)


def _of_column(column: pa.Array) -> Added:
    places: Integers | None = None
    if column.null_count:
        places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        column = column.drop_null()
    try:
        return Added(numbers_of(column), places)
    except DoesNotFit:
        return Added(exact_numbers(column.to_pylist()), places)


def _of_list(values: list[Any]) -> Added:
    places = np.arange(len(values))
    if type(None) in set(map(type, values)):
        places = np.array([place for place, value in enumerate(values) if value is not None], np.int64)
        values = [value for value in values if value is not None]
    kinds = set(map(type, values))
    if not kinds <= _EXACT:
        values = [_number(value, int(place)) for place, value in zip(places, values, strict=True)]
        kinds = set(map(type, values))
    if len(kinds) > 1:
        return Added(exact_numbers(values), places)
    try:
        return Added(fit(values, pa.float64() if float in kinds else pa.int64()).to_numpy(), places)
    except DoesNotFit:
        return Added(exact_numbers(values), places)


def exact_numbers(values: Sequence[int | float]) -> Numbers:
    """Return a column of numbers of Python."""
    numbers: Numbers = np.empty(len(values), np.object_)
    numbers[:] = values
    return numbers


def _number(value: Any, place: int) -> int | float:
    if isinstance(value, float):
        return float(value)
    try:
        return int(operator.index(value))
    except TypeError:
        raise NoNumber(place, f"a {type(value).__qualname__} is no number; give a function instead") from None
