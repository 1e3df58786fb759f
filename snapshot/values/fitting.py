"""Fit values of users into Arrow types: each is as it was, or is refused with its row, its path and the reason.

Arrow, NumPy and Parquet convert what they can, and cut, round or drop the rest in silence. So nothing else converts
values of users, and `tests/snapshot/values/test_only_fitting_converts.py` searches the code for other conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from cutline.snapshot.values.column_fitting import ColumnUnfit, fitted_column
from cutline.snapshot.values.kinds import Slot, other_names, slot
from cutline.snapshot.values.scalars import Unfit, unfit

_NONE: Final = frozenset({type(None)})
_ARROW_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


class DoesNotFit(ValueError):
    """A value does not fit its column.

    Parameters
    ----------
    row : int
        Number of the row among those that were to be fitted.
    path : str
        The column, and the way to the value inside of it: ``v.a[2]``.
    reason : str
        The value, its class, and what the column holds.
    """

    def __init__(self, row: int, path: str, reason: str) -> None:
        super().__init__(row, path, reason)
        self.row = row
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"column {self.path}: {self.reason}" if self.path else self.reason


def fit(values: Sequence[Any], type_: pa.DataType, nullable: bool = True, path: str = "") -> pa.Array:
    """Return a column of Python values. Raise DoesNotFit for the first value that does not fit."""
    taken = _slot(type_, path, nullable=nullable)
    classes = set(map(type, values))
    if classes <= taken.plain or (nullable and classes - _NONE <= taken.plain):
        whole = _converted_at_once(values, taken, type_)
        if whole is not None:
            return whole
    return _joined([_checked(taken, value, row, path) for row, value in enumerate(values)], type_, path)


def fit_rows(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of dicts with exactly the columns of a schema.

    Raises
    ------
    DoesNotFit
        for a row that is no such dict, or has a value that does not fit its column.
    """
    columns = _columns_of(_values_of(rows, schema.names), schema)
    return _batch(
        [fit(column, field.type, field.nullable, field.name) for field, column in zip(schema, columns, strict=True)],
        schema,
        len(rows),
    )


def plain_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of rows that `row_check` has returned.

    Raises
    ------
    DoesNotFit
        if the rows do not fit together: a dictionary with more values than its type counts, or more than 2 GiB of text.
    """
    columns = _columns_of(rows, schema)
    return _batch(
        [_joined(column, field.type, field.name) for field, column in zip(schema, columns, strict=True)],
        schema,
        len(rows),
    )


def _columns_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> Iterable[Sequence[Any]]:
    return zip(*rows, strict=True) if len(rows) else [()] * len(schema)


def _batch(arrays: list[pa.Array], schema: pa.Schema, row_count: int) -> pa.RecordBatch:
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * row_count, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values_of(rows: Sequence[Any], names: Sequence[str], or_else: str = "") -> list[tuple[Any, ...]]:
    """Return the values of each dict in the order of the columns. Raise DoesNotFit for what is no such row."""
    if len(names) > 1 and set(map(type, rows)) == {dict} and set(map(len, rows)) == {len(names)}:
        with suppress(KeyError):  # found again below, with its row
            return list(map(itemgetter(*names), rows))
    found = []
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DoesNotFit(place, "", unfit(row, f"is no dict with the keys {list(names)}{or_else}").reason)
        if len(row) != len(names) or not all(name in row for name in names):
            raise DoesNotFit(place, "", unfit(row, other_names(row, names)).reason)
        found.append(tuple([row[name] for name in names]))
    return found


def row_check(schema: pa.Schema) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that checks one row: a dict, or a tuple of values in the order of the columns.

    The function returns a tuple of plain values, or raises DoesNotFit. `plain_batch` takes these tuples.
    """
    names, count = schema.names, len(schema)
    slots = [_slot(field.type, field.name, nullable=field.nullable) for field in schema]
    are_plain = _written_check(slots)
    values_in_order = itemgetter(*names) if count > 1 else None

    def check(row: Any) -> tuple[Any, ...]:
        values = None
        if isinstance(row, tuple):
            values = row
        elif type(row) is dict and len(row) == count and values_in_order is not None:
            with suppress(KeyError):  # found again below
                values = values_in_order(row)
        if values is None:
            values = _values_of([row], names, ", and no tuple of their values")[0]
        if len(values) != count:
            raise DoesNotFit(0, "", unfit(row, f"has {len(values)} values, where the columns are {names}").reason)
        if are_plain(*values):
            return values
        return tuple([_checked(each, value, 0, name) for each, value, name in zip(slots, values, names, strict=True)])

    return check


def _written_check(slots: Sequence[Slot]) -> Callable[..., bool]:
    """Return a function that is true only for values that need no change. It is compiled, because a row is hot."""
    arguments = [f"v{place}" for place in range(len(slots))]
    tests = [each.written(argument) for each, argument in zip(slots, arguments, strict=True)]
    source = f"lambda {', '.join(arguments)}: {' and '.join(tests) or True}"
    made: Callable[..., bool] = eval(source, {})  # noqa: S307  # of places, classes and bounds, and of no text of users
    return made


def fit_array(array: pa.Array, type_: pa.DataType, nullable: bool = True, path: str = "") -> pa.Array:
    """Return a column in another type. Raise DoesNotFit for the first value that does not fit."""
    try:
        return fitted_column(array, type_, nullable=nullable)
    except ColumnUnfit as error:
        raise DoesNotFit(error.row, path + error.path, error.reason) from None


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, in any sequence, in the types of the schema. Raise DoesNotFit."""
    if sorted(batch.schema.names) != sorted(schema.names):
        raise DoesNotFit(0, "", f"a batch {other_names(batch.schema.names, schema.names)}")
    arrays = [fit_array(batch.column(field.name), field.type, field.nullable, field.name) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _slot(type_: pa.DataType, path: str, *, nullable: bool) -> Slot:
    try:
        return slot(type_, nullable)
    except Unfit as error:
        raise DoesNotFit(0, path, error.reason) from None


def _checked(taken: Slot, value: Any, row: int, path: str) -> Any:
    try:
        return taken.check(value)
    except Unfit as error:
        raise DoesNotFit(row, path + error.path, error.reason) from None


def _converted_at_once(values: Sequence[Any], taken: Slot, type_: pa.DataType) -> pa.Array | None:
    """Return the column of values of plain classes, or None if one of them may not fit."""
    scalar = taken.scalar
    if scalar is not None and not scalar.raises_in_arrow:
        present = [value for value in values if value is not None]
        if present and not scalar.fit_all(present):
            return None
    try:
        return _converted(values, type_)
    except _ARROW_ERRORS:
        return None


def _joined(plain: Sequence[Any], type_: pa.DataType, path: str) -> pa.Array:
    try:
        return _converted(plain, type_)
    except _ARROW_ERRORS as error:
        raise DoesNotFit(_first_failing(plain, type_), path, f"{type_} does not hold it: {error}") from error


def _converted(plain: Sequence[Any], type_: pa.DataType) -> pa.Array:
    array = pa.array(plain, type_)
    if isinstance(array, pa.ChunkedArray):
        raise OverflowError(f"the values exceed the 2 GiB that one column of {type_} holds")
    return array


def _first_failing(plain: Sequence[Any], type_: pa.DataType) -> int:
    """Return the row that does not fit together with those before it."""
    low, high = 0, len(plain) - 1
    while low < high:
        middle = (low + high) // 2
        try:
            _converted(plain[: middle + 1], type_)
        except _ARROW_ERRORS:
            high = middle
        else:
            low = middle + 1
    return low
