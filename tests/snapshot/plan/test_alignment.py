"""Which edges are aligned (PROTOCOL 4.1, aligned)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Graph, GraphError
from cutline.snapshot.plan.alignment import parse_alignment
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.topology import UNALIGNED, Alignment, Topology
from tests.snapshot.graphs import Passive, Shape, reaches, shapes

ALIGNED = Alignment(aligned=True, timeout=None)


def nodes(*names: str) -> Graph:
    graph = Graph("alignment")
    for name in names:
        graph.add(name, Passive())
    return graph


def alignments(topology: Topology) -> dict[str, str]:
    return {str(edge): str(edge.alignment) for edge in topology.edges}


def assert_rule_holds(topology: Topology) -> None:
    """The rule itself, said once more: agreement at each node, all the way up, no cycle."""
    for edge in topology.edges:
        into_target = [other for other in topology.edges if other.target == edge.target]
        assert {other.alignment for other in into_target} == {edge.alignment}
        if edge.alignment.aligned:
            assert not edge.in_cycle
            assert all(other.alignment.aligned for other in topology.edges if other.target == edge.source)


@given(shapes())
def test_a_wish_is_granted_wherever_it_can_be(shape: Shape) -> None:
    """Unaligned stay exactly the edges into a cycle, on it, or behind it, and those that must agree with them."""
    topology = build(shape.graph(), "aligned").topology
    assert_rule_holds(topology)
    cyclic = [v for v in range(len(shape.parallelism)) if v in reaches(shape.edges, v)]
    behind = {v for start in cyclic for v in (start, *reaches(shape.edges, start))}
    for edge in topology.edges:
        assert edge.alignment.aligned == (int(edge.target[1:]) not in behind)


@given(shapes(), st.data())
def test_what_is_asked_for_is_granted_or_refused(shape: Shape, data: st.DataObject) -> None:
    """With any requests on any edges: a GraphError, or all requests granted and the rule kept."""
    wishes: list[AlignmentWish | None] = [None, None, "unaligned", "aligned", 2.0]
    asked: dict[str, AlignmentWish | None] = {}
    graph = Graph("random")
    for number, parallelism in enumerate(shape.parallelism):
        graph.add(f"n{number}", Passive(), parallelism=parallelism)
    for source, target in shape.edges:
        wish = data.draw(st.sampled_from(wishes))
        asked[f"n{source}->n{target}"] = wish
        graph.connect(f"n{source}", f"n{target}", alignment=wish)
    try:
        topology = build(graph, data.draw(st.sampled_from(["unaligned", "aligned", 2.0]))).topology
    except GraphError:
        return
    assert_rule_holds(topology)
    for edge in topology.edges:
        granted = asked[str(edge)]
        assert granted is None or parse_alignment(granted) == edge.alignment


def test_one_request_decides_for_all_edges_into_a_node() -> None:
    """Edges that asked for nothing agree with the one that did."""
    graph = nodes("a", "b", "c").connect("a", "c", alignment=1.5).connect("b", "c")
    assert alignments(build(graph, "unaligned").topology) == {"a->c": "aligned for 1.5 s", "b->c": "aligned for 1.5 s"}


def test_edges_into_one_node_must_agree() -> None:
    """Two different requests are refused, with both edges named."""
    graph = nodes("a", "b", "c").connect("a", "c", alignment="aligned").connect("b", "c", alignment="unaligned")
    with pytest.raises(GraphError, match=r"'c'.*a->c aligned, b->c unaligned"):
        build(graph, "unaligned")


@pytest.mark.parametrize("edge", [("x", "ring"), ("ring", "ring"), ("ring", "y"), ("y", "z")])
def test_aligned_into_on_and_behind_a_cycle_is_refused(edge: tuple[str, str]) -> None:
    """Asked for where it would deadlock, alignment is an error that names the edge and the cycle's node."""
    graph = nodes("x", "ring", "y", "z")
    for source, target in [("x", "ring"), ("ring", "ring"), ("ring", "y"), ("y", "z")]:
        graph.connect(source, target, alignment="aligned" if (source, target) == edge else None)
    with pytest.raises(
        GraphError, match=rf"edge {edge[0]}->{edge[1]}: cannot be aligned, because 'ring' is on a cycle"
    ):
        build(graph, "aligned")


def test_aligned_behind_unaligned_is_refused() -> None:
    """Every edge into an aligned edge's source must be aligned too."""
    graph = nodes("a", "b", "c").connect("a", "b", alignment="unaligned").connect("b", "c", alignment="aligned")
    with pytest.raises(GraphError, match=r"edge b->c: cannot be aligned, because the edges into 'b' are unaligned"):
        build(graph, "aligned")


def test_a_wish_is_a_word_or_seconds() -> None:
    """Everything else is refused, with what is possible."""
    assert [parse_alignment(wish) for wish in ("unaligned", "aligned", 3)] == [UNALIGNED, ALIGNED, Alignment(True, 3.0)]
    for wish in (0, -1.0, float("inf"), float("nan"), True, "ALIGNED", None):
        with pytest.raises(ValueError, match="none of 'unaligned', 'aligned'"):
            parse_alignment(wish)
