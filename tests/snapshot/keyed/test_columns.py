"""Totals by the column: the rows are those of dicts, a capture sees one moment, keys have one form, sums are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutline.snapshot.columns import slot_blocks
from cutline.snapshot.errors import NodeError, RestoreRefused
from cutline.snapshot.keyed.column_table import ColumnTable
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.dirty_columns import DirtyColumns
from cutline.snapshot.keyed.encoding import encoding
from cutline.snapshot.keyed.row_store import Steps
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.state import ReducingState
from tests.snapshot.keyed.keyed_subtask import CODEC, KeyedSubtask

BLOCK = slot_blocks.BLOCK_SLOTS
_LARGE = 1 << 62


def batched(*segments: Segment | None, now: float = 0.0) -> KeyedSubtask:
    """A subtask whose node gets batches."""
    return KeyedSubtask(segments=[each for each in segments if each is not None], now=now, is_batched=True)


def table_of(state: ReducingState) -> ColumnTable:
    """The table of a state, which is kept by the column."""
    table = state._table  # type: ignore[attr-defined]
    assert isinstance(table, ColumnTable)
    return table


def rows(segment: Segment | None, name: str = "r") -> dict[Any, Any]:
    """The rows of a segment."""
    found: dict[Any, Any] = {}
    for keys, _, values, _ in rows_of(segment, name) if segment is not None else ():
        found.update(zip(keys, values, strict=True))
    return found


def finish(steps: Steps[Segment]) -> Segment:
    """Encode the rest."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            segment: Segment = stop.value
            return segment


def test_who_keeps_totals_by_the_column() -> None:
    """A named reduction of a node that gets batches; a function, a value and other nodes have dicts."""
    for is_batched, plus, by_column in ((True, "sum", True), (True, max, False), (False, "sum", False)):
        state = KeyedSubtask(is_batched=is_batched).reducing(plus)  # type: ignore[arg-type]
        assert isinstance(state._table, ColumnTable) == by_column  # type: ignore[attr-defined]


INTEGERS = [3, None, -7, 2, 5]
FLOATS = [0.5, None, float("nan"), -2.0, 1.25]


@pytest.mark.parametrize(
    ("plus", "values"), [(plus, values) for plus in ("sum", "min", "max", "count") for values in (INTEGERS, FLOATS)]
)
def test_columns_reduce_as_dicts_do(plus: Any, values: list[Any]) -> None:
    """Totals, types and absent keys are alike, for columns and for lists; a snapshot of either restores the other."""
    keys = ["a", "b", "b", "b", "a"]
    segments = []
    for is_batched in (True, False):
        subtask = KeyedSubtask(is_batched=is_batched)
        state = subtask.reducing(plus)
        state.addAll(pa.array(keys), pa.array(values))
        state.addAll(keys, values)
        shown = [repr(each) for each in state.getAll(["a", "b", "c"])]
        with subtask.key("b"):
            assert repr(state.get()) == shown[1]
        assert repr(sorted(state.items())) == f"[('a', {shown[0]}), ('b', {shown[1]})]"
        segments.append((subtask.capture_segment(), shown))
    assert segments[0][1] == segments[1][1]
    for segment, shown in segments:
        for is_batched in (True, False):
            again = KeyedSubtask(segments=[segment] if segment else [], is_batched=is_batched).reducing(plus)
            assert [repr(each) for each in again.getAll(["a", "b", "c"])] == shown


def test_totals_are_stored_with_nine_bytes() -> None:
    """MessagePack int64 or float64, by the column."""
    for values, first in (([1, 2], 0xD3), ([0.5, 1.5], 0xCB)):
        subtask = batched()
        subtask.reducing().addAll(["a", "b"], values)
        segment = subtask.capture_segment()
        assert segment is not None
        stored = segment.rows.column("value").to_pylist()
        assert [(len(value), value[0]) for value in stored] == [(9, first)] * 2


KEYS = [
    1,
    True,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    2**70,
    None,
    "a",
    "",
    "\ud800",
    b"a",
    (1,),
    (1, "a"),
    (b"a", 1),
    (),
    ((1,),),
]


def test_a_key_has_one_slot_in_every_form() -> None:
    """A list, a column of any type, one key of a mixed list and a key of a hook are one key."""
    subtask = batched()
    state = subtask.reducing("count")
    for key in KEYS:
        state.addAll([key], [1])
        state.addAll([key, "other"], [1, None])
        with subtask.key(key):
            state.add(1)
    ones: list[Any] = [
        *(pa.array([1], kind) for kind in (pa.int8(), pa.uint8(), pa.int64(), pa.uint64())),
        *(np.array([1], np.int16), np.array([True]), pa.array([True]), pa.chunked_array([[1]]), (1,), range(1, 2)),
        *(pa.array([1]).dictionary_encode(), pa.array([1, None])[:1]),
    ]
    texts: list[Any] = [pa.array(["a"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    texts += [pa.array(["a"]).dictionary_encode(), np.array(["a"]), np.array(["a"], object)]
    for column in ones + texts:
        state.addAll(column, [1])
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)):
        state.addAll(pa.array([b"a"], kind), [1])
    state.addAll(pa.array([None, 2**63], pa.uint64()), [1, 1])
    mixed = pa.array([2**63, 1, None, 1], pa.uint64())  # some of its keys have no column of their own
    state.addAll(mixed, [1] * 4)
    state.addAll([pa.array([1], pa.int8()), pa.array(["a"])], [1])
    state.addAll([(1, "a")], [1])
    counts = dict.fromkeys(KEYS, 3)
    counts |= {1: 8 + len(ones), "a": 3 + len(texts), b"a": 7, None: 5, 2**63: 5, (1, "a"): 5}
    assert dict(state.items()) == counts
    assert rows(subtask.capture_segment()) == counts
    assert state.getAll(KEYS) == [counts[key] for key in KEYS]
    assert state.getAll(mixed) == [counts[key] for key in (2**63, 1, None, 1)]


def test_what_is_no_key_or_no_number_is_refused_by_name() -> None:
    """The error names state and key, and nothing was added."""
    state = batched().reducing()
    state.addAll(["k"], [1])
    for keys in ([1.0], pa.array([1.5]), np.array([1.5]), [(1, 1.0)], [[1]]):
        with pytest.raises(NodeError, match="cannot be a key"):
            state.addAll(keys, [1])
    for values, why in (
        (["x"], "adds numbers: a str is no number"),
        ([b"x"], "adds numbers: a bytes is no number"),
    ):
        with pytest.raises(NodeError, match=rf"node\[0\]: state 'r', key 'k': .*{why}"):
            state.addAll(["k"], values)
    with pytest.raises(NodeError, match="2 keys and 1 values"):
        state.addAll(["k", "l"], [1])
    with pytest.raises(NodeError, match="rows"):
        state.addAll([pa.array([1]), pa.array([1, 2])], [1])
    for long in ("x" * 70_000, ("x" * 40_000, b"y" * 40_000), [pa.array(["x" * 70_000]).dictionary_encode()]):
        with pytest.raises(NodeError, match=r"the key has .* bytes; at most"):
            state.addAll(long if isinstance(long, list) else [long], [1])
    assert dict(state.items()) == {"k": 1}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_64_bits_is_exact(sign: int) -> None:
    """As sums of single keys are. Sums at the limit stay in the column."""
    state = batched().reducing()
    limit = 2**63 - 1 if sign > 0 else -(2**63)
    state.addAll(["a", "b", "c"], [limit, 1, sign * _LARGE])
    state.addAll(["c", "b", "c"], [limit - sign * _LARGE - sign, 1, 0])
    assert table_of(state)._blocks.columns[0].dtype == np.int64
    state.addAll(["b", "c", "c"], [5, sign, sign])
    assert dict(state.items()) == {"a": limit, "b": 7, "c": limit + sign}


def test_a_restored_total_counts_for_the_sum() -> None:
    """The first sum that is added to a restored total does not wrap either."""
    first = batched()
    first.reducing().addAll(["a"], [2**63 - 1])
    state = batched(first.capture_segment()).reducing()
    state.addAll(["a"], [1])
    assert state.getAll(["a"]) == [2**63]


def test_a_total_leaves_its_column_while_a_capture_waits() -> None:
    """The capture has the totals as they were, and the next one those that changed."""
    subtask = batched()
    state = subtask.reducing()
    state.addAll(["a", "b"], [1, 2])
    first = subtask.capture()
    assert first is not None
    state.addAll(["a"], [2**70])
    assert rows(finish(encoding(first, CODEC))) == {"a": 1, "b": 2}
    assert {key: CODEC.decode(value) for key, value in rows(subtask.capture_segment()).items()} == {"a": 2**70 + 1}
    state.clearAll(["b"])
    state.addAll(["b"], [0.5])
    assert repr(state.getAll(["a", "b"])) == f"[{2**70 + 1}, 0.5]"


#: numbers that are added to two keys one after the other, and cross the limits of columns
CROSSING = [
    [2**53 + 1, 0.5, 1, 1],
    [0.5, 2**53 + 1, 1, 1],
    [2**63 - 1, 1, 2**63 - 1, -3],
    [2**70, -(2**70), 1, 0.25],
    [-0.0, -0.0, 0, 5],
    [float("nan"), 1, 2**64, -1.5],
    [1, 2, 3, 1e300],
]


@pytest.mark.parametrize(
    ("plus", "numbers"), [(plus, numbers) for plus in ("sum", "min", "max", "count") for numbers in CROSSING]
)
def test_named_functions_mean_the_same_everywhere(plus: Any, numbers: list[Any]) -> None:
    """By single keys, by bulk calls, by the column, in pieces, and restored from either form into either form."""
    keys = ["a", "b", "a", "b"]
    one_by_one = KeyedSubtask()
    state = one_by_one.reducing(plus)
    for key, number in zip(keys, numbers, strict=True):
        with one_by_one.key(key):
            state.add(number)
    expected = repr(state.getAll(["a", "b"]))
    segments = [one_by_one.capture_segment()]
    for is_batched in (True, False):
        for step in (1, 2, 4):
            subtask = KeyedSubtask(is_batched=is_batched)
            state = subtask.reducing(plus)
            for start in range(0, 4, step):
                state.addAll(keys[start : start + step], numbers[start : start + step])
            assert repr(state.getAll(["a", "b"])) == expected
            segments.append(subtask.capture_segment())
    for segment in segments:
        for is_batched in (True, False):
            again = KeyedSubtask(segments=[segment] if segment else [], is_batched=is_batched)
            assert repr(again.reducing(plus).getAll(["a", "b"])) == expected


def test_a_capture_sees_one_moment() -> None:
    """Writes before, between and behind the copies of a storage thread are in the next capture only."""
    subtask = batched()
    state = subtask.reducing()
    count = 3 * BLOCK
    keys = np.arange(count)
    state.addAll(keys, np.ones(count, np.int64))
    first = subtask.capture()
    assert first is not None and subtask.capture() is None
    state.addAll(keys[:1], [10])  # copies the first block
    steps = encoding(first, CODEC)
    for _ in range(2):
        next(steps)
    state.addAll(keys[BLOCK : BLOCK + 1], [10])  # copied by the encoding
    state.addAll(keys[-1:], [10])
    second = subtask.capture()
    state.addAll(keys[::BLOCK], [100] * 3)
    state.addAll(np.arange(9 * BLOCK), np.zeros(9 * BLOCK, np.int64))  # new arrays
    state.clearAll(keys[:1])
    assert second is not None
    assert rows(finish(steps)) == dict.fromkeys(range(count), 1)
    assert rows(finish(encoding(second, CODEC))) == {0: 11, BLOCK: 11, count - 1: 11}
    third = rows(subtask.capture_segment())
    assert {key: third[key] for key in (0, BLOCK, 2 * BLOCK, count - 1)} == {
        0: None,
        BLOCK: 111,
        2 * BLOCK: 101,
        count - 1: 11,
    }


def test_a_write_during_a_copy_does_not_reach_the_capture() -> None:
    """The storage thread's copy is dropped where a write has kept one meanwhile."""
    subtask = batched()
    state = subtask.reducing()
    state.addAll(["k"], [1])
    captured = subtask.capture()
    assert captured is not None and isinstance(captured.tables[0], DirtyColumns)
    inner = captured.tables[0].captured

    class Interrupted(dict[int, Any]):
        def setdefault(self, block: int, copy: Any = None, /) -> Any:
            if not self:
                self[-1] = None
                state.addAll(["k"], [5])
            return super().setdefault(block, copy)

    inner._copies = Interrupted()
    assert rows(finish(encoding(captured, CODEC))) == {"k": 1}
    assert state.getAll(["k"]) == [6]


def test_a_stored_capture_is_given_up() -> None:
    """No write copies for it any more."""
    subtask = batched()
    state = subtask.reducing()
    state.addAll(["k"], [1])
    subtask.capture_segment()
    state.addAll(["k"], [1])
    assert table_of(state)._blocks._waiting == []


def test_marks_begin_anew_after_many_captures() -> None:
    """The number of an interval has one byte."""
    subtask = batched()
    state = subtask.reducing()
    for number in range(600):
        state.addAll([number % 7], [1])
        assert list(rows(subtask.capture_segment())) == [number % 7]


def test_a_cleared_total_leaves_a_tombstone() -> None:
    """Unless it was added since the last capture. Added anew, its row replaces the tombstone."""
    subtask = batched()
    state = subtask.reducing()
    state.addAll(["a", "b"], [1, 2])
    subtask.capture()
    state.addAll(["new"], [1])
    state.clearAll(["a", "b", "new", "never"])
    assert state.getAll(["a", "b", "new"]) == [None] * 3
    state.addAll(["b"], [5])
    assert rows(subtask.capture_segment()) == {"a": None, "b": 5}
    state.addAll(["a"], [1])
    with subtask.key("a"):
        state.clear()
    assert subtask.capture() is None
    for keys in (["b"], ["b"]):  # its tombstone is due, also when it came back meanwhile
        state.clearAll(keys)
        state.addAll(keys, [1])
    state.clearAll(["b"])
    assert rows(subtask.capture_segment()) == {"b": None}


def test_a_full_table_that_is_half_dead_is_built_anew() -> None:
    """Tombstones that are due survive, and all other totals keep their keys; the capture before is untouched."""
    subtask = batched()
    state = subtask.reducing()
    table, keys = table_of(state), list(range(BLOCK - 2))
    kept: dict[Any, int] = {"text": 7, (1, "a"): 8}
    state.addAll([*keys, *kept], [*keys, *kept.values()])
    before = subtask.capture()
    state.clearAll(keys[10:])
    subtask.capture()  # tombstones of all but ten
    state.clearAll(keys[8:10])
    state.addAll(["fresh"], [9])
    assert table._blocks.capacity == BLOCK and len(table._keys) == 8 + 2 + 2 + 1
    assert dict(state.items()) == {key: key for key in range(8)} | kept | {"fresh": 9}
    assert rows(subtask.capture_segment()) == {8: None, 9: None, "fresh": 9}
    assert before is not None
    assert rows(finish(encoding(before, CODEC))) == {key: key for key in keys} | kept
    state.clearAll(["fresh"])
    assert rows(subtask.capture_segment()) == {"fresh": None}


def test_a_full_table_that_lives_grows() -> None:
    """All totals stay."""
    state = batched().reducing()
    keys = np.arange(BLOCK + 1)
    state.addAll(keys, keys)
    assert table_of(state)._blocks.capacity == 2 * BLOCK
    assert state.getAll(keys) == keys.tolist()


def test_short_lived_keys_take_no_memory() -> None:
    """Without captures, and with captures, a table keeps no more than twice its live keys and a block."""
    for captures in (False, True):
        subtask = batched()
        state = subtask.reducing()
        for start in range(0, 8 * BLOCK, BLOCK // 2):
            keys = np.arange(start, start + BLOCK // 2)
            state.addAll(keys, keys)
            state.clearAll(keys)
            if captures:
                subtask.capture_segment()
        assert table_of(state)._blocks.capacity == BLOCK


def test_an_expired_total_is_absent_and_swept() -> None:
    """It begins anew when it is added to; a sweep marks it dead without a tombstone, except for a changed row."""
    subtask = batched()
    state = subtask.reducing("sum", "r", 10)
    subtask.states.opened()
    state.addAll(["a", "b", "c"], [1, 2, 3])
    old = subtask.capture_segment()
    subtask.context.now = 5
    state.addAll(["b"], [2])
    state.addAll(["fresh"], [1])
    subtask.context.now = 10
    assert (state.getAll(["a", "b", "c"]), dict(state.items())) == ([None, 4, None], {"b": 4, "fresh": 1})
    state.addAll(["c"], [7])
    assert state.getAll(["c"]) == [7]
    subtask.context.now = 15
    assert table_of(state).sweep(1) == 1
    subtask.states.sweep()
    assert not table_of(state)._blocks.columns[1][[0, 1, 3]].any()
    new = subtask.capture_segment()
    assert rows(new) == {"b": None, "c": 7}
    again = batched(old, new, now=15).reducing("sum", "r", 10)
    assert dict(again.items()) == {"c": 7}
    state.addAll(["a"], [1])
    subtask.context.now = 25
    assert rows(subtask.capture_segment()) == {"a": None}


def test_a_restore_fixes_the_type() -> None:
    """Totals of one class go into a column of it, and others are numbers of Python. What is no number is refused."""
    first = KeyedSubtask()
    total = first.reducing()
    total.addAll(["a", "b"], [1, 2])
    old = first.capture_segment()
    total.addAll(["b"], [0.5])
    new = first.capture_segment()
    assert repr(batched(old, new).reducing().getAll(["a", "b"])) == "[1, 2.5]"
    assert repr(batched(new, old).reducing().getAll(["a", "b"])) == "[1, 2]"
    for value in (2**53 + 1, 2**70):
        total.addAll(["big"], [value])
        big = first.capture_segment()
        assert repr(batched(old, new, big).reducing().getAll(["a", "b", "big"])) == f"[1, 2.5, {value}]"
        total.clearAll(["big"])
    texts = KeyedSubtask()
    texts.reducing(lambda a, b: a + b).addAll(["a"], ["text"])
    with pytest.raises(
        RestoreRefused, match=r"node\[0\]: state 'r': 'sum' adds numbers, and a row holds another value"
    ):
        batched(texts.capture_segment()).reducing()


def test_absent_keys_of_an_empty_state() -> None:
    """Reads and clears before the first number find nothing, and null values are none."""
    subtask = batched()
    state = subtask.reducing()
    state.clearAll(["a"])
    state.addAll(["a"], [None])
    assert (state.getAll(["a", 1]), list(state.items()), subtask.capture()) == ([None, None], [], None)
    with subtask.key("a"), pytest.raises(NodeError, match="None is no value that can be added"):
        state.add(None)


def test_other_keys_may_be_read_while_totals_are_gone_through() -> None:
    """A read of absent keys fills a table of which half is dead. The table grows, and no total is left out."""
    subtask = batched()
    state = subtask.reducing()
    count = 4 * BLOCK
    state.addAll(np.arange(count), np.ones(count, np.int64))
    subtask.capture()
    state.clearAll(np.arange(count // 2 + 10))
    subtask.capture()
    found = []
    for key, _ in state.items():
        found.append(key)
        if len(found) == 5:
            assert state.getAll([count + 1]) == [None]
    assert sorted(found) == list(range(count // 2 + 10, count))


def test_restored_totals_are_as_they_were() -> None:
    """Integers beside floats in one chunk are not rounded, and no float is cut for a count."""
    first = KeyedSubtask()
    first.reducing().addAll(["a", "b"], [2**53 + 1, 0.5])
    assert repr(batched(first.capture_segment()).reducing().getAll(["a", "b"])) == f"[{2**53 + 1}, 0.5]"
    second = KeyedSubtask()
    second.reducing().addAll(["a"], [2.75])
    counts = batched(second.capture_segment()).reducing("count")
    counts.addAll(["a", "b"], ["x", "y"])
    assert repr(counts.getAll(["a", "b"])) == "[3.75, 1]"
