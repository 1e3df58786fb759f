"""Convert the keys of bulk calls to parts of one form each, by the column where the keys have columns.

Owns the form of each key, which depends on the key alone. Must not know slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.columns.integer_table import Integers
from cutline.snapshot.columns.key_slots import ColumnKeys, Form, KeyForm, OtherKeys, Part
from cutline.snapshot.keyed.bulk import COLUMNS, key_list
from cutline.snapshot.keyed.state_rules import KEY_BYTES_MAX, StateRules

_INTEGER_MAX: Final = (1 << 63) - 1

_TEXT: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)

#: Kinds that Arrow neither searches nor measures, and what they become.
_VIEWS: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}

#: Bytes of the header of an element, at most.
_HEADER_BYTES: Final = 9


def key_parts(keys: Any, rules: StateRules) -> tuple[list[Part], int]:
    """Return the parts of the keys of a bulk call, and the number of keys.

    Parameters
    ----------
    keys : sequence, pyarrow.Array, numpy.ndarray, or list of columns
        As in `KeyedState.clearAll`.
    rules : StateRules
        Rules of the state, for keys that are refused.

    Raises
    ------
    TypeError, ValueError
        as `key_list`.
    NodeError
        if a key is no key of a state, or is too large.
    """
    is_tuple = type(keys) in (list, tuple) and bool(keys) and all(isinstance(each, COLUMNS) for each in keys)
    columns = [_column(each) for each in (keys if is_tuple else [keys])]
    found = [column for column in columns if column is not None]
    if len(found) < len(columns):
        listed = rules.plain_keys(key_list(keys))
        return _listed_parts(listed, rules), len(listed)
    count = len(found[0])
    if any(len(column) != count for column in found):
        raise ValueError(f"columns of keys have {', '.join(str(len(column)) for column in found)} rows")
    return _column_parts(found, rules, is_tuple=is_tuple), count


def _column_parts(columns: Sequence[pa.Array], rules: StateRules, *, is_tuple: bool) -> list[Part]:
    has_form = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        if column.null_count:
            has_form &= column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_uint64(column.type) and len(column):
            has_form &= pc.fill_null(column, 0).to_numpy(zero_copy_only=False) <= np.uint64(_INTEGER_MAX)
    if has_form.all():
        return [Part(_checked(_column_keys(columns, is_tuple=is_tuple), rules), None)]
    rest = np.flatnonzero(~has_form)
    elements = [column.take(pa.array(rest)).to_pylist() for column in columns]
    others = list(zip(*elements, strict=True)) if is_tuple else elements[0]
    for key in others:
        rules.check_size(key)
    parts = [Part(OtherKeys(others), rest)]
    if len(rest) < len(has_form):
        known = np.flatnonzero(has_form)
        formed = _column_keys([column.take(pa.array(known)) for column in columns], is_tuple=is_tuple)
        parts.append(Part(_checked(formed, rules), known))
    return parts


def _column(values: Any) -> pa.Array | None:
    """Return an Arrow array of integers, bools, text or bytes without views, or None for anything else."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    elif isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iub":
        values = pa.array(values)
    if not isinstance(values, pa.Array):
        return None
    if pa.types.is_dictionary(values.type):
        form = _form_of(values.type)
        if form in ("text", "bytes") and not values.dictionary.null_count and values.type.value_type not in _VIEWS:
            return values
        values = values.dictionary_decode()
    if values.type in _VIEWS:
        return values.cast(_VIEWS[values.type])
    return None if _form_of(values.type) is None else values


def _form_of(kind: pa.DataType) -> Form | None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "integer"
    if any(matches(kind) for matches in _TEXT):
        return "text"
    return "bytes" if any(matches(kind) for matches in _BYTES) else None


def _column_keys(columns: Sequence[pa.Array], *, is_tuple: bool) -> ColumnKeys:
    forms = [_form_of(column.type) for column in columns]
    return ColumnKeys(KeyForm(tuple(form for form in forms if form is not None), is_tuple), columns)


def _checked(keys: ColumnKeys, rules: StateRules) -> ColumnKeys:
    """Return `keys`, or raise NodeError if a key is too large."""
    size = 0
    for column, form in zip(keys.columns, keys.form.elements, strict=True):
        texts = column.dictionary if pa.types.is_dictionary(column.type) else column
        longest = pc.max(pc.binary_length(texts)).as_py() if form != "integer" and len(texts) else None
        size += _HEADER_BYTES + (longest or 0)
    if size > KEY_BYTES_MAX:
        listed = [column.to_pylist() for column in keys.columns]
        for key in zip(*listed, strict=True) if keys.form.is_tuple else listed[0]:
            rules.check_size(key)
    return keys


# ---------------------------------------------------------------- keys without columns


def _listed_parts(keys: list[Any], rules: StateRules) -> list[Part]:
    """Return parts of keys, which are checked. Keys of one form are converted together."""
    with suppress(UnicodeEncodeError, OverflowError):  # an element without a form
        formed = _formed(keys)
        if formed is not None:
            return [Part(_checked(formed, rules), None)]
    places: dict[KeyForm | None, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(_key_form(key), []).append(place)
    return list(_parts_by_form(keys, places, rules))


def _parts_by_form(keys: list[Any], places: dict[KeyForm | None, list[int]], rules: StateRules) -> Iterator[Part]:
    for form, rows in places.items():
        some = [keys[place] for place in rows]
        where: Integers = np.array(rows, np.int64)
        if form is None:
            for key in some:
                rules.check_size(key)
            yield Part(OtherKeys(some), where)
        else:
            columns = list(zip(*some, strict=True)) if form.is_tuple else [some]
            arrays = [_array(list(column), element) for column, element in zip(columns, form.elements, strict=True)]
            yield Part(_checked(ColumnKeys(form, arrays), rules), where)


def _formed(keys: list[Any]) -> ColumnKeys | None:
    """Return keys of one form that are of exact types, or None for any others."""
    types = set(map(type, keys))
    if types == {tuple}:
        if len(set(map(len, keys))) > 1 or not keys[0]:
            return None
        columns = [list(column) for column in zip(*keys, strict=True)]
    else:
        columns = [keys]
    forms = [_exact_form(set(map(type, column))) for column in columns]
    if None in forms:
        return None
    form = KeyForm(tuple(each for each in forms if each is not None), types == {tuple})
    return ColumnKeys(form, [_array(column, each) for column, each in zip(columns, form.elements, strict=True)])


def _exact_form(types: set[type]) -> Form | None:
    if types and types <= {int, bool}:
        return "integer"
    return "text" if types == {str} else "bytes" if types == {bytes} else None


def _array(values: list[Any], form: Form) -> pa.Array:
    if form == "integer":
        return pa.array(np.fromiter(values, np.int64, len(values)))
    return pa.array(values, pa.large_string() if form == "text" else pa.large_binary())


def _key_form(key: Any) -> KeyForm | None:
    """Return the form of a key, or None without one."""
    is_tuple = isinstance(key, tuple)
    forms = [_element_form(element) for element in (key if is_tuple else (key,))]
    if not forms or None in forms:
        return None
    return KeyForm(tuple(form for form in forms if form is not None), is_tuple)


def _element_form(element: Any) -> Form | None:
    if isinstance(element, int):
        return "integer" if -_INTEGER_MAX - 1 <= element <= _INTEGER_MAX else None
    if isinstance(element, bytes):
        return "bytes"
    if not isinstance(element, str):
        return None
    try:
        element.encode()
    except UnicodeEncodeError:
        return None
    return "text"
