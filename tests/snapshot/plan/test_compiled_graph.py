"""From a declared graph to its topology and shippable code."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pyarrow as pa

from cutline import END, Context, Graph, Node, Sink, Source
from cutline.snapshot.node import End
from cutline.snapshot.plan.compiled_graph import CompiledGraph, build
from cutline.snapshot.plan.topology import Component, Partitioning
from tests.snapshot.graphs import Passive


class Numbers(Source):
    def poll(self, context: Context) -> End:
        return END


class Holding(Passive):
    def __init__(self, values: list[int]) -> None:
        self.values = values


def test_each_edge_gets_its_spread() -> None:
    """Hash where there is a key, forward where parallelism is equal, else rebalance, or what was asked for."""
    graph = Graph("g").add("a", Passive(), parallelism=2).add("b", Passive(), parallelism=2).add("c", Passive())
    graph.connect("a", "b").connect("a", "c").connect("b", "c", key=len).connect("b", "a", partitioning="broadcast")
    graph.connect("c", "b", partitioning="directed").connect("c", "a", key=["x", "y"]).connect(
        "b", "b", partitioning="rebalance"
    )
    edges = build(graph, "unaligned").topology.edges
    assert [(str(edge), edge.partitioning, edge.key) for edge in edges] == [
        ("a->b", Partitioning.FORWARD, None),
        ("a->c", Partitioning.REBALANCE, None),
        ("b->c", Partitioning.HASH, "len()"),
        ("b->a", Partitioning.BROADCAST, None),
        ("c->b", Partitioning.DIRECTED, None),
        ("c->a", Partitioning.HASH, "(x, y)"),
        ("b->b", Partitioning.REBALANCE, None),
    ]


def test_components_and_kinds() -> None:
    """A self-edge is a cycle; sources and sinks carry their guarantees."""
    graph = Graph("g").add("out", Sinking()).add("loop", Passive()).add("in", Numbers())
    graph.connect("in", "loop").connect("loop", "loop").connect("loop", "out")
    topology = build(graph, "unaligned").topology
    assert topology.components == (Component(("in",), False), Component(("loop",), True), Component(("out",), False))
    assert [(node.name, node.component, node.is_source, node.is_sink, node.guarantee) for node in topology.nodes] == [
        ("out", 2, False, True, "at_least_once"),
        ("loop", 1, False, False, None),
        ("in", 0, True, False, "none"),
    ]


class Sinking(Sink):
    def onMessage(self, message: object, context: Context) -> None:
        pass


def test_each_unpickled_node_is_a_copy_of_its_own() -> None:
    """Subtasks share nothing, and what the caller does to the instance later is not seen."""
    node = Holding([1])
    compiled = build(Graph("g").add("a", node).add("b", node), "unaligned")
    node.values.append(2)
    first, second = cloudpickle.loads(compiled.nodes["a"]), cloudpickle.loads(compiled.nodes["a"])
    first.values.append(3)
    assert (first.values, second.values) == ([1, 3], [1])
    assert cloudpickle.loads(compiled.nodes["b"]).values == [1]


def test_users_code_of_edges_is_kept_beside_the_topology() -> None:
    """Key, schema and transforms, by names of the edge's ends; all of it can be shipped."""
    graph = Graph("g")
    graph.source("in", Numbers()).map(abs).keyBy("n").process("p", Passive(), schema="n long").to("out", Sinking())
    compiled = CompiledGraph.opened(build(graph.addInvariant("any", bool), "unaligned").shipped())
    assert compiled.edges["in", "p"].key == "n"
    assert compiled.edges["in", "p"].schema == pa.schema([("n", pa.int64())])
    assert [transform.function for transform in compiled.edges["in", "p"].transforms] == [abs]
    assert compiled.edges["p", "out"].schema is None
    assert compiled.invariants == {}  # the driver judges them
    assert compiled.topology == build(graph, "unaligned").topology


def test_the_code_of_a_submission_is_pickled_once() -> None:
    """A cell that runs again changes neither nodes nor functions of edges in a run that is rescaled."""
    cell = """
class Priced(Node):
    def onMessage(self, message, context): return price(message)
def price(message): return message * factor
factor = 1
"""
    names: dict[str, Any] = {"__name__": "__main__", "Node": Node}
    exec(cell, names)
    graph = Graph("g").add("a", names["Priced"]()).connect("a", "a", key=names["price"])
    first = build(graph, "unaligned")
    names["factor"] = 2
    again = build(graph.withParallelism({"a": 2}), "unaligned", code=first.code)
    opened = CompiledGraph.opened(again.shipped())
    assert opened.topology.node("a").parallelism == 2
    key: Any = opened.edges["a", "a"].key
    assert [key(3), cloudpickle.loads(opened.nodes["a"]).onMessage(3, None)] == [3, 3]


def test_large_variables_of_nodes_are_sent_once() -> None:
    """The names of the program hold no code of nodes, because methods refer to variables of the main module."""
    cell = """
class Modelled(Node):
    def onMessage(self, message, context): context.send(model)
model = bytes(100_000)
"""
    names: dict[str, Any] = {"__name__": "__main__", "Node": Node}
    exec(cell, names)
    compiled = build(Graph("g").add("a", names["Modelled"]()).connect("a", "a"), "unaligned")
    assert len(compiled.nodes["a"]) > 100_000
    assert len(compiled.code.names) < 1_000


def test_building_changes_nothing() -> None:
    """A graph can be explained, submitted and submitted again."""
    graph = Graph("g").add("a", Holding([1])).connect("a", "a")
    first = build(graph, "aligned")
    assert first.topology == build(graph, "aligned").topology


def test_a_long_line_of_nodes_is_built() -> None:
    """Ten thousand nodes, without recursion and in little time."""
    graph = Graph("g").add("n0", Passive())
    for number in range(1, 10_000):
        graph.add(f"n{number}", Passive()).connect(f"n{number - 1}", f"n{number}")
    topology = build(graph, "aligned").topology
    assert len(topology.channels) == 9_999
    assert all(edge.alignment.aligned for edge in topology.edges)
