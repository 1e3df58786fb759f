"""The clock of a negotiation: what no aggregate has reached."""

from __future__ import annotations

from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.clocks.negotiator import Negotiator

SUMS, MORE = Subtask("sums"), Subtask("more")


def negotiator() -> Negotiator:
    """A negotiation of snapshot 5 by two aggregates."""
    found = Negotiator((SUMS, MORE))
    found.begin(5)
    return found


def test_the_clock_is_the_maximum_of_all_answers() -> None:
    """Of each partition, and answers for another snapshot, or that come twice, are dropped."""
    clock = negotiator()
    assert not clock.answer(4, SUMS, (("a", 99),), has_ended=False)
    assert not clock.answer(5, SUMS, (("a", 3), ("b", 1)), has_ended=False)
    assert [str(each) for each in clock.missing] == ["more[0]"]
    assert not clock.answer(5, SUMS, (("a", 99),), has_ended=False)
    assert clock.answer(5, MORE, (("a", 2), ("c", 7)), has_ended=False)
    assert dict(clock.clock or ()) == {"a": 3, "b": 1, "c": 7}


def test_an_ended_aggregate_says_nothing_of_other_sources() -> None:
    """Its numbers count, and the clock is above everything only when the inputs of all have ended."""
    clock = negotiator()
    clock.answer(5, SUMS, (("a", 3),), has_ended=True)
    clock.answer(5, MORE, (("b", 1),), has_ended=False)
    assert dict(clock.clock or ()) == {"a": 3, "b": 1}
    clock.begin(6)
    clock.answer(6, SUMS, (("a", 3),), has_ended=True)
    clock.answer(6, MORE, (("b", 9),), has_ended=True)
    assert clock.clock is None
