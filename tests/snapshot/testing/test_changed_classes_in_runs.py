"""Runs of a program whose classes were changed since its last snapshot: objects in each place of the snapshot.

The places are messages in flight, rows of keyed state, own state, and prepared output.
"""

from __future__ import annotations

import re

import pytest

from cutline import Graph
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.testing import ListSink, Simulator
from tests.snapshot.channel.changed_classes import Program

_SOURCE = """
from cutline import END

@dataclass
class Basket:
    number: int
    DEFAULT
    def price(self): return FACTOR

class Orders(Source):
    def __init__(self): self.sent = 0
    def poll(self, context):
        if self.sent >= COUNT: return END
        context.send(Basket(self.sent))
        self.sent += 1
    def snapshotState(self, snapshotId, timestamp): return self.sent
    def restoreState(self, state): self.sent = state

def key_of(basket): return basket.number % 3

class Baskets(Node):
    def open(self, context):
        self.last, self.all, self.by = [get(name) for get, name in (
            (context.getValueState, "last"), (context.getListState, "all"), (context.getMapState, "by"))]
    def __init__(self): self.own = {}
    def onMessage(self, basket, context):
        stored = [self.last.get() or basket, *self.all.get(), *self.by.values(), *self.own.values()]
        context.send((basket, {type(each) is Basket for each in [basket, *stored]}, {each.price() for each in stored}))
        self.last.update(basket)
        self.all.appendValue(basket)
        self.by.updateValue(basket.number % 2, basket)
        self.own[basket.number % 5] = basket
    def snapshotState(self, snapshotId, timestamp): return self.own
    def restoreState(self, state): self.own = state
"""


def program(*, factor: int, count: int, default: str = "", name: str = "Basket") -> Program:
    """A program with objects of one class everywhere."""
    source = _SOURCE.replace("FACTOR", str(factor)).replace("COUNT", str(count)).replace("DEFAULT", default)
    made = Program(
        source.replace("Basket(", f"{name}(").replace("Basket:", f"{name}:").replace(" is Basket", f" is {name}"), name
    )
    made.graph.nodes.clear()
    made.graph.add("orders", made.names["Orders"]()).add("baskets", made.names["Baskets"]()).add("out", ListSink())
    made.graph.connect("orders", "baskets", key=made.names["key_of"]).connect("baskets", "out")
    return made


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("default", ["", "more: list = field(default_factory=list)"])
def test_objects_are_of_the_corrected_class(seed: int, default: str) -> None:
    """Whatever place they are restored from, and where the class has a field more."""
    files: dict[str, bytes] = {}
    Simulator(program(factor=1, count=10**6).graph, seed, files=files, snapshotInterval=0.01, maxSteps=400).run()
    after = program(factor=2, count=80, default=default)
    history = Simulator(after.graph, seed, files=files, snapshotInterval=0.01).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    rows = history.output("out")
    assert [rows[0][0].number > 0, rows[-1][0].number] == [True, 79]
    assert {type(basket) for basket, _, _ in rows} == {after.names["Basket"]}
    assert all(kinds == {True} for _, kinds, _ in rows)
    assert [prices for _, _, prices in rows[-10:]] == [{2}] * 10
    if default:
        assert rows[0][0].more == []


def test_a_class_of_messages_in_flight_that_is_gone_refuses_the_restore() -> None:
    """By its name, before any message is processed."""
    files: dict[str, bytes] = {}
    Simulator(program(factor=1, count=10**6).graph, 1, files=files, snapshotInterval=0.01, maxSteps=400).run()
    history = Simulator(program(factor=1, count=80, name="Bag").graph, 1, files=files, snapshotInterval=0.01).run()
    assert history.outcome is Outcome.FAILED
    assert re.search(r"in flight cannot be read here: .* no class .*__main__\.Basket", history.reason)
    assert history.handled("baskets") == []


_ROWS = """
@dataclass
class NAME:
    number: int

class Numbers(Source):
    def __init__(self): self.sent = 0
    def poll(self, context):
        context.send(self.sent)
        self.sent += 1
    def snapshotState(self, snapshotId, timestamp): return self.sent
    def restoreState(self, state): self.sent = state

class Rows(Node):
    def open(self, context): self.state = context.getGETState("rows")
    def onMessage(self, number, context): SET
"""

_KINDS = {
    "Value": "self.state.update(NAME(number))",
    "List": "self.state.appendValue([NAME(number)])",
    "Map": "self.state.updateValue(number % 3, (NAME(number),))",
}


def rows_of(kind: str, name: str) -> Graph:
    """A graph with rows of a class, behind messages that are numbers."""
    made = Program(_ROWS.replace("SET", _KINDS[kind]).replace("GET", kind).replace("NAME", name), name)
    graph = Graph("g").add("numbers", made.names["Numbers"]()).add("rows", made.names["Rows"]())
    return graph.connect("numbers", "rows", key=lambda number: number % 5)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_class_of_rows_that_is_gone_refuses_the_restore(kind: str) -> None:
    """By its name and that of the state, when the state is asked for. Nothing is processed."""
    files: dict[str, bytes] = {}
    Simulator(rows_of(kind, "Basket"), 1, files=files, snapshotInterval=0.01, maxSteps=400).run()
    history = Simulator(rows_of(kind, "Bag"), 1, files=files, snapshotInterval=0.01, maxSteps=2_000).run()
    assert history.outcome is Outcome.FAILED
    assert "rows of state 'rows' cannot be read here: the program has no class or function __main__.Basket" in (
        history.reason
    )
    assert history.handled("rows") == []
