"""Graphs that the tests of declarations share: a small node, and random directed graphs with cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from cutline import Context, Graph, Node


class Passive(Node):
    """Takes messages and does nothing with them."""

    def onMessage(self, message: Any, context: Context) -> None:
        pass


@dataclass(frozen=True)
class Shape:
    """A directed graph by numbers: parallelism of each node, and edges as pairs."""

    parallelism: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    def graph(self) -> Graph:
        graph = Graph("random")
        for number, parallelism in enumerate(self.parallelism):
            graph.add(f"n{number}", Passive(), parallelism=parallelism)
        for source, target in self.edges:
            graph.connect(f"n{source}", f"n{target}")
        return graph


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Up to eight nodes of parallelism 1 to 3, any edges between them, self-edges included."""
    parallelism = draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    number = st.integers(0, len(parallelism) - 1)
    edges = draw(st.lists(st.tuples(number, number), unique=True, max_size=16))
    return Shape(tuple(parallelism), tuple(edges))


def reaches(edges: tuple[tuple[int, int], ...], start: int) -> list[int]:
    """All that `start` leads to by one edge or more, found the slow way."""
    found: list[int] = []
    waiting = [start]
    while waiting:
        vertex = waiting.pop()
        for source, target in edges:
            if source == vertex and target not in found:
                found.append(target)
                waiting.append(target)
    return found
