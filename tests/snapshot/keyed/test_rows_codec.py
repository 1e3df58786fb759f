"""Bytes of keys and values of rows: canonical, fixed, and told apart by the first byte."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.keyed.rows_codec import (
    NOT_DECODABLE,
    bytes_of,
    decode_key,
    decode_keys,
    decode_values,
    encode_key,
    encode_keys,
    encode_value,
    encode_values,
)
from tests.snapshot.keyed.histories import CODEC, as_row, keys, values


class Colour(IntEnum):
    RED = 7


class Name(str):
    __slots__ = ()


#: State is found again by these bytes. A change here loses the keyed state of every existing snapshot.
VECTORS = [
    (None, "c0"),
    (False, "00"),
    (True, "01"),
    (127, "7f"),
    (128, "cc80"),
    (2**16, "ce00010000"),
    (2**63, "cf8000000000000000"),
    (-1, "ff"),
    (-(2**63), "d38000000000000000"),
    (2**64, "c70905000000000000000001"),
    (-(2**63) - 1, "c70905ffffffffffffff7fff"),
    ("é", "a2c3a9"),
    ("\ud800", "a3eda080"),
    (b"a", "c40161"),
    ((), "90"),
    (("a", (True, None)), "92a16192" + "01c0"),
    (Colour.RED, "07"),
    (Name("a"), "a161"),
    (np.str_("a"), "a161"),
]


@pytest.mark.parametrize(("key", "expected"), VECTORS)
def test_vectors_never_change(key: Any, expected: str) -> None:
    """Equal keys have these bytes in every release, and come back equal."""
    assert encode_key(key).hex() == expected
    assert encode_keys([key]) == [encode_key(key)]
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize("key", [1.0, [1], {}, ("a", 1.0), np.int64(1), object(), bytearray(b"a")])
def test_other_types_are_refused(key: Any) -> None:
    """A float equals an int in a dict, but not in bytes; so it is no key, alone nor in a column."""
    with pytest.raises(TypeError, match="cannot be a key"):
        encode_key(key)
    with pytest.raises(TypeError, match="cannot be a key"):
        encode_keys(["a", key])


def test_a_key_nested_too_deep_is_refused() -> None:
    """What no decoder would read is not written."""
    key: Any = ()
    for _ in range(2_000):
        key = (key,)
    with pytest.raises(TypeError, match="nested too deep"):
        encode_key(key)


@given(st.lists(keys, max_size=20), st.integers(0, 3))
def test_a_column_of_keys_comes_back(found: list[Any], start: int) -> None:
    """A column, and a slice of one, is decoded in one call."""
    column = pa.array(encode_keys(found), pa.large_binary())
    assert decode_keys(column[start:]) == found[start:]
    assert all(type(key) is not list for key in decode_keys(column))


@given(st.lists(values, max_size=20), st.integers(0, 3))
def test_a_column_of_values_comes_back(found: list[Any], start: int) -> None:
    """Atoms are decoded, tombstones are None, all else stays encoded, whatever stands beside it."""
    encoded = encode_values(found, CODEC)
    assert encoded == [None if value is None else encode_value(value, CODEC) for value in found]
    decoded = decode_values(pa.array(encoded, pa.large_binary())[start:])
    assert [as_row(value, None) for value in decoded] == [as_row(value, None) for value in found[start:]]


def test_a_column_of_no_rows_may_lack_its_offsets() -> None:
    """Arrow may omit all buffers of an empty column: there is one offset, and nothing behind it."""
    column = pa.Array.from_buffers(pa.large_binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    offsets, data = bytes_of(column)
    assert (offsets.tolist(), data.size) == ([0], 0)


@pytest.mark.parametrize("data", [b"\xd9", b"\xa2a", b"\xc7\x01\x02a", b"\x01\x01", b"\xc1"])
def test_what_is_no_key_is_refused(data: bytes) -> None:
    """Bytes that no key has raise what `NOT_DECODABLE` lists."""
    with pytest.raises(NOT_DECODABLE):
        decode_key(data)
