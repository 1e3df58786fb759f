"""The hash table of integers: every value keeps the one number it got."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.columns.integer_table import IntegerTable

INTEGERS = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1), st.integers(0, 300).map(lambda n: n << 54))


@given(st.lists(st.lists(INTEGERS, max_size=50), max_size=8))
def test_a_value_has_one_number(columns: list[list[int]]) -> None:
    """As a dict would have it: new values are numbered ascending within a column, known ones keep their number."""
    table = IntegerTable()
    model: dict[int, int] = {}
    for column in columns:
        for value in sorted(column):
            model.setdefault(value, len(model))
        assert table.numbers(np.array(column, dtype=np.int64)).tolist() == [model[value] for value in column]
    assert (len(table), table.values.tolist()) == (len(model), list(model))


@pytest.mark.parametrize("shift", [0, 1, 16, 32, 48])
def test_many_values_whose_bits_are_alike(shift: int) -> None:
    """The table grows, and values that differ in few bits stay apart."""
    values = np.arange(15_000, dtype=np.int64) << shift
    table = IntegerTable()
    for part in np.array_split(np.random.default_rng(1).permutation(values), 7):
        table.numbers(part)
    assert len(table) == len(values)
    assert np.array_equal(table.values[table.numbers(values)], values)


def test_values_that_were_returned_stay() -> None:
    """Adding more does not change what a snapshot may hold by reference."""
    table = IntegerTable()
    table.numbers(np.array([7, 8], dtype=np.int64))
    held = table.values
    table.numbers(np.arange(5_000, dtype=np.int64))
    assert held.tolist() == [7, 8]
