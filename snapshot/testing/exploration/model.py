"""The whole run as a tuple of numbers: each machine's state and each queue's content; and all steps that are possible.

::

    (subtask, ...   link, ...   to a subtask, ...   from a subtask, ...   coordinator, crashes left)
     state          queue       queue               queue                 state

A world with a problem is a tuple of one number: the number of the problem.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator import control
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.testing.exploration.cut_check import CheckedCuts, check_delivery
from cutline.snapshot.testing.exploration.local_coordinator import (
    AllLost,
    Begun,
    CoordinatorEvent,
    LocalCoordinator,
    ReportReceived,
    Wishes,
)
from cutline.snapshot.testing.exploration.local_states import LocalStates, Move, Said
from cutline.snapshot.testing.exploration.local_subtask import LocalSubtask
from cutline.snapshot.testing.exploration.subtask_events import (
    COORDINATOR,
    Arrived,
    MessageReceived,
    SubtaskContribution,
    SubtaskOrigin,
)

T = TypeVar("T", bound=Hashable)

#: number of the empty queue
EMPTY: Final = 0


class Queues(Generic[T]):
    """Every content that a queue ever had, and every item, by number."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._item_numbers: dict[T, int] = {}
        self._contents: list[tuple[int, ...]] = [()]
        self._queue_numbers: dict[tuple[int, ...], int] = {(): EMPTY}

    def number(self, item: T) -> int:
        """Return the number of an item."""
        number = self._item_numbers.setdefault(item, len(self._items))
        if number == len(self._items):
            self._items.append(item)
        return number

    def item(self, number: int) -> T:
        """Return the item of a number: the inverse of `number`."""
        return self._items[number]

    def content(self, queue: int) -> tuple[int, ...]:
        """Return the items of a queue, by number, first to last."""
        return self._contents[queue]

    def with_last(self, queue: int, item: int) -> int:
        """Return the queue with one more item at its end."""
        return self._queue((*self._contents[queue], item))

    def without(self, queue: int, position: int) -> int:
        """Return the queue without the item at `position`."""
        content = self._contents[queue]
        return self._queue(content[:position] + content[position + 1 :])

    def _queue(self, content: tuple[int, ...]) -> int:
        number = self._queue_numbers.setdefault(content, len(self._contents))
        if number == len(self._contents):
            self._contents.append(content)
        return number


World = tuple[int, ...]

#: the encoded state of every node where a run came to rest
Outcome = tuple[bytes, ...]


@dataclass(frozen=True)
class Places:
    """Where the numbers of a world are: see the module's docstring."""

    subtasks: range
    #: (place of the queue, place of its reader) of each channel
    links: tuple[tuple[int, int], ...]
    #: {place of the queue to a subtask: place of the subtask}
    controls: Mapping[int, int]
    #: queues from the subtasks to the coordinator
    reports: range
    coordinator: int
    crashes_left: int
    #: {place of a queue: its channel, or the subtask that reads the coordinator's messages}
    names: Mapping[int, Any]
    #: the inverse of `names`
    queue_of: Mapping[Any, int]

    @classmethod
    def of(cls, topology: Topology) -> Places:
        """Return the places of a graph's worlds."""
        n, c = len(topology.subtasks), len(topology.channels)
        links = tuple((n + i, topology.subtasks.index(channel.target)) for i, channel in enumerate(topology.channels))
        names: dict[int, Any] = {n + i: channel for i, channel in enumerate(topology.channels)}
        names.update((n + c + i, subtask) for i, subtask in enumerate(topology.subtasks))
        return cls(
            subtasks=range(n),
            links=links,
            controls={n + c + i: i for i in range(n)},
            reports=range(n + c + n, n + c + n + n),
            coordinator=n + c + n + n,
            crashes_left=n + c + n + n + 1,
            names=names,
            queue_of={name: place for place, name in names.items()},
        )


class Model:
    """All worlds of one graph.

    Parameters
    ----------
    compiled : CompiledGraph
    wishes : Wishes
    crashes : int
        Maximum number of crashes in a run. Each crash loses every worker, link and control message.
    """

    def __init__(self, compiled: CompiledGraph, wishes: Wishes, crashes: int) -> None:
        self.seen: dict[str, None] = {}
        #: outcomes of runs that came to rest, with a crash (True) and without (False)
        self.outcomes: dict[bool, dict[Outcome, None]] = {False: {}, True: {}}
        #: outcomes that a run with a crash must not have
        self.forbidden: frozenset[Outcome] = frozenset()
        self._wishes = wishes
        self._crashes = crashes
        topology = compiled.topology
        self._codec = Codec(names=compiled.program_names())
        self._places = Places.of(topology)
        self._queues: Queues[Any] = Queues()
        self._problems: list[str] = []
        self._states: list[LocalStates[Any, Any]] = [self._subtask_states(compiled, i) for i in self._places.subtasks]
        checked = CheckedCuts(self._codec)
        self._states_of_coordinator: LocalStates[Wishes, CoordinatorEvent] = LocalStates(
            lambda wishes: LocalCoordinator(compiled, topology.name, wishes, self.seen, checked), self._post
        )
        self._received: dict[tuple[int, int, int], tuple[str, Move]] = {}
        self._beginnings: dict[tuple[int, CoordinatorEvent], World] = {}
        self._rests: dict[World, tuple[Outcome, str]] = {}

    def _subtask_states(self, compiled: CompiledGraph, number: int) -> LocalStates[SubtaskOrigin, Any]:
        def post(said: Said) -> tuple[int, int]:
            return (
                (self._places.reports[number], self._queues.number(said[1]))
                if said[0] == COORDINATOR
                else self._post(said)
            )

        run = compiled.topology.name
        return LocalStates(lambda origin: LocalSubtask(compiled, run, origin, self.seen, self._codec), post)

    def _post(self, said: Said) -> tuple[int, int]:
        return self._places.queue_of[said[0]], self._queues.number(said[1])

    # ---------------------------------------------------------------- worlds

    def initial(self) -> World:
        """Return the world in which the coordinator has sent `StartProcessing` to every subtask."""
        return self._beginning(self._states_of_coordinator.first(self._wishes), Begun(), self._crashes)

    def problem(self, world: World) -> str | None:
        """Return the problem of a world, or None."""
        return self._problems[world[0]] if len(world) == 1 else None

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield every step that is possible next."""
        quiet = True
        for name, following in self._protocol_steps(world):
            quiet = False
            yield name, following
        if quiet and (wrong := self._wrong_at_rest(world)):
            yield "nothing more can happen", self._broken(wrong)
        yield from self._faults(world)

    # ---------------------------------------------------------------- steps

    def _protocol_steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield the steps that must be over before a run is at rest."""
        for place in self._places.subtasks:
            for name, move in self._states[place].own(world[place]):
                yield name, self._after(world, place, move)
        for queue, reader in self._places.links:
            if world[queue] != EMPTY and self._states[reader].views[world[reader]].is_open:
                yield self._receive(world, queue, 0, reader)
        for queue, reader in self._places.controls.items():
            if world[queue] != EMPTY:
                yield self._receive(world, queue, 0, reader)
        for queue in self._places.reports:
            # Uploads in the background may end in any order.
            for position in range(len(self._queues.content(world[queue]))):
                yield self._receive(world, queue, position, self._places.coordinator)
        for name, move in self._states_of_coordinator.own(world[self._places.coordinator]):
            yield name, self._after(world, self._places.coordinator, move)

    def _faults(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield the steps that may happen, or never."""
        for place in self._places.subtasks:
            for name, move in self._states[place].faults(world[place]):
                yield name, self._after(world, place, move)
        for name, move in self._states_of_coordinator.faults(world[self._places.coordinator]):
            yield name, self._after(world, self._places.coordinator, move)
        if world[self._places.crashes_left]:
            state = world[self._places.coordinator]
            yield "all workers are lost", self._beginning(state, AllLost(), world[self._places.crashes_left] - 1)

    def _receive(self, world: World, queue: int, position: int, reader: int) -> tuple[str, World]:
        item = self._queues.content(world[queue])[position]
        key = (world[reader], queue, item)
        found = self._received.get(key)
        if found is None:
            found = self._received[key] = self._make_received(world[reader], queue, item, reader)
        rest = self._queues.without(world[queue], position)
        return found[0], self._after(world, reader, found[1], queue, rest)

    def _make_received(self, state: int, queue: int, number: int, reader: int) -> tuple[str, Move]:
        item = self._queues.item(number)
        if reader == self._places.coordinator:
            return f"coordinator: {_described(item)}", self._states_of_coordinator.move(state, ReportReceived(item))
        name = self._places.names[queue]
        if queue in self._places.controls:
            return f"{name}: {_hearing(item)}", self._states[reader].move(state, MessageReceived(item))
        return f"{name}: {_arriving(item)}", self._states[reader].move(state, Arrived(name, item))

    def _after(self, world: World, place: int, move: Move, queue: int = -1, rest: int = EMPTY) -> World:
        """Return the world after a move of the machine at `place`, which took an item out of `queue`."""
        if move.problem:
            return self._broken(move.problem)
        new = list(world)
        new[place] = move.state
        if queue >= 0:
            new[queue] = rest
        for to, item in move.said:
            new[to] = self._queues.with_last(new[to], item)
        return tuple(new)

    def _beginning(self, state: int, event: CoordinatorEvent, crashes: int) -> World:
        """Return a world in which all workers and links are new."""
        if (state, event) not in self._beginnings:
            self._beginnings[state, event] = self._begin(state, event)
        begun = self._beginnings[state, event]
        return begun if len(begun) == 1 else (*begun, crashes)

    def _begin(self, state: int, event: CoordinatorEvent) -> World:
        move = self._states_of_coordinator.move(state, event)
        if move.problem:
            return self._broken(move.problem)
        coordinator = self._states_of_coordinator.again(move.state)
        assert isinstance(coordinator, LocalCoordinator)
        world = [EMPTY] * self._places.crashes_left
        for place, origin in zip(self._places.subtasks, coordinator.starts(), strict=True):
            world[place] = self._states[place].first(origin)
        world[self._places.coordinator] = move.state
        for to, item in move.said:
            world[to] = self._queues.with_last(world[to], item)
        return tuple(world)

    def _broken(self, problem: str) -> World:
        self._problems.append(problem)
        return (len(self._problems) - 1,)

    # ---------------------------------------------------------------- rest

    def _wrong_at_rest(self, world: World) -> str:
        """Return what should have happened in a world without further steps, or ""."""
        views = [self._states[place].views[world[place]] for place in self._places.subtasks]
        unsettled = [v.unsettled for v in (*views, self._states_of_coordinator.views[world[self._places.coordinator]])]
        if any(unsettled):
            return f"liveness: {'; '.join(filter(None, unsettled))}"
        key = world[: len(self._places.subtasks)]
        if key not in self._rests:
            self._rests[key] = self._check_at_rest(key)
        outcome, wrong = self._rests[key]
        crashed = world[self._places.crashes_left] < self._crashes
        self.outcomes[crashed].setdefault(outcome)
        if not wrong and crashed and outcome in self.forbidden:
            kept = [self._codec.decode(state) for state in outcome]
            return f"equivalence: after a crash the nodes keep {kept}, as in no run without one"
        return wrong

    def _check_at_rest(self, states: World) -> tuple[Outcome, str]:
        subtasks: list[Any] = [self._states[place].again(state) for place, state in enumerate(states)]
        sent = {channel: log for subtask in subtasks for channel, log in subtask.node_log.sent.items()}
        handled = {channel: log for subtask in subtasks for channel, log in subtask.node_log.handled.items()}
        return tuple(subtask.final_state() for subtask in subtasks), check_delivery(sent, handled)


def _described(item: Any) -> str:
    match item:
        case SubtaskContribution(control.SnapshotAcknowledged(_, snapshot_id, record)):
            return f"{record.subtask} acknowledges {snapshot_id}"
        case control.SnapshotDeclined(_, snapshot_id, subtask, _):
            return f"{subtask} declines {snapshot_id}"
        case control.SnapshotAskedFor(_, subtask):
            return f"{subtask} asks for a snapshot"
    raise AssertionError(f"no report: {item}")


def _hearing(item: Any) -> str:
    match item:
        case control.StartProcessing(incarnation):
            return f"starts incarnation {incarnation}"
        case control.TriggerSnapshot(_, snapshot_id, _, running, min_snapshot_id):
            return f"is to start {snapshot_id}; running are {list(running)}, min_snapshot_id is {min_snapshot_id}"
        case control.DiscardSnapshotsBelow(_, min_snapshot_id):
            return f"hears that min_snapshot_id is {min_snapshot_id}"
        case control.AnnouncePublished(_, snapshot_id, min_snapshot_id, _):
            return f"hears that {snapshot_id} is published, min_snapshot_id is {min_snapshot_id}"
        case control.EndComponent(_, nodes):
            return f"hears that the cycle of {', '.join(nodes)} is over"
        case control.AnswerSnapshotRequest():
            return "is answered, and goes on"
    raise AssertionError(f"no message for a running subtask: {item}")


def _arriving(item: Any) -> str:
    if not isinstance(item, Frame):
        kind = "aligned marker" if item.aligned else "marker"
        return f"{kind} of {item.snapshot_id} comes, behind message {item.written}"
    if item.is_control:
        return f"the end comes, message {item.first}"
    return f"message {item.first} comes" if item.count == 1 else f"messages {item.first} to {item.last} come"
