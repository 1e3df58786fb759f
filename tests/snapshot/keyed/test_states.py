"""The rules of states that users meet: names, keys, values, errors, iteration, bulk calls."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutline.snapshot.errors import GraphError, NodeError, RestoreRefused
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask


def test_asking_again_gives_the_same_object() -> None:
    """The same arguments give the same state; another kind, ttl or function under the name is refused by name."""
    subtask = KeyedSubtask()
    assert subtask.value("s", 5) is subtask.value("s", 5.0)
    assert subtask.reducing("sum") is subtask.reducing("sum")
    for other in (
        lambda: subtask.map("s"),
        lambda: subtask.value("s"),
        lambda: subtask.reducing("max"),
        lambda: subtask.reducing(max),
    ):
        with pytest.raises(NodeError, match=r"node\[0\]: state '[sr]': it is .* needs another name"):
            other()


def test_states_are_asked_for_in_open() -> None:
    """Behind open an old name still gives its state, and a new name is refused."""
    subtask = KeyedSubtask()
    state = subtask.value("old")
    subtask.states.opened()
    assert subtask.value("old") is state
    with pytest.raises(NodeError, match="state 'new': a node asks for its states in open"):
        subtask.value("new")


@pytest.mark.parametrize("name", ["", " ", "#timers", 7, None])
def test_a_name_is_a_text(name: Any) -> None:
    """Blank names, names of the system and other types are refused."""
    with pytest.raises(NodeError, match="name of a state is a str"):
        KeyedSubtask().value(name)


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan"), "1", True])
def test_a_time_to_live_is_a_number(ttl: Any) -> None:
    """It is a finite number above 0."""
    with pytest.raises(NodeError, match="ttl is a number of seconds above 0"):
        KeyedSubtask().value("v", ttl)


def test_plus_is_known() -> None:
    """A function's name is one of four."""
    with pytest.raises(NodeError, match="one of sum, min, max, count, not 'avg'"):
        KeyedSubtask().reducing("avg")  # type: ignore[arg-type]


def test_who_may_have_keyed_state() -> None:
    """A node of several subtasks without a hash input may not, because nothing decides which of them has a key."""
    KeyedSubtask(parallelism=1, edge_keys=()).value()
    KeyedSubtask(parallelism=2).value()
    with pytest.raises(GraphError, match=r"node\[0\]: state 'v': a node of parallelism 2 needs an input with a key"):
        KeyedSubtask(parallelism=2, edge_keys=()).value()


def test_nobody_has_keyed_state_where_a_cut_is_no_moment() -> None:
    """A row would belong to messages of several snapshots (PROTOCOL 13.9). Another start would find the same."""
    subtask = KeyedSubtask(has_epochs=True)
    with pytest.raises(GraphError, match=r"node\[0\]: state 'v': in mode 'monoidClocks' no node between sources and"):
        subtask.value()
    assert isinstance(subtask.states.refusal, GraphError)


CALLS: list[Callable[[KeyedSubtask], Any]] = [
    lambda s: s.value().get(),
    lambda s: s.value().update(1),
    lambda s: s.value("t", 5).get(),
    lambda s: s.value("t", 5).update(1),
    lambda s: s.value().exists(),
    lambda s: s.value().clear(),
    lambda s: s.reducing().add(1),
    lambda s: s.reducing().get(),
    lambda s: s.list().get(),
    lambda s: s.list().appendValue(1),
    lambda s: s.list().put([1]),
    lambda s: s.map().getValue(1),
    lambda s: s.map().updateValue(1, 1),
    lambda s: s.map().keys(),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_call_for_one_key_needs_a_current_key(number: int) -> None:
    """Without one it is refused, although None has a value, because None is a key too."""
    subtask = KeyedSubtask()
    with subtask.key(None):
        subtask.value().update("of None")
        subtask.value("t", 5).update("of None")
        subtask.reducing().add(1)
    with pytest.raises(NodeError, match=r"there is no current key here: use getAll, .* or items"):
        CALLS[number](subtask)
    assert subtask.value().getAll([None]) == ["of None"]


def test_values_are_copies() -> None:
    """A node may change what it stored and what it got; only a call that stores changes the state."""
    subtask = KeyedSubtask()
    value, items, entries = subtask.value(), subtask.list(), subtask.map()
    original = [1, [2]]
    with subtask.key("k"):
        value.update(original)
        items.appendValue(original)
        entries.updateValue("e", original)
        original[1].append(3)  # type: ignore[attr-defined]
        for read in (value.get, lambda: items.get()[0], lambda: entries.getValue("e"), lambda: entries.values()[0]):
            read()[1].append(4)
            assert read() == [1, [2]]
        items.get().append("no item")
        assert len(items.get()) == 1


def test_a_row_holds_atoms_as_they_are_and_all_else_as_bytes() -> None:
    """So bytes in memory always means encoded. No row is tracked by the collector."""
    subtask = KeyedSubtask()
    value = subtask.value()
    for number, each in enumerate([True, 1, 2**70, 1.5, "text", b"bytes", [1], {"a": 1}, (1,), {1}, np.int64(3)]):
        with subtask.key(number):
            value.update(each)
            assert value.get() == each and type(value.get()) is type(each)
    rows = subtask.rows()["v"]
    assert [type(stored) for stored in rows.values()] == [bool, int, int, float, str] + 6 * [bytes]
    assert not any(map(gc.is_tracked, rows.values()))


def test_keys_are_those_of_the_hash() -> None:
    """True is 1. A float is refused everywhere, because 1.0 finds 1 in a dict and nowhere else."""
    subtask = KeyedSubtask()
    value, entries = subtask.value(), subtask.map()
    value.updateAll([1, "1", b"1", (1, None), None], list("abcde"))
    assert value.getAll([True, "1", b"1", (True, None), None]) == list("abcde")
    assert value.getAll([np.int64(1), np.str_("1"), np.bytes_(b"1")]) == list("abc")
    with subtask.key(True):
        entries.updateValue(True, "x")
        assert (value.get(), entries.getValue(1)) == ("a", "x")
        for call in (entries.getValue, entries.containsKey, entries.removeKey, lambda k: entries.updateValue(k, 1)):
            with pytest.raises(NodeError, match="float cannot be a key"):
                call(1.0)
    for keys in ([1.0], [(1, 1.0)], [np.float64(1)], pa.array([1.0]), np.array([1.0]), [[1]]):
        for bulk in (value.getAll, value.clearAll, lambda k: value.updateAll(k, [1])):
            with pytest.raises(NodeError, match="cannot be a key"):
                bulk(keys)
    assert subtask.rows() == {"v": {1: "a", "1": "b", b"1": "c", (1, None): "d", None: "e"}, "m": {1: {1: "x"}}}


def test_bulk_calls_take_columns() -> None:
    """Rows hold Python values, of equal keys the last counts, and a list of columns makes keys of tuples."""
    subtask = KeyedSubtask()
    value = subtask.value()
    value.updateAll(pa.array([1, 2, 1], pa.int8()), np.array([10, 20, 30]))
    value.updateAll([pa.array(["a", "b"]), np.array([1, 2])], pa.chunked_array([["x"], ["y"]]))
    assert value.getAll(np.array([2, 1, 3])) == [20, 30, None]
    assert value.getAll([("a", 1), ("b", 2)]) == ["x", "y"]
    rows = subtask.rows()["v"]
    assert {type(part) for key in rows for part in (key if type(key) is tuple else (key,))} == {int, str}
    assert set(map(type, rows.values())) == {int, str}
    value.clearAll(pa.array([1, 7]))
    assert subtask.rows() == {"v": {1: None}}


@pytest.mark.parametrize(
    ("keys", "values", "why"),
    [
        ([1, 2], [1], "2 keys and 1 values"),
        ("ab", [1, 2], "not one str"),
        ([1], "a", "not one str"),
        (7, [1], "int"),
        ([1], 7, "int"),
        ([pa.array([1]), pa.array([1, 2])], [1], "zip"),
    ],
)
def test_bulk_calls_refuse_what_is_no_column(keys: Any, values: Any, why: str) -> None:
    """By an error that names the state."""
    with pytest.raises(NodeError, match=f"state 'v'.*{why}"):
        KeyedSubtask().value().updateAll(keys, values)


def test_adding_in_bulk_goes_by_rows_and_skips_nulls() -> None:
    """The function need not commute; a null adds nothing, and updateAll refuses it."""
    subtask = KeyedSubtask()
    joined = subtask.reducing(lambda total, added: total + added, "joined")
    joined.addAll(["k", "k", "j", "k"], pa.array(["a", "b", None, "c"]))
    assert joined.getAll(["k", "j"]) == ["abc", None]
    with pytest.raises(NodeError, match="state 'v', key 2: None is no value"):
        subtask.value().updateAll([1, 2], pa.array([1, None]))


def test_named_functions_take_numbers() -> None:
    """Numbers of NumPy become Python's; count counts whatever is added; the first value is stored as it is."""
    subtask = KeyedSubtask()
    total, least, most = subtask.reducing("sum", "s"), subtask.reducing("min", "a"), subtask.reducing("max", "b")
    count = subtask.reducing("count", "c")
    with subtask.key("k"):
        assert (total.get(), count.get()) == (None, None)
        for value in (3, True, np.int64(-2), np.float64(0.5)):
            for state in (total, least, most, count):
                state.add(value)
        count.add("text")
        assert [state.get() for state in (total, least, most, count)] == [2.5, -2, 3, 5]
        for state in (total, least, most):
            with pytest.raises(NodeError, match=r"key 'k': '(sum|min|max)' adds numbers, not a str"):
                state.add("text")
        with pytest.raises(NodeError, match="None is no value that can be added"):
            count.add(None)
    assert {type(stored) for rows in subtask.rows().values() for stored in rows.values()} == {int, float}


def test_a_function_that_fails_is_named() -> None:
    """An error of the function names state and key; so does a result that cannot be stored."""
    subtask = KeyedSubtask()
    broken = subtask.reducing(lambda total, added: total / added, "broken")
    empty = subtask.reducing(lambda total, added: None, "empty")
    with subtask.key("k"):
        for state, why in ((broken, "ZeroDivisionError"), (empty, "None is no value")):
            state.add(0)
            with pytest.raises(NodeError, match=f"key 'k': .*{why}"):
                state.add(0)
            assert state.get() == 0


class Changed:
    """A class whose later version does not read what the former has stored."""

    def __init__(self) -> None:
        self.field = 1


def refuse(instance: Changed, state: object) -> None:
    """Refuse any state."""
    raise ValueError(f"a state of another version: {state}")


def test_a_value_that_cannot_be_read_is_named() -> None:
    """By state and key, in each kind that holds values."""
    subtask = KeyedSubtask()
    value, items, entries = subtask.value(), subtask.list(), subtask.map()
    joined = subtask.reducing(lambda total, added: added)
    with subtask.key("k"):
        value.update(Changed())
        joined.add(Changed())
        items.appendValue(Changed())
        entries.updateValue("e", Changed())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Changed, "__setstate__", refuse, raising=False)
            reads: list[Callable[[], object]]
            reads = [value.get, joined.get, items.get, lambda: entries.getValue("e"), entries.values]
            for read, name in zip(reads, "vrlmm", strict=True):
                with pytest.raises(NodeError, match=rf"node\[0\]: state '{name}', key 'k': .*cannot be unpickled here"):
                    read()


def test_items_end_with_their_hook_and_with_a_change() -> None:
    """Both are errors by name; a new call of items serves."""
    subtask = KeyedSubtask()
    value, entries, items = subtask.value(), subtask.map(), subtask.list()
    with subtask.key("k"):
        entries.updateValue("e", 1)
        items.put([1, 2])
    value.updateAll([1, 2, 3], list("abc"))
    assert dict(entries.items()) == {"k": {"e": 1}}
    assert dict(items.items()) == {"k": [1, 2]}
    found = value.items()
    assert dict(found) == {1: "a", 2: "b", 3: "c"}
    changes: list[Callable[[], None]] = [
        lambda: value.updateAll([1], ["b"]),
        lambda: value.clearAll([1]),
        lambda: value.updateAll([9], [9]),
    ]
    for change in changes:
        found = value.items()
        next(found)
        change()
        with pytest.raises(NodeError, match="state 'v': the state has changed since items was called"):
            next(found)
    found = value.items()
    with subtask.key(1), pytest.raises(NodeError, match="valid only in the hook that called items"):
        next(found)
    with subtask.key(2):
        found = value.items()
        value.update("changed")
        with pytest.raises(NodeError, match="has changed"):
            next(found)


def test_another_kind_under_a_stored_name_is_refused() -> None:
    """A restore names both kinds."""
    first = KeyedSubtask()
    first.value("s").updateAll([1], [2])
    segment = first.capture_segment()
    assert segment is not None
    with pytest.raises(RestoreRefused, match=r"node\[0\]: state 's' is VALUE in the snapshot and MAP in the node"):
        KeyedSubtask(segments=[segment]).map("s")
