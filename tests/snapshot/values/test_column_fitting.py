"""Columns fit another type exactly where their values do, and are refused at the first value that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutline.snapshot.values.fitting import DoesNotFit, fit, fit_array, fit_batch
from cutline.snapshot.values.kinds import kind_of
from tests.snapshot.values.test_fitting import NO_KIND, TABLE

_COLUMNS = [
    pytest.param(fit([value, None], row.type_), id=f"{row.type_}-{i}")
    for row in TABLE
    for i, value in enumerate(row.fits)
]
_TYPES = [row.type_ for row in TABLE]
_NESTED = ("list", "struct", "map")
_OTHERS = {("int", "float"), ("int", "decimal")}


def _fitted(make: Any) -> pa.Array | None:
    try:
        return make()
    except DoesNotFit:
        return None


@pytest.mark.parametrize("column", _COLUMNS)
def test_columns_fit_where_their_values_do(column: pa.Array) -> None:
    """Each column of the table against each type: the verdict and the result are those of its values."""
    given = kind_of(column.type)
    for type_ in _TYPES:
        if pa.types.is_time64(column.type) and column.type.unit == "ns" and type_.id == column.type.id:
            continue  # because Python's times have no nanoseconds
        found = _fitted(lambda type_=type_: fit_array(column, type_))
        by_value = _fitted(lambda type_=type_: fit(column.to_pylist(), type_))
        if found is not None:
            found.validate(full=True)
            assert by_value is not None, (column, type_)
            assert found.type.equals(type_)
            assert found.equals(by_value) or str(found) == str(by_value), (column, type_)
        elif given == kind_of(type_) or (given, kind_of(type_)) in _OTHERS:
            assert by_value is None or given in _NESTED, (column, type_)


@pytest.mark.parametrize("type_", [*_TYPES, *NO_KIND], ids=str)
def test_a_column_of_the_type_itself_fits(type_: pa.DataType) -> None:
    """Without a copy. NOT NULL holds for columns too."""
    column = pa.nulls(3, type_)
    assert fit_array(column, type_) is column or pa.types.is_nested(type_)
    with pytest.raises(DoesNotFit, match="NOT NULL"):
        fit_array(column, type_, nullable=False)


_NOT_NULL = pa.field("x", pa.int64(), nullable=False)
_AB = pa.struct([("a", pa.int64()), ("b", pa.int64())])

_MAP = pa.map_(pa.string(), pa.int64())

#: (column, type, row, path) where the value at the path does not fit
_REFUSED: list[tuple[pa.Array, pa.DataType, int, str]] = [
    (pa.array([1, 2, 300, 400]), pa.int8(), 2, ""),
    (pa.array([None, 0.5, 0.1]), pa.float32(), 2, ""),
    (pa.array([1, None, 2**53 + 1]), pa.float64(), 2, ""),
    (pa.array([1.0]), pa.int64(), 0, ""),
    (pa.array([1]), pa.bool_(), 0, ""),
    (pa.array([True]), pa.int64(), 0, ""),
    (pa.array([0, 1_500], pa.timestamp("ms")), pa.timestamp("s"), 1, ""),
    (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC"), 0, ""),
    (pa.array([0], pa.timestamp("us")), pa.date32(), 0, ""),
    (pa.array([1_000], pa.date64()).view(pa.int64()).view(pa.date64()), pa.date32(), 0, ""),
    (pa.array([[1], None, [2, 3, 2**40]]), pa.list_(pa.int32()), 2, "[2]"),
    (pa.array([[9], [1], None, [2, 3, 2**40]])[1:], pa.list_(pa.int32()), 2, "[2]"),
    (pa.array([[1, 2], [3]]), pa.list_(pa.int64(), 2), 1, ""),
    (pa.array([[1], [None]]), pa.list_(_NOT_NULL), 1, "[0]"),
    (pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int64())]), 0, ""),
    (pa.array([None, {"a": 1, "b": 0.5}]), _AB, 1, ".b"),
    (pa.array([None, {"a": 1, "b": 2**40}]), pa.struct([("a", pa.int64()), ("b", pa.int32())]), 1, ".b"),
    (pa.array([None, {"x": None}], pa.struct([("x", pa.int64())])), pa.struct([_NOT_NULL]), 1, ".x"),
    (pa.array([{"a": [1]}, {"a": [2**40]}]), pa.struct([("a", pa.list_(pa.int32()))]), 1, ".a[0]"),
    (pa.array([[("k", 1)], [("k", 1), ("k", 2)]], _MAP), _MAP, 1, ""),
    (pa.array([[("k", 2**40)]], _MAP), pa.map_(pa.string(), pa.int32()), 0, "[0].value"),
    (pa.array(["a", "b"]).dictionary_encode(), pa.int64(), 0, ""),
    (pa.array([str(number) for number in range(300)]), pa.dictionary(pa.int8(), pa.string()), 0, ""),
]  # fmt: skip


@pytest.mark.parametrize(("column", "type_", "row", "path"), _REFUSED)
def test_the_first_value_that_does_not_fit_is_named(column: pa.Array, type_: pa.DataType, row: int, path: str) -> None:
    """By row and path."""
    with pytest.raises(DoesNotFit) as caught:
        fit_array(column, type_, path="v")
    assert (caught.value.row, caught.value.path) == (row, f"v{path}")


def test_what_lies_below_null_does_not_count() -> None:
    """Arrow keeps values below a null, and nobody can read them."""
    below = pa.array([2**40, 1])
    column = pa.StructArray.from_arrays([below], ["x"], mask=pa.array([True, False]))
    assert fit_array(column, pa.struct([pa.field("x", pa.int32())])).to_pylist() == [None, {"x": 1}]


def test_wide_types_take_narrow_columns() -> None:
    """Columns come in any sequence, and none is lost or invented."""
    names = {
        "a": pa.array([1, None], pa.int8()),
        "b": pa.array(["x", "y"]).dictionary_encode(),
        "c": pa.array([[0.5], []]),
    }
    batch = pa.record_batch({name: names[name] for name in "cba"})
    schema = pa.schema({"a": pa.float64(), "b": pa.large_string(), "c": pa.large_list(pa.float32())})
    assert fit_batch(batch, schema).equals(
        pa.record_batch({"a": [1.0, None], "b": ["x", "y"], "c": [[0.5], []]}, schema=schema)
    )
    with pytest.raises(DoesNotFit, match=r"lacks \['a'\]"):
        fit_batch(batch.select(["b", "c"]), schema)


def test_fields_of_structs_are_taken_by_name() -> None:
    """As keys of dicts are."""
    column = pa.array([{"b": 1, "a": 2}], pa.struct([("b", pa.int64()), ("a", pa.int64())]))
    assert fit_array(column, _AB).to_pylist() == [{"a": 2, "b": 1}]


def test_a_slice_is_fitted_alone() -> None:
    """Values beyond the slice do not count."""
    column = pa.array(np.array([2**40, 1, 2], np.int64))[1:]
    assert fit_array(column, pa.int32()).to_pylist() == [1, 2]
