"""All states of one machine, as numbers, and what leads from one to the next: each computed once.

A global state then is a tuple of such numbers, and most of its steps are looked up. A state is made again, where it is
needed, by repeating on a fresh machine the events that led to it first: nothing is ever copied, so nothing is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from snapshot.errors import CutlineError

#: Whom something is for, and what.
Said = tuple[Hashable, Hashable]

#: Machines that are kept alive because their next event is likely to come soon; a few MB.
_ALIVE_MAX = 1000

B = TypeVar("B", bound=Hashable)
Event = TypeVar("Event", bound=Hashable)


@dataclass(frozen=True, slots=True)
class View(Generic[Event]):
    """What a state shows to the outside."""

    #: what the machine can do without anybody else, and how it is called in a trace
    own: tuple[tuple[str, Event], ...]
    #: what may befall it, at any time or never
    faults: tuple[tuple[str, Event], ...]
    #: links may bring it something
    is_open: bool
    #: what it still has to do, or ""
    unsettled: str


class Local(Protocol[Event]):
    """One machine, with what stands beside it. Deterministic."""

    def step(self, event: Event) -> list[Said]:
        """Take one event; returns what goes out. Raises what the machine itself refuses."""

    def check(self) -> None:
        """Raise what is wrong with the last event or what came of it. Not asked where events are repeated."""

    def key(self) -> Hashable:
        """Equal for equal states."""

    def view(self) -> View[Event]:
        """What the state shows."""


@dataclass(frozen=True, slots=True)
class Move:
    """One event of one machine."""

    #: afterwards
    state: int
    #: (place of a queue, item) that it adds
    said: tuple[tuple[int, int], ...]
    #: what was found wrong, or ""
    problem: str


class LocalStates(Generic[B, Event]):
    """The states of one machine.

    Parameters
    ----------
    begin : callable
        A fresh machine from one of its beginnings.
    post : callable
        The numbers, in the global state, of a queue and of what is added to it.
    """

    def __init__(self, begin: Callable[[B], Local[Event]], post: Callable[[Said], tuple[int, int]]) -> None:
        self.views: list[View[Event]] = []
        self._begin = begin
        self._post = post
        self._numbers: dict[Hashable, int] = {}
        #: by state: the state and the event that led to it first; -1 and a beginning where a life begins
        self._origins: list[tuple[int, Any]] = []
        self._moves: dict[tuple[int, Event], Move] = {}
        self._alive: dict[int, Local[Event]] = {}
        self._own: dict[int, tuple[tuple[str, Move], ...]] = {}
        self._faults: dict[int, tuple[tuple[str, Move], ...]] = {}
        self._firsts: dict[B, int] = {}

    def __len__(self) -> int:
        return len(self.views)

    def first(self, beginning: B) -> int:
        """The state in which a life begins."""
        if beginning not in self._firsts:
            self._firsts[beginning] = self._number(self._begin(beginning), (-1, beginning))
        return self._firsts[beginning]

    def move(self, state: int, event: Event) -> Move:
        """What `event` does in `state`."""
        move = self._moves.get((state, event))
        if move is None:
            move = self._moves[state, event] = self._make(state, event)
        return move

    def own(self, state: int) -> tuple[tuple[str, Move], ...]:
        """What the machine can do alone."""
        if state not in self._own:
            self._own[state] = self._named(state, self.views[state].own)
        return self._own[state]

    def faults(self, state: int) -> tuple[tuple[str, Move], ...]:
        """What may befall it."""
        if state not in self._faults:
            self._faults[state] = self._named(state, self.views[state].faults)
        return self._faults[state]

    def again(self, state: int) -> Local[Event]:
        """A machine in this state, for whoever wants to look into it, and may change it."""
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
