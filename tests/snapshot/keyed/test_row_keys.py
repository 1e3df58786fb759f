"""Keys of rows: their order is the order of segments and of times, and what was put in comes out."""

from __future__ import annotations

import math

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.keyed.row_keys import (
    EXPIRIES_START,
    TIMERS_END,
    TIMERS_START,
    end_of,
    expiry_row,
    row_head,
    split_expiry,
    split_row,
    split_timer,
    timer_row,
)

_KEYS = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=40) | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
).map(msgpack.packb)
_SUBS = st.just(b"") | _KEYS
_ROWS = st.tuples(st.integers(0, 32_767), st.integers(0, 0xFFFD), _KEYS, _SUBS)
_TIMES = st.floats(-1e15, 1e15)


def _encoded(row: tuple[int, int, bytes, bytes]) -> bytes:
    group, state, key, sub = row
    return row_head(group, state) + key + sub


@given(_ROWS, _ROWS)
def test_rows_have_the_order_of_a_segment(
    one: tuple[int, int, bytes, bytes], other: tuple[int, int, bytes, bytes]
) -> None:
    """Encoded rows compare as (group, state, key, sub-key) do, so a segment is ingested without sorting."""
    assert (_encoded(one) < _encoded(other)) == (one < other)
    assert (_encoded(one) == _encoded(other)) == (one == other)


@given(_ROWS)
def test_a_row_is_split_again(row: tuple[int, int, bytes, bytes]) -> None:
    """Key and sub-key of a row are found without a stored length."""
    assert split_row(_encoded(row)) == row[2:]


@given(_KEYS, _KEYS, _SUBS, _SUBS)
def test_no_row_of_another_key_has_the_prefix(one: bytes, other: bytes, sub: bytes, other_sub: bytes) -> None:
    """The range of a key's prefix holds its rows, and no row of another key."""
    prefix = row_head(7, 1) + one
    assert prefix <= prefix + sub < end_of(prefix)
    if other != one:
        assert not prefix <= row_head(7, 1) + other + other_sub < end_of(prefix)


@given(_TIMES, _TIMES, _KEYS, _KEYS)
def test_timers_have_the_order_of_time(at: float, later: float, key: bytes, other: bytes) -> None:
    """Timers are sorted by time, negative ones too, behind all rows and all index rows."""
    at, later = sorted((at, later))
    if at < later:
        assert timer_row(at, key) < timer_row(later, other)
    assert TIMERS_START <= timer_row(at, key) < TIMERS_END
    assert split_timer(timer_row(later, other)) == (later, other)


@given(_TIMES, _TIMES, _ROWS)
def test_index_rows_have_the_order_of_time(at: float, later: float, row: tuple[int, int, bytes, bytes]) -> None:
    """Index rows are sorted by time, behind all rows and before all timers."""
    at, later = sorted((at, later))
    encoded = _encoded(row)
    assert encoded < EXPIRIES_START <= expiry_row(at, encoded) < TIMERS_START
    if at < later:
        assert expiry_row(at, encoded) < expiry_row(later, encoded)
    assert split_expiry(expiry_row(later, encoded)) == (later, encoded)


def test_the_least_and_the_greatest_times_are_ordered() -> None:
    """Infinite times, as a row that never expires might have, lie outside all others."""
    times = [-math.inf, -1e300, -1.0, 0.0, 1e-300, 1.0, 1e300, math.inf]
    rows = [timer_row(at, b"\xc0") for at in times]
    assert rows == sorted(rows)
