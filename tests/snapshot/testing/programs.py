"""Programs whose result is known, for simulations: pipelines, and banks with cycles.

A program is a graph together with what its output must be, and what must be the same in every snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cutline import END, Context, Graph, Node, Snapshot, Source
from cutline.snapshot.plan.declarations import AlignmentWish
from tests.snapshot.testing.outside import Writer


@dataclass(frozen=True)
class Program:
    """What is run, and how its result is known."""

    name: str
    graph: Callable[[], Graph]
    alignment: AlignmentWish
    #: what its sinks have made visible at the end, by value
    rows: Counter[Any]
    #: the same in every snapshot
    measure: Callable[[Snapshot], Any] | None = None
    #: {node: ids of what it has handled for good}, where every message has one
    handled: Mapping[str, Counter[int]] = field(default_factory=dict)
    workers: int = 2


class Numbers(Source):
    """Sends its share of 0 … count - 1."""

    guarantee = "exactly_once"

    def __init__(self, count: int) -> None:
        self.count = count
        self.next = 0

    def onStart(self, context: Context) -> None:
        pass  # a hook that can be made to fail

    def poll(self, context: Context) -> Any:
        number = context.subtask.index + self.next * context.parallelism
        if number >= self.count:
            return END
        self.next += 1
        context.send(number)
        return 0.3 if number % 3 == 0 else None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = state


class Delay(Node):
    """Passes numbers on; every fourth one later, by a timer."""

    def __init__(self) -> None:
        self.waiting: list[list[Any]] = []

    def onMessage(self, message: Any, context: Context) -> None:
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
        self.waiting = [list(each) for each in state]


class Bank(Node):
    """Passes tokens around, each with a random amount of money, until they have hopped often enough."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.balance = 100

    def onStart(self, context: Context) -> None:
        for number in range(self.start):
            self._move([f"{context.subtask}:{number}", 3, 0], context)

    def onMessage(self, message: Any, context: Context) -> None:
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
        return self.balance

    def restoreState(self, state: Any) -> None:
        self.balance = state


#: Numbers that a pipeline, or an open bank, is fed with.
NUMBERS = 12


def pipeline() -> Graph:
    """Numbers, some of which are delayed, to a sink."""
    graph = Graph("pipeline").add("numbers", Numbers(NUMBERS), parallelism=2)
    graph.add("delay", Delay(), parallelism=2).add("out", Writer(), parallelism=2)
    return graph.connect("numbers", "delay", partitioning="rebalance").connect("delay", "out", partitioning="rebalance")


def _bank() -> Graph:
    graph = Graph("bank").add("numbers", Numbers(NUMBERS))
    graph.add("bank", Bank(0), parallelism=3).add("out", Writer(), parallelism=2)
    graph.connect("numbers", "bank").connect("bank", "bank", partitioning="rebalance")
    return graph.connect("bank", "out")


def _closed_bank() -> Graph:
    graph = Graph("closed-bank").add("bank", Bank(2), parallelism=3).add("out", Writer())
    return graph.connect("bank", "bank", partitioning="rebalance").connect("bank", "out")


def _money(snapshot: Snapshot) -> Any:
    """All balances, and what is on its way between accounts."""
    inner = [channel for channel in snapshot.channels if channel.source.node == channel.target.node == "bank"]
    on_the_way = (message for channel in inner for message in snapshot.channel(*channel).messages)
    return sum(snapshot.node("bank").states) + sum(amount for _, _, amount in on_the_way)


_NUMBERS = Counter(range(NUMBERS))
_ENDS = [f"end of bank[{index}]" for index in range(3)]
_TOKENS = [f"bank[{index}]:{number}" for index in range(3) for number in range(2)]

PROGRAMS = (
    Program("pipeline", pipeline, "unaligned", _NUMBERS),
    Program("aligned pipeline", pipeline, "aligned", _NUMBERS),
    Program("timed pipeline", pipeline, 0.05, _NUMBERS, workers=3),
    Program("bank", _bank, "unaligned", Counter([*map(str, range(NUMBERS)), *_ENDS]), _money, workers=3),
    Program("closed bank", _closed_bank, "unaligned", Counter([*_TOKENS, *_ENDS]), _money),
)
