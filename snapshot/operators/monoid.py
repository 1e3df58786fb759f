"""What a monoid is, and accumulators, which add values by key without a call of a method for each state.

An aggregate by clocks adds values in any grouping and sequence: in differences, in cells of a store, after a restore in
other differences. So its operation must be associative and commutative, with a neutral element: a commutative monoid.
`cutline.testing.checkMonoid` tests these laws.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from itertools import islice
from math import isfinite
from sys import getsizeof
from typing import Any, Final

from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import GraphError

#: bytes of an entry of a dict, as measured: hash, references, index, and room to grow
ENTRY_BYTES: Final = 100

_ATOMS: Final = frozenset((type(None), bool, int, Fraction, str, bytes))


class Monoid:
    """An operation by which an aggregate adds up the values of a key. Subclass it, or write `zero` and `plus` alone.

    A *state* is what is added and stored. States are plain (`is_plain`), because stores keep them. None is no state,
    because it tells a store that a key has no value.
    """

    def zero(self) -> Any:
        """Return the neutral state: `plus` of it and any other state is the other state."""
        raise NotImplementedError

    def plus(self, a: Any, b: Any) -> Any:
        """Return the sum of two states. It must be associative and commutative."""
        raise NotImplementedError

    def unit(self, value: Any) -> Any:
        """Return the state of one input value. Default: the value itself.

        Raises
        ------
        ValueError
            if the value has no state.
        """
        return value

    def result(self, state: Any) -> Any:
        """Return what people read of a state. Default: the state itself."""
        return state

    def equal(self, a: Any, b: Any) -> bool:
        """Return whether two states are equal in the sense in which the laws hold. Default: by ``==``."""
        return bool(a == b)

    def accumulator(self) -> Accumulator:
        """Return an empty accumulator."""
        return Accumulator(self)


class Accumulator:
    """States by key, in memory. Values are added to them until `drain` takes all states out.

    After an error the accumulator holds a part of the values of the failed call, so throw it away.
    """

    def __init__(self, monoid: Monoid) -> None:
        self._monoid = monoid
        self._states: dict[Hashable, Any] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._states)

    def add(self, key: Hashable, value: Any) -> None:
        """Add one value to the state of its key."""
        self.addAll((key,), (value,))

    def addAll(self, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        """Add values to the states of their keys. Both sequences have one length."""
        unit = self._monoid.unit
        self.addStates((key, unit(value)) for key, value in zip(keys, values, strict=True))

    def addStates(self, items: Iterable[tuple[Hashable, Any]]) -> None:
        """Add states to the states of their keys, as of another accumulator that was drained."""
        states, plus = self._states, self._monoid.plus
        for key, state in items:
            before = states.get(key)
            if before is None:
                states[key] = state
                self._bytes += ENTRY_BYTES + size_of(key) + size_of(state)
            else:
                states[key] = after = plus(before, state)
                if after is not before:
                    self._bytes += size_of(after) - size_of(before)

    def byteSize(self) -> int:
        """Return an estimate of the bytes of all keys and states in memory. Takes no time."""
        return self._bytes

    def drain(self) -> dict[Any, Any]:
        """Take out all states, by key. The accumulator is empty then."""
        states = self._states
        self._states = {}
        self._bytes = 0
        return states


class TightAccumulator(Accumulator):
    """An accumulator with a loop of its own over lists of values, for states that keep their size."""

    def addAll(self, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        """Add values to the states of their keys. Both sequences have one length."""
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values: each value needs its key")
        known = len(self._states)
        self._gather(keys, values)
        # New keys stand last in a dict, and only they take memory.
        for key, state in islice(reversed(self._states.items()), len(self._states) - known):
            self._bytes += ENTRY_BYTES + size_of(key) + size_of(state)

    def _gather(self, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        """Add values to `_states`. Remove no key."""
        raise NotImplementedError


class _Wrapped(Monoid):
    """An object of a user with `zero` and `plus` alone."""

    def __init__(self, given: Any) -> None:
        self.zero, self.plus = given.zero, given.plus  # type: ignore[method-assign]


def as_monoid(given: Any) -> Monoid:
    """Return a user's object as a `Monoid`.

    Raises
    ------
    GraphError
        if it has no `zero` and `plus`.
    """
    if isinstance(given, Monoid):
        return given
    if isinstance(given, type) or not all(callable(getattr(given, name, None)) for name in ("zero", "plus")):
        raise GraphError(f"{shown(given)} is no monoid: give an object with zero() and plus(a, b), such as Sum()")
    return _Wrapped(given)


def is_plain(value: Any) -> bool:
    """Return whether a store keeps a value: None, bool, int, finite float, Fraction, str, bytes, and tuples of such."""
    kind = type(value)
    if kind is float:
        return isfinite(value)
    return all(map(is_plain, value)) if kind is tuple else kind in _ATOMS


def size_of(value: Any) -> int:
    """Return the bytes of a plain value in memory, as if nothing of it were shared."""
    if type(value) is tuple:
        return getsizeof(value) + sum(map(size_of, value))
    if type(value) is Fraction:
        return getsizeof(value) + getsizeof(value.numerator) + getsizeof(value.denominator)
    return getsizeof(value)
