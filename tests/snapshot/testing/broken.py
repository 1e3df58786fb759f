"""Five nodes, each with one of the usual mistakes, and the same five without it."""

from __future__ import annotations

from itertools import count
from typing import Any

from cutline import END, Context, Graph, Node, Source
from cutline.snapshot.testing.lists import ListSink, ListSource

# ---- state kept outside snapshotState


class Averages(Node):
    """Sends the average of all numbers so far."""

    def __init__(self) -> None:
        self.total = 0
        self.count = 0

    def onMessage(self, number: int, context: Context) -> None:
        self.total += number
        self.count += 1
        context.send(self.total / self.count)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [self.total, self.count]

    def restoreState(self, state: Any) -> None:
        self.total, self.count = state


class ForgetsCount(Averages):
    """`count` is not in its state."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.total

    def restoreState(self, state: Any) -> None:
        self.total = state


# ---- mutable state shared with the snapshot


class Ledger(Node):
    """Writes numbers down, and sends the sum of all."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def onMessage(self, number: int, context: Context) -> None:
        self.numbers.append(number)
        context.send(sum(self.numbers))

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.numbers

    def restoreState(self, state: Any) -> None:
        self.numbers = state


#: {name of a ledger: what is in it}
LEDGERS: dict[str, list[int]] = {}


class SharesLedger(Node):
    """Its ledger is a variable of the module, and its state is the name of it."""

    def onStart(self, context: Context) -> None:
        self.ledger = str(context.subtask)
        LEDGERS[self.ledger] = []

    def onMessage(self, number: int, context: Context) -> None:
        LEDGERS[self.ledger].append(number)
        context.send(sum(LEDGERS[self.ledger]))

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.ledger

    def restoreState(self, state: Any) -> None:
        self.ledger = state


class SharesLedger2(Ledger):
    """Its numbers are on a page of a book that belongs to the class, and its state is the number of the page."""

    registry: dict[int, list[int]] = {0: []}  # noqa: RUF012  # that is the mistake

    def onStart(self, context: Context) -> None:
        self.page = max(self.registry) + 1
        self.numbers = self.registry[self.page] = []

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.page

    def restoreState(self, state: Any) -> None:
        self.page, self.numbers = state, self.registry[state]


# ---- state lost in restoreState


class LosesCount(Averages):
    """`count` is in its state, and does not come back."""

    def restoreState(self, state: Any) -> None:
        self.total, _ = state


# ---- sends in the constructor or in open


class Greets(Node):
    """Sends a greeting ahead of all numbers."""

    def onStart(self, context: Context) -> None:
        context.send("hello")

    def onMessage(self, number: int, context: Context) -> None:
        context.send(number)


class GreetsInOpen(Greets):
    """Greets at every start."""

    def open(self, context: Context) -> None:
        context.send("hello")

    def onStart(self, context: Context) -> None:
        pass


class GreetsInConstructor(Greets):
    """The constructor puts a greeting where the first message finds it, after every start."""

    def __init__(self) -> None:
        self.outbox = ["hello"]

    def onStart(self, context: Context) -> None:
        pass

    def onMessage(self, number: int, context: Context) -> None:
        while self.outbox:
            context.send(self.outbox.pop())
        context.send(number)


# ---- non-determinism where replay needs determinism


class Requests(Source):
    """Sends orders, each with a key by which a table knows it when it comes again."""

    def __init__(self, orders: int = 3) -> None:
        self.orders = orders
        self.next = 0

    def key(self) -> str:
        return f"order-{self.next}"

    def poll(self, context: Context) -> Any:
        if self.next == self.orders:
            return END
        context.send([self.key(), self.next])
        self.next += 1
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = state


class RandomOrders(Requests):
    """Its keys are new each time."""

    def key(self) -> str:
        return new_key()


_numbers = count()


def new_key() -> str:
    """As `uuid.uuid4` gives one: never the same again."""
    return f"key-{next(_numbers)}"


class Table(Node):
    """A table outside: a row that comes again under its key changes nothing."""

    def onMessage(self, row: Any, context: Context) -> None:
        pass


# ---- graphs


def through(node: Node) -> Graph:
    """Three numbers, the node, and what comes out of it."""
    graph = Graph("through")
    graph.add("numbers", ListSource(1, 2, 3)).add("node", node).add("out", ListSink())
    return graph.connect("numbers", "node").connect("node", "out")


def into_table(source: Source) -> Graph:
    """A source, and a table to which it writes."""
    return Graph("orders").add("orders", source).add("table", Table()).connect("orders", "table")
