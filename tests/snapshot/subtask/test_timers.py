"""Timers: order, keys, deletion, and what a snapshot keeps of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.subtask.timers import NO_KEY, Timers, checked_seconds


def fired(timers: Timers, now: float) -> list[tuple[float, object]]:
    """All that is due."""
    found = []
    while (due := timers.pop_due(now)) is not None:
        found.append(due)
    return found


def test_timers_fire_by_time_then_by_registration() -> None:
    """Not before their time, and keys need no order among themselves."""
    timers = Timers()
    for at, key in [(2.0, "b"), (1.0, None), (2.0, 7), (3.0, ("c", 1))]:
        timers.register(at, key)
    assert (timers.next_at(), fired(timers, 0.5)) == (1.0, [])
    assert fired(timers, 2.0) == [(1.0, None), (2.0, "b"), (2.0, 7)]
    assert [*timers.each()] == [(3.0, ("c", 1))]


def test_one_per_time_and_key() -> None:
    """A second registration changes nothing; a deleted timer does not fire; registered again, it fires once."""
    timers = Timers()
    timers.register(1.0, "a")
    timers.register(1.0, "a")
    timers.register(1.0, "b")
    timers.delete(1.0, "a")
    timers.delete(9.0, "a")
    timers.register(1.0, "a")
    assert fired(timers, 1.0) == [(1.0, "b"), (1.0, "a")]
    assert timers.next_at() is None


def test_both_zeros_are_one_timer() -> None:
    """In memory they are equal. In rows -0.0 would be another timer, which its deletion leaves there."""
    timers = Timers()
    timers.register(0.0, "a")
    timers.delete(-0.0, "a")
    assert timers.take_dirty() is None
    timers.register(-0.0, "a")
    taken = timers.take_dirty()
    assert taken is not None
    assert str(taken.rows) == "{'a': {0.0: True}}"


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3).map(float), st.sampled_from([NO_KEY, None, "a"])), max_size=20)
)
def test_a_restored_set_of_timers_is_the_same(steps: list[tuple[bool, float, object]]) -> None:
    """Timers without a key come back from `state` in their order, and those with a key from the changed rows."""
    timers, restored = Timers(), Timers()
    rows: dict[object, dict[float, object]] = {}
    for number, (is_registration, at, key) in enumerate(steps):
        if is_registration:
            timers.register(at, key)
        else:
            timers.delete(at, key)
        if number % 3 == 0 and (taken := timers.take_dirty()) is not None:
            for each, changed in taken.rows.items():
                rows.setdefault(each, {}).update(changed)
    if (taken := timers.take_dirty()) is not None:
        for each, changed in taken.rows.items():
            rows.setdefault(each, {}).update(changed)
    restored.restore(timers.state())
    restored.restore_rows((key, at) for key, changed in rows.items() for at, value in changed.items() if value)
    assert timers.state() == restored.state()
    assert restored.take_dirty() is None
    assert sorted(fired(restored, 9.0), key=repr) == sorted(fired(timers, 9.0), key=repr)


def test_a_timer_that_is_set_anew_for_ever_takes_no_more_memory() -> None:
    """The usual time-out, moved on by each message, leaves at most as many dead entries as live ones."""
    timers = Timers()
    for number in range(10_000):
        timers.delete(float(number), "session")
        timers.register(float(number + 1), "session")
    assert len([*timers.each()]) == 1
    assert len(timers._heap) < 200
    assert fired(timers, 10_000.0) == [(10_000.0, "session")]


def test_a_time_that_is_no_number_is_named() -> None:
    """The error shows the value and its type, because a str of digits looks like a number."""
    with pytest.raises(TypeError, match=r"seconds are an int or a float, not '5', a str"):
        checked_seconds("5")
