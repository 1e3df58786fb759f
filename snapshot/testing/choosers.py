"""Who decides what happens next in a simulated run: a seed, a list of steps, or a function of the caller's.

A chooser returns a place of the agenda, or a step; None: it has nothing more to say, and the run goes on by the
plainest rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
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
    Transmit,
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


def possible_steps(world: World) -> list[Step]:
    """All steps that can be taken now, besides faults, orders and what time brings."""
    steps = [named(world, place) for place in world.agenda.places]
    return [*steps, Tick()] if world.agenda.next_due() is not None else steps


class Asked:
    """A function of the caller's."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def next(self, world: World) -> Place | Step | None:
        """Whatever the function says."""
        return self._ask(possible_steps(world))


class Delays:
    """To give to `Simulator`: decides how long each message, end and marker is on the wire.

    Everything else happens at once. Order on a channel is kept: what is sent later does not arrive earlier.

    Parameters
    ----------
    delay : callable
        ``delay(arrival, number)`` gives virtual seconds from when the item goes on the wire: `arrival` says which
        channel, and whether it is a marker or an end; `number` counts the items of the channel from 1.
    first : sequence of Step
        What happens before all that.
    """

    def __init__(self, delay: Callable[[Arrive, int], float], first: Sequence[Step] = ()) -> None:
        self._delay = delay
        self._first = iter(first)
        #: {channel: when each item that is on the wire went there, but for the first one if its arrival is known}
        self._sent_at: defaultdict[ChannelId, deque[float]] = defaultdict(deque)
        self._counts: Counter[ChannelId] = Counter()
        #: {channel: when the item that is first on the wire arrives}
        self._due: dict[ChannelId, float] = {}
        self._last: dict[ChannelId, float] = {}

    def next(self, world: World) -> Place | Step | None:
        """What can happen at once; then what arrives next, or time until it does."""
        scripted = next(self._first, None)
        if scripted is not None:
            return scripted
        arrivals: list[Place] = []
        for place in world.agenda.places:
            step = place.step
            if not isinstance(step, Arrive):
                if isinstance(step, Transmit):
                    self._sent_at[step.channel].append(world.now)
                return place
            arrivals.append(place)
            self._note(step)
        next_due = world.agenda.next_due()
        if not arrivals:
            return None if next_due is None else Tick()
        first = min(arrivals, key=lambda place: self._due[_channel(place)])
        due = self._due[_channel(first)]
        if due > world.now:
            # What time brings before comes first.
            return Tick(due - world.now) if next_due is None or next_due > due else Tick()
        del self._due[_channel(first)]
        return first

    def _note(self, arrival: Arrive) -> None:
        channel = arrival.channel
        if channel not in self._due:
            self._counts[channel] += 1
            sent_at = self._sent_at[channel].popleft() if self._sent_at[channel] else 0.0
            due = max(sent_at + self._delay(arrival, self._counts[channel]), self._last.get(channel, 0.0))
            self._due[channel] = self._last[channel] = due


def _channel(arrival: Place) -> ChannelId:
    step = arrival.step
    assert isinstance(step, Arrive)
    return step.channel
