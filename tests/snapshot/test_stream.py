"""The pipeline sugar declares the same graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cutline import END, Context, Graph, GraphError, Sink, Source, Stream
from cutline.snapshot.node import End
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import Partitioning
from tests.snapshot.graphs import Passive


class Lines(Source):
    def poll(self, context: Context) -> End:
        return END


class Sinking(Sink):
    def onMessage(self, message: object, context: Context) -> None:
        pass


def stream() -> Stream:
    return Graph("g").source("lines", Lines(), parallelism=2)


def test_a_pipeline_is_the_graph_one_would_write_by_hand() -> None:
    """Same nodes, same edges; map, flatMap and filter are neither."""
    by_hand = Graph("words").add("lines", Lines(), parallelism=2).add("count", Passive(), parallelism=2)
    by_hand.add("out", Sinking()).connect("lines", "count", key="word").connect("count", "out")
    words = Graph("words").source("lines", Lines(), parallelism=2).flatMap(str.split).filter(len).map(str.lower)
    graph = words.keyBy("word").process("count", Passive(), parallelism=2).to("out", Sinking())
    assert build(graph, "unaligned").topology == build(by_hand, "unaligned").topology
    kinds = [transform.kind.value for transform in build(graph, "unaligned").edges["lines", "count"].transforms]
    assert kinds == ["flatMap", "filter", "map"]


def test_a_stream_is_immutable() -> None:
    """Two ways on from one stream do not see each other."""
    lines = stream()
    lines.map(str.lower).to("lower", Sinking())
    graph = lines.broadcast().to("all", Sinking(), parallelism=3)
    compiled = build(graph, "unaligned")
    assert [len(compiled.edges["lines", name].transforms) for name in ("lower", "all")] == [1, 0]
    assert [edge.partitioning for edge in compiled.topology.edges] == [Partitioning.REBALANCE, Partitioning.BROADCAST]


def test_a_union_is_an_edge_from_each() -> None:
    """Each branch keeps its own transforms and is spread the same."""
    graph = Graph("g")
    left, right = graph.source("left", Lines()).map(str.lower), graph.source("right", Lines())
    left.union(right).keyBy("a", "b").to("out", Sinking(), parallelism=2)
    compiled = build(graph, "unaligned")
    assert [(str(edge), edge.key) for edge in compiled.topology.edges] == [
        ("left->out", "(a, b)"),
        ("right->out", "(a, b)"),
    ]
    assert [len(code.transforms) for code in compiled.edges.values()] == [1, 0]


def test_a_stream_united_with_itself_is_refused_when_built() -> None:
    """It would be two edges between the same nodes."""
    lines = stream()
    with pytest.raises(GraphError, match="edge lines->out: declared 2 times"):
        build(lines.union(lines.map(str.lower)).to("out", Sinking()), "unaligned")


def test_streams_of_two_graphs_do_not_unite() -> None:
    """Both graphs are named."""
    with pytest.raises(GraphError, match="two graphs, 'g' and 'other'"):
        stream().union(Graph("other").source("x", Lines()))


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("map", lambda partitioning: partitioning.map(len)),
        ("keyBy", lambda partitioning: partitioning.keyBy("b")),
        ("rebalance", lambda partitioning: partitioning.rebalance()),
        ("broadcast", lambda partitioning: partitioning.broadcast()),
    ],
)
def test_how_a_stream_is_spread_is_said_last(name: str, after: Callable[[Stream], Stream]) -> None:
    """A map behind keyBy would change the key before it is read."""
    with pytest.raises(GraphError, match=f"{name} after keyBy, broadcast or rebalance"):
        after(stream().keyBy("a"))


def test_key_by_takes_columns_or_one_function() -> None:
    """Neither nothing nor a mixture."""
    for keys in ((), ("a", len)):
        with pytest.raises(GraphError, match="names of columns or one function"):
            stream().keyBy(*keys)
