"""The kinds of Arrow types, and the check of one value against any type, nested ones included.

A *slot* is a type together with whether None fits. Unions, intervals, runs and extension types have no kind, so no
value fits them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cutline.snapshot.error_text import shown
from cutline.snapshot.values import scalars
from cutline.snapshot.values.scalars import Check, Scalar, Unfit, unfit

#: {kind: predicates of its types}
_MATCHES: Final = {
    "null": (pa.types.is_null,),
    "bool": (pa.types.is_boolean,),
    "int": (pa.types.is_integer,),
    "float": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal,),
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "bytes": (
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
        pa.types.is_fixed_size_binary,
    ),
    "date": (pa.types.is_date,),
    "time": (pa.types.is_time,),
    "local time": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,),
    "instant": (pa.types.is_timestamp,),
    "duration": (pa.types.is_duration,),
    "list": (
        *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
        *(pa.types.is_list_view, pa.types.is_large_list_view),
    ),
    "struct": (pa.types.is_struct,),
    "map": (pa.types.is_map,),
}

_SCALARS: Final = {
    "null": scalars.nothing,
    "bool": scalars.booleans,
    "int": scalars.integers,
    "float": scalars.floats,
    "decimal": scalars.decimals,
    "text": scalars.texts,
    "bytes": scalars.octets,
    "date": scalars.dates,
    "time": scalars.times,
    "local time": scalars.timestamps,
    "instant": scalars.timestamps,
    "duration": scalars.durations,
}

#: Kinds of numbers of NumPy whose arrays become lists of Python's own values without a loss.
_NUMPY_NUMBERS: Final = "biuf"


def kind_of(type_: pa.DataType) -> str | None:
    """Return the kind of a type, or None if it has none. A dictionary has the kind of its values."""
    type_ = plain_type(type_)
    return next((kind for kind, matches in _MATCHES.items() if any(match(type_) for match in matches)), None)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, and else the type."""
    return plain_type(type_.value_type) if pa.types.is_dictionary(type_) else type_


def is_size_fixed(type_: pa.DataType) -> bool:
    """Return whether each value of a type takes as much memory as any other."""
    return kind_of(type_) not in ("text", "bytes", "list", "struct", "map")


@dataclass(frozen=True, slots=True)
class Slot:
    """How values of one type are checked."""

    #: returns the plain value, or raises `Unfit`. None fits where the type is nullable
    check: Check
    nullable: bool
    #: as of `Scalar`; no class for nested types
    plain: frozenset[type]
    scalar: Scalar | None

    def written(self, argument: str) -> str:
        """Return an expression of Python that is true only for values of `argument` that need no change."""
        test = "False" if self.scalar is None else self.scalar.written.format(argument)
        return f"({test} or {argument} is None)" if self.nullable else f"({test})"

    def check_all(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the plain values. Raise Unfit, whose path begins with the place of the value."""
        classes = set(map(type, values))
        if self.scalar is not None and classes <= self.plain and (not values or self.scalar.fit_all(values)):
            return values
        check, found, place = self.check, [], 0
        try:
            for place, value in enumerate(values):  # noqa: B007  # because the error has the place
                found.append(check(value))
        except Unfit as error:
            raise error.below(f"[{place}]") from None
        return found


@lru_cache(maxsize=1024)
def slot(type_: pa.DataType, nullable: bool) -> Slot:
    """Return the slot of a type. Raise Unfit if nothing fits the type."""
    type_ = plain_type(type_)
    kind = kind_of(type_)
    if kind is None:
        raise Unfit(f"the type {type_} takes no values: only batches can have such a column")
    made = _SCALARS[kind](type_) if kind in _SCALARS else None
    check = made.check if made is not None else _NESTED[kind](type_)
    plain = frozenset() if made is None else made.plain
    return Slot(_with_none(check, nullable=nullable), nullable, plain, made)


def _with_none(check: Check, *, nullable: bool) -> Check:
    def checked(value: Any) -> Any:
        if value is not None:
            return check(value)
        if nullable:
            return None
        raise Unfit("None does not fit, because the column is NOT NULL")

    return checked


# -------------------------------------------------------------------- nested types


def _list_check(type_: pa.DataType) -> Check:
    element = slot(type_.value_type, type_.value_field.nullable)
    size = type_.list_size if pa.types.is_fixed_size_list(type_) else None

    def check(value: Any) -> Sequence[Any]:
        values = _elements(value)
        if size is not None and len(values) != size:
            raise unfit(value, f"has {len(values)} elements, and {type_} holds {size}")
        return element.check_all(values)

    return check


def _elements(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        is_of_numbers = value.dtype.kind in _NUMPY_NUMBERS and value.dtype.itemsize <= np.dtype(np.float64).itemsize
        return value.tolist() if value.ndim == 1 and is_of_numbers else list(value)
    raise unfit(value, "is no list, tuple or array")


def _struct_check(type_: pa.DataType) -> Check:
    names = [field.name for field in type_]
    if len(set(names)) < len(names):
        raise Unfit(f"the type {type_} takes no values, because two fields have one name")
    checks = [(field.name, slot(field.type, field.nullable).check) for field in type_]

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise unfit(value, f"is no dict with the keys {names}")
        if len(value) != len(names) or not all(name in value for name in names):
            raise unfit(value, other_names(value, names))
        return {name: _below(f".{name}", check_field, value[name]) for name, check_field in checks}

    return check


def other_names(found: Iterable[Any], names: Sequence[str]) -> str:
    """Describe which names are missing, and which there are too many."""
    found = list(found)
    missing = [name for name in names if name not in found]
    strange = [name for name in found if name not in names]
    faults = ([f"lacks {missing}"] if missing else []) + ([f"has {strange}"] if strange else [])
    return f"{' and '.join(faults) or 'has a name twice'}, where the names are {list(names)}"


def _map_check(type_: pa.DataType) -> Check:
    key = slot(type_.key_type, False)
    item = slot(type_.item_type, type_.item_field.nullable)

    def check(value: Any) -> list[tuple[Any, Any]]:
        pairs = list(value.items()) if isinstance(value, Mapping) else _pairs(value)
        keys = [_below(" key", key.check, each) for each, _ in pairs]
        if has_twice(keys):
            raise unfit(value, "has a key twice")
        return [
            (kept, _below(f"[{shown(each)}]", item.check, held)) for kept, (each, held) in zip(keys, pairs, strict=True)
        ]

    return check


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        return [(key, item) for key, item in value]
    raise unfit(value, "is no dict, and no list of pairs")


def has_twice(keys: Sequence[Any]) -> bool:
    """Return whether two of the plain values are equal."""
    try:
        return len(set(keys)) < len(keys)
    except TypeError:  # because plain values of nested types are lists and dicts
        return any(key in keys[:place] for place, key in enumerate(keys))


def _below(step: str, check: Check, value: Any) -> Any:
    try:
        return check(value)
    except Unfit as error:
        raise error.below(step) from None


_NESTED: Final = {"list": _list_check, "struct": _struct_check, "map": _map_check}
