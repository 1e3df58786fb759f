"""Rows of an older version: which values are migrated, and what of a segment stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import NodeError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.key_groups import keyGroup
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.migration import is_stale, migrated, regrouped
from cutline.snapshot.keyed.row_grouping import RowGrouping
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.plan.topology import KEY_GROUPS
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.keyed.histories import CODEC, encoded, rows_in
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask, TierMaker

ALL = range(KEY_GROUPS)
VALUE = StateSpec("value", StateKind.VALUE)
TIMED = StateSpec("timed", StateKind.VALUE, ttl=5.0)
ITEMS = StateSpec("items", StateKind.LIST)
ENTRIES = StateSpec("entries", StateKind.MAP)
TIMERS = StateSpec("#timers", StateKind.TIMERS)
NEW = StateSpec("new", StateKind.VALUE, version=2)


class NoContext:
    """The context outside a hook."""

    key, has_key, now = None, False, 0.0

    def moment(self) -> tuple[int, int]:
        return (0, 0)


OWNER = KeyedStateSettings(Subtask("count", 1), NoContext(), Codec())


def of(*tables: DirtyTable, now: float = 0.0) -> Segment:
    """A segment of a capture."""
    return encoded(CapturedRows(now, ALL, tables))


def wrapped(name: str, value: Any, version: int) -> Any:
    """A migration that shows what it got."""
    return [name, value, version]


def test_each_value_is_migrated_once() -> None:
    """Of each row the newest value, lists by item and without their length, maps by entry. Timers and keys stay."""
    old = of(
        DirtyTable(VALUE, {"a": 1, "b": CODEC.encode([2])}),
        DirtyTable(ITEMS, {"a": {None: 2, 0: "x", 1: "y"}}),
        DirtyTable(ENTRIES, {"a": {"k": 1.5}}),
        DirtyTable(TIMERS, {"a": {7.0: True}}),
        DirtyTable(NEW, {"a": "as it is"}),
    )
    newer = of(DirtyTable(VALUE, {"a": 3, "b": None}))
    calls: list[Any] = []

    def migrate(name: str, value: Any, version: int) -> Any:
        calls.append((name, value, version))
        return wrapped(name, value, version)

    found = migrated([old, newer], 2, migrate, OWNER)
    assert sorted(map(str, calls)) == sorted(
        map(str, [("value", 3, 1), ("items", "x", 1), ("items", "y", 1), ("entries", 1.5, 1)])
    )
    assert {spec.name: spec.version for spec in found.states} == {
        "value": 2, "items": 2, "entries": 2, "new": 2, "#timers": 1,
    }  # fmt: skip
    rows = rows_in([found])
    assert rows == rows_in(
        [
            of(
                DirtyTable(VALUE, {"a": CODEC.encode(["value", 3, 1])}),
                DirtyTable(
                    ITEMS, {"a": {None: 2, 0: CODEC.encode(["items", "x", 1]), 1: CODEC.encode(["items", "y", 1])}}
                ),
                DirtyTable(ENTRIES, {"a": {"k": CODEC.encode(["entries", 1.5, 1])}}),
                DirtyTable(TIMERS, {"a": {7.0: True}}),
                DirtyTable(NEW, {"a": "as it is"}),
            )
        ]
    )  # fmt: skip


def test_expiries_stay_and_expired_rows_go() -> None:
    """A migrated row expires when its value would have expired."""
    rows = DirtyTable(TIMED, {"gone": 1, "there": 2}, {"gone": 3.0, "there": 9.0})
    found = migrated([of(rows), of(DirtyTable(VALUE, {"x": 1}), now=4.0)], 2, wrapped, OWNER)
    timed = found.rows.filter(found.rows.column("expires").is_valid())
    assert timed.column("expires").to_pylist() == [9.0]


@pytest.mark.parametrize("value", [None, object()])
def test_what_cannot_be_stored_is_refused(value: Any) -> None:
    """None is no value. The error names the state and the key."""
    codec = Codec(safe=True)
    owner = KeyedStateSettings(Subtask("count", 1), NoContext(), codec)
    with pytest.raises(NodeError, match=r"count\[1\]: state 'value', key 'a'"):
        migrated([of(DirtyTable(VALUE, {"a": 1}))], 2, lambda *_: value, owner)


def test_a_segment_without_rows_has_the_version_too() -> None:
    """Else the next segment of the state could not be merged with it."""
    found = migrated([of(DirtyTable(VALUE, {"a": None}))], 2, wrapped, OWNER)
    assert (found.rows.num_rows, [spec.version for spec in found.states]) == (0, [2])
    assert [is_stale(spec, 2) for spec in (VALUE, NEW, TIMERS)] == [True, False, False]


def test_rows_lie_by_another_key_of_the_edge() -> None:
    """Rows of the state go to the groups of the new columns. Rows of other states stay where they are."""
    state = StateSpec("groups", StateKind.REDUCING)
    keys = [(f"a{n % 3}", f"b{n % 2}") for n in range(6)]
    by_a = RowGrouping.of_edges(["a"], ("a", "b"), 1)
    by_b = RowGrouping.of_edges(["b"], ("a", "b"), 1)
    table = DirtyTable(state, {key: number for number, key in enumerate(keys)})
    old = of(table, DirtyTable(VALUE, {"x": 1}))
    cases: list[tuple[RowGrouping | None, Callable[[Any], Any]]] = [
        (by_a, itemgetter(0)), (by_b, itemgetter(1)), (None, tuple)
    ]  # fmt: skip
    for grouping, group_of in cases:
        found = regrouped([old], "groups", grouping, ALL)
        assert found.grouped_by == (() if grouping is None else grouping.grouped_by)
        assert rows_in([found]) == rows_in([old])
        groups = found.rows.column("group").to_pylist()
        assert groups == sorted(groups)
        assert sorted(groups) == sorted([*(keyGroup(group_of(key)) for key in keys), keyGroup("x")])


@pytest.mark.parametrize("make_tier", [HeapTier, LateTier], ids=["heap", "cold"])
def test_migrated_rows_are_read_in_both_tiers(make_tier: TierMaker) -> None:
    """A tier restores the migrated segment as any other."""
    old = of(DirtyTable(VALUE, {"a": 1, "b": 2}), DirtyTable(ENTRIES, {"a": {"k": 1.5}}))
    subtask = KeyedSubtask(make_tier, [migrated([old], 2, wrapped, OWNER)])
    value, entries = subtask.value("value"), subtask.map("entries")
    subtask.states.opened()
    assert value.getAll(["a", "b"]) == [["value", 1, 1], ["value", 2, 1]]
    assert dict(entries.items()) == {"a": {"k": ["entries", 1.5, 1]}}
