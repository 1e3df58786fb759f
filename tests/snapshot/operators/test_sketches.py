"""Sketches: the laws bit by bit at all sizes, errors of estimates, live sketches in accumulators, refusals."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cache, reduce
from itertools import chain
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import strategies as st

from cutline import GraphError, HyperLogLog, Monoid, Quantiles, Theta
from cutline.snapshot.operators.monoid import Accumulator
from cutline.testing import CheckFailed, checkMonoid
from tests.run_size import scaled

_VALUES = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
_NUMBERS = st.integers(-(10**300), 10**300) | st.floats(allow_nan=False)

#: numbers of values around which a sketch changes its form: HyperLogLog at 8 and 384, Theta at 4096, with lgK=7 at less
_SIZES = (0, 1, 7, 8, 9, 23, 24, 25, 120, 127, 128, 129, 200, 383, 384, 385, 600, 1_000)


class InBulk(Monoid):
    """A sketch whose input values are whole tuples or ranges, so that examples have sketches of all forms."""

    def __init__(self, sketch: Monoid) -> None:
        self.zero, self.plus, self.equal = sketch.zero, sketch.plus, sketch.equal  # type: ignore[method-assign]
        self.sketch = sketch
        self.unit = cache(self._unit)  # type: ignore[method-assign]

    def _unit(self, value: Sequence[Any]) -> Any:
        accumulator = self.sketch.accumulator()
        accumulator.addAll([None] * len(value), value)
        return accumulator.drain()[None] if value else self.zero()

    def accumulator(self) -> Accumulator:
        return _AtOnce(self)


class _AtOnce(Accumulator):
    """The values of all tuples in one live sketch."""

    def addAll(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        self.addStates([(keys[0], self._monoid.unit(tuple(chain.from_iterable(values))))])


#: tuples and ranges of values, many of which are in several
_BULKS = st.builds(range, st.integers(0, 400), st.integers(0, 400)) | st.builds(
    lambda seed, size: tuple(Random(seed).randrange(2 * size + 1) for _ in range(size)),
    st.integers(0, 1_000),
    st.sampled_from(_SIZES),
)

_DISTINCT = {"hll": HyperLogLog(), "hll of 7": HyperLogLog(7), "theta": Theta(), "theta of 5": Theta(5)}


@pytest.mark.parametrize("monoid", _DISTINCT.values(), ids=_DISTINCT)
def test_distinct_counts_keep_the_laws_bit_by_bit(monoid: Monoid) -> None:
    """Whatever forms the sketches have, and whatever types the values."""
    checkMonoid(monoid, _VALUES, examples=scaled(50))
    checkMonoid(InBulk(monoid), _BULKS, examples=scaled(50))


@pytest.mark.parametrize("monoid", [HyperLogLog(), Theta()], ids=["hll", "theta"])
def test_states_do_not_depend_on_the_sequence(monoid: Monoid) -> None:
    """Values in two sequences, at once and in parts, with repetitions, make one state at each size."""
    chance = Random(7)
    for size in (*_SIZES[1:], 5_000, 20_000):
        values = [f"user {chance.randrange(size)}" for _ in range(size)]
        whole = monoid.accumulator()
        whole.addAll(["key"] * size, values)
        state = whole.drain()["key"]
        chance.shuffle(values)
        cut = chance.randrange(size)
        parts: list[bytes] = []
        for part in (values[:cut], values[cut:], values[: size // 2]):
            accumulator = monoid.accumulator()
            accumulator.addAll(["key"] * len(part), part)
            parts += accumulator.drain().values()
        assert reduce(monoid.plus, parts, monoid.zero()) == state, size


@pytest.mark.parametrize(("monoid", "exact_to"), [(HyperLogLog(), 384), (Theta(), 4_096)], ids=["hll", "theta"])
def test_distinct_counts_are_right(monoid: Monoid, exact_to: int) -> None:
    """Few values are counted nearly exactly, and many with the stated error of 1.6 %, on average over 30 sketches."""
    assert monoid.result(monoid.zero()) == 0
    for count in (1, 2, 100, exact_to * 3 // 4, 10_000):
        errors = []
        for seed in range(30):
            accumulator = monoid.accumulator()
            accumulator.addAll([None] * (2 * count), [Random(f"{seed}").random() + each for each in range(count)] * 2)
            estimate = monoid.result(accumulator.drain()[None])
            assert type(estimate) is int
            errors.append(estimate / count - 1)
        deviation = math.sqrt(mean(error**2 for error in errors))
        assert deviation <= (0.002 if count < exact_to else 0.016 * 1.5), (count, deviation)


@pytest.mark.parametrize("monoid", [HyperLogLog(), Theta()], ids=["hll", "theta"])
def test_distinct_values_of_all_types_are_counted(monoid: Monoid) -> None:
    """The empty text is a value, and so are text beyond ASCII, extreme ints, and each float."""
    values = ["", "\0", "é", "e", 0, 1, -1, (1 << 63) - 1, -(1 << 63), 1.0, math.inf, math.nan, 2.0**63]
    accumulator = monoid.accumulator()
    for value in values:
        accumulator.add("one by one", value)
    accumulator.addAll(["at once"] * (2 * len(values)), values * 2)
    first, second = accumulator.drain().values()
    assert first == second and monoid.result(first) == len(values)


_MEDIAN_OF = Quantiles(ranks=(0, 0.5, 1))


def test_quantiles_keep_the_laws_within_their_error() -> None:
    """Exactly for few values, and for many within the error of ranks."""
    checkMonoid(_MEDIAN_OF, _NUMBERS, examples=scaled(50))
    checkMonoid(InBulk(_MEDIAN_OF), _BULKS, examples=scaled(50))
    checkMonoid(InBulk(_MEDIAN_OF), [range(5_000), range(2_000, 3_000), (7,) * 900], examples=scaled(20))


class RaisesRanks(Quantiles):
    """A sum has the extremes and the number of values that are right, but other values in between."""

    def _union(self, a: bytes, b: bytes) -> bytes:
        merged, other = self._decoded(a), self._decoded(b)
        low, high = other.get_min_value(), other.get_max_value()
        for value in (low, high, *[(low + high) / 2] * (other.n - 2)):
            merged.update(value)
        return self.encoded(merged)


class OfSmallSketch(Quantiles):
    """Sums have the error of a much smaller sketch."""

    def _union(self, a: bytes, b: bytes) -> bytes:
        small = Quantiles(k=8).live()
        for state in (a, b):
            small.merge(self._decoded(state))
        return self.encoded(small)


class CountsOneMore(Quantiles):
    """A sum has a value too many."""

    def _union(self, a: bytes, b: bytes) -> bytes:
        merged = self._decoded(super()._union(a, b))
        merged.update(merged.get_max_value())
        return self.encoded(merged)


class Unsorted(HyperLogLog):
    """Leaves the state of a set as it came, so that bytes depend on the sequence."""

    def encoded(self, live: Any) -> bytes:
        return live.serialize_compact()  # type: ignore[no-any-return]


class Untrimmed(Theta):
    """Leaves more hashes in a state than a union keeps."""

    def encoded(self, live: Any) -> bytes:
        return live.compact().serialize()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("broken", "values"),
    [
        (InBulk(RaisesRanks()), [range(1_000), range(500, 2_000)]),
        (InBulk(RaisesRanks()), [range(10), range(5, 30)]),
        (InBulk(OfSmallSketch()), [range(1_000), range(500, 2_000)]),
        (CountsOneMore(), st.floats(allow_nan=False)),
        (Unsorted(), st.text(max_size=1)),
        (InBulk(Untrimmed(5)), _BULKS),
    ],
    ids=lambda each: type(getattr(each, "sketch", each)).__name__,
)
def test_mistakes_of_sketches_are_found(broken: Monoid, values: Any) -> None:
    """The laws of sketches can fail: by bytes, by numbers, and by ranks beyond the error."""
    with pytest.raises(CheckFailed, match=r"^(commutative|associative|accumulator): "):
        checkMonoid(broken, values, examples=scaled(60))


def test_quantiles_are_right() -> None:
    """Few values have exact quantiles, and of many the ranks are right within the stated error, after merges too."""
    monoid = Quantiles(ranks=(0, 0.25, 0.5, 1))
    assert monoid.result(monoid.zero()) == ()
    state = reduce(monoid.plus, map(monoid.unit, [4, 1.5, 3, 2]))
    assert monoid.result(state) == (1.5, 1.5, 2.0, 4.0)
    accumulator = monoid.accumulator()
    for start in range(20):
        values = range(start, 20_000, 20)
        accumulator.addAll([start % 2] * len(values), values)
    odd, even = accumulator.drain().values()
    estimates = monoid.result(monoid.plus(odd, even))
    assert all(abs(each / 19_999 - rank) <= 2 * 0.0133 for each, rank in zip(estimates, monoid.ranks, strict=True))


@pytest.mark.parametrize("monoid", [HyperLogLog(), Theta(), Quantiles()], ids=lambda each: type(each).__name__)
def test_live_sketches_and_states_of_a_key_become_one(monoid: Monoid) -> None:
    """Values and states of one key come out as one state; the keys of both are counted, and all is gone after."""
    accumulator, other = monoid.accumulator(), monoid.accumulator()
    other.addAll(["b", "c"], [1, 2])
    accumulator.addAll(["a", "b"], [3, 4])
    accumulator.addStates(other.drain().items())
    accumulator.addAll(["a", "c", "c"], [5, 6, 7])
    assert len(accumulator) == 3
    states = accumulator.drain()
    due = {"a": (3, 5), "b": (1, 4), "c": (2, 6, 7)}
    assert states.keys() == due.keys()
    for key, values in due.items():
        assert monoid.equal(states[key], reduce(monoid.plus, map(monoid.unit, values)))
    assert (len(accumulator), accumulator.byteSize(), accumulator.drain()) == (0, 0, {})


@pytest.mark.parametrize("monoid", [HyperLogLog(), Theta(), Quantiles()], ids=lambda each: type(each).__name__)
def test_bytes_of_live_sketches_grow_with_them(monoid: Monoid) -> None:
    """The estimate is no less than the states have bytes, and grows by no key when no key is new."""
    accumulator = monoid.accumulator()
    assert accumulator.byteSize() == 0
    accumulator.addAll(range(100), range(100))
    few = accumulator.byteSize()
    assert 100 * 200 < few < 100 * 3_000
    accumulator.addAll([7] * 20_000, range(20_000))
    assert few + 2_000 < accumulator.byteSize() < few + 100_000
    many = accumulator.byteSize()
    accumulator.addAll(range(100), range(100))
    assert accumulator.byteSize() <= many + 100 * 10
    assert accumulator.byteSize() >= sum(map(len, accumulator.drain().values()))


@pytest.mark.parametrize(
    ("monoid", "values"),
    [
        *((monoid, [None, b"x", (1,), 1 << 63, -(1 << 63) - 1, "\ud800"]) for monoid in (HyperLogLog(), Theta())),
        (Quantiles(), [math.nan, "1", None, 10**400, (1,)]),
    ],
    ids=["HyperLogLog", "Theta", "Quantiles"],
)
def test_values_without_a_sketch_are_refused(monoid: Monoid, values: list[Any]) -> None:
    """By name, with what to give instead, alone and beside good values."""
    for value in values:
        for given in ([value], [1, value], [value, value]):
            with pytest.raises(ValueError, match=rf"^{type(monoid).__name__}: .* has no sketch: give "):
                monoid.accumulator().addAll(["key"] * len(given), given)


def test_parameters_are_checked() -> None:
    """Where a monoid is made, with what is allowed."""
    for cls, least in ((HyperLogLog, 7), (Theta, 5)):
        for wrong in (least - 1, 22, 12.0):
            with pytest.raises(ValueError, match=f"lgK is an int from {least} to 21"):
                cls(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ranks are floats from 0 to 1"):
        Quantiles(ranks=(0.5, 1.5))
    with pytest.raises(ValueError, match="k is an int from 8 to 65535"):
        Quantiles(k=7)


@pytest.mark.parametrize("cls", [HyperLogLog, Theta, Quantiles])
def test_a_missing_library_is_named(cls: type[Monoid], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DataSketches the monoid is refused where it is made, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(GraphError, match=rf"{cls.__name__} needs DataSketches.*pip install 'cutline\[sketches\]'"):
        cls()
