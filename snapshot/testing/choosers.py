"""Choosers decide the next step of a simulated run: by a seed, a list of steps, or a function of the caller.

A chooser returns an enabled step, or a step, or None. After None the run goes on by the plainest rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from cutline.snapshot.coordinator.machine import Phase
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.testing.simulation.faults import hooks_of, possible
from cutline.snapshot.testing.simulation.scheduler import EnabledStep
from cutline.snapshot.testing.simulation.simulated_cluster import SimulatedCluster
from cutline.snapshot.testing.simulation.stepping import named
from cutline.snapshot.testing.steps import (
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

#: A function that chooses one of the possible steps. None: go on by the plainest rule.
Ask = Callable[[Sequence[Step]], Step | None]


class Chooser(Protocol):
    """Decides every step of a run."""

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """Return the next step."""


@dataclass(frozen=True)
class Odds:
    """Odds of the steps that a seeded schedule does not need: one step in this many, on average."""

    fault: int = 60
    #: of a fault that hits while something is half published, restored or finished
    worst: int = 100
    request: int = 80
    tick: int = 12
    #: virtual seconds that pass with a tick
    tick_seconds: float = 0.02
    #: maximum number of snapshot requests
    requests: int = 2
    #: whether a snapshot request may stop the run
    stops: bool = False


class Seeded:
    """Makes every choice from a seed.

    Parameters
    ----------
    seed : int
    faults : int
        Maximum number of faults.
    odds : Odds
    """

    def __init__(self, seed: int, faults: int, odds: Odds) -> None:
        self._random = Random(seed)
        self._faults = faults
        self._requests = odds.requests
        self._odds = odds
        self._rare = 1 / odds.fault + 1 / odds.worst + 1 / odds.request + 1 / odds.tick

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """Return an enabled step at random. Now and then return a fault, a snapshot request, or a tick."""
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
        """Choose a fault, each kind as likely as every other."""
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
    """Takes the steps of a list.

    Parameters
    ----------
    steps : sequence of Step
    skips : bool
        Leave out each step that is not possible in its turn, instead of raising.
    """

    def __init__(self, steps: Sequence[Step], *, skips: bool) -> None:
        self.skips = skips
        self._steps: Iterator[Step] = iter(steps)

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """Return the next step of the list, or None after the last."""
        return next(self._steps, None)


def possible_steps(cluster: SimulatedCluster) -> list[Step]:
    """Return all steps that can be taken now, except faults, snapshot requests and steps that time brings."""
    steps = [named(cluster, enabled_step) for enabled_step in cluster.world.scheduler.enabled_steps]
    return [*steps, Tick()] if cluster.world.scheduler.next_due() is not None else steps


class Asked:
    """Calls a function of the caller for each choice."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """Return the step that the function chooses."""
        return self._ask(possible_steps(cluster))


class Delays:
    """Decides how long each message, end and marker is on the wire, as a chooser of `Simulator`.

    Everything else happens at once. FIFO order holds on a channel: later items do not arrive earlier.

    Parameters
    ----------
    delay : callable
        ``delay(arrival, number)`` returns virtual seconds from the item's transmission to its arrival. `arrival` has
        the channel, and whether the item is a marker or an end. `number` counts the items of the channel from 1.
    first : sequence of Step
        Steps that are taken before all others.
    """

    def __init__(self, delay: Callable[[Arrive, int], float], first: Sequence[Step] = ()) -> None:
        self._delay = delay
        self._first = iter(first)
        #: {channel: when each item on the wire was transmitted, without the first item if its arrival is known}
        self._sent_at: defaultdict[ChannelId, deque[float]] = defaultdict(deque)
        self._counts: Counter[ChannelId] = Counter()
        #: {channel: when the first item on the wire arrives}
        self._due: dict[ChannelId, float] = {}
        self._last: dict[ChannelId, float] = {}

    def next(self, cluster: SimulatedCluster) -> EnabledStep | Step | None:
        """Return a step that can happen at once, else the next arrival, or a tick until that arrival."""
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
            # Steps that time brings before the arrival come first.
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
