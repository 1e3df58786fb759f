"""A fault at any step of a small world: the places, the faults, and the run behind them.

The places are all steps of one schedule of each world and mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from math import inf
from random import Random
from typing import Protocol

from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.plan.modes import ModeWish
from cutline.snapshot.testing.checkers import judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulator import Impossible
from cutline.snapshot.testing.steps import (
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
from cutline.snapshot.trace_events import Kind
from cutline.testing import Simulator

#: A worker sleeps through its own replacement: its stage is given up meanwhile, or fails at once.
ZOMBIES: dict[str, tuple[Step, ...]] = {
    "a zombie of a given up stage": (Freeze(0, 4.05), Crash(1)),
    "a zombie of a failed stage": (Freeze(1, 0.1), FailStage()),
}
#: kinds of events of a subtask that works
_WORK = (Kind.POLL, Kind.RECEIVE, Kind.TIMER, Kind.SEND, Kind.CUT)


def faults(sink: str) -> dict[str, tuple[Step, ...]]:
    """Return the faults of each kind, in a graph with a sink of this name."""
    return {
        "a worker": (Crash(0),),
        "the other worker": (Crash(1),),
        "a coordinator": (CrashCoordinator(),),
        "two coordinators": (OrphanCoordinator(),),
        "a driver": (KillDriver(),),
        "two drivers": (SubmitAgain(),),
        "a stage": (FailStage(),),
        "a node": (Fail(sink),),
        "a connection": (CutControl(0),),
        "a store": (FailStore(0),),
        "the other store": (FailStore(1),),
        "a torn part": (TearStore(1),),
        "a store that hangs": (HangStore(0, 5.0),),
        **{f"a manifest, {what}": (Doubt(what),) for what in ("done", "late", "never")},
        **ZOMBIES,
    }


class World(Protocol):
    """A small graph, and how its output is compared."""

    def simulator(self, mode: ModeWish, schedule: Sequence[Step] | None = None) -> Simulator:
        """Make a run by a schedule, without the steps that a fault has made impossible; None: by a seed."""

    def problems(self, history: History, reference: History) -> list[str]:
        """What is wrong with the output of the run that was made last, compared with the run without faults."""


class CrashPoints:
    """A world in a mode, and the places of its faults.

    Parameters
    ----------
    name : str
        Name of the case, for failures.
    world : World
    mode : ModeWish
    faults : mapping of str to sequence of Step
    """

    def __init__(self, name: str, world: World, mode: ModeWish, faults: Mapping[str, Sequence[Step]]) -> None:
        self._name = name
        self._world = world
        self._mode = mode
        self._faults = faults

    @cached_property
    def reference(self) -> History:
        """The run without faults."""
        history = self._world.simulator(self._mode).run()
        assert history.outcome is Outcome.FINISHED and history.snapshots
        assert self._world.problems(history, history) == []
        return history

    @property
    def places(self) -> int:
        """Number of places."""
        return len(self.reference.schedule)

    @cached_property
    def first_published(self) -> int:
        """Number of steps up to the first published snapshot."""
        simulator = self._world.simulator(self._mode, [])
        for place, step in enumerate(self.reference.schedule):
            if simulator.history.snapshots:
                return place
            simulator.take(step)
        raise AssertionError("no snapshot was published")

    def check(self, place: int, faults: Sequence[str], chance: Random, seen: Counter[str]) -> None:
        """Compare a run with that without faults, and note what it had."""
        reference = self.reference
        with _noting(f"{self._name}: {faults} at {place}"):
            history = self._run(place, faults, chance)
            assert history.outcome is Outcome.FINISHED, history.reason
            assert self._world.problems(history, reference) == []
            assert [verdict.text for verdict in judge(history) if not verdict.holds] == []
        seen.update(history.seen)
        for fault in faults:
            seen[fault] += _works_as_a_zombie(history)

    def _run(self, place: int, faults: Sequence[str], chance: Random) -> History:
        """Run the schedule of the world up to a place, and then each fault with some steps by chance behind it."""
        simulator = self._world.simulator(self._mode, [])
        for step in self.reference.schedule[:place]:
            simulator.take(step)
        for fault in faults:
            incarnations = len(simulator.history.origins)
            for step in self._faults[fault]:
                with suppress(Impossible):  # as where a store fails that no part goes to
                    simulator.take(step)
            go_on(simulator, 100, chance, incarnations)
            go_on(simulator, chance.randrange(60), chance)
        return simulator.finish()


def go_on(simulator: Simulator, steps: int, chance: Random, incarnations: float = inf) -> None:
    """Take steps by chance, up to a number, or until more than so many incarnations were restored."""
    for _ in range(steps):
        possible = simulator.possible()
        if not possible or len(simulator.history.origins) > incarnations:
            return
        # Little time passes where anything else is left, because a recovery takes none.
        simulator.take(chance.choice([*possible[:-1], Tick(0.01)]) if len(possible) > 1 else possible[0])


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
