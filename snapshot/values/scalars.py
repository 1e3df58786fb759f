"""Check one value against a scalar type of Arrow, and return a plain value that Arrow converts exactly.

Owns what fits which scalar type. Must not know columns, rows, nor nested types. A kind of type takes its own kind of
value. Width, unit and range are decided by the value: 0.1 is no float32, and `np.float32(0.1)` is one.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cutline.snapshot.error_text import printable, shown

#: Characters of a refused value that an error shows.
_SHOWN_CHARACTERS_MAX: Final = 120

#: {unit of Arrow: its part of a second}
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

#: {unit of NumPy: (units, seconds)}: so many units are so many seconds. Years and months have no fixed length.
_NUMPY_UNITS: Final = {
    **{"W": (1, 604_800), "D": (1, 86_400), "h": (1, 3_600), "m": (1, 60), "s": (1, 1), "ms": (10**3, 1)},
    **{"us": (10**6, 1), "ns": (10**9, 1), "ps": (10**12, 1), "fs": (10**15, 1), "as": (10**18, 1)},
}

_EPOCH_IN_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH: Final = _EPOCH_IN_UTC.replace(tzinfo=None)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DAY: Final = dt.timedelta(days=1)
_TIME_MIN, _TIME_MAX = (edge.replace(tzinfo=dt.UTC) - _EPOCH_IN_UTC for edge in (dt.datetime.min, dt.datetime.max))  # noqa: DTZ901

#: Returns the plain value, or raises `Unfit`.
Check = Callable[[Any], Any]


class Unfit(ValueError):
    """A value does not fit. `path` leads from the checked value to the value inside of it that does not."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def below(self, step: str) -> Unfit:
        """Return the error for a value that holds the checked value at `step`."""
        return Unfit(self.reason, step + self.path)


def _always(_: Sequence[Any]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Scalar:
    """How values of one scalar type are checked."""

    check: Check
    #: exact classes whose values need no change
    plain: frozenset[type] = frozenset()
    #: returns whether all of some values of the plain classes fit; there is at least one
    fit_all: Callable[[Sequence[Any]], bool] = _always
    #: whether Arrow refuses each value of a plain class that does not fit
    raises_in_arrow: bool = True
    #: expression of Python that is true only for values ``{0}`` that need no change
    written: str = "False"


def unfit(value: Any, why: str) -> Unfit:
    """Return the error for `value`."""
    return Unfit(f"{printable(shown(value), _SHOWN_CHARACTERS_MAX)} (a {type(value).__qualname__}) {why}")


# -------------------------------------------------------------------- numbers


def booleans(_: pa.DataType) -> Scalar:
    """Return the check of booleans."""

    def check(value: Any) -> bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        raise unfit(value, "is no bool")

    return Scalar(check, frozenset({bool}), written="type({0}) is bool")


def integers(kind: pa.DataType) -> Scalar:
    """Return the check of integers."""
    bits = kind.bit_width
    low, high = (
        (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(kind) else (-1 << (bits - 1), (1 << (bits - 1)) - 1)
    )

    def check(value: Any) -> int:
        number = value if type(value) is int else whole_number(value)
        if number is None:
            raise unfit(value, f"is no integer, as {kind} holds")
        if low <= number <= high:
            return number
        raise unfit(value, f"is beyond the range of {kind}, {low} to {high}")

    return Scalar(
        check,
        frozenset({int}),
        lambda values: low <= min(values) and max(values) <= high,
        written=f"type({{0}}) is int and {low} <= {{0}} <= {high}",
    )


def whole_number(value: Any) -> int | None:
    """Return the int that an integer is equal to, or None if `value` is no integer. A bool is none."""
    return operator.index(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None


def floats(kind: pa.DataType) -> Scalar:
    """Return the check of floats. An integer fits if a float is equal to it."""
    letter = {16: "e", 32: "f", 64: ""}[kind.bit_width]

    def check(value: Any) -> float:
        found = _as_float(value, kind)
        if letter:
            try:
                (narrow,) = struct.unpack(letter, struct.pack(letter, found))
            except OverflowError:
                narrow = None
            if narrow != found and found == found:
                raise unfit(value, f"is rounded in {kind}: round it, or make the column wider")
        return found

    if letter:
        narrow = np.dtype(letter)
        return Scalar(check, frozenset({float}), lambda values: _are_narrow(values, narrow), raises_in_arrow=False)
    return Scalar(check, frozenset({float}), written="type({0}) is float")


def _as_float(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.floating):
        found = float(value)
        if found != value and value == value:
            raise unfit(value, "is rounded in 64 bits")
        return found
    number = whole_number(value)
    if number is None:
        raise unfit(value, f"is no float, as {kind} holds")
    try:
        found = float(number)
    except OverflowError:
        found = np.nan
    if found != number:
        raise unfit(value, "is an integer that no float is equal to")
    return found


def _are_narrow(values: Sequence[float], narrow: np.dtype[Any]) -> bool:
    wide = np.fromiter(values, np.float64, len(values))
    with np.errstate(over="ignore"):
        back = wide.astype(narrow).astype(np.float64)
    return bool(((back == wide) | np.isnan(wide)).all())


def decimals(kind: pa.DataType) -> Scalar:
    """Return the check of decimals. Integers fit."""
    context = decimal.Context(kind.precision, traps=[decimal.InvalidOperation, decimal.Inexact])
    unit = decimal.Decimal((0, (1,), -kind.scale))

    def check(value: Any) -> decimal.Decimal:
        number = value if isinstance(value, decimal.Decimal) else whole_number(value)
        if number is None:
            raise unfit(value, f"is no Decimal, as {kind} holds")
        try:
            found = decimal.Decimal(number)
            if found.is_finite():
                return found.quantize(unit, context=context)
        except (decimal.InvalidOperation, decimal.Inexact):
            pass
        raise unfit(value, f"has no exact value in {kind}: quantize it, or make the column wider")

    return Scalar(check)


# -------------------------------------------------------------------- text and bytes


def texts(kind: pa.DataType) -> Scalar:
    """Return the check of text."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise unfit(value, f"is no str, as {kind} holds")
        if not value.isascii() and not _is_encodable(value):
            raise unfit(value, "holds half of a surrogate pair, which UTF-8 cannot hold")
        return value if type(value) is str else str.__str__(value)

    return Scalar(
        check,
        frozenset({str}),
        lambda values: all(map(_is_encodable, values)),
        written="type({0}) is str and {0}.isascii()",
    )


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def octets(kind: pa.DataType) -> Scalar:
    """Return the check of bytes."""
    size = kind.byte_width if pa.types.is_fixed_size_binary(kind) else None

    def check(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise unfit(value, f"is no bytes, as {kind} holds")
        found = value if type(value) is bytes else bytes(value)
        if size is not None and len(found) != size:
            raise unfit(value, f"has {len(found)} bytes, and {kind} holds {size}")
        return found

    if size is None:
        return Scalar(check, frozenset({bytes}), written="type({0}) is bytes")
    return Scalar(check, frozenset({bytes}), lambda values: set(map(len, values)) <= {size})


# -------------------------------------------------------------------- dates and times


def dates(kind: pa.DataType) -> Scalar:
    """Return the check of dates. A time of day does not fit."""

    def check(value: Any) -> dt.date:
        if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] in ("D", "W"):
            return _date_of(value)
        if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
            raise unfit(value, f"is no date: {kind} has no time of day; give value.date()")
        return dt.date(value.year, value.month, value.day)

    return Scalar(check, frozenset({dt.date}))


def _date_of(value: np.datetime64) -> dt.date:
    try:
        return _EPOCH.date() + _DAY * _units_of(value, 1, 86_400)
    except OverflowError:
        raise unfit(value, "is beyond the years 1 to 9999") from None


def times(kind: pa.DataType) -> Scalar:
    """Return the check of times of day without a zone."""
    unit = kind.unit

    def check(value: Any) -> int:
        if not isinstance(value, dt.time):
            raise unfit(value, f"is no time, as {kind} holds")
        if value.tzinfo is not None:
            raise unfit(value, f"has a time zone, and {kind} has none; give value.replace(tzinfo=None)")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return _in_unit(value, seconds * 10**6 + value.microsecond, 10**6, unit)

    return Scalar(check)


def timestamps(kind: pa.DataType) -> Scalar:
    """Return the check of instants where the type has a zone, and else of local times."""
    unit = kind.unit
    epoch = _EPOCH if kind.tz is None else _EPOCH_IN_UTC

    def check(value: Any) -> int:
        if isinstance(value, np.datetime64) and kind.tz is None:
            return _units_of(value, PER_SECOND[unit])
        if not isinstance(value, dt.datetime):
            raise unfit(value, f"is no datetime, as {kind} holds")
        if value != value:  # because pandas.NaT is a datetime, and nothing else is unequal to itself
            raise unfit(value, "is no time; give None")
        if (value.utcoffset() is None) != (kind.tz is None):
            raise unfit(value, _OTHER_ZONE[kind.tz is None].format(kind))
        since = value - epoch
        if not _TIME_MIN <= since <= _TIME_MAX:
            raise unfit(value, "is beyond the years 1 to 9999 in UTC")
        return _in_unit(value, _nanoseconds(since, value), 10**9, unit)

    return Scalar(check)


_OTHER_ZONE: Final = {
    True: "has a time zone, and {} holds local times; give value.replace(tzinfo=None)",
    False: "has no time zone, and {} holds instants; give value.replace(tzinfo=...) with the zone that is meant",
}


def _nanoseconds(since: dt.timedelta, value: Any) -> int:
    """Return the nanoseconds of a difference to `value`. Those of pandas have more than microseconds."""
    return int(dt.timedelta.__floordiv__(since, _MICROSECOND)) * 1_000 + int(getattr(value, "nanosecond", 0))


def durations(kind: pa.DataType) -> Scalar:
    """Return the check of durations."""
    unit = kind.unit

    def check(value: Any) -> int:
        if isinstance(value, np.timedelta64):
            return _units_of(value, PER_SECOND[unit])
        if not isinstance(value, dt.timedelta) or value != value:  # because of pandas.NaT
            raise unfit(value, f"is no timedelta, as {kind} holds")
        nanoseconds = (value.days * 86_400 + value.seconds) * 10**9 + value.microseconds * 1_000
        return _in_unit(value, nanoseconds + int(getattr(value, "nanoseconds", 0)), 10**9, unit)

    return Scalar(check)


def _units_of(value: np.datetime64 | np.timedelta64, units: int, seconds: int = 1) -> int:
    """Return how many units, of which so many are so many seconds, a value of NumPy is."""
    name, multiple = np.datetime_data(value.dtype)
    if np.isnat(value):
        raise unfit(value, "is no time; give None")
    if name not in _NUMPY_UNITS:
        raise unfit(value, "counts in units of no fixed length")
    per, length = _NUMPY_UNITS[name]
    whole, rest = divmod(int(value.astype(np.int64)) * multiple * length * units, per * seconds)
    return _within_64_bits(value, whole, rest)


def _in_unit(value: Any, count: int, per_second: int, unit: str) -> int:
    whole, rest = divmod(count * PER_SECOND[unit], per_second)
    return _within_64_bits(value, whole, rest)


def _within_64_bits(value: Any, whole: int, rest: int) -> int:
    if rest:
        raise unfit(value, "is finer than the unit of the column: round it, or give the column a finer unit")
    if not -(1 << 63) < whole < 1 << 63:
        raise unfit(value, "is beyond the range of the column: give the column a coarser unit")
    return whole


def nothing(_: pa.DataType) -> Scalar:
    """Return the check of the type that holds None only."""

    def check(value: Any) -> None:
        raise unfit(value, "is not None, and the column holds None only")

    return Scalar(check)
