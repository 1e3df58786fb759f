"""Who decides what happens next in a simulated run: a seed, a list of steps, or a function of the caller's.

A chooser returns a place of the agenda, or a step; None: it has nothing more to say, and the run goes on by the
plainest rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from snapshot.coordinator.machine import Phase
from snapshot.ids import ChannelId
from snapshot.testing.simulation.agenda import Place
from snapshot.testing.simulation.faults import hooks_of, possible
from snapshot.testing.simulation.stepping import named
from snapshot.testing.simulation.world import World
from snapshot.testing.steps import (
    Arrive,
    Crash,
    CrashCoordinator,
    Fail,
    FailStore,
    Fault,
    Order,
    OrphanCoordinator,
    Step,
    Tick,
)

#: A function that is asked which of the possible steps happens next; None: go on by the plainest rule.
Ask = Callable[[Sequence[Step]], Step | None]


class Chooser(Protocol):
    """Decides every step of a run."""

    def next(self, world: World) -> Place | Step | None:
        """What happens next."""


@dataclass(frozen=True)
class Odds:
    """How often a seeded schedule does what is not needed: one step in so many, on average."""

    fault: int = 60
    #: a fault while something is half published, restored or finished, and would be hit
    worst: int = 100
    order: int = 80
    tick: int = 12
    #: virtual seconds that pass with a tick
    tick_seconds: float = 0.02
    #: orders of snapshots at most
    orders: int = 2
    #: one of the orders may be to stop
    stops: bool = False


class Seeded:
    """Every choice from a seed.

    Parameters
    ----------
    seed : int
    faults : int
        How many happen at most.
    odds : Odds
    """

    def __init__(self, seed: int, faults: int, odds: Odds) -> None:
        self._random = Random(seed)
        self._faults = faults
        self._orders = odds.orders
        self._odds = odds
        self._rare = 1 / odds.fault + 1 / odds.worst + 1 / odds.order + 1 / odds.tick

    def next(self, world: World) -> Place | Step | None:
        """A place at random; now and then a fault, an order, or time."""
        random = self._random.random
        if random() < self._rare:
            step = self._rare_step(world)
            if step is not None:
                return step
        places = world.agenda.places
        if places:
            return places[int(random() * len(places))]
        return Tick() if world.agenda.next_due() is not None else None

    def _rare_step(self, world: World) -> Step | None:
        odds, draw = self._odds, self._random.random() * self._rare
        for odd, step in ((odds.fault, self._fault), (odds.worst, self._worst_fault), (odds.order, self._order)):
            if draw < 1 / odd:
                return step(world)
            draw -= 1 / odd
        return Tick(odds.tick_seconds)

    def _fault(self, world: World) -> Fault | None:
        if not self._faults or world.driver.outcome is not None:
            return None
        return self._one_of([*possible(world), *(hook for worker in world.workers for hook in hooks_of(world, worker))])

    def _worst_fault(self, world: World) -> Fault | None:
        if not self._faults or world.driver.outcome is not None:
            return None
        worst = _worst_kinds(world)
        return self._one_of([fault for fault in possible(world) if isinstance(fault, worst)]) if worst else None

    def _one_of(self, faults: Sequence[Fault]) -> Fault | None:
        """Each kind as likely as another."""
        kinds: dict[type[Fault], list[Fault]] = {}
        for fault in faults:
            kinds.setdefault(type(fault), []).append(fault)
        if not kinds:
            return None
        self._faults -= 1
        of_kind = list(kinds.values())[self._random.randrange(len(kinds))]
        return of_kind[self._random.randrange(len(of_kind))]

    def _order(self, world: World) -> Step | None:
        if not self._orders or world.driver.outcome is not None:
            return None
        self._orders -= 1
        return Order(stop=self._odds.stops and not self._random.randrange(3))


def _worst_kinds(world: World) -> tuple[type[Fault], ...]:
    """Faults that hit between two steps of publishing, restoring or finishing: moments too short for chance alone."""
    life = world.driver.life
    if life is None:
        return ()
    if life.is_publishing or life.has_published_unheard:
        return CrashCoordinator, OrphanCoordinator
    match life.coordinator.phase:
        case Phase.RESTORING:
            return Crash, FailStore
        case Phase.FINISHING:
            return (Fail,)
        case _:
            return ()


class Scripted:
    """A list of steps.

    Parameters
    ----------
    steps : sequence of Step
    skips : bool
        Leave out what is not possible when its turn comes, instead of raising.
    """

    def __init__(self, steps: Sequence[Step], *, skips: bool) -> None:
        self.skips = skips
        self._steps: Iterator[Step] = iter(steps)

    def next(self, world: World) -> Place | Step | None:
        """The next of the list."""
        return next(self._steps, None)


class Asked:
    """A function of the caller's."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def next(self, world: World) -> Place | Step | None:
        """Whatever the function says."""
        steps = [named(world, place) for place in world.agenda.places]
        if world.agenda.next_due() is not None:
            steps.append(Tick())
        return self._ask(steps)


class Delays:
    """A function to give to `Simulator` that decides how long each message, end and marker is on the wire.

    Everything else happens at once. Order on a channel is kept: what is sent later does not arrive earlier.

    Parameters
    ----------
    delay : callable
        ``delay(arrival, number)`` gives virtual seconds: `arrival` says which channel, and whether it is a marker or
        an end; `number` counts the items of the channel from 1.
    """

    def __init__(self, delay: Callable[[Arrive, int], float]) -> None:
        self._delay = delay
        self._now = 0.0
        self._counts: dict[ChannelId, int] = {}
        #: {channel: when the item that is first on the wire arrives}
        self._due: dict[ChannelId, float] = {}
        self._last: dict[ChannelId, float] = {}

    def __call__(self, possible: Sequence[Step]) -> Step | None:
        """What a simulator asks."""
        waits = Tick() in possible
        arrivals = [step for step in possible if isinstance(step, Arrive)]
        for step in possible:
            if not isinstance(step, Arrive | Tick):
                return step
        for arrival in arrivals:
            self._note(arrival)
        if not arrivals:
            return Tick() if waits else None
        first = min(arrivals, key=lambda arrival: self._due[arrival.channel])
        due = self._due[first.channel]
        if due > self._now:
            step, self._now = Tick(due - self._now), due
            return step
        del self._due[first.channel]
        return first

    def _note(self, arrival: Arrive) -> None:
        channel = arrival.channel
        if channel not in self._due:
            number = self._counts[channel] = self._counts.get(channel, 0) + 1
            due = max(self._now + self._delay(arrival, number), self._last.get(channel, 0.0))
            self._due[channel] = self._last[channel] = due
