"""A fault at every step of small worlds, in modes inputLogging and deltas: nothing is lost, doubled or disordered.

The places are all steps of one schedule of each world and mode. A run of these tests takes a share of the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import inf
from random import Random

import pytest

from snapshot.coordinator.run_state import Outcome
from snapshot.testing import Simulator
from snapshot.testing.checkers import judge
from snapshot.testing.history import History
from snapshot.testing.simulator import Impossible
from snapshot.testing.steps import (
    Crash,
    CrashCoordinator,
    CutControl,
    Doubt,
    Fail,
    FailStage,
    FailStore,
    Freeze,
    HangStore,
    KillDriver,
    OrphanCoordinator,
    Step,
    SubmitAgain,
    TearStore,
    Tick,
)
from snapshot.trace_events import Kind
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.small_worlds import MODES, WORLDS

#: A worker sleeps through its own replacement: its stage is given up meanwhile, or fails at once.
ZOMBIES: dict[str, tuple[Step, ...]] = {
    "a zombie of a given up stage": (Freeze(0, 4.05), Crash(1)),
    "a zombie of a failed stage": (Freeze(1, 0.1), FailStage()),
}
FAULTS: dict[str, tuple[Step, ...]] = {
    "a worker": (Crash(0),),
    "the other worker": (Crash(1),),
    "a coordinator": (CrashCoordinator(),),
    "two coordinators": (OrphanCoordinator(),),
    "a driver": (KillDriver(),),
    "two drivers": (SubmitAgain(),),
    "a stage": (FailStage(),),
    "a node": (Fail("out"),),
    "a connection": (CutControl(0),),
    "a store": (FailStore(0),),
    "the other store": (FailStore(1),),
    "a torn part": (TearStore(1),),
    "a store that hangs": (HangStore(0, 5.0),),
    **{f"a manifest, {what}": (Doubt(what),) for what in ("done", "late", "never")},
    **ZOMBIES,
}
_CRASHES = ["a worker", "the other worker"]
#: kinds of events of a subtask that works
_WORK = (Kind.POLL, Kind.RECEIVE, Kind.TIMER, Kind.SEND, Kind.CUT)


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
def _reference(world: str, mode: str) -> History:
    history = WORLDS[world].simulator(MODES[mode]).run()
    assert history.outcome is Outcome.FINISHED and history.snapshots
    assert WORLDS[world].problems(history, history) == []
    return history


def _first_published(world: str, mode: str) -> int:
    """Return the number of steps up to the first published snapshot, or the first record."""
    simulator = WORLDS[world].simulator(MODES[mode], [])
    for place, step in enumerate(_reference(world, mode).schedule):
        if simulator.history.snapshots or simulator.history.records:
            return place
        simulator.take(step)
    raise AssertionError("no snapshot was published")


def _run(world: str, mode: str, place: int, faults: Sequence[str], chance: Random) -> History:
    """Run the schedule of the world up to a place, and then each fault with some steps by chance behind it."""
    simulator = WORLDS[world].simulator(MODES[mode], [])
    for step in _reference(world, mode).schedule[:place]:
        simulator.take(step)
    for fault in faults:
        incarnations = len(simulator.history.origins)
        for step in FAULTS[fault]:
            with suppress(Impossible):  # as where a store fails that no part goes to
                simulator.take(step)
        _go_on(simulator, 100, chance, incarnations)
        _go_on(simulator, chance.randrange(60), chance)
    return simulator.finish()


def _go_on(simulator: Simulator, steps: int, chance: Random, incarnations: float = inf) -> None:
    """Take steps by chance, up to a number, or until more than so many incarnations were restored."""
    for _ in range(steps):
        possible = simulator.possible()
        if not possible or len(simulator.history.origins) > incarnations:
            return
        # Little time passes where anything else is left, because a recovery takes none.
        simulator.take(chance.choice([*possible[:-1], Tick(0.01)]) if len(possible) > 1 else possible[0])


def _check(world: str, mode: str, place: int, faults: Sequence[str], chance: Random, seen: Counter[str]) -> None:
    """Compare a run with that without faults, and note what it had."""
    reference = _reference(world, mode)
    with _noting(f"{world}, {mode}: {faults} at {place}"):
        history = _run(world, mode, place, faults, chance)
        assert history.outcome is Outcome.FINISHED, history.reason
        assert WORLDS[world].problems(history, reference) == []
        assert [verdict.text for verdict in judge(history) if not verdict.holds] == []
    seen.update(history.seen)
    for fault in faults:
        seen[fault] += _works_as_a_zombie(history)


@contextmanager
def _noting(case: str) -> Iterator[None]:
    """Add to a failure which case it is."""
    try:
        yield
    except BaseException as error:
        error.add_note(case)
        raise


def _works_as_a_zombie(history: History) -> bool:
    """Return whether a subtask has worked after a newer incarnation of it was restored."""
    newest = 0
    for event in history.events:
        if event.kind is Kind.RESTORED:
            newest = max(newest, event.incarnation)
        elif event.kind in _WORK and event.incarnation < newest:
            return True
    return False


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
def test_a_fault_at_any_step(world: str, mode: str, seen: Counter[str]) -> None:
    """Of each kind: nothing lost, nothing doubled, nothing in another order, and all checkers hold."""
    places = len(_reference(world, mode).schedule)
    cases = [(place, fault) for place in range(places) for fault in FAULTS]
    chance = Random(f"{world} {mode}")
    chance.shuffle(cases)
    for place, fault in cases[: scaled(12)]:
        _check(world, mode, place, [fault], chance, seen)


@pytest.mark.parametrize("mode", MODES)
def test_two_faults_at_any_two_steps(mode: str, seen: Counter[str]) -> None:
    """Behind the first snapshot of the smallest world, so that the second fault often hits a replay."""
    first, places = _first_published("counted", mode), len(_reference("counted", mode).schedule)
    chance = Random(mode)
    for _ in range(scaled(20)):
        faults = [chance.choice(_CRASHES), chance.choice([*FAULTS, *8 * _CRASHES])]
        _check("counted", mode, chance.randrange(first, places), faults, chance, seen)


@pytest.mark.parametrize("mode", MODES)
def test_an_old_process_goes_on_beside_the_new(mode: str, seen: Counter[str]) -> None:
    """A worker that slept, a coordinator that was taken for dead, a driver that was submitted twice: none does harm."""
    first, places = _first_published("timed", mode), len(_reference("timed", mode).schedule)
    chance = Random(mode)
    for fault in [*ZOMBIES, "two coordinators", "two drivers"] * scaled(5):
        _check("timed", mode, chance.randrange(first, places), [fault], chance, seen)
