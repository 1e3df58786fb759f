"""Declaring a graph."""

from __future__ import annotations

import cloudpickle
import pytest

from cutline import Graph, GraphError
from cutline.snapshot.plan.compiled_graph import build
from tests.snapshot.graphs import Passive


def test_a_graph_survives_pickling() -> None:
    """Command lines and notebooks hand graphs on."""
    graph = Graph("g").add("a", Passive(), parallelism=2).connect("a", "a", key=lambda message: message % 2)
    copy = cloudpickle.loads(cloudpickle.dumps(graph.addInvariant("true", lambda snap: True)))
    assert build(copy, "unaligned").topology == build(graph, "unaligned").topology
    assert [name for name, _ in copy.invariants] == ["true"]


def test_an_edge_may_be_declared_before_its_nodes() -> None:
    """Nothing is judged until the graph is built."""
    graph = Graph("g").connect("a", "b").add("b", Passive()).add("a", Passive())
    assert [str(edge) for edge in build(graph, "unaligned").topology.edges] == ["a->b"]


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("spread", "graph 'g': connect has no keyword spread; its name is partitioning$"),
        ("partition", "graph 'g': connect has no keyword partition$"),
    ],
)
def test_an_unknown_keyword_is_refused(keyword: str, message: str) -> None:
    """The error for the former name of `partitioning` names the present one, and nothing is declared."""
    graph = Graph("g")
    with pytest.raises(GraphError, match=message):
        graph.connect("a", "b", **{keyword: "forward"})  # type: ignore[arg-type]
    assert graph.edges == []


def test_explain_prints_and_refuses() -> None:
    """A graph that cannot be built cannot be explained: the error says why."""
    with pytest.raises(GraphError, match="there is no node 'b'"):
        Graph("g").add("a", Passive()).connect("a", "b").explain()


def test_a_copy_has_another_parallelism() -> None:
    """Nodes, edges and invariants are those of the graph, which stays as it is."""
    graph = (
        Graph("g").add("a", Passive(), parallelism=2).add("b", Passive()).connect("a", "b", key="k", schema="k LONG")
    )
    copy = graph.addInvariant("true", lambda snap: True).withParallelism({"a": 4})
    assert [(node.name, node.parallelism) for node in copy.nodes] == [("a", 4), ("b", 1)]
    assert [(node.name, node.parallelism) for node in graph.nodes] == [("a", 2), ("b", 1)]
    assert (copy.name, copy.edges, copy.invariants) == (graph.name, graph.edges, graph.invariants)
    assert [node.node for node in copy.nodes] == [node.node for node in graph.nodes]
    copy.connect("b", "a")
    assert len(graph.edges) == 1


def test_a_copy_with_a_wrong_parallelism_is_refused() -> None:
    """All faults at once, with the nodes that exist."""
    graph = Graph("g").add("a", Passive(), parallelism=2).add("b", Passive())
    wrong = {"c": 2, "a": 0, "b": True}
    with pytest.raises(GraphError) as refused:
        graph.withParallelism(wrong)
    assert str(refused.value) == (
        "graph 'g': there is no node c; parallelism 0 of node a is no whole number from 1 on; "
        "parallelism True of node b is no whole number from 1 on. It has a=2, b=1"
    )
