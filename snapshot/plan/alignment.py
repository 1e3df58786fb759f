"""Which edges are aligned: PROTOCOL 4.1, decided once, when a graph is built.

An edge may be aligned only if every edge into its source node is, and all edges into one node agree; never
on a cycle or behind one. The run's alignment is a wish, granted where this holds; asked for on an edge where
it cannot be, it is a problem. The protocol that obeys the outcome lives elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from snapshot.plan.topology import UNALIGNED, Alignment, Component


class Request(NamedTuple):
    """An edge and what `connect` asked for it; None: what the run asks for."""

    source: str
    target: str
    asked: Alignment | None


@dataclass(frozen=True, slots=True)
class Grant:
    """Alignment that an edge got, and the reason for people."""

    alignment: Alignment
    reason: str


@dataclass(frozen=True, slots=True)
class Granted:
    """The outcome for a graph. With problems, no grant is to be used."""

    grants: Mapping[tuple[str, str], Grant]
    problems: tuple[str, ...]


def parse_alignment(wish: object) -> Alignment:
    """Parse a user's "unaligned", "aligned" or number of seconds.

    Raises
    ------
    ValueError
        when it is something else.
    """
    if wish == "unaligned":
        return UNALIGNED
    if wish == "aligned":
        return Alignment(aligned=True, timeout=None)
    if isinstance(wish, int | float) and not isinstance(wish, bool) and 0 < wish < float("inf"):
        return Alignment(aligned=True, timeout=float(wish))
    raise ValueError(f"alignment {wish!r} is none of 'unaligned', 'aligned' and a number of seconds above 0")


def grant_alignment(components: Sequence[Component], edges: Sequence[Request], wish: Alignment) -> Granted:
    """Decide for all edges of a graph.

    Parameters
    ----------
    components : sequence of Component
        in topological order.
    wish : Alignment
        the run's.
    """
    inputs: dict[str, list[Request]] = {name: [] for part in components for name in part.nodes}
    for edge in edges:
        inputs[edge.target].append(edge)
    grants: dict[tuple[str, str], Grant] = {}
    problems: list[str] = []
    blocked: dict[str, str] = {}  # why no edge out of this node may be aligned
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
    """Why none of these edges may be aligned, as far as it lies with a node that one comes from; None: it does not."""
    return next((blocked[edge.source] for edge in inputs if edge.source in blocked), None)


def _obstacle(name: str, part: Component, inputs: Sequence[Request], blocked: Mapping[str, str]) -> str | None:
    """Why the edges into a node cannot be aligned; None: they can."""
    if part.cyclic:
        return f"{name!r} is on a cycle"
    return blocked_by(inputs, blocked)


def _decide(name: str, inputs: Sequence[Request], obstacle: str | None, wish: Alignment) -> tuple[Grant, list[str]]:
    """One decision for all edges into a node, because they must agree."""
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
