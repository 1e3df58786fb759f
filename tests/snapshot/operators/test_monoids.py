"""The monoids that we ship: what they add, what they refuse, and that accumulators add the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Count, First, GraphError, Last, Max, Min, Monoid, Sum, TopK
from cutline.snapshot.operators.monoid import as_monoid, size_of

_INTS = st.integers(-(10**20), 10**20)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_PAIRS = st.tuples(st.integers(0, 3), _INTS | st.text(max_size=2) | st.none() | st.binary(max_size=2) | st.just(()))

#: values that cannot be compared or stored
_UNFIT = (math.nan, -math.inf, None, (), (1, math.nan), [1], np.int64(1))

#: {what: (monoid, input values, the result for a list of them, computed another way)}
MONOIDS: dict[str, tuple[Monoid, st.SearchStrategy[Any], Callable[[list[Any]], Any]]] = {
    "sum of ints": (Sum(), _INTS, sum),
    "sum of floats": (Sum(), _FLOATS, lambda values: float(_exact(values))),
    "sum of both": (
        Sum(),
        _INTS | _FLOATS,
        lambda values: _exact(values) if _are_ints(values) else float(_exact(values)),
    ),
    "count": (Count(), st.none() | _INTS, len),
    "min": (Min(), _FLOATS, min),
    "max": (Max(), st.text(), max),
    "first": (First(), st.tuples(_INTS, st.just("a")), lambda pairs: "a"),
    "last": (Last(), st.lists(_INTS, min_size=2, max_size=2).map(tuple), lambda pairs: max(pairs)[1]),
    "top 3": (TopK(3), _INTS, lambda values: tuple(sorted(values, reverse=True)[:3])),
}


@pytest.mark.parametrize(("monoid", "values", "expected"), MONOIDS.values(), ids=MONOIDS)
@given(data=st.data())
def test_states_add_up(
    monoid: Monoid, values: st.SearchStrategy[Any], expected: Callable[[list[Any]], Any], data: st.DataObject
) -> None:
    """The sum of the states of single values has the result of all values; so has an accumulator of any two halves."""
    drawn = data.draw(st.lists(values, min_size=1).filter(_is_finite))
    state = reduce(monoid.plus, map(monoid.unit, drawn), monoid.zero())
    assert monoid.result(state) == expected(drawn)
    whole, tail = monoid.accumulator(), monoid.accumulator()
    half = data.draw(st.integers(0, len(drawn)))
    whole.addAll(["key"] * half, drawn[:half])
    for value in drawn[half:]:
        tail.add("key", value)
    whole.addStates(tail.drain().items())
    [(key, accumulated)] = whole.drain().items()
    assert key == "key" and monoid.equal(accumulated, state) and type(accumulated) is type(state)


def _exact(values: list[Any]) -> Fraction:
    return sum(map(Fraction, values), start=Fraction(0))


def _are_ints(values: list[Any]) -> bool:
    return all(type(each) is int for each in values)


def _is_finite(values: list[Any]) -> bool:
    return abs(_exact([each for each in values if type(each) is float])) < Fraction(10**308)


def test_sums_of_floats_are_exact() -> None:
    """Small floats are not lost beside large ones, whatever the sequence, and an int beside a float makes a float."""
    total = Sum()
    for values in ([1e300, 1.0, -1e300], [1.0, 1e300, -1e300], [1e300, -1e300, 1]):
        accumulator = total.accumulator()
        accumulator.addAll(["key"] * 3, values)
        [state] = accumulator.drain().values()
        assert (total.result(state), type(total.result(state))) == (1.0, float)
    assert total.result(total.plus(total.unit(0.1), total.unit(0.2))) == 0.30000000000000004
    assert type(total.result(total.plus(total.unit(2), total.unit(True)))) is int
    assert (total.unit(np.int64(7)), type(total.unit(np.int64(7)))) == (7, int)
    assert (total.unit(np.float32(0.5)), type(total.unit(np.float32(0.5)))) == (Fraction(1, 2), Fraction)
    least = math.ulp(0.0)
    assert total.result(total.plus(total.unit(least), total.unit(least))) == 2 * least
    assert total.result(total.plus(total.unit(-1.7e308), total.unit(-1.7e308))) == -math.inf


def test_a_sum_may_change_from_ints_to_floats() -> None:
    """Ints before, beside and after the floats of a key are in its sum."""
    accumulator = Sum().accumulator()
    for values in ([1, 2], [0.5, 0.25], [3, 4], [5, 0.125], [Fraction(1, 3), 6]):
        accumulator.addAll(["a", "b"], values)
    assert accumulator.drain() == {"a": Fraction(9 + 0.5) + Fraction(1, 3), "b": Fraction(12 + 0.25 + 0.125)}
    assert accumulator.drain() == {} and len(accumulator) == accumulator.byteSize() == 0


@pytest.mark.parametrize(
    ("monoid", "value"),
    [
        *((Sum(), value) for value in (math.nan, math.inf, "1", None)),
        *((monoid, value) for monoid in (Min(), Max(), TopK(2)) for value in _UNFIT),
        *(
            (monoid, (time, value))
            for monoid in (First(), Last())
            for time, value in ((None, 1), (math.nan, 1), (1, []))
        ),
        *((monoid, value) for monoid in (First(), Last()) for value in (7, (1,), [1, 2])),
    ],
    ids=lambda each: repr(each) if not isinstance(each, Monoid) else type(each).__name__,
)
def test_values_without_a_state_are_refused(monoid: Monoid, value: Any) -> None:
    """What has no sum or no place is refused by name, alone and in a list, also when a state would win without it."""
    for values in ([value], [monoid.unit((0, 1)) if isinstance(monoid, First | Last) else 1, value]):
        with pytest.raises(ValueError, match=f"^{type(monoid).__name__}: "):
            monoid.accumulator().addAll(["key"] * len(values), values)
    with pytest.raises(ValueError, match=f"^{type(monoid).__name__}: "):
        monoid.unit(value)


def test_bytes_of_growing_states_grow() -> None:
    """States that become larger count as they are, whatever they were first."""
    grown, whole = TopK(100).accumulator(), TopK(100).accumulator()
    for number in range(100):
        grown.add("key", float(number))
    whole.addStates([("key", tuple(map(float, reversed(range(100)))))])
    assert grown.byteSize() == whole.byteSize() > 100 * size_of(1.0)


def test_bytes_are_counted_once() -> None:
    """Keys of a list of several types, whose values take another way, add as many bytes as keys that come alone."""
    mixed, alone = Sum().accumulator(), Sum().accumulator()
    mixed.addAll(["a", "b"], [Fraction(1, 2), 1])
    alone.add("a", Fraction(1, 2))
    alone.add("b", 1)
    assert mixed.byteSize() == alone.byteSize()


def test_floats_without_a_sum_are_refused() -> None:
    """In the loop for floats, too."""
    with pytest.raises(ValueError, match="Sum: inf has no exact sum"):
        Sum().accumulator().addAll(["a", "b"], [1.0, math.inf])


@given(st.lists(_PAIRS, min_size=1), st.randoms())
def test_equal_times_are_decided_by_values(pairs: list[Any], chance: Any) -> None:
    """First and last are the same in every sequence, whatever types the values of one time have."""
    shuffled = list(pairs)
    chance.shuffle(shuffled)
    for monoid in (First(), Last()):
        assert reduce(monoid.plus, shuffled, ()) == reduce(monoid.plus, pairs, ())
    assert First().result(()) is None and Last().result(()) is None


def test_nothing_is_neutral_in_every_way_into_an_accumulator() -> None:
    """A key whose only state is that of no values takes its next value."""
    for monoid in (Min(), Max()):
        accumulator = monoid.accumulator()
        accumulator.addStates([("key", monoid.zero())])
        accumulator.addAll(["key"], [(1, 2)])
        assert accumulator.drain() == {"key": (1, 2)}


def test_top_k_needs_a_number() -> None:
    """A k without meaning is refused when the monoid is made."""
    for k in (0, -1, True, 2.0):
        with pytest.raises(ValueError, match="at least 1"):
            TopK(k)  # type: ignore[arg-type]


class Longest:
    """A monoid of a user, without our base class."""

    def zero(self) -> str:
        return ""

    def plus(self, a: str, b: str) -> str:
        return max(a, b, key=lambda each: (len(each), each))


def test_users_need_only_zero_and_plus() -> None:
    """An object with both is a monoid, and anything else is refused, a class too."""
    monoid = as_monoid(Longest())
    accumulator = monoid.accumulator()
    accumulator.addAll(["a", "b", "a"], ["xx", "y", "zzz"])
    assert accumulator.drain() == {"a": "zzz", "b": "y"}
    assert monoid.result(monoid.zero()) == ""
    assert as_monoid(monoid) is monoid
    for wrong in (Longest, "sum", 7):
        with pytest.raises(GraphError, match="is no monoid: give an object with zero"):
            as_monoid(wrong)


@pytest.mark.parametrize(("monoid", "values", "expected"), MONOIDS.values(), ids=MONOIDS)
@given(data=st.data())
def test_bytes_grow_with_keys_only(monoid: Monoid, values: Any, expected: Any, data: st.DataObject) -> None:
    """The estimate covers all keys, and values of known keys add no more than k of them need."""
    drawn = data.draw(values)
    accumulator = monoid.accumulator()
    accumulator.addAll(range(100), [drawn] * 100)
    first = accumulator.byteSize()
    assert (
        first >= 100 * (size_of(1) + size_of(drawn if not isinstance(monoid, Count) else 1)) and len(accumulator) == 100
    )
    for _ in range(5):
        accumulator.addAll(range(100), [drawn] * 100)
    assert accumulator.byteSize() == first or isinstance(monoid, TopK)
    assert accumulator.byteSize() <= 4 * first
    accumulator.drain()
    assert accumulator.byteSize() == 0


def test_each_value_needs_its_key() -> None:
    """Lists of two lengths are refused."""
    for monoid in (Sum(), Count(), Max(), TopK(1)):
        with pytest.raises(ValueError, match=r"key|argument"):
            monoid.accumulator().addAll(["a"], [1, 2])
