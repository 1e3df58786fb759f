"""A fault at every step of small worlds, in modes inputLogging and deltas: nothing is lost, doubled or disordered.

A run of these tests takes a share of the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.crash_points import ZOMBIES, CrashPoints, faults
from tests.snapshot.testing.small_worlds import MODES, WORLDS

FAULTS = faults("out")
_CRASHES = ["a worker", "the other worker"]


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the runs had."""
    found: Counter[str] = Counter()
    yield found
    if FACTOR >= 1:
        due = ["steps were repeated", "two lives of a coordinator", "two drivers", "a run was adopted", "refused"]
        due += ["a manifest was undecided", "a stage was given up", "an acknowledgement of another incarnation"]
        due += [*ZOMBIES, "a rollback during a replay"]
        missing = [each for each in due if not found[each]]
        assert not missing, (missing, found)


@cache
def _points(world: str, mode: str) -> CrashPoints:
    return CrashPoints(f"{world}, {mode}", WORLDS[world], MODES[mode], FAULTS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
def test_a_fault_at_any_step(world: str, mode: str, seen: Counter[str]) -> None:
    """Of each kind: nothing lost, nothing doubled, nothing in another order, and all checkers hold."""
    points = _points(world, mode)
    cases = [(place, fault) for place in range(points.places) for fault in FAULTS]
    chance = Random(f"{world} {mode}")
    chance.shuffle(cases)
    for place, fault in cases[: scaled(12)]:
        points.check(place, [fault], chance, seen)


@pytest.mark.parametrize("mode", MODES)
def test_two_faults_at_any_two_steps(mode: str, seen: Counter[str]) -> None:
    """Behind the first snapshot of the smallest world, so that the second fault often hits a replay."""
    points, chance = _points("counted", mode), Random(mode)
    for _ in range(scaled(20)):
        both = [chance.choice(_CRASHES), chance.choice([*FAULTS, *8 * _CRASHES])]
        points.check(chance.randrange(points.first_published, points.places), both, chance, seen)


@pytest.mark.parametrize("mode", MODES)
def test_an_old_process_goes_on_beside_the_new(mode: str, seen: Counter[str]) -> None:
    """A worker that slept, a coordinator that was taken for dead, a driver that was submitted twice: none does harm."""
    points, chance = _points("timed", mode), Random(mode)
    for fault in [*ZOMBIES, "two coordinators", "two drivers"] * scaled(5):
        points.check(chance.randrange(points.first_published, points.places), [fault], chance, seen)
