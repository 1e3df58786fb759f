"""What captures take: changed rows once, no row of what came and went between two of them, and no rows that expired."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot.keyed.keyed_states import SWEPT_MAX
from cutline.snapshot.keyed.rows import DirtyTable
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask, dirty_tables, encoded


def tables(subtask: KeyedSubtask) -> tuple[DirtyTable, ...]:
    """The tables of a capture."""
    return dirty_tables(subtask.capture())


def test_a_capture_takes_each_change_once() -> None:
    """A kept method writes to the new dict after a capture; a capture without changes is none."""
    subtask = KeyedSubtask()
    value = subtask.value()
    update = value.update  # kept for ever
    with subtask.key("k"):
        update(1)
        captured = subtask.capture()
        assert captured is not None
        assert subtask.capture() is None
        update(2)
        value.update(3)
    assert [table.rows for table in dirty_tables(captured)] == [{"k": 1}]
    assert subtask.rows() == {"v": {"k": 3}}


def test_kinds_with_sub_keys_write_the_changed_rows_only() -> None:
    """An append writes the new item and the length; a smaller list and a removed entry write tombstones."""
    subtask = KeyedSubtask()
    items, entries = subtask.list(), subtask.map()
    with subtask.key("k"):
        items.put(["a", "b"])
        entries.updateValue("x", 1)
        entries.updateValue("y", 2)
        assert subtask.rows() == {"l": {"k": {0: "a", 1: "b", None: 2}}, "m": {"k": {"x": 1, "y": 2}}}
        items.appendValue("c")
        entries.updateValue("y", 3)
        assert subtask.rows() == {"l": {"k": {2: "c", None: 3}}, "m": {"k": {"y": 3}}}
        items.put(["d"])
        entries.removeKey("x")
        assert subtask.rows() == {"l": {"k": {0: "d", 1: None, 2: None, None: 1}}, "m": {"k": {"x": None}}}
        items.clear()
        entries.clear()
        assert subtask.rows() == {"l": {"k": {0: None, None: None}}, "m": {"k": {"y": None}}}
        items.appendList([])
        items.clear()
        entries.removeKey("y")
    assert subtask.rows() == {}


def test_items_with_a_time_are_rows_too() -> None:
    """Their indexes go on behind items that have expired; the length expires with the newest item."""
    subtask = KeyedSubtask()
    items = subtask.list("l", 10)
    with subtask.key("k"):
        items.appendValue("a")
        subtask.context.now = 5
        items.appendValue("b")
        (table,) = tables(subtask)
        assert (table.rows, table.expiries) == ({"k": {0: "a", 1: "b", None: 2}}, {"k": {0: 10, 1: 15, None: 15}})
        subtask.context.now = 12
        items.appendValue("c")
        (table,) = tables(subtask)
        assert (table.rows, table.expiries) == ({"k": {2: "c", None: 3}}, {"k": {2: 22, None: 22}})
        items.clear()
    assert subtask.rows() == {"l": {"k": {0: None, 1: None, 2: None, None: None}}}


def test_what_comes_and_goes_between_two_captures_leaves_no_row() -> None:
    """A tombstone is written for rows that were captured before, also if they were changed or removed and set anew."""
    subtask = KeyedSubtask()
    value, items, entries = subtask.value(), subtask.list(), subtask.map()
    for kept in (False, True):
        with subtask.key("k"):
            if kept:
                value.update(1)
                items.appendValue(1)
                entries.updateValue("e", 1)
                subtask.capture()
                value.clear()  # set anew below, and still old
            value.update(2)
            items.appendValue(2)
            entries.updateValue("e", 2)
            for state in (value, items, entries):
                state.clear()
        buried = {"v": {"k": None}, "l": {"k": {0: None, 1: None, None: None}}, "m": {"k": {"e": None}}}
        assert subtask.rows() == (buried if kept else {})


def test_short_lived_keys_do_not_gather_without_captures() -> None:
    """With snapshots off, a million sessions take no memory, on a fresh start and after a restore."""
    first = KeyedSubtask()
    first.value().updateAll(["old"], [1])
    segment = first.capture_segment()
    assert segment is not None
    for segments in ([], [segment]):
        subtask = KeyedSubtask(segments=segments)
        value, timed = subtask.value(), subtask.value("t", 1)
        subtask.states.opened()
        for number in range(1_000):
            with subtask.key(number):
                value.update(number)
                value.clear()
                timed.update(number)
            subtask.context.now += 2
            subtask.states.sweep()
        assert subtask.capture() is None


def test_an_expired_row_is_absent_at_once_and_swept_later() -> None:
    """It is absent to every call; a sweep removes some of its rows; a captured one leaves without a tombstone."""
    subtask = KeyedSubtask()
    value, items, entries = subtask.value("v", 10), subtask.list("l", 10), subtask.map("m", 10)
    subtask.states.opened()
    keys = list(range(SWEPT_MAX + 10))
    value.updateAll(keys, keys)
    with subtask.key(1):
        items.appendValue("old")
        entries.updateValue("old", 1)
        subtask.context.now = 5
        items.appendValue("new")
        entries.updateValue("new", 1)
        subtask.capture()
        subtask.context.now = 10
        assert (value.get(), value.exists(), value.getAll([1, 2]), list(value.items())) == (None, False, [None] * 2, [])
        assert (items.get(), entries.keys(), entries.containsKey("old")) == (["new"], ["new"], False)
        subtask.context.now = 15
        assert (items.get(), items.exists(), entries.exists(), list(items.items())) == ([], False, False, [])
    live = value._table.live  # type: ignore[attr-defined]
    subtask.states.sweep()
    assert len(live) == 10
    subtask.states.sweep()
    assert not live
    assert subtask.capture() is None


def test_what_has_expired_at_its_capture_is_stored_as_a_tombstone() -> None:
    """An older row of the key may have a longer time; without the tombstone it would come back."""
    long, short = KeyedSubtask(), None
    with long.key("k"):
        long.value("v", 100).update("old")
    old = long.capture_segment()
    assert old is not None
    short = KeyedSubtask(segments=[old])
    with short.key("k"):
        short.value("v", 1).update("new")
        short.context.now = 50
    new = short.capture_segment()
    assert new is not None
    again = KeyedSubtask(segments=[old, new], now=50)
    assert again.value("v", 100).getAll(["k"]) == [None]


def test_a_changed_time_to_live_counts_for_new_writes() -> None:
    """A row keeps the end of its time, also when the state has no time-to-live any more."""
    first = KeyedSubtask()
    first.value("v", 10).updateAll(["a", "b"], [1, 2])
    with first.key("k"):
        first.list("l", 10).appendValue("old")
        first.map("m", 10).updateValue("e", "old")
    segment = first.capture_segment()
    assert segment is not None
    second = KeyedSubtask(segments=[segment], now=5)
    value, items, entries = second.value("v"), second.list("l"), second.map("m")
    second.states.opened()
    value.updateAll(["b"], [3])
    with second.key("k"):
        items.appendValue("new")
        entries.updateValue("f", "new")
        second.context.now = 10
        assert (value.getAll(["a", "b"]), items.get(), entries.keys()) == ([None, 3], ["new"], ["f"])
        second.context.now = 1e9
        second.states.sweep()
        assert (value.getAll(["a", "b"]), items.get(), entries.keys()) == ([None, 3], ["new"], ["f"])


def test_a_restore_has_the_rows_of_the_states_that_are_asked_for() -> None:
    """Rows of other states are freed when the node is open; the newest segment counts."""
    first = KeyedSubtask()
    value, other = first.value("v"), first.value("other")
    value.updateAll(["a", "b", "c"], [1, [2], 3])
    other.updateAll(["a"], [1])
    segments = [first.capture_segment()]
    value.updateAll(["a"], ["newer"])
    value.clearAll(["c"])
    segments.append(first.capture_segment())
    second = KeyedSubtask(segments=[segment for segment in segments if segment is not None])
    assert second.value("v").getAll(["a", "b", "c"]) == ["newer", [2], None]
    second.states.opened()
    assert second.states._restored is None
    assert second.capture() is None


def test_keyed_timers_are_rows() -> None:
    """Set and deleted between two captures, a timer leaves no row, and a captured one a tombstone when it is gone."""
    subtask = KeyedSubtask()
    timers = subtask.timers
    timers.register(1.0, "a")
    timers.register(2.0, "a")
    timers.delete(2.0, "a")
    timers.register(3.0, None)
    assert subtask.rows() == {"#timers": {"a": {1.0: True}, None: {3.0: True}}}
    timers.delete(1.0, "a")
    timers.register(1.0, "a")
    assert subtask.capture() is None
    assert timers.pop_due(1.0) == (1.0, "a")
    timers.delete(9.0, "a")
    assert subtask.rows() == {"#timers": {"a": {1.0: None}}}


@pytest.mark.parametrize("count", [1, 3])
def test_timers_come_back_from_rows(count: int) -> None:
    """Restored timers are no changed rows, and a timer without a key has no row."""
    first = KeyedSubtask()
    segments: list[Any] = []
    for number in range(count):
        first.timers.register(float(number), "k")
        captured = first.capture()
        assert captured is not None
        segments.append(encoded(captured))
    second = KeyedSubtask(segments=segments)
    assert second.capture() is None
    assert [second.timers.pop_due(9.0) for _ in range(count)] == [(float(number), "k") for number in range(count)]
    second.timers.restore([(6.0, None)])
    assert second.timers.state() == [(6.0, None)]
    assert second.rows() == {"#timers": {"k": dict.fromkeys(map(float, range(count)))}}


def test_unused_sets_are_freed_in_steps() -> None:
    """The keys that a capture makes old are freed by sweeps, because freeing all at once would stop the subtask."""
    subtask = KeyedSubtask()
    value = subtask.value()
    subtask.states.opened()
    assert [subtask.states.needs_sweep] == [False]
    value.updateAll(range(2 * SWEPT_MAX + 1), range(2 * SWEPT_MAX + 1))
    subtask.capture()
    for _ in range(3):
        assert [subtask.states.needs_sweep] == [True]
        subtask.states.sweep()
    assert [subtask.states.needs_sweep] == [False]
