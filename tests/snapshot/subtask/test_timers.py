"""Timers: order, keys, deletion, and what a snapshot keeps of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snapshot.subtask.timers import Timers


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
    assert (len(timers), timers.next_at()) == (1, 3.0)


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


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3).map(float), st.sampled_from([None, "a", 1])), max_size=20))
def test_a_restored_set_of_timers_is_the_same(steps: list[tuple[bool, float, object]]) -> None:
    """Whatever was registered and deleted, what `state` says fires in that order after `restore`."""
    timers, restored = Timers(), Timers()
    for is_registration, at, key in steps:
        if is_registration:
            timers.register(at, key)
        else:
            timers.delete(at, key)
    restored.restore(timers.state())
    assert timers.state() == restored.state() == fired(restored, 9.0) == fired(timers, 9.0)


def test_a_timer_that_is_set_anew_for_ever_takes_no_more_memory() -> None:
    """The usual time-out, moved on by each message, leaves at most as many dead entries as live ones."""
    timers = Timers()
    for number in range(10_000):
        timers.delete(float(number), "session")
        timers.register(float(number + 1), "session")
    assert len(timers) == 1
    assert len(timers._heap) < 200
    assert fired(timers, 10_000.0) == [(10_000.0, "session")]
