"""Sketches: monoids whose states have a bounded size, however many values are added, and whose results are estimates.

Apache DataSketches does the work. States are its bytes, which other programs read. The library is imported at the
first use, because only these monoids need it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import GraphError
from cutline.snapshot.operators.monoid import ENTRY_BYTES, Accumulator, Monoid

#: the neutral state of all sketches: no bytes, so that nothing is decoded for it
_NOTHING: Final = b""

#: what is hashed for the empty text, which DataSketches leaves out; any number that no value is likely to have
_EMPTY_TEXT: Final = 0x6A09_E667_F3BC_C908

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

#: points at which two sketches of quantiles are compared
_RANKS: Final = [step / 40 for step in range(41)]


def _library(monoid: str) -> Any:
    try:
        return import_module("datasketches")
    except ModuleNotFoundError as error:
        if error.name != "datasketches":
            raise
        raise GraphError(
            f"{monoid} needs DataSketches, here and on workers: pip install 'cutline[sketches]'"
        ) from error


class _Sketch(Monoid):
    """A monoid whose states are bytes. An accumulator keeps *live* sketches, objects of the library, instead."""

    def __init__(self) -> None:
        _library(type(self).__name__)

    def zero(self) -> bytes:
        """Return no bytes."""
        return _NOTHING

    def plus(self, a: bytes, b: bytes) -> bytes:
        """Return the sketch of the values of both."""
        return self._union(a, b) if a and b else a or b

    def unit(self, value: Any) -> bytes:
        """Return the sketch of one value. Raise ValueError for values that have none."""
        live = self.live()
        live.update(*self.checked((value,)))
        return self.encoded(live)

    def result(self, state: bytes) -> Any:
        """Return the estimate."""
        return self._estimate(state) if state else 0

    def accumulator(self) -> Accumulator:
        """Return an empty accumulator."""
        return _LiveSketches(self)

    def live(self) -> Any:
        """Return an empty live sketch."""
        raise NotImplementedError

    def live_bytes(self, live: Any) -> int:
        """Return the bytes of a live sketch in memory, as measured."""
        raise NotImplementedError

    def checked(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values as the library takes them. Raise ValueError for others."""
        raise NotImplementedError

    def encoded(self, live: Any) -> bytes:
        """Return the state of a live sketch, which may be changed."""
        raise NotImplementedError

    def _union(self, a: bytes, b: bytes) -> bytes:
        raise NotImplementedError

    def _estimate(self, state: bytes) -> Any:
        raise NotImplementedError

    def _refused(self, value: Any, takes: str) -> ValueError:
        return ValueError(f"{type(self).__name__}: {shown(value)} has no sketch: give {takes}")


class _LiveSketches(Accumulator):
    """Live sketches by key, and the states that were added to them. Both become one state when they are taken out."""

    def __init__(self, sketch: _Sketch) -> None:
        super().__init__(sketch)
        self._sketch = sketch
        #: live sketches by key; each of these keys has a state in `_states` too, at least the neutral one
        self._live: dict[Hashable, Any] = {}

    def addAll(self, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        """Add values to the sketches of their keys. Both sequences have one length."""
        checked, live = self._sketch.checked(values), self._live
        touched = dict.fromkeys(keys)
        new = [key for key in touched if key not in live]
        before = self._bytes_of(touched.keys() - new)
        for key in new:
            live[key] = self._sketch.live()
        self.addStates((key, _NOTHING) for key in new)
        for key, value in zip(keys, checked, strict=True):
            live[key].update(value)
        self._bytes += self._bytes_of(touched) - before + len(new) * ENTRY_BYTES

    def _bytes_of(self, keys: Iterable[Hashable]) -> int:
        live, live_bytes = self._live, self._sketch.live_bytes
        return sum(live_bytes(live[key]) for key in keys)

    def drain(self) -> dict[Any, Any]:
        """Take out all states, by key."""
        for key, live in self._live.items():
            self._states[key] = self._sketch.plus(self._states[key], self._sketch.encoded(live))
        self._live = {}
        return super().drain()


class _DistinctCount(_Sketch):
    """The number of distinct values. A value that comes again changes nothing."""

    def __init__(self, lgK: int, least: int) -> None:
        super().__init__()
        if type(lgK) is not int or not least <= lgK <= 21:
            raise ValueError(f"{type(self).__name__}: lgK is an int from {least} to 21, not {shown(lgK)}")
        self.lgK = lgK

    def checked(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return ints of 64 bits, floats and text as they are, but a number for the empty text."""
        types = set(map(type, values))
        if types == {str} and "" not in values and all(map(str.isascii, values)):
            return values
        if types == {int} and min(values) >= _INT_MIN and max(values) <= _INT_MAX:
            return values
        return list(map(self._checked_one, values))

    def _checked_one(self, value: Any) -> Any:
        if isinstance(value, float) or (isinstance(value, int) and _INT_MIN <= value <= _INT_MAX):
            return value
        if not isinstance(value, str) or not _is_utf8(value):
            raise self._refused(value, "an int of 64 bits, a float, or text, as by repr(value)")
        return value or _EMPTY_TEXT


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


class HyperLogLog(_DistinctCount):
    """The number of distinct values, from some bytes to 4 KiB a key (with lgK=12). Needs ``cutline[sketches]``.

    Values are ints of 64 bits, floats and text. 1 and 1.0 are two values. Up to some hundred values the
    estimate is nearly exact. Beyond, its standard error is 1.04 / √2ᵏ, with k = lgK: 1.6 %.

    The laws hold bit by bit, because equal values in any sequence and grouping make equal bytes.

    Parameters
    ----------
    lgK : int
        Binary logarithm of the number of registers, of one byte each: 7 to 21.
    """

    def __init__(self, lgK: int = 12) -> None:
        super().__init__(lgK, least=7)

    def live(self) -> Any:
        """Return an empty live sketch."""
        library = _library("HyperLogLog")
        return library.hll_sketch(self.lgK, library.tgt_hll_type.HLL_8)

    def live_bytes(self, live: Any) -> int:
        """Return the bytes of a live sketch in memory, as measured."""
        return 200 + int(live.get_updatable_serialization_bytes())

    def encoded(self, live: Any) -> bytes:
        """Return the bytes that any sketch of the same values has.

        A sketch of few values is a list or a set of 32-bit numbers in the sequence of their coming, so it is sorted. A
        sketch of registers has an estimate that depends on the sequence, which a union of it with itself throws away.
        """
        data: bytes = live.serialize_compact()
        mode = data[7] & 3
        if mode == _REGISTERS:
            return self._merged(live, live).serialize_compact()  # type: ignore[no-any-return]
        header = _HEADER_BYTES[mode]
        return data[:header] + np.sort(np.frombuffer(data, "<u4", offset=header)).tobytes()

    def _union(self, a: bytes, b: bytes) -> bytes:
        decode = _library("HyperLogLog").hll_sketch.deserialize
        return self.encoded(self._merged(decode(a), decode(b)))

    def _merged(self, a: Any, b: Any) -> Any:
        library = _library("HyperLogLog")
        union = library.hll_union(self.lgK)
        union.update(a)
        union.update(b)
        return union.get_result(library.tgt_hll_type.HLL_8)

    def _estimate(self, state: bytes) -> Any:
        return round(_library("HyperLogLog").hll_sketch.deserialize(state).get_estimate())


#: Modes of a sketch, in its byte 7, and bytes before the numbers (DataSketches, "HLL sketch: format").
_HEADER_BYTES: Final = {0: 8, 1: 12}
_REGISTERS: Final = 2


class Theta(_DistinctCount):
    """The number of distinct values, as a sample of their hashes, up to 32 KiB a key. Needs ``cutline[sketches]``.

    Values are as those of `HyperLogLog`. The estimate is exact up to 2ᵏ values, with k = lgK. Beyond, its standard
    error is 1 / √2ᵏ: 1.6 %. Take Theta where programs of DataSketches intersect the states of several keys.

    The laws hold bit by bit, because a state has the 2ᵏ least hashes, sorted.

    Parameters
    ----------
    lgK : int
        Binary logarithm of the number of hashes, of eight bytes each: 5 to 21.
    """

    def __init__(self, lgK: int = 12) -> None:
        super().__init__(lgK, least=5)

    def live(self) -> Any:
        """Return an empty live sketch."""
        return _library("Theta").update_theta_sketch(self.lgK)

    def live_bytes(self, live: Any) -> int:
        """Return the bytes of a live sketch in memory, as measured: its table grows by eight when half full."""
        slots = 128
        while live.num_retained > slots // 2 and slots < 2 << self.lgK:
            slots *= 8
        return 180 + 8 * slots

    def encoded(self, live: Any) -> bytes:
        """Return the bytes that any sketch of the same values has: without the hashes above the least 2ᵏ."""
        live.trim()
        return live.compact().serialize()  # type: ignore[no-any-return]

    def _union(self, a: bytes, b: bytes) -> bytes:
        library = _library("Theta")
        union = library.theta_union(self.lgK)
        for state in (a, b):
            union.update(library.compact_theta_sketch.deserialize(state))
        return union.get_result().serialize()  # type: ignore[no-any-return]

    def _estimate(self, state: bytes) -> Any:
        return round(_library("Theta").compact_theta_sketch.deserialize(state).get_estimate())


class Quantiles(_Sketch):
    """Quantiles of numbers, by a KLL sketch of 2 to 5 KiB a key. Needs ``cutline[sketches]``.

    People read a tuple of floats: for each rank the least value that at least this share of the values does not exceed.
    With up to k values all are exact. With more, ranks are wrong by 1.3 % at most (k=200), in 99 of 100 sketches.

    A merge drops values by chance, so the laws hold within that error, not bit by bit, and two runs may give different
    estimates. `equal` compares numbers of values, extremes, and ranks within twice the error.

    Parameters
    ----------
    ranks : sequence of float
        What `result` returns the values of: 0 is the least value, 0.5 the median, 1 the greatest.
    k : int
        Size: 8 to 65,535. Twice the size halves the error.
    """

    def __init__(self, ranks: Sequence[float] = (0.5, 0.9, 0.99), k: int = 200) -> None:
        super().__init__()
        if not ranks or not all(0 <= rank <= 1 for rank in ranks):
            raise ValueError(f"Quantiles: ranks are floats from 0 to 1, at least one, not {shown(ranks)}")
        if type(k) is not int or not 8 <= k <= 65_535:
            raise ValueError(f"Quantiles: k is an int from 8 to 65535, not {shown(k)}")
        self.ranks, self.k = tuple(ranks), k

    def result(self, state: bytes) -> tuple[float, ...]:
        """Return the values of the ranks, or no values for an empty state."""
        return tuple(self._decoded(state).get_quantiles(self.ranks, True)) if state else ()

    def equal(self, a: bytes, b: bytes) -> bool:
        """Return whether two states may be of the same values."""
        if not a or not b:
            return a == b
        first, second = self._decoded(a), self._decoded(b)
        if (first.n, first.get_min_value(), first.get_max_value()) != (
            second.n,
            second.get_min_value(),
            second.get_max_value(),
        ):
            return False
        if not (first.is_estimation_mode() or second.is_estimation_mode()):
            return sorted(first) == sorted(second)
        error = 2 * first.normalized_rank_error(False)
        points = sorted({*first.get_quantiles(_RANKS, True), *second.get_quantiles(_RANKS, True)})
        return all(
            abs(rank - other) <= error
            for inclusive in (False, True)
            for rank, other in zip(first.get_cdf(points, inclusive), second.get_cdf(points, inclusive), strict=True)
        )

    def live(self) -> Any:
        """Return an empty live sketch."""
        return _library("Quantiles").kll_doubles_sketch(self.k)

    def live_bytes(self, live: Any) -> int:
        """Return the bytes of a live sketch in memory, as measured."""
        return 250 + 8 * self.k + (6 * int(live.num_retained) if live.is_estimation_mode() else 0)

    def checked(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return finite and infinite floats."""
        for value in values:
            if not isinstance(value, float | int) or not _is_float(value):
                raise self._refused(value, "ints and floats but NaN")
        return values

    def encoded(self, live: Any) -> bytes:
        """Return the bytes of a live sketch."""
        return live.serialize()  # type: ignore[no-any-return]

    def _decoded(self, state: bytes) -> Any:
        return _library("Quantiles").kll_doubles_sketch.deserialize(state)

    def _union(self, a: bytes, b: bytes) -> bytes:
        merged = self._decoded(a)
        merged.merge(self._decoded(b))
        return self.encoded(merged)


def _is_float(value: float) -> bool:
    try:
        return not math.isnan(value)
    except OverflowError:  # an int beyond all floats
        return False
