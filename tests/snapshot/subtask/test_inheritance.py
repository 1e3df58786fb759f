"""States of several subtasks united for one, field by field (PROTOCOL 6.9, donors)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.channel.partitioning import donors_of, heir_of
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.inheritance import Donor, Donors, united
from tests.run_size import scaled

FRESH = NodeState(None, None, [], 0.0, [], False, False, [], {})


def donors(*is_inherited: bool, is_ended: bool = False, is_exhausted: bool = False) -> Donors:
    """So many donors, of some of which the taker is the heir."""
    of = tuple(Donor(Subtask("n", i), memoryview(b""), (), each) for i, each in enumerate(is_inherited))
    return Donors(of, is_ended, is_exhausted, "seed")


def test_prepared_output_of_all_donors_is_committed() -> None:
    """As pairs, donor after donor: two donors have a value for the same snapshot, and none may hide the other."""
    states = [replace(FRESH, uncommitted=[(3, "a"), (5, "b")]), replace(FRESH, uncommitted=[(3, "c")])]
    assert united(donors(True, True), states).uncommitted == [(3, "a"), (5, "b"), (3, "c")]
    assert united(donors(False, True), states).uncommitted == [(3, "c")]


def test_timers_without_a_key_go_to_the_heir() -> None:
    """Those of a donor that has another heir do not."""
    states = [replace(FRESH, timers=[(1.0, None), (2.0, None)]), replace(FRESH, timers=[(1.5, None)])]
    assert united(donors(False, True), states).timers == [(1.5, None)]
    assert united(donors(True, True), states).timers == [(1.0, None), (2.0, None), (1.5, None)]


def test_time_goes_on_from_the_latest_donor() -> None:
    """It never goes back, for no key."""
    assert united(donors(True, False), [replace(FRESH, now=3.0), replace(FRESH, now=7.5)]).now == 7.5
    assert united(donors(), []).now == 0.0


def test_what_belongs_to_one_instance_is_not_taken_over() -> None:
    """Chance, partitioners, processed ends. Whether the node has ended is said by the coordinator."""
    state = replace(
        FRESH,
        state=["own"], random=(1,), ended_inputs=[("a", 0)], exhausted=True, ended=True, partitioners={"b": 3},
    )  # fmt: skip
    found = united(donors(True), [state])
    assert found == FRESH
    found = united(donors(True, is_ended=True, is_exhausted=True), [FRESH])
    assert (found.ended, found.exhausted) == (True, True)


@settings(max_examples=scaled(60), deadline=None)
@given(before=st.integers(1, 6), now=st.integers(1, 6), data=st.data())
def test_over_all_takers_everything_is_there_once(before: int, now: int, data: st.DataObject) -> None:
    """Timers without keys, and prepared output."""
    states = []
    for old in range(before):
        timers = [(100.0 + old + place / 8, None) for place in range(data.draw(st.integers(0, 2)))]
        prepared = [(number, f"{old}/{number}") for number in range(data.draw(st.integers(0, 2)))]
        states.append(replace(FRESH, timers=timers, uncommitted=prepared))
    found: Counter[Any] = Counter()
    for index in range(now):
        of = donors_of(index, before, now)
        is_heir = donors(*(heir_of(old, before, now) == index for old in of))
        each = united(is_heir, [states[old] for old in of])
        found.update([*each.timers, *each.uncommitted])
    assert found == Counter(what for state in states for what in [*state.timers, *state.uncommitted])
