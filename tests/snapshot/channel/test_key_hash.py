"""The hash of keys: fixed for ever, the same for a value and for a column."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.key_hash import hash_columns, hash_keys, stable_hash

#: Stored state lies where these say. A change here loses the keyed state of every existing snapshot.
VECTORS = [
    (None, 0x000000006E6F6E65),
    (False, 0xE220A8397B1DCDAF),
    (True, 0x910A2DEC89025CC1),
    (0, 0xE220A8397B1DCDAF),
    (-1, 0xE4D971771B652C20),
    (2**63, 0x481EC0A212A9F3DB),
    (2**64 - 1, 0xE4D971771B652C20),
    (2**64, 0xE6B4DE91EFB3BBD3),
    (-(2**70), 0x0419297D15D9D8C1),
    ("", 0x5A68F3B1643C966F),
    ("a", 0x0B507C7A858D4C7B),
    ("ключ", 0x17184BF213D38EDE),
    ("\ud800", 0x51258627657CF7D1),
    (b"", 0x3A20F67FD6ABB44E),
    (b"a", 0x531AAEB9C96F2EAD),
    ((), 0x0000000000000004),
    ((1,), 0x3817EDDDF9257651),
    (("a", 1, None), 0x17420D03E93220F3),
    (((1,), 2), 0x062FADA82BF28EEC),
]

WIDTHS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def hashes(values: list[Any], kind: pa.DataType) -> list[int]:
    return [int(each) for each in hash_columns([pa.array(values, kind)], as_tuple=False)]


@pytest.mark.parametrize(("key", "expected"), VECTORS)
def test_vectors_never_change(key: Any, expected: int) -> None:
    """State is found again after any upgrade."""
    assert stable_hash(key) == expected


def test_every_process_hashes_alike() -> None:
    """Python's own hash differs with PYTHONHASHSEED; this one does not."""
    program = "from cutline.snapshot.channel.key_hash import stable_hash; print(stable_hash(('word', 7, b'x', None)))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[3],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{stable_hash(('word', 7, b'x', None))}\n"}


@pytest.mark.parametrize("kind", WIDTHS, ids=str)
@given(data=st.data())
def test_integers_of_any_width_hash_as_python_ints(kind: pa.DataType, data: st.DataObject) -> None:
    """A column, its nulls and slices of it included, hashes to what each value hashes to alone."""
    bits = kind.bit_width
    signed = pa.types.is_signed_integer(kind)
    bounds = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)
    values = data.draw(st.lists(st.none() | bounds, max_size=20))
    assert hashes(values, kind) == [stable_hash(value) for value in values]
    sliced = pa.array(values, kind).slice(1)
    assert hash_columns([sliced], as_tuple=False).tolist() == [stable_hash(value) for value in values[1:]]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@given(values=st.lists(st.none() | st.text(st.characters(codec="utf-8")), max_size=20))
def test_text_columns_hash_as_str(kind: pa.DataType, values: list[str | None]) -> None:
    """In every layout that Arrow has for text."""
    assert hashes(values, kind) == [stable_hash(value) for value in values]


@pytest.mark.parametrize("kind", BYTES, ids=str)
@given(values=st.lists(st.none() | st.binary(), max_size=20))
def test_binary_columns_hash_as_bytes(kind: pa.DataType, values: list[bytes | None]) -> None:
    """In every layout that Arrow has for bytes."""
    assert hashes(values, kind) == [stable_hash(value) for value in values]


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8")), st.booleans())))
def test_several_columns_hash_as_tuples(rows: list[tuple[int, str, bool]]) -> None:
    """One column asked for as a tuple is a tuple of one."""
    columns = [
        pa.array([row[number] for row in rows], kind)
        for number, kind in enumerate((pa.int64(), pa.string(), pa.bool_()))
    ]
    assert hash_columns(columns, as_tuple=True).tolist() == [stable_hash(row) for row in rows]
    assert hash_columns(columns[:1], as_tuple=True).tolist() == [stable_hash(row[:1]) for row in rows]


@pytest.mark.parametrize("values", [["a", None, "b"], [b"a", None, b"b"], [7, None, -1]], ids=str)
def test_dictionaries_hash_as_their_values(values: list[Any]) -> None:
    """Whatever the dictionary holds twice, in vain, or as null."""
    indices = pa.array([0, 1, 2, None, 3, 0], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array([*values, values[0], values[2]]))
    expected = [stable_hash(value) for value in (*values, None, values[0], values[0])]
    assert hash_columns([column], as_tuple=False).tolist() == expected
    assert hash_columns([column[3:]], as_tuple=False).tolist() == expected[3:]


def test_long_columns_hash_as_short_ones() -> None:
    """Rows are mixed a block at a time; no block is left out or mixed twice."""
    values = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 40_001)
    hashed = hash_columns([pa.array(values)], as_tuple=False)
    assert hashed.tolist() == [stable_hash(value) for value in values.tolist()]
    assert values[0] == pa.array(values)[0].as_py()  # what was hashed is not changed


@pytest.mark.parametrize(
    ("index", "count"),
    [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 32_768), (pa.uint16(), 65_536)],
    ids=str,
)
def test_a_full_dictionary_and_a_null_hash_as_single_values(index: pa.DataType, count: int) -> None:
    """Every number of the index is in use, so none is left for null."""
    places = pa.array([0, None, count - 1], index)
    column = pa.DictionaryArray.from_arrays(places, pa.array([str(number) for number in range(count)]))
    hashed = hash_columns([column], as_tuple=False)
    assert hashed.tolist() == [stable_hash(key) for key in ("0", None, str(count - 1))]


def test_null_columns_hash_as_none() -> None:
    """A column of type null has the key None in every row."""
    assert hashes([None, None], pa.null()) == [stable_hash(None)] * 2


@pytest.mark.parametrize("key", [1.0, 1j, [1], {"a": 1}, object(), (1, 2.0), ((None, [1]),), frozenset()])
def test_other_keys_are_refused(key: Any) -> None:
    """By the name of their type, inside tuples too."""
    with pytest.raises(TypeError, match="cannot be a key: keys are None, bool, int, str, bytes and tuples"):
        stable_hash(key)


@pytest.mark.parametrize("kind", [pa.float64(), pa.date32(), pa.decimal128(5, 2), pa.list_(pa.int8())], ids=str)
def test_other_columns_are_refused(kind: pa.DataType) -> None:
    """What a row could not have as a key, a column cannot either."""
    with pytest.raises(TypeError, match="cannot be a key"):
        hashes([], kind)


@given(
    st.lists(st.sampled_from([key for key, _ in VECTORS]), max_size=5) | st.lists(st.text()) | st.lists(st.integers())
)
def test_many_keys_hash_as_each(found: list[Any]) -> None:
    """A row lies where the message of its key went, whatever keys are encoded beside it."""
    assert hash_keys(found).tolist() == [stable_hash(key) for key in found]


@pytest.mark.parametrize("found", [["a", 1.0], [("a", 1), ("b", [])], [("a",), {}]])
def test_many_keys_refuse_what_one_refuses(found: list[Any]) -> None:
    """A float is no key beside others either."""
    with pytest.raises(TypeError, match="cannot be a key"):
        hash_keys(found)
