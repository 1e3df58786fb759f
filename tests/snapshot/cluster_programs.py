"""Programs that run in the in-memory cluster, and the outside world that they write to.

A program is a graph together with what its output must be, and what must be the same in every snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from snapshot import END, Context, Graph, Node, Sink, Snapshot, Source
from snapshot.declared.built import Built, build
from snapshot.declared.declarations import AlignmentWish


@dataclass
class World:
    """What lies outside of the run and outlives all of its processes."""

    #: {token: (sink, incarnation, rows)}: durable, not visible
    prepared: dict[str, tuple[str, int, list[Any]]] = field(default_factory=dict)
    #: {token: rows}: visible
    committed: dict[str, list[Any]] = field(default_factory=dict)
    #: tokens that were to be committed and were not there any more
    lost: list[str] = field(default_factory=list)
    #: the hook that raises when it is called next
    armed: str | None = None

    def output(self) -> list[Any]:
        """All visible rows."""
        return sorted((row for rows in self.committed.values() for row in rows), key=repr)

    def call(self, hook: str) -> None:
        """A hook is called: raise, once, if it is the armed one."""
        if self.armed == hook:
            self.armed = None
            raise RuntimeError(f"{hook} was to fail")


#: {run: its world}. Nodes are copies made by unpickling, so this is how they find it.
WORLDS: dict[str, World] = {}

#: Hooks that can be armed.
HOOKS = ("open", "onStart", "poll", "onMessage", "snapshotState", "restoreState", "prepareCommit", "commit")


class Numbers(Source):
    """Emits its share of 0 … count - 1."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.next = 0

    def open(self, context: Context) -> None:
        self.world = WORLDS[context.run]
        self.world.call("open")

    def onStart(self, context: Context) -> None:
        self.world.call("onStart")

    def poll(self, context: Context) -> Any:
        self.world.call("poll")
        number = context.subtask.index + self.next * context.parallelism
        if number >= self.count:
            return END
        self.next += 1
        context.send(number)
        return 0.3 if number % 3 == 0 else None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.world.call("snapshotState")
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = state


class Delay(Node):
    """Passes numbers on; every fourth one later, by a timer."""

    def __init__(self) -> None:
        self.waiting: list[list[Any]] = []

    def open(self, context: Context) -> None:
        self.world = WORLDS[context.run]

    def onMessage(self, message: Any, context: Context) -> None:
        self.world.call("onMessage")
        if message % 4:
            context.send(message)
        else:
            self.waiting.append([context.now + 0.2, message])
            context.registerTimer(context.now + 0.2)

    def onTimer(self, at: float, context: Context) -> None:
        for due, message in self.waiting:
            if due <= at:
                context.send(message)
        self.waiting = [[due, message] for due, message in self.waiting if due > at]

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.waiting

    def restoreState(self, state: Any) -> None:
        WORLDS[RUN].call("restoreState")
        self.waiting = [list(each) for each in state]


class Bank(Node):
    """Passes tokens around, each with a random amount of money, until they have hopped often enough."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.balance = 100

    def open(self, context: Context) -> None:
        self.world = WORLDS[context.run]

    def onStart(self, context: Context) -> None:
        for number in range(self.start):
            self._move([f"{context.subtask}:{number}", 3, 0], context)

    def onMessage(self, message: Any, context: Context) -> None:
        self.world.call("onMessage")
        if isinstance(message, int):
            message = [str(message), message % 4, 0]
        token, hops, _ = message
        if hops == 2 and len(token) % 2:
            context.requestSnapshot()
        self._move(message, context)

    def _move(self, message: list[Any], context: Context) -> None:
        token, hops, amount = message
        self.balance += amount
        if not hops:
            context.send(token, to="out")
            return
        amount = context.random.randrange(min(self.balance, 20) + 1)
        self.balance -= amount
        context.send([token, hops - 1, amount], to="bank")

    def onEnd(self, context: Context) -> None:
        assert context.sender is not None
        if context.sender.node == "bank":
            context.send(f"end of {context.subtask}", to="out")

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.world.call("snapshotState")
        return self.balance

    def restoreState(self, state: Any) -> None:
        self.balance = state


class Writer(Sink):
    """Writes rows in two phases."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def open(self, context: Context) -> None:
        self.world = WORLDS[context.run]
        self.name = str(context.subtask)
        self.incarnation = context.incarnation

    def onMessage(self, message: Any, context: Context) -> None:
        self.rows.append(message)

    def prepareCommit(self, snapshotId: int) -> Any:
        self.world.call("prepareCommit")
        if not self.rows:
            return None
        token = f"{self.incarnation}/{self.name}/{snapshotId}"
        self.world.prepared[token] = (self.name, self.incarnation, self.rows)
        self.rows = []
        return token

    def commit(self, snapshotId: int, prepared: Any) -> None:
        self.world.call("commit")
        if prepared in self.world.prepared:
            self.world.committed[prepared] = self.world.prepared.pop(prepared)[2]
        elif prepared not in self.world.committed:
            self.world.lost.append(prepared)

    def discardUncommitted(self, context: Context) -> None:
        for token, (name, incarnation, _) in list(self.world.prepared.items()):
            if name == self.name and incarnation < context.incarnation:
                del self.world.prepared[token]

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.rows

    def restoreState(self, state: Any) -> None:
        self.rows = state


#: Name of the one run that a cluster hosts at a time.
RUN = "job"


@dataclass(frozen=True)
class Program:
    """What is run, and how its result is known."""

    name: str
    workers: int
    graph: Callable[[], Graph]
    alignment: AlignmentWish
    output: list[Any]
    #: the same in every snapshot
    measure: Callable[[Snapshot], Any]

    @property
    def built(self) -> Built:
        """The graph, built once in this process."""
        return _built(self)

    def __hash__(self) -> int:
        return hash(self.name)


@cache
def _built(program: Program) -> Built:
    return build(program.graph(), program.alignment)


NUMBERS = 12


def _pipeline() -> Graph:
    graph = Graph("pipeline")
    graph.add("numbers", Numbers(NUMBERS), parallelism=2)
    graph.add("delay", Delay(), parallelism=2).add("out", Writer(), parallelism=2)
    return graph.connect("numbers", "delay", spread="rebalance").connect("delay", "out", spread="rebalance")


def _bank() -> Graph:
    graph = Graph("bank").add("numbers", Numbers(NUMBERS))
    graph.add("bank", Bank(0), parallelism=3).add("out", Writer(), parallelism=2)
    graph.connect("numbers", "bank").connect("bank", "bank", spread="rebalance")
    return graph.connect("bank", "out")


def _closed_bank() -> Graph:
    graph = Graph("closed-bank").add("bank", Bank(2), parallelism=3).add("out", Writer())
    return graph.connect("bank", "bank", spread="rebalance").connect("bank", "out")


def _money(snapshot: Snapshot) -> Any:
    """All balances, and what is on its way between accounts."""
    inner = [channel for channel in snapshot.channels if channel.source.node == channel.target.node == "bank"]
    on_the_way = (message for channel in inner for message in snapshot.channel(*channel).messages)
    return sum(snapshot.node("bank").states) + sum(amount for _, _, amount in on_the_way)


_BANK_ENDS = [f"end of bank[{index}]" for index in range(3)]
_NOTHING: Callable[[Snapshot], Any] = lambda snapshot: None  # noqa: E731

PROGRAMS = (
    Program("pipeline", 2, _pipeline, "unaligned", list(range(NUMBERS)), _NOTHING),
    Program("aligned pipeline", 2, _pipeline, "aligned", list(range(NUMBERS)), _NOTHING),
    Program("timed pipeline", 3, _pipeline, 0.5, list(range(NUMBERS)), _NOTHING),
    Program("bank", 3, _bank, "unaligned", [*map(str, range(NUMBERS)), *_BANK_ENDS], _money),
    Program(
        "closed bank",
        2,
        _closed_bank,
        "unaligned",
        [*(f"bank[{index}]:{number}" for index in range(3) for number in range(2)), *_BANK_ENDS],
        _money,
    ),
)
