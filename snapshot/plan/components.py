"""Strongly connected components of a directed graph of numbers. Graph theory only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def strong_components(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Split a graph into its strongly connected components, in topological order.

    Tarjan 1972 with a stack of its own, because a path of 10,000 nodes must not recurse.

    Parameters
    ----------
    successors : sequence of sequences of int
        ``successors[v]`` lists the targets of the edges of *v*.

    Returns
    -------
    list of list of int
        the components, each ascending; every edge between two components leads to the later component.
    """
    found: list[list[int]] = []
    order = [-1] * len(successors)  # position in which each vertex was first seen; -1: unseen
    lowest = [0] * len(successors)  # order of the earliest vertex on the path that the vertex leads back to
    on_path = [False] * len(successors)
    path: list[int] = []
    seen = 0
    for root in range(len(successors)):
        # Pairs of a vertex and the number of its edges that were followed. -1: the vertex is not entered yet.
        work = [(root, -1)] if order[root] < 0 else []
        while work:
            vertex, followed = work.pop()
            if followed < 0:
                order[vertex] = lowest[vertex] = seen
                seen += 1
                path.append(vertex)
                on_path[vertex] = True
            else:
                lowest[vertex] = min(lowest[vertex], lowest[successors[vertex][followed]])
            descend = _follow(vertex, followed + 1, successors[vertex], order, lowest, on_path)
            if descend is not None:
                work += [(vertex, descend), (successors[vertex][descend], -1)]
            elif lowest[vertex] == order[vertex]:
                found.append(_cut_off(vertex, path, on_path))
    found.reverse()  # because Tarjan closes a component only after all components that it leads to
    return found


def _follow(
    vertex: int,
    start: int,
    edges: Sequence[int],
    order: list[int],
    lowest: list[int],
    on_path: list[bool],
) -> int | None:
    """Follow the edges from number `start`. Return the number of the first that leads to an unseen vertex, or None."""
    for number in range(start, len(edges)):
        if order[edges[number]] < 0:
            return number
        if on_path[edges[number]]:
            lowest[vertex] = min(lowest[vertex], order[edges[number]])
    return None


def _cut_off(root: int, path: list[int], on_path: list[bool]) -> list[int]:
    """Remove the component of `root` from the end of the path, and return it."""
    component = [path.pop()]
    while component[-1] != root:
        component.append(path.pop())
    for vertex in component:
        on_path[vertex] = False
    return sorted(component)


def mark_reachable(successors: Sequence[Sequence[int]], start: Iterable[int], marked: list[bool]) -> None:
    """Mark every vertex of `start` and all vertices that they reach, but not through marked vertices."""
    waiting = list(start)
    while waiting:
        vertex = waiting.pop()
        if not marked[vertex]:
            marked[vertex] = True
            waiting.extend(successors[vertex])
