"""What fits which type of Arrow: a table of types with values at, inside and outside of their ranges, also nested."""

from __future__ import annotations

import datetime as dt
import enum
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from cutline.snapshot.values.fitting import DoesNotFit, fit, fit_rows, plain_batch, row_check
from cutline.snapshot.values.kinds import kind_of

UTC = dt.UTC
BERLIN = ZoneInfo("Europe/Berlin")


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    ONE = "one"


class Own(str):
    def __str__(self) -> str:
        return "another text"


class Row(NamedTuple):
    """A type with values that fit it, as they are read back, and with values that do not."""

    type_: pa.DataType
    fits: list[Any]
    refused: list[Any]


def _integers(type_: pa.DataType, low: int, high: int) -> Row:
    outside = [low - 1, high + 1, 1.0, 1.5, True, np.True_, "1", Decimal(1), Fraction(1), math.nan, b"1"]
    return Row(type_, [low, high, 0, np.int8(7), np.uint64(7), Level.LOW], outside)


_NOON = dt.datetime(2026, 1, 2, 12, 30, 1, 250_000)  # noqa: DTZ001
_NOON_IN_UTC = _NOON.replace(tzinfo=UTC)
_WHOLE = _NOON.replace(microsecond=0)
_MICRO = _NOON.replace(microsecond=1)

_LONG_DOUBLE = np.longdouble(1) + np.longdouble(2) ** -60

TABLE = [
    Row(pa.null(), [], [0, False, "", math.nan]),
    Row(pa.bool_(), [True, False, np.True_], [0, 1, 2, 1.0, "true", np.int8(1)]),
    _integers(pa.int8(), -(1 << 7), (1 << 7) - 1),
    _integers(pa.int16(), -(1 << 15), (1 << 15) - 1),
    _integers(pa.int32(), -(1 << 31), (1 << 31) - 1),
    _integers(pa.int64(), -(1 << 63), (1 << 63) - 1),
    _integers(pa.uint8(), 0, (1 << 8) - 1),
    _integers(pa.uint16(), 0, (1 << 16) - 1),
    _integers(pa.uint32(), 0, (1 << 32) - 1),
    _integers(pa.uint64(), 0, (1 << 64) - 1),
    Row(
        pa.float16(),
        [0.5, -0.0, math.nan, math.inf, 65504.0, 2048, np.float16(0.1), np.float32(0.5)],
        [0.1, 65536.0, 1e300, 2049, True, "1", Decimal(1), np.float32(0.1)],
    ),
    Row(
        pa.float32(),
        [0.5, -0.0, math.nan, -math.inf, 1 << 24, np.float32(0.1), np.float64(0.5), 3.4028234663852886e38],
        [0.1, 1e300, 1e-60, (1 << 24) + 1, np.float64(0.1), False, Decimal("0.5"), "0.5"],
    ),
    Row(
        pa.float64(),
        [0.1, 5e-324, 1.7976931348623157e308, -0.0, math.nan, 1 << 53, (1 << 53) + 2, 2**1000, np.float32(0.1)],
        [(1 << 53) + 1, 10**400, -(10**400), True, Decimal("0.1"), "0.1", 1j, _LONG_DOUBLE],
    ),
    Row(
        pa.decimal32(5, 2),
        [Decimal("1.5"), Decimal("999.99"), Decimal("-0.01"), 7, np.int8(7), Decimal("1E+2"), Decimal("0E+50")],
        [Decimal("1.005"), Decimal("1000"), 1000, 1.5, True, "1.5", Decimal("NaN"), Decimal("Infinity")],
    ),
    Row(pa.decimal64(10, 0), [Decimal(10**10 - 1), -5], [Decimal(10**10), Decimal("0.5"), 10**10, Decimal("1E+9999")]),
    Row(pa.decimal128(38, 0), [10**38 - 1, -(10**38) + 1], [10**38, Decimal("0.1"), 1.0]),
    Row(pa.decimal128(5, -2), [500, Decimal(9_999_900)], [550, Decimal(10_000_000), Decimal("1")]),
    Row(pa.decimal256(76, 10), [Decimal(10**66 - 1), Decimal("1e-10")], [Decimal(10**66), Decimal("1e-11")]),
    *(
        Row(each, ["", "a", "ä\0€𝄞", Word.ONE, np.str_("n"), Own("own")], [b"a", 1, "\ud800", "a\udfff", type(None)])
        for each in (pa.string(), pa.large_string(), pa.string_view())
    ),
    *(
        Row(each, [b"", b"\0\xff", bytearray(b"b"), memoryview(b"m"), np.bytes_(b"n")], ["a", 1, [1]])
        for each in (pa.binary(), pa.large_binary(), pa.binary_view())
    ),
    Row(pa.binary(2), [b"ab", bytearray(b"cd")], [b"a", b"abc", "ab", b""]),
    *(
        Row(
            each,
            [dt.date.min, dt.date.max, dt.date(2026, 1, 2), np.datetime64("2026-01-02")],
            [_NOON, _NOON_IN_UTC, _WHOLE.replace(hour=0), 5, "2026-01-02", pd.Timestamp(_NOON), np.datetime64("NaT"),
             np.datetime64("2026-01-02T00"), np.datetime64("12026-01-02")],
        )
        for each in (pa.date32(), pa.date64())
    ),
    Row(pa.time32("s"), [dt.time(23, 59, 59), dt.time.min], [dt.time(1, 1, 1, 1), dt.time(1, tzinfo=UTC), 5, _NOON]),
    Row(pa.time32("ms"), [dt.time(1, 1, 1, 999_000)], [dt.time(1, 1, 1, 1), dt.timedelta(1)]),
    Row(pa.time64("us"), [dt.time.max], [dt.time(1, tzinfo=UTC), "01:00"]),
    Row(pa.time64("ns"), [dt.time.max], [dt.time(1, tzinfo=UTC)]),
    Row(
        pa.timestamp("s"),
        [_WHOLE, dt.datetime.min, np.datetime64("2026-01-02"), np.datetime64("2026-01-02T01", "h")],  # noqa: DTZ901
        [_NOON, _NOON_IN_UTC, dt.date(2026, 1, 2), 5, "2026", np.datetime64("2026-01-02T00:00:00.5"), pd.NaT],
    ),
    Row(pa.timestamp("ms"), [_NOON], [_MICRO, _NOON_IN_UTC, np.datetime64("2026"), np.datetime64("NaT", "us")]),
    Row(
        pa.timestamp("us"),
        [_MICRO, dt.datetime.min, dt.datetime.max, pd.Timestamp(_MICRO)],  # noqa: DTZ901
        [_NOON_IN_UTC, pd.Timestamp(1), np.datetime64(1, "ns"), dt.date(2026, 1, 2), True],
    ),
    Row(
        pa.timestamp("ns"),
        [_MICRO, pd.Timestamp(1), np.datetime64(1, "ns"), np.datetime64(5_000, "ps"), pd.Timestamp.min],
        [dt.datetime(2300, 1, 1), dt.datetime(1600, 1, 1), np.datetime64(1, "ps")],  # noqa: DTZ001
    ),
    *(
        Row(
            pa.timestamp("us", zone),
            [
                _NOON_IN_UTC,
                dt.datetime(2025, 10, 26, 2, 30, fold=0, tzinfo=BERLIN),
                dt.datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=BERLIN),
                dt.datetime(1880, 1, 1, tzinfo=BERLIN),
                dt.datetime(1, 1, 2, tzinfo=UTC),
                pd.Timestamp(_MICRO, tz="Europe/Berlin"),
            ],
            [_NOON, dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5))), np.datetime64(_NOON), pd.NaT,
             pd.Timestamp(1, tz="UTC"), 5],
        )
        for zone in ("UTC", "Europe/Berlin", "+05:30")
    ),
    Row(pa.timestamp("s", "UTC"), [_NOON_IN_UTC.replace(microsecond=0)], [_NOON_IN_UTC]),
    Row(pa.duration("s"), [dt.timedelta(1), dt.timedelta.min], [dt.timedelta(milliseconds=1), 5, pd.NaT]),
    Row(pa.duration("ms"), [dt.timedelta(milliseconds=-1)], [dt.timedelta(microseconds=1), dt.time(1)]),
    Row(
        pa.duration("us"),
        [dt.timedelta(1, 1, 1), np.timedelta64(5, "us")],
        [dt.timedelta.max, np.timedelta64(5, "ns"), np.timedelta64(1, "Y"), np.timedelta64("NaT")],
    ),
    Row(
        pa.duration("ns"),
        [pd.Timedelta(5), np.timedelta64(1, "D")],
        [dt.timedelta(days=200_000), np.timedelta64(1, "ps")],
    ),
    *(
        Row(each, [[], [1, None], (3,), np.array([4, 5], np.int32)],
            [[1.5], [1, 300_000_000_000], {1, 2}, "12", b"12", 5, [[1]], {1: 2}, np.array(5), np.array([[1]])])
        for each in (
            *(pa.list_(pa.int32()), pa.large_list(pa.int32())),
            *(pa.list_view(pa.int32()), pa.large_list_view(pa.int32())),
        )
    ),
    Row(pa.list_(pa.float32()), [np.array([0.1, 0.2], np.float32), [0.5, 1]], [[0.1], np.array([0.1])]),
    Row(pa.list_(pa.int32(), 2), [[1, 2], (None, 4)], [[1], [1, 2, 3], [1, 2.5], []]),
    Row(pa.list_(pa.field("x", pa.int32(), nullable=False)), [[1]], [[None], [1, None]]),
    Row(pa.list_(pa.list_(pa.string())), [[["a"], None, []]], [[["a", 1]], [["\ud800"]], ["a"]]),
    Row(
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"b": None, "a": None}],
        [{"a": 1}, {"a": 1, "B": "x"}, {"a": 1, "b": "x", "c": 1}, {"a": 1.5, "b": "x"}, (1, "x"), [("a", 1)], 5],
    ),
    Row(pa.struct([pa.field("a", pa.int64(), nullable=False)]), [{"a": 1}], [{"a": None}, {}]),
    Row(pa.struct([]), [{}], [{"a": 1}]),
    Row(pa.struct([("a", pa.int64()), ("a", pa.int64())]), [], [{"a": 1}, {}]),
    Row(
        pa.map_(pa.string(), pa.int64()),
        [{"a": 1, "b": None}, {}, [("a", 1)]],
        [{"a": 1.5}, {1: 1}, [("a", 1), ("a", 2)], {None: 1}, [("a", 1, 2)], [1], 5, "a"],
    ),
    Row(pa.map_(pa.list_(pa.int8()), pa.int8()), [[([1], 1), ([2], 2)]], [[([1], 1), ([1], 2)], [([1000], 1)]]),
    Row(pa.dictionary(pa.int8(), pa.string()), ["a", "b"], [1, b"a", "\ud800"]),
    Row(pa.dictionary(pa.int32(), pa.float32()), [0.5], [0.1]),
]  # fmt: skip

#: Types that take no values.
NO_KIND = [
    pa.month_day_nano_interval(),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.sparse_union([pa.field("a", pa.int64())]),
    pa.dense_union([pa.field("a", pa.int64())]),
    pa.uuid(),
    pa.json_(),
    pa.bool8(),
]

FITS = [pytest.param(row.type_, value, id=f"{row.type_}-{i}") for row in TABLE for i, value in enumerate(row.fits)]
REFUSED = [
    pytest.param(row.type_, value, id=f"{row.type_}-{i}") for row in TABLE for i, value in enumerate(row.refused)
]


def _read_back(array: pa.Array, given: Any) -> Any:
    """Return the only value of a column, in the form in which it was given where Arrow's has less."""
    (value,) = array.to_pylist()
    if pa.types.is_map(array.type):
        return dict(value) if isinstance(given, dict) else value
    if isinstance(given, np.datetime64 | np.timedelta64 | pd.Timestamp | pd.Timedelta):
        return array.cast(pa.timestamp("us") if pa.types.is_date(array.type) else array.type)[0].value * np.int64(1)
    return value


def _expected(given: Any, type_: pa.DataType) -> Any:
    """Return the value that has to come back."""
    match given:
        case np.datetime64() | np.timedelta64():
            name = "datetime64" if isinstance(given, np.datetime64) else "timedelta64"
            return given.astype(f"{name}[{getattr(type_, 'unit', 'us')}]" if name else "").astype(np.int64)
        case pd.Timestamp() | pd.Timedelta():
            return given.value // (1_000 if type_.unit == "us" else 1)
        case np.integer():
            return int(given)
        case Own():
            return "own"
        case np.ndarray():
            return given.tolist()
        case bytearray() | memoryview():
            return bytes(given)
    return given


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, dt.datetime) and expected.tzinfo is not None:
        return bool(found.astimezone(UTC) == expected.astimezone(UTC))  # because a repeated hour equals no other zone's
    if isinstance(expected, float | np.floating) and isinstance(found, float):
        if math.isnan(expected):
            return math.isnan(found)
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    return bool(found == (list(expected) if isinstance(expected, tuple) else expected))


@pytest.mark.parametrize(("type_", "value"), FITS)
def test_a_value_that_fits_comes_back(type_: pa.DataType, value: Any) -> None:
    """Equal, with the sign of zero, and beside None."""
    for values in ([value], [value, None], [None, value, value]):
        array = fit(values, type_)
        array.validate(full=True)
        assert array.type.equals(type_)
        assert [each is None for each in array.to_pylist()] == [each is None for each in values]
    assert _equal(_read_back(fit([value], type_), value), _expected(value, type_))


@pytest.mark.parametrize(("type_", "value"), FITS)
def test_a_value_that_fits_does_inside_of_others(type_: pa.DataType, value: Any) -> None:
    """In lists, structs and maps, in a row that is a dict, and in a row that a check has passed."""
    whole = fit([value], type_)
    for outer, held, inner in _nestings(type_, value):
        array = fit([held], outer)
        array.validate(full=True)
        assert inner(array).to_pylist() in (whole.to_pylist(), None) or _is_nan(whole)
    schema = pa.schema([("first", pa.int64()), ("v", type_)])
    assert fit_rows([{"v": value, "first": 1}], schema).column("v").equals(whole) or _is_nan(whole)
    assert plain_batch([row_check(schema)((1, value))], schema).column("v").equals(whole) or _is_nan(whole)


def _is_nan(array: pa.Array) -> bool:
    return pa.types.is_floating(array.type) and math.isnan(array[0].as_py())


def _nestings(type_: pa.DataType, value: Any) -> list[tuple[pa.DataType, Any, Any]]:
    """Return types that hold the type, values of them that hold the value, and how to take the column out again."""
    struct = pa.struct([("s", type_)])
    return [
        (pa.list_(type_), [value], lambda array: array.flatten()),
        (pa.large_list(type_), (value,), lambda array: array.flatten()),
        (struct, {"s": value}, lambda array: array.field("s")),
        (pa.map_(pa.int8(), type_), {1: value}, lambda array: array.items),
        (pa.list_(struct), [{"s": value}], lambda array: array.flatten().field("s")),
    ]


@pytest.mark.parametrize(("type_", "value"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_at_itself(type_: pa.DataType, value: Any) -> None:
    """By row and path, alone, between good values, inside of others, and as a row."""
    good = next((each.fits[:1] for each in TABLE if each.type_.equals(type_)), [])
    for row, values in enumerate(([value], [None, value], [*good * 2, value, *good])):
        with pytest.raises(DoesNotFit) as caught:
            fit(values, type_, path="v")
        assert caught.value.row == (0, 1, 2 * len(good))[row] or "takes no values" in caught.value.reason
        assert caught.value.path.startswith("v")
        assert len(str(caught.value)) < 1_000
    for outer, held, _ in _nestings(type_, value):
        with pytest.raises(DoesNotFit) as caught:
            fit([None, held], outer, path="v")
        assert caught.value.row == 1 or "takes no values" in caught.value.reason
    schema = pa.schema([("first", pa.int64()), ("v", type_)])
    for refuse in (
        lambda: fit_rows([{"first": 1, "v": None}, {"v": value, "first": 1}], schema),
        lambda: row_check(schema)((1, value)),
    ):
        with pytest.raises(DoesNotFit, match=r"^column v"):
            refuse()


@pytest.mark.parametrize("type_", [row.type_ for row in TABLE], ids=str)
def test_none_is_refused_where_null_is_not_allowed(type_: pa.DataType) -> None:
    """Each type has NOT NULL."""
    for values in ([None], [*next(row.fits for row in TABLE if row.type_ is type_), None]):
        with pytest.raises(DoesNotFit, match=r"NOT NULL|takes no values") as caught:
            fit(values, type_, nullable=False)
        assert caught.value.row == len(values) - 1 or "takes no" in caught.value.reason


@pytest.mark.parametrize("type_", NO_KIND, ids=str)
def test_types_without_a_kind_take_no_values(type_: pa.DataType) -> None:
    """Not even None, also inside of other types."""
    for outer in (type_, pa.list_(type_), pa.struct([("a", type_)]), pa.map_(pa.int8(), type_)):
        with pytest.raises(DoesNotFit, match="takes no values"):
            fit([None], outer)


def test_the_table_has_each_type_of_arrow() -> None:
    """A type that a later Arrow adds has to be given a kind, or to be listed as one without."""
    listed = {each.id for each in (*(row.type_ for row in TABLE), *NO_KIND)}
    known = {value for name, value in vars(pa.lib).items() if name.startswith("Type_")}
    assert known - listed - {pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME} == set()
    assert all(kind_of(each) is None for each in NO_KIND)
