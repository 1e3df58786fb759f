"""Groups by key columns: distinct keys, nulls included, of every type and layout."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.columns import group_keys
from cutline.snapshot.columns.group_keys import GroupKeys, key_type
from cutline.snapshot.errors import NodeError

TEXT = st.none() | st.sampled_from(["", "a", "b", "\u00fc", "longer than twelve bytes"])
BYTES = st.none() | st.sampled_from([b"", b"a", b"\xff" * 20])
DICTIONARY = pa.dictionary(pa.int8(), pa.string())

#: {type of a column: its values}
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.none() | st.integers(-2, 2),
    pa.int64(): st.none() | st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.none() | st.integers(0, 2**64 - 1),
    pa.bool_(): st.none() | st.booleans(),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view(), DICTIONARY), TEXT),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), BYTES),
    pa.binary(2): st.none() | st.sampled_from([b"ab", b"cd"]),
    pa.dictionary(pa.int32(), pa.int64()): st.none() | st.integers(0, 3),
}


@pytest.mark.parametrize(
    "kinds", [*((kind,) for kind in VALUES), (pa.string(), pa.int64()), (pa.bool_(),) * 3], ids=str
)
@given(data=st.data())
def test_a_key_has_one_number(kinds: tuple[pa.DataType, ...], data: st.DataObject) -> None:
    """Rows are of one group where their keys are equal, in whatever batch they come; the keys can be told."""
    keys = GroupKeys([key_type(kind) for kind in kinds])
    model: dict[int, Any] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=12))
        columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)]
        start = data.draw(st.integers(0, len(rows)))
        numbers = keys.numbers([column[start:] for column in columns]).tolist()
        for number, row in zip(numbers, rows[start:], strict=True):
            assert model.setdefault(number, row) == row
    described = list(zip(*(column.to_pylist() for column in keys.columns()), strict=True))
    assert described == [model[number] for number in range(len(model))]
    assert len(dict.fromkeys(described)) == len(described)
    assert [column.type for column in keys.columns()] == [key_type(kind) for kind in kinds]


def test_what_only_a_dictionary_holds_is_no_group() -> None:
    """A part of a batch carries the dictionary of the whole."""
    keys = GroupKeys([pa.string()])
    column = pa.array(["a", "b", "c", None]).dictionary_encode()
    assert keys.numbers([column[2:3]]).tolist() == [0]
    assert keys.columns()[0].to_pylist() == ["c"]
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["c", None, "c"]))
    assert keys.numbers([hidden]).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("index", "count"),
    [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 32_768), (pa.uint16(), 65_536)],
    ids=str,
)
@pytest.mark.parametrize("kind", [pa.string(), pa.int32()], ids=str)
def test_a_full_dictionary_and_a_null_are_groups(kind: pa.DataType, index: pa.DataType, count: int) -> None:
    """Every number of the index is in use, so none is left for null."""
    values = pa.array(range(count)).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([count - 1, None, 0, None, count - 1], index), values)
    keys = GroupKeys([key_type(column.type)])
    numbers = keys.numbers([column]).tolist()
    groups = keys.columns()[0].to_pylist()
    assert len(groups) == 3
    assert [groups[number] for number in numbers] == column.to_pylist()


@pytest.mark.parametrize("kind", [pa.float64(), pa.date32(), pa.null(), pa.list_(pa.int8())], ids=str)
def test_other_types_are_no_keys(kind: pa.DataType) -> None:
    """They are refused by name, as a hash edge refuses them."""
    with pytest.raises(TypeError, match="cannot be a key"):
        key_type(kind)


def test_too_many_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than joined with others."""
    monkeypatch.setattr(group_keys, "GROUPS_MAX", 2)
    keys = GroupKeys([pa.int64()])
    keys.numbers([pa.array([1, 2])])
    with pytest.raises(NodeError, match="more than 2 groups"):
        keys.numbers([pa.array([3])])
