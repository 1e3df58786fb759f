"""Fit columns of one Arrow type into another: by kind, then by a cast, and a cast back that must give the same values.

Arrow's safe casts are not lossless: they round floats, cut times from dates, and drop fields of structs.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.values.kinds import has_twice, kind_of, other_names, plain_type, slot
from cutline.snapshot.values.scalars import Unfit, unfit

#: (kind of the column, another kind whose types may hold the same values)
_OTHER_KINDS: Final = frozenset({("int", "float"), ("int", "decimal")})

#: kinds whose safe casts, inside the kind, change no value
_SAFE_KINDS: Final = frozenset({"int", "text", "bytes", "bool", "null"})


class ColumnUnfit(ValueError):
    """The value at `row`, or the value at `path` inside of it, does not fit."""

    def __init__(self, row: int, path: str, reason: str) -> None:
        super().__init__(row, path, reason)
        self.row = row
        self.path = path
        self.reason = reason


def fitted_column(array: pa.Array, type_: pa.DataType, *, nullable: bool) -> pa.Array:
    """Return the column in the type. Raise ColumnUnfit."""
    if array.type.equals(type_) and _takes_all_of_itself(type_):
        _require_no_null(array, nullable=nullable)
        return array
    fitted = _require(array, type_, nullable=nullable)
    if fitted is not None and fitted.type.equals(type_):
        return fitted
    if array.type.equals(type_):
        return array
    try:
        return _converted(_decoded(array), type_)
    except pa.ArrowException as error:
        raise ColumnUnfit(0, "", f"a column of {array.type} is none of {type_}: {error}") from error


def _converted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if not array.null_count or not pa.types.is_nested(array.type):
        return _cast(array, type_)
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(is_valid) - 1, mask=~is_valid)
    return _cast(array.drop_null(), type_).take(places)  # because values below a null fit nothing


def _takes_all_of_itself(type_: pa.DataType) -> bool:
    """Return whether each column of the type fits the type, apart from nulls: no NOT NULL inside, and no map."""
    if pa.types.is_map(type_):
        return False
    if pa.types.is_run_end_encoded(type_):
        return True
    fields = [type_.field(number) for number in range(type_.num_fields)]
    return all(field.nullable and _takes_all_of_itself(field.type) for field in fields)


def _require(array: pa.Array, type_: pa.DataType, *, nullable: bool) -> pa.Array | None:
    """Raise ColumnUnfit unless each value fits. Return a cast column of scalars, because it is made on the way."""
    array, type_ = _decoded(array), plain_type(type_)
    _require_no_null(array, nullable=nullable)
    given, wanted = kind_of(array.type), kind_of(type_)
    if given == "null" and wanted is not None:
        return None
    if given is None or (given != wanted and (given, wanted) not in _OTHER_KINDS):
        if array.type.equals(type_):
            return None
        raise ColumnUnfit(0, "", f"a column of {array.type} does not fit {type_}: their kinds differ")
    if given in _NESTED:
        _NESTED[given](array, type_)
    elif not array.type.equals(type_):
        return _fitted_scalars(array, type_, is_safe=given == wanted and given in _SAFE_KINDS)
    return None


def _require_no_null(array: pa.Array, *, nullable: bool) -> None:
    if nullable:
        return
    is_null = _decoded(array).is_null()
    if pc.any(is_null).as_py():
        raise ColumnUnfit(_first(is_null), "", "null does not fit, because the column is NOT NULL")


def _decoded(array: pa.Array) -> pa.Array:
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return values that fit in the type, or raise ArrowException."""
    if pa.types.is_dictionary(type_):
        found = _cast(array, type_.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            found.indices.cast(type_.index_type), found.dictionary, ordered=type_.ordered
        )
    if pa.types.is_decimal(type_):  # because Arrow's casts lack some, and wrap large integers
        return pa.array(array.to_pylist(), type_)
    if pa.types.is_integer(array.type) and pa.types.is_floating(type_):  # because the safe cast refuses what is exact
        return array.cast(type_, safe=False)
    return array.cast(type_)


def _fitted_scalars(array: pa.Array, type_: pa.DataType, *, is_safe: bool) -> pa.Array:
    if pa.types.is_decimal(type_):
        _require_values(array, type_)
        return _cast(array, type_)
    try:
        fitted = _cast(array, type_)
    except pa.ArrowException:
        raise _refusal(array, _first_failing(array, type_), type_) from None
    if is_safe or not len(array):
        return fitted
    differs = pc.fill_null(_differ(array, fitted), False)
    if pc.any(differs).as_py():
        raise _refusal(array, _first(differs), type_)
    return fitted


def _refusal(array: pa.Array, row: int, type_: pa.DataType) -> ColumnUnfit:
    value = array[row].as_py()
    try:
        slot(type_, True).check(value)
    except Unfit as error:
        return ColumnUnfit(row, error.path, error.reason)
    return ColumnUnfit(row, "", unfit(value, f"has no exact value in {type_}").reason)


def _require_values(array: pa.Array, type_: pa.DataType) -> None:
    check = slot(type_, True).check
    for row, value in enumerate(array.to_pylist()):
        try:
            check(value)
        except Unfit as error:
            raise ColumnUnfit(row, error.path, error.reason) from None


def _differ(array: pa.Array, fitted: pa.Array) -> pa.Array:
    """Return which values are others after a cast back."""
    differs = pc.not_equal(*map(_comparable, (array, fitted.cast(array.type, safe=False))))
    if pa.types.is_floating(array.type):
        return pc.and_not(differs, pc.is_nan(_comparable(array)))
    if pa.types.is_floating(fitted.type):  # because a float beyond all integers has no integer to be cast back to
        bits = array.type.bit_width - (not pa.types.is_unsigned_integer(array.type))
        wide = _comparable(fitted).cast(pa.float64())
        return pc.or_(differs, pc.or_(pc.greater_equal(wide, 2.0**bits), pc.less(wide, -(2.0**bits))))
    return differs


def _comparable(array: pa.Array) -> pa.Array:
    """Return the column in a type that Arrow compares. Half floats are none."""
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _first(flags: pa.Array) -> int:
    return int(pc.index(flags, True).as_py())


def _first_failing(array: pa.Array, type_: pa.DataType) -> int:
    """Return the row of the first value that a cast refuses."""
    low, high = 0, len(array) - 1
    while low < high:
        middle = (low + high) // 2
        try:
            _cast(array[low : middle + 1], type_)
        except pa.ArrowException:
            high = middle
        else:
            low = middle + 1
    return low


# -------------------------------------------------------------------- nested types


def _require_lists(array: pa.Array, type_: pa.DataType) -> None:
    if _is_view(array.type) != _is_view(type_):  # because casts of views with nulls make lists of other values
        raise ColumnUnfit(0, "", f"a column of {array.type} does not fit {type_}: a view of lists is no list here")
    if pa.types.is_fixed_size_list(type_):
        lengths = pc.list_value_length(array)
        differs = pc.fill_null(pc.not_equal(lengths, type_.list_size), False)
        if pc.any(differs).as_py():
            row = _first(differs)
            raise ColumnUnfit(row, "", f"a list of {lengths[row]} does not fit {type_}, which holds {type_.list_size}")
    parents = pc.list_parent_indices(array).to_numpy()
    try:
        _require(pc.list_flatten(array), type_.value_type, nullable=type_.value_field.nullable)
    except ColumnUnfit as error:
        row = int(parents[error.row]) if len(parents) else 0
        place = error.row - int(np.searchsorted(parents, row))
        raise ColumnUnfit(row, f"[{place}]{error.path}", error.reason) from None


def _is_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def _require_structs(array: pa.Array, type_: pa.DataType) -> None:
    given, wanted = ([field.name for field in each] for each in (array.type, type_))
    if sorted(given) != sorted(wanted) or len(set(wanted)) < len(wanted):
        raise ColumnUnfit(0, "", f"a column of {array.type} {other_names(given, wanted)}")
    rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    valid = array.drop_null() if array.null_count else array
    for field in type_:
        try:
            _require(valid.field(field.name), field.type, nullable=field.nullable)
        except ColumnUnfit as error:
            row = int(rows[error.row]) if len(rows) else 0
            raise ColumnUnfit(row, f".{field.name}{error.path}", error.reason) from None


def _require_maps(array: pa.Array, type_: pa.DataType) -> None:
    _require_lists(array.cast(_entries_of(array.type)), _entries_of(type_))
    for row, pairs in enumerate(array.to_pylist()):
        keys = [key for key, _ in pairs or ()]
        if has_twice(keys):
            raise ColumnUnfit(row, "", unfit(pairs, "has a key twice").reason)


def _entries_of(type_: pa.MapType) -> pa.ListType:
    item = pa.field("value", type_.item_type, type_.item_field.nullable)
    return pa.list_(pa.struct([pa.field("key", type_.key_type, nullable=False), item]))


_NESTED: Final = {"list": _require_lists, "struct": _require_structs, "map": _require_maps}
