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
from snapshot.testing.simulation.faults import hooks_of, possible
from snapshot.testing.simulation.scheduler import EnabledStep
from snapshot.testing.simulation.simulated_cluster import SimulatedCluster
from snapshot.testing.simulation.stepping import named
from snapshot.testing.steps import (
    Arrive,
    Crash,
    CrashCoordinator,
    Fail,
    FailStore,
    Fault,
    OrphanCoordinator,
    RequestSnapshot,
    Step,
    Tick,
    Transmit,
)

#: A function that is asked which of the possible steps happens next; None: go on by the plainest rule.
Ask = Callable[[Sequence[Step]], Step | None]


class Chooser(Protocol):
    """Decides every step of a run."""

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """What happens next."""


@dataclass(frozen=True)
class Odds:
    """How often a seeded schedule does what is not needed: one step in so many, on average."""

    fault: int = 60
    #: a fault while something is half published, restored or finished, and would be hit
    worst: int = 100
    request: int = 80
    tick: int = 12
    #: virtual seconds that pass with a tick
    tick_seconds: float = 0.02
    #: orders of snapshots at most
    requests: int = 2
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
        self._requests = odds.requests
        self._odds = odds
        self._rare = 1 / odds.fault + 1 / odds.worst + 1 / odds.request + 1 / odds.tick

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """A place at random; now and then a fault, an order, or time."""
        random = self._random.random
        if random() < self._rare:
            step = self._rare_step(cluster)
            if step is not None:
                return step
        enabled_steps = cluster.world.scheduler.enabled_steps
        if enabled_steps:
            return enabled_steps[int(random() * len(enabled_steps))]
        return Tick() if cluster.world.scheduler.next_due() is not None else None

    def _rare_step(self, cluster: SimulatedCluster) -> Step | None:
        odds, draw = self._odds, self._random.random() * self._rare
        for odd, step in ((odds.fault, self._fault), (odds.worst, self._worst_fault), (odds.request, self._request)):
            if draw < 1 / odd:
                return step(cluster)
            draw -= 1 / odd
        return Tick(odds.tick_seconds)

    def _fault(self, cluster: SimulatedCluster) -> Fault | None:
        if not self._faults or cluster.driver.outcome is not None:
            return None
        return self._one_of(
            [*possible(cluster), *(hook for worker in cluster.workers for hook in hooks_of(cluster, worker))]
        )

    def _worst_fault(self, cluster: SimulatedCluster) -> Fault | None:
        if not self._faults or cluster.driver.outcome is not None:
            return None
        worst = _worst_kinds(cluster)
        return self._one_of([fault for fault in possible(cluster) if isinstance(fault, worst)]) if worst else None

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

    def _request(self, cluster: SimulatedCluster) -> Step | None:
        if not self._requests or cluster.driver.outcome is not None:
            return None
        self._requests -= 1
        return RequestSnapshot(stop=self._odds.stops and not self._random.randrange(3))


def _worst_kinds(cluster: SimulatedCluster) -> tuple[type[Fault], ...]:
    """Faults that hit between two steps of publishing, restoring or finishing: moments too short for chance alone."""
    simulated = cluster.driver.simulated
    if simulated is None:
        return ()
    if simulated.is_publishing or simulated.has_published_unseen:
        return CrashCoordinator, OrphanCoordinator
    match simulated.coordinator.phase:
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

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """The next of the list."""
        return next(self._steps, None)


def possible_steps(cluster: SimulatedCluster) -> list[Step]:
    """All steps that can be taken now, besides faults, orders and what time brings."""
    steps = [named(cluster, enabled_step) for enabled_step in cluster.world.scheduler.enabled_steps]
    return [*steps, Tick()] if cluster.world.scheduler.next_due() is not None else steps


class Asked:
    """A function of the caller's."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """Whatever the function says."""
        return self._ask(possible_steps(cluster))


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

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """What can happen at once; then what arrives next, or time until it does."""
        scripted = next(self._first, None)
        if scripted is not None:
            return scripted
        arrivals: list[EnabledStep] = []
        for enabled_step in cluster.world.scheduler.enabled_steps:
            step = enabled_step.step
            if not isinstance(step, Arrive):
                if isinstance(step, Transmit):
                    self._sent_at[step.channel].append(cluster.world.now)
                return enabled_step
            arrivals.append(enabled_step)
            self._note(step)
        next_due = cluster.world.scheduler.next_due()
        if not arrivals:
            return None if next_due is None else Tick()
        first = min(arrivals, key=lambda enabled_step: self._due[_channel(enabled_step)])
        due = self._due[_channel(first)]
        if due > cluster.world.now:
            # What time brings before comes first.
            return Tick(due - cluster.world.now) if next_due is None or next_due > due else Tick()
        del self._due[_channel(first)]
        return first

    def _note(self, arrival: Arrive) -> None:
        channel = arrival.channel
        if channel not in self._due:
            self._counts[channel] += 1
            sent_at = self._sent_at[channel].popleft() if self._sent_at[channel] else 0.0
            due = max(sent_at + self._delay(arrival, self._counts[channel]), self._last.get(channel, 0.0))
            self._due[channel] = self._last[channel] = due


def _channel(arrival: EnabledStep) -> ChannelId:
    step = arrival.step
    assert isinstance(step, Arrive)
    return step.channel
