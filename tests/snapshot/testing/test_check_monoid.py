"""checkMonoid: what keeps the laws passes, and each mistake is found, with its smallest counterexample."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from cutline import Count, First, GraphError, Last, Max, Min, Monoid, Sum, TopK
from cutline.snapshot.operators.monoid import Accumulator
from cutline.testing import CheckFailed, checkMonoid

_INTS = st.integers()
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_PLAIN = st.none() | st.booleans() | _INTS | _FLOATS | st.text(max_size=3) | st.binary(max_size=3)


class Users:
    """A monoid of a user, of two functions."""

    def __init__(self, zero: Any, plus: Callable[[Any, Any], Any]) -> None:
        self._zero = zero
        self.plus = plus

    def zero(self) -> Any:
        return self._zero


@pytest.mark.parametrize(
    ("monoid", "values"),
    [
        (Sum(), _INTS),
        (Sum(), _INTS | _FLOATS),
        (Count(), _PLAIN),
        (Min(), _FLOATS),
        (Max(), st.text()),
        (Max(), st.tuples(_INTS, st.text())),
        (First(), st.tuples(st.integers(0, 2), _PLAIN | st.tuples(_PLAIN))),
        (Last(), st.tuples(st.integers(0, 2), _PLAIN | st.tuples(_PLAIN))),
        (TopK(1), _INTS),
        (TopK(3), st.integers(0, 5)),
        (Users(1, lambda a, b: a * b), _INTS),
        (Users("", max), ["a", "b", "ab"]),
        (Users((), lambda a, b: tuple(sorted({*a, *b}))), st.lists(_INTS).map(lambda each: tuple(sorted(set(each))))),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, list | st.SearchStrategy) else None,
)
def test_the_laws_hold(monoid: Any, values: Any) -> None:
    """Our monoids keep all laws, and so do some that users may write."""
    checkMonoid(monoid, values)


def _extended(a: list[Any], b: list[Any]) -> list[Any]:
    a.extend(b)
    return a


class ForgetsLast(Count):
    """Its accumulator leaves out a value."""

    def accumulator(self) -> Accumulator:
        accumulator = super().accumulator()
        accumulator.add(None, None)
        return accumulator


class ByIdentity(Monoid):
    """A state equals no copy of itself."""

    def zero(self) -> Any:
        return ()

    def plus(self, a: Any, b: Any) -> Any:
        return a or b

    def equal(self, a: Any, b: Any) -> bool:
        return a is b


MISTAKES: dict[str, tuple[Any, Any, str]] = {
    "subtraction": (Users(0, lambda a, b: a - b), _INTS, "zero: plus(zero(), a) is not a\n  a = 1, of the values [1]"),
    "average": (Users(0, lambda a, b: (a + b) / 2), _INTS, "zero: "),
    "average without a zero": (
        Users((), lambda a, b: ((a[0] + b[0]) / 2,) if a and b else a or b),
        st.tuples(st.floats(0, 8)),
        "associative: plus(plus(a, b), c) is not plus(a, plus(b, c))\n  a = (0.0,), of the values [(0.0,)]\n",
    ),
    "concatenation": (
        Users((), lambda a, b: a + b),
        st.tuples(_INTS),
        "commutative: plus(a, b) is not plus(b, a)\n"
        "  a = (0,), of the values [(0,)]\n"
        "  b = (1,), of the values [(1,)]\n"
        "  plus(a, b) = (0, 1)\n"
        "  plus(b, a) = (1, 0)",
    ),
    "rounded sum": (
        Users(0.0, lambda a, b: a + b),
        st.floats(-8, 8),
        "associative: plus(plus(a, b), c) is not plus(a, plus(b, c))",
    ),
    "a zero that is greater": (
        Users(0, max),
        _INTS,
        "zero: plus(zero(), a) is not a\n  a = -1, of the values [-1]\n  plus(zero(), a) = 0",
    ),
    "a list in place": (Users([], _extended), st.lists(_INTS), "plain: [] of list is no state"),
    "a dict": (Users({}, lambda a, b: {**a, **b}), [{}], "plain: {} of dict is no state"),
    "None for nothing": (Users(None, lambda a, b: b if a is None else a), _INTS, "plain: None of NoneType is no state"),
    "the last that came": (Users((), lambda a, b: b or a), st.tuples(_INTS), "commutative: "),
    "one side of zero": (Users(0, lambda a, b: a if not b else abs(a) + abs(b)), _INTS, "zero: plus(zero(), a)"),
    "a cap": (Users(0, lambda a, b: min(max(a + b, -1), 1)), st.integers(-1, 1), "associative: "),
    "an accumulator of its own": (ForgetsLast(), _INTS, "accumulator: the state of accumulator() is not a"),
    "NaN": (Users(math.nan, lambda a, b: a + b), _FLOATS, "plain: nan of float is no state"),
    "overflow": (Users(0.0, lambda a, b: a + b), [1e308], "plain: inf of float is no state"),
    "equality that storing loses": (ByIdentity(), st.tuples(_INTS), "encoding: decode(encode(a)) is not a"),
}


@pytest.mark.parametrize(("monoid", "values", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_found(monoid: Any, values: Any, text: str) -> None:
    """Each mistake breaks its law, and the counterexample is the smallest."""
    with pytest.raises(CheckFailed) as failed:
        checkMonoid(monoid, values)
    assert str(failed.value).startswith(text), str(failed.value)
    assert failed.value.checker == text.partition(":")[0]


def test_equality_is_the_monoids_own() -> None:
    """What a monoid calls equal is equal for the laws, and what it does not is not."""

    class Nearly(Monoid):
        def zero(self) -> float:
            return 0.0

        def plus(self, a: float, b: float) -> float:
            return a + b

        def equal(self, a: float, b: float) -> bool:
            return math.isclose(a, b, rel_tol=0, abs_tol=1e-6)

    checkMonoid(Nearly(), st.floats(-1000, 1000))
    with pytest.raises(CheckFailed):
        checkMonoid(Nearly(), st.floats(-1e15, 1e15))


def test_an_operation_by_chance_is_found() -> None:
    """An operation that gives another sum each time fails, although no example fails again for sure."""
    calls = iter(range(10**9))
    with pytest.raises(CheckFailed):
        checkMonoid(Users(0, lambda a, b: a + b + (next(calls) % 3 == 0)), _INTS)


def test_what_is_no_monoid_is_refused() -> None:
    """Before anything is tried."""
    with pytest.raises(GraphError, match="is no monoid"):
        checkMonoid(sum, [1])
