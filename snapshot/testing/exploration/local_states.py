"""All states of one machine, as numbers, and the moves between the states: each computed once.

A global state is a tuple of such numbers, so most of its steps are found in a table. To make a state again, a fresh
machine repeats the events that led to the state first. Nothing is ever copied, so nothing is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from cutline.snapshot.errors import CutlineError

#: (receiver, message)
Said = tuple[Hashable, Hashable]

#: maximum number of machines that are kept because their next event is likely to come soon; a few MB
_ALIVE_MAX = 1000

B = TypeVar("B", bound=Hashable)
Event = TypeVar("Event", bound=Hashable)


@dataclass(frozen=True, slots=True)
class View(Generic[Event]):
    """The part of a state that is visible from outside."""

    #: (name in a trace, event) of each event that the machine can take alone
    own: tuple[tuple[str, Event], ...]
    #: (name in a trace, event) of each fault, which may happen at any time or never
    faults: tuple[tuple[str, Event], ...]
    #: whether the machine takes items from its links
    is_open: bool
    #: what the machine still has to do, or ""
    unsettled: str


class Local(Protocol[Event]):
    """A machine with the objects that it needs. Deterministic."""

    def step(self, event: Event) -> list[Said]:
        """Take one event, and return the messages sent. Raise what the machine itself refuses."""

    def check(self) -> None:
        """Raise if the last event or its result is wrong. Not called where events are repeated."""

    def key(self) -> Hashable:
        """Return a key that is equal for equal states."""

    def view(self) -> View[Event]:
        """Return the part of the state that is visible from outside."""


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of one event on one machine."""

    #: number of the state afterwards
    state: int
    #: (place of a queue, item) for each item that the move adds
    said: tuple[tuple[int, int], ...]
    #: problem that was found, or ""
    problem: str


class LocalStates(Generic[B, Event]):
    """The states of one machine.

    Parameters
    ----------
    begin : callable
        Makes a fresh machine from a beginning.
    post : callable
        Returns the numbers, in the global state, of a queue and of an item that is added to the queue.
    """

    def __init__(self, begin: Callable[[B], Local[Event]], post: Callable[[Said], tuple[int, int]]) -> None:
        self.views: list[View[Event]] = []
        self._begin = begin
        self._post = post
        self._numbers: dict[Hashable, int] = {}
        #: by state: the state and the event that led to it first; -1 and a beginning for a first state
        self._origins: list[tuple[int, Any]] = []
        self._moves: dict[tuple[int, Event], Move] = {}
        self._alive: dict[int, Local[Event]] = {}
        self._own: dict[int, tuple[tuple[str, Move], ...]] = {}
        self._faults: dict[int, tuple[tuple[str, Move], ...]] = {}
        self._firsts: dict[B, int] = {}

    def first(self, beginning: B) -> int:
        """Return the first state of a machine that begins so."""
        if beginning not in self._firsts:
            self._firsts[beginning] = self._number(self._begin(beginning), (-1, beginning))
        return self._firsts[beginning]

    def move(self, state: int, event: Event) -> Move:
        """Return the move of `event` in `state`."""
        move = self._moves.get((state, event))
        if move is None:
            move = self._moves[state, event] = self._make(state, event)
        return move

    def own(self, state: int) -> tuple[tuple[str, Move], ...]:
        """Return the moves that the machine can make alone."""
        if state not in self._own:
            self._own[state] = self._named(state, self.views[state].own)
        return self._own[state]

    def faults(self, state: int) -> tuple[tuple[str, Move], ...]:
        """Return the moves of faults."""
        if state not in self._faults:
            self._faults[state] = self._named(state, self.views[state].faults)
        return self._faults[state]

    def again(self, state: int) -> Local[Event]:
        """Return a machine in this state. The caller may change the machine."""
        alive = self._alive.pop(state, None)
        if alive is not None:
            return alive
        path: list[Any] = []
        while state >= 0:
            state, event = self._origins[state]
            path.append(event)
        machine = self._begin(path.pop())
        while path:
            machine.step(path.pop())
        return machine

    def _named(self, state: int, named: tuple[tuple[str, Event], ...]) -> tuple[tuple[str, Move], ...]:
        return tuple((name, self.move(state, event)) for name, event in named)

    def _make(self, state: int, event: Event) -> Move:
        machine = self.again(state)
        try:
            said = machine.step(event)
            machine.check()
        except (CutlineError, AssertionError) as error:
            return Move(-1, (), f"{type(error).__name__}: {error}")
        return Move(self._number(machine, (state, event)), tuple(map(self._post, said)), "")

    def _number(self, machine: Local[Event], origin: tuple[int, Any]) -> int:
        key = machine.key()
        number = self._numbers.setdefault(key, len(self.views))
        if number == len(self.views):
            self.views.append(machine.view())
            self._origins.append(origin)
        self._alive[number] = machine
        if len(self._alive) > _ALIVE_MAX:
            del self._alive[next(iter(self._alive))]
        return number
