"""Decide which edges are aligned: PROTOCOL 4.1, once, when a graph is built.

An edge may be aligned only if every edge into its source node is, and all edges into one node agree. Edges on a cycle,
or after a cycle, are never aligned. The run's alignment is a wish, granted where these rules permit. A request of
`connect` that the rules forbid is a problem. The protocol that obeys the result is not in this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cutline.snapshot.plan.topology import UNALIGNED, Alignment, Component


class Request(NamedTuple):
    """An edge and the alignment that `connect` asked for; None: the run's."""

    source: str
    target: str
    asked: Alignment | None


@dataclass(frozen=True, slots=True)
class Grant:
    """Alignment of an edge, and the reason for human readers."""

    alignment: Alignment
    reason: str


@dataclass(frozen=True, slots=True)
class Granted:
    """Alignment of all edges of a graph. With problems, no grant may be used."""

    grants: Mapping[tuple[str, str], Grant]
    problems: tuple[str, ...]


def parse_alignment(wish: object) -> Alignment:
    """Return the alignment of "unaligned", "aligned" or a number of seconds.

    Raises
    ------
    ValueError
        when `wish` is anything else.
    """
    if wish == "unaligned":
        return UNALIGNED
    if wish == "aligned":
        return Alignment(aligned=True, timeout=None)
    if isinstance(wish, int | float) and not isinstance(wish, bool) and 0 < wish < float("inf"):
        return Alignment(aligned=True, timeout=float(wish))
    raise ValueError(f"alignment {wish!r} is none of 'unaligned', 'aligned' and a number of seconds above 0")


def grant_alignment(components: Sequence[Component], edges: Sequence[Request], wish: Alignment) -> Granted:
    """Decide the alignment of all edges of a graph.

    Parameters
    ----------
    components : sequence of Component
        in topological order.
    wish : Alignment
        the run's alignment.
    """
    inputs: dict[str, list[Request]] = {name: [] for part in components for name in part.nodes}
    for edge in edges:
        inputs[edge.target].append(edge)
    grants: dict[tuple[str, str], Grant] = {}
    problems: list[str] = []
    blocked: dict[str, str] = {}  # {node: reason why no edge out of the node may be aligned}
    for part in components:
        for name in part.nodes:
            obstacle = _obstacle(name, part, inputs[name], blocked)
            granted, trouble = _decide(name, inputs[name], obstacle, wish)
            problems += trouble
            grants.update({(edge.source, edge.target): granted for edge in inputs[name]})
            if part.cyclic:
                blocked[name] = f"{name!r} is on a cycle"
            elif inputs[name] and not granted.alignment.aligned:
                blocked[name] = blocked_by(inputs[name], blocked) or f"the edges into {name!r} are unaligned"
    return Granted(grants, tuple(problems))


def blocked_by(inputs: Sequence[Request], blocked: Mapping[str, str]) -> str | None:
    """Return the reason in a source node why none of these edges may be aligned, or None if there is no such reason."""
    return next((blocked[edge.source] for edge in inputs if edge.source in blocked), None)


def _obstacle(name: str, part: Component, inputs: Sequence[Request], blocked: Mapping[str, str]) -> str | None:
    """Return the reason why the edges into a node cannot be aligned, or None if they can."""
    if part.cyclic:
        return f"{name!r} is on a cycle"
    return blocked_by(inputs, blocked)


def _decide(name: str, inputs: Sequence[Request], obstacle: str | None, wish: Alignment) -> tuple[Grant, list[str]]:
    """Decide for all edges into a node at once, because they must agree."""
    asking = [edge for edge in inputs if edge.asked is not None]
    asked = list(dict.fromkeys(edge.asked for edge in asking if edge.asked is not None))
    if len(asked) > 1:
        said = ", ".join(f"{edge.source}->{edge.target} {edge.asked}" for edge in asking)
        return Grant(UNALIGNED, ""), [f"node {name!r}: all edges into one node must agree in alignment, but: {said}"]
    if asked and not asked[0].aligned:
        return Grant(UNALIGNED, f"asked for on {asking[0].source}->{name}"), []
    if asked and obstacle:
        return Grant(UNALIGNED, obstacle), [
            f"edge {edge.source}->{name}: cannot be aligned, because {obstacle}; leave alignment out" for edge in asking
        ]
    if asked:
        return Grant(asked[0], f"asked for on {asking[0].source}->{name}"), []
    if wish.aligned and obstacle:
        return Grant(UNALIGNED, obstacle), []
    return Grant(wish, "the run's alignment"), []
