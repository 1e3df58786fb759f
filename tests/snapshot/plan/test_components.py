"""Strongly connected components, against reachability found the slow way."""

from __future__ import annotations

from hypothesis import given

from cutline.snapshot.plan.components import mark_reachable, strong_components
from tests.snapshot.graphs import Shape, reaches, shapes


def successors_of(shape: Shape) -> list[list[int]]:
    return [[target for source, target in shape.edges if source == vertex] for vertex in range(len(shape.parallelism))]


@given(shapes())
def test_two_vertices_share_a_component_when_each_reaches_the_other(shape: Shape) -> None:
    """The components are exactly the classes of mutual reachability, and every vertex is in one."""
    components = strong_components(successors_of(shape))
    assert sorted(vertex for part in components for vertex in part) == list(range(len(shape.parallelism)))
    for part in components:
        for vertex in range(len(shape.parallelism)):
            mutual = vertex in reaches(shape.edges, part[0]) and part[0] in reaches(shape.edges, vertex)
            assert (vertex in part) == (mutual or vertex == part[0])


@given(shapes())
def test_components_come_in_topological_order(shape: Shape) -> None:
    """No edge leads from a later component to an earlier one."""
    components = strong_components(successors_of(shape))
    place = {vertex: number for number, part in enumerate(components) for vertex in part}
    assert all(place[source] <= place[target] for source, target in shape.edges)


@given(shapes())
def test_marking_finds_what_can_be_reached(shape: Shape) -> None:
    """The start itself and all that it leads to."""
    marked = [False] * len(shape.parallelism)
    mark_reachable(successors_of(shape), [0], marked)
    assert [vertex for vertex, is_marked in enumerate(marked) if is_marked] == sorted({0, *reaches(shape.edges, 0)})


def test_ten_thousand_vertices_need_no_recursion() -> None:
    """A line and a ring of that length."""
    count = 10_000
    line = [[vertex + 1] for vertex in range(count - 1)]
    assert strong_components([*line, []]) == [[vertex] for vertex in range(count)]
    assert strong_components([*line, [0]]) == [list(range(count))]
