"""map, flatMap and filter on the way out of a subtask."""

from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot.plan.declarations import Transform, TransformKind, transformed

DOUBLE = Transform(TransformKind.MAP, lambda number: number * 2)
SMALL = Transform(TransformKind.FILTER, lambda number: number < 5)
REPEAT = Transform(TransformKind.FLAT_MAP, lambda number: [number] * number)


def test_transforms_run_in_order() -> None:
    """Each works on what the one before it gave."""
    assert list(transformed((REPEAT, DOUBLE, SMALL), 2)) == [4, 4]
    assert list(transformed((DOUBLE, REPEAT, SMALL), 2)) == [4, 4, 4, 4]
    assert list(transformed((DOUBLE, SMALL), 3)) == []


def test_without_transforms_a_message_or_batch_goes_as_it_is() -> None:
    """Nothing is taken apart that nobody looks at."""
    batch = pa.record_batch({"a": [1, 2]})
    assert list(transformed((), [1, 2])) == [[1, 2]]
    assert list(transformed((), batch)) == [batch]


def test_rows_of_a_batch_are_transformed_as_dicts() -> None:
    """A transform sees messages, whichever way they were sent."""
    column = Transform(TransformKind.MAP, lambda row: row["a"])
    assert list(transformed((column, DOUBLE), pa.record_batch({"a": [1, 2]}))) == [2, 4]


def test_what_a_function_raises_comes_out() -> None:
    """The sender makes a NodeError of it."""
    with pytest.raises(KeyError):
        list(transformed((Transform(TransformKind.MAP, lambda row: row["b"]),), {"a": 1}))
