"""Generated programs: walks over a ring, a mesh, a star, an acyclic or any graph of 2 to 20 nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from cutline import Context, Node, Snapshot
from cutline.snapshot.plan.topology import Partitioning
from tests.snapshot.testing.outside import TwoPhases
from tests.snapshot.testing.programs import Program
from tests.snapshot.testing.shapes import Shape, make_graph, make_plans, random_shape
from tests.snapshot.testing.walkers import (
    AMOUNT,
    BatchWalker,
    Plan,
    SourceWalker,
    Walker,
    expected,
    fields,
)

#: Nodes of a mesh, where all are connected with all: 30 channels.
_MESH_MAX = 6
_NODES_MAX = 20


class _SinkWalker(Walker, TwoPhases):
    """Writes the id of each message that ends here."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.rows = []

    def open(self, context: Context) -> None:
        Walker.open(self, context)
        TwoPhases.open(self, context)

    def onMessage(self, message: Any, context: Context) -> None:
        self.rows.append((self.plan.name, fields(message)[0].id))
        super().onMessage(message, context)


def _node(plan: Plan) -> Node:
    if plan.is_source:
        return SourceWalker(plan)
    if plan.is_sink:
        return _SinkWalker(plan)
    return BatchWalker(plan) if plan.takes_batches else Walker(plan)


# ---------------------------------------------------------------- shapes: by how many nodes there are


def _ring(chance: Random, count: int) -> Shape:
    """A cycle, and a sink beside it."""
    environment = [(number, (number + 1) % (count - 1)) for number in range(count - 1)]
    return _shape(chance, count, [*environment, (0, count - 1)])


def _mesh(chance: Random, count: int) -> Shape:
    """All to all, and to a sink."""
    count = min(count, _MESH_MAX)
    inner = [(one, other) for one in range(count - 1) for other in range(count) if one != other]
    return _shape(chance, count, inner)


def _star(chance: Random, count: int) -> Shape:
    """A hub that asks, points that answer; and one that only listens."""
    points = range(1, count)
    return _shape(chance, count, [*((0, point) for point in points), *((point, 0) for point in points[:-1])])


def _acyclic(chance: Random, count: int) -> Shape:
    return random_shape(chance.randrange, nodes_max=count, parallelism_max=1 + (count < 6), cycles=False)


def _any(chance: Random, count: int) -> Shape:
    return random_shape(chance.randrange, nodes_max=count, parallelism_max=1 + (count < 6), cycles=True)


def _shape(chance: Random, count: int, pairs: list[tuple[int, int]]) -> Shape:
    partitionings = (Partitioning.HASH, Partitioning.BROADCAST, Partitioning.REBALANCE, Partitioning.FORWARD)
    walks = (3, *(chance.randrange(3) for _ in range(count - 1)))
    return Shape((1,) * count, tuple((*pair, chance.choice(partitionings)) for pair in pairs), walks)


SHAPES: dict[str, Callable[[Random, int], Shape]] = {
    "ring": _ring,
    "mesh": _mesh,
    "star": _star,
    "acyclic": _acyclic,
    "any graph": _any,
}


# ---------------------------------------------------------------- programs


def walk_program(kind: str, chance: Random) -> Program:
    """A random program of one kind of graph; most are small."""
    count = min(2 + int(chance.expovariate(1 / 4)), _NODES_MAX)
    shape = SHAPES[kind](chance, count)
    plans = make_plans(shape)
    handled = expected(plans)
    rows = Counter(
        {(name, each): times for name in plans if plans[name].is_sink for each, times in handled[name].items()}
    )
    money = sum(plan.walks * plan.parallelism for plan in plans.values()) * AMOUNT
    return Program(
        f"{kind} of {len(plans)}",
        lambda: make_graph(plans, _node),
        chance.choice(("unaligned", "aligned", 0.03, 0.3)),
        rows,
        lambda snapshot: _money(snapshot) - money,
        handled,
        workers=chance.randrange(1, 4),
    )


def _money(snapshot: Snapshot) -> int:
    """What all nodes hold, keep for later, and have on its way to each other."""
    held = 0
    for name in snapshot.nodes:
        for balance, _, delayed, *_ in snapshot.node(name).states:
            held += balance + sum(amount for *_, amount in delayed)
    moving = (message for channel in snapshot.channels for message in snapshot.channel(*channel).messages)
    return held + sum(fields(message)[0].amount for message in moving)
