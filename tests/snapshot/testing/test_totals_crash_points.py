"""A fault at every step of small worlds with totals in stores, by markers and by epochs: each item counts once.

A run of these tests takes a share of the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

from cutline.snapshot.plan.modes import ModeWish, MonoidClocks
from cutline.snapshot.testing.steps import LoseAcknowledgement, LoseTotals
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.crash_points import ZOMBIES, CrashPoints, faults
from tests.snapshot.testing.totalled import FanOut, ListRelay, Relay, Shape, TotalledWorld, note_differences

WORLDS = {
    "two sources": Shape({"left": {"a": 2}, "right": {"b": 3}}, most=1),
    "an idle partition": Shape({"in": {"a": 3, "b": 0, "c": 1}}, (FanOut,), parallelism=2, idle={"a": 4}),
    "three layers": Shape({"in": {"a": 3, "b": 2}}, (Relay, ListRelay, FanOut)),
    "early ends": Shape({"none": {"d": 0}, "in": {"a": 4, "b": 1}}, (Relay, FanOut), parallelism=2, most=1),
    "two aggregates": Shape({"in": {"a": 3, "b": 3}}, (FanOut,), {"sums": 2, "more": 1}, parallelism=2),
}
HOW: dict[str, ModeWish] = {
    "unaligned": "markers",
    "aligned": "markers",
    "epochs": MonoidClocks(),
    "little memory": MonoidClocks(memory=700),
    "negotiated": MonoidClocks(clock="negotiated"),
}
FAULTS = {
    **faults("sums"),
    "totals away": (LoseTotals("sums"),),
    "totals away for long": (LoseTotals("sums", calls=40, happen=1),),
    "totals away, done": (LoseTotals("sums", calls=1, happen=1),),
    "a lost acknowledgement": (LoseAcknowledgement(0),),
    "the other acknowledgement": (LoseAcknowledgement(1),),
}
SEEN: Counter[str] = Counter()
_CRASHES = ["a worker", "the other worker"]


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the runs had."""
    with pytest.MonkeyPatch.context() as patch:
        note_differences(patch, SEEN)
        yield SEEN
    if FACTOR >= 1:
        due = ["an old claim's write was refused", "a crash between the cells of a difference"]
        due += ["a crash before a commit", "B was not empty at a cut", "an aborted difference joined", *ZOMBIES]
        due += ["a store of totals was away", "LoseAcknowledgement", "two drivers", "two lives of a coordinator"]
        missing = [each for each in due if not SEEN[each]]
        assert not missing, (missing, SEEN)


@cache
def _points(world: str, how: str) -> CrashPoints:
    totalled = TotalledWorld(WORLDS[world], SEEN, "aligned" if how == "aligned" else "unaligned")
    return CrashPoints(f"{world}, {how}", totalled, HOW[how], FAULTS)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("world", WORLDS)
def test_a_fault_at_any_step(world: str, how: str, seen: Counter[str]) -> None:
    """Of each kind: exact totals, at each commit those of all items below one vector of offsets, in all stores."""
    points = _points(world, how)
    cases = [(place, fault) for place in range(points.places) for fault in FAULTS]
    chance = Random(f"{world} {how}")
    chance.shuffle(cases)
    for place, fault in cases[: scaled(12)]:
        points.check(place, [fault], chance, seen)


@pytest.mark.parametrize("how", HOW)
def test_two_faults_at_any_two_steps(how: str, seen: Counter[str]) -> None:
    """Behind the first snapshot, so that a difference of an aborted snapshot meets a crash, too."""
    points, chance = _points("two aggregates", how), Random(how)
    for _ in range(scaled(20)):
        both = [chance.choice(list(FAULTS)), chance.choice([*FAULTS, *8 * _CRASHES])]
        points.check(chance.randrange(points.first_published, points.places), both, chance, seen)


@pytest.mark.parametrize("how", HOW)
def test_an_old_process_goes_on_beside_the_new(how: str, seen: Counter[str]) -> None:
    """A worker that slept, a coordinator that was taken for dead, a driver that was submitted twice: none does harm."""
    points, chance = _points("early ends", how), Random(how)
    for fault in [*ZOMBIES, "two coordinators", "two drivers"] * scaled(5):
        points.check(chance.randrange(points.places // 4, points.places), [fault], chance, seen)
