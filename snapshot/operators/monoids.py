"""Monoids that we ship: sums, counts, extremes, first and last by time, the k greatest. Sketches are in `sketches`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence, Set
from fractions import Fraction
from numbers import Integral, Real
from operator import gt, lt
from typing import Any, ClassVar, Final

from cutline.snapshot.error_text import shown
from cutline.snapshot.operators.monoid import ENTRY_BYTES, Accumulator, Monoid, TightAccumulator, is_plain

#: the neutral state of all monoids that keep values: no value yet
_NOTHING: Final = ()

#: Every float is a multiple of 2 to the power of minus this.
_FLOAT_BITS: Final = 1074

#: bytes of a sum of floats as such a multiple, and of its entry
_FLOAT_SUM_BYTES: Final = ENTRY_BYTES + 40 + _FLOAT_BITS // 8


class Sum(Monoid):
    """The exact sum of numbers. Ints stay ints. Floats become fractions, so that no sum depends on the sequence.

    People read an int, or the float that is nearest to the exact sum of floats.
    """

    def zero(self) -> int:
        """Return 0."""
        return 0

    def plus(self, a: Any, b: Any) -> Any:
        """Return the exact sum."""
        return a + b

    def unit(self, value: Any) -> Any:
        """Return an int for an int, and a Fraction for a float.

        Raises
        ------
        ValueError
            for NaN, infinity, and values that are no numbers.
        """
        if isinstance(value, Integral):
            return int(value)
        try:
            return Fraction(*value.as_integer_ratio())
        except (AttributeError, ValueError, OverflowError) as error:
            text = f"Sum: {shown(value)} has no exact sum: filter such values before the aggregate"
            raise ValueError(text) from error

    def result(self, state: Any) -> Any:
        """Return an int as it is, and a Fraction as the nearest float, which is infinite beyond the greatest one."""
        if not isinstance(state, Fraction):
            return state
        try:
            return float(state)
        except OverflowError:
            return math.inf if state > 0 else -math.inf

    def accumulator(self) -> Accumulator:
        """Return an empty accumulator."""
        return _Sums(self)


class _Sums(TightAccumulator):
    """Sums by key. Sums of floats are multiples of the least float, because fractions take ten times as long."""

    def __init__(self, monoid: Monoid) -> None:
        super().__init__(monoid)
        #: sums of floats by key; each of these keys has a sum in `_states` too, at least 0
        self._floats: dict[Hashable, int] = {}

    def byteSize(self) -> int:
        """Return an estimate of the bytes of all keys and sums in memory."""
        return super().byteSize() + len(self._floats) * _FLOAT_SUM_BYTES

    def drain(self) -> dict[Any, Any]:
        """Take out all sums, by key."""
        for key, multiple in self._floats.items():
            # Fraction finds common factors in long time, and these are only powers of two.
            lowest_bit = multiple & -multiple or 1
            shift = min(lowest_bit.bit_length() - 1, _FLOAT_BITS)
            self._states[key] += Fraction(multiple >> shift, 1 << (_FLOAT_BITS - shift))
        self._floats = {}
        return super().drain()

    def _gather(self, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        types = set(map(type, values))
        if types == {float} and all(map(math.isfinite, values)):
            self._gather_floats(keys, values)
            return
        if not types <= {int, bool}:
            values = list(map(self._monoid.unit, values))
        states, get = self._states, self._states.get
        for key, value in zip(keys, values, strict=True):
            states[key] = get(key, 0) + value

    def _gather_floats(self, keys: Sequence[Hashable], values: Sequence[float]) -> None:
        floats, get = self._floats, self._floats.get
        for key, value in zip(keys, values, strict=True):
            before = get(key)
            if before is None:
                self._states.setdefault(key, 0)
                before = 0
            numerator, denominator = value.as_integer_ratio()
            # The denominator is a power of two.
            floats[key] = before + (numerator << (_FLOAT_BITS + 1 - denominator.bit_length()))


class Count(Monoid):
    """The number of values, whatever they are."""

    def zero(self) -> int:
        """Return 0."""
        return 0

    def plus(self, a: int, b: int) -> int:
        """Return the sum of two numbers of values."""
        return a + b

    def unit(self, value: Any) -> int:
        """Return 1."""
        return 1

    def accumulator(self) -> Accumulator:
        """Return an empty accumulator."""
        return _Counts(self)


class _Counts(TightAccumulator):
    """Numbers of values by key."""

    def _gather(self, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        states, get = self._states, self._states.get
        for key, number in Counter(keys).items():
            states[key] = get(key, 0) + number


def _checked(monoid: Monoid, value: Any) -> Any:
    """Return a value that stores keep and that can be compared with others. Raise ValueError for any other one."""
    if value is None or not is_plain(value) or value == _NOTHING:
        raise _not_comparable(monoid, value)
    return value


def _not_comparable(monoid: Monoid, value: Any) -> ValueError:
    return ValueError(
        f"{type(monoid).__name__}: {shown(value)} cannot be compared and stored: filter such values before the "
        "aggregate, or make finite numbers, str, bytes or tuples of them"
    )


class _Extreme(Monoid):
    """The value that is before all others in the sequence of a comparison. The empty tuple is no value yet."""

    #: function of two values: whether the first takes the place of the second
    precedes: ClassVar[Callable[[Any, Any], bool]]
    #: types of which `unit` refuses no value
    accepted: ClassVar[Set[type]] = frozenset((int, str, bytes))

    def zero(self) -> Any:
        """Return the empty tuple: no value yet."""
        return _NOTHING

    def plus(self, a: Any, b: Any) -> Any:
        """Return the value that precedes the other one."""
        if a == _NOTHING:
            return b
        return b if b != _NOTHING and type(self).precedes(b, a) else a

    def unit(self, value: Any) -> Any:
        """Return the value.

        Raises
        ------
        ValueError
            for None, the empty tuple, NaN, infinities, and values that stores do not keep.
        """
        return _checked(self, value)

    def result(self, state: Any) -> Any:
        """Return the value, or None for none."""
        return None if state == _NOTHING else state

    def accumulator(self) -> Accumulator:
        """Return an empty accumulator."""
        return _Extremes(self)


class _Extremes(TightAccumulator):
    """Values by key, each before all others of its key."""

    def __init__(self, monoid: _Extreme) -> None:
        super().__init__(monoid)
        self._precedes = type(monoid).precedes
        self._accepted = monoid.accepted

    def _gather(self, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        precedes, states, get = self._precedes, self._states, self._states.get
        if not self._accepted >= set(map(type, values)):
            values = list(map(self._monoid.unit, values))
        for key, value in zip(keys, values, strict=True):
            before = get(key, _NOTHING)
            if before == _NOTHING or precedes(value, before):
                states[key] = value


class Min(_Extreme):
    """The least value. Values are finite numbers, str, bytes or tuples, but not empty ones, that Python compares."""

    precedes = lt


class Max(_Extreme):
    """The greatest value. Values are as those of `Min`."""

    precedes = gt


def _is_earlier(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    return bool(a[0] < b[0] or (a[0] == b[0] and _rank(a[1]) < _rank(b[1])))


def _is_later(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    return _is_earlier(b, a)


def _rank(value: Any) -> tuple[Any, ...]:
    """Return what puts any two plain values in one sequence: None, numbers, text, bytes, tuples."""
    if value is None:
        return (0,)
    if isinstance(value, tuple):
        return (4, *map(_rank, value))
    return (1 if isinstance(value, Real) else 2 if isinstance(value, str) else 3, value)


class _ByTime(_Extreme):
    """The value with the most extreme time. Values are pairs (time, value), and so are states."""

    accepted = frozenset()

    def unit(self, value: Any) -> Any:
        """Return the pair (time, value).

        Raises
        ------
        ValueError
            for all but pairs, for None as time, for NaN, infinities, and values that stores do not keep.
        """
        if type(value) is not tuple or len(value) != 2:
            raise ValueError(f"{type(self).__name__}: {shown(value)} is no pair (time, value)")
        if value[0] is None or not is_plain(value):
            raise _not_comparable(self, value)
        return value

    def result(self, state: Any) -> Any:
        """Return the value without its time, or None for none."""
        return None if state == _NOTHING else state[1]


class First(_ByTime):
    """The value with the lowest time. Values are pairs (time, value). At equal times the lesser value is the first.

    None is less than numbers, numbers than text, text than bytes, bytes than tuples.
    """

    precedes = _is_earlier


class Last(_ByTime):
    """The value with the highest time. Values are pairs (time, value). At equal times the greater value is the last.

    None is less than numbers, numbers than text, text than bytes, bytes than tuples.
    """

    precedes = _is_later


class TopK(Monoid):
    """The k greatest values, greatest first. A value that comes twice stands twice. Values are as those of `Min`.

    Give pairs such as (score, name) to see whose the values are.
    """

    def __init__(self, k: int) -> None:
        if type(k) is not int or k < 1:
            raise ValueError(f"TopK: k is the number of values that are kept, at least 1, not {shown(k)}")
        self.k = k

    def zero(self) -> tuple[Any, ...]:
        """Return no values."""
        return _NOTHING

    def plus(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the k greatest values of both."""
        # Most values of a long stream are not among the greatest.
        if b and len(a) == self.k and not b[0] > a[-1]:
            return a
        return tuple(sorted(a + b, reverse=True)[: self.k])

    def unit(self, value: Any) -> tuple[Any, ...]:
        """Return a tuple of the value. Raise ValueError as `Min` does."""
        return (_checked(self, value),)
