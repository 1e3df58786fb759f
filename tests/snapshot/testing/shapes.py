"""Random graphs of walkers: from a few numbers to plans, and from plans to a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cutline.snapshot.graph import Graph
from cutline.snapshot.node import Node
from cutline.snapshot.plan.topology import Partitioning
from tests.snapshot.testing.walkers import Choose, Edge, Plan, key_of


def make_graph(plans: Mapping[str, Plan], node_of: Callable[[Plan], Node]) -> Graph:
    """The graph of a set of plans."""
    graph = Graph("walks")
    for plan in plans.values():
        graph.add(plan.name, node_of(plan), parallelism=plan.parallelism)
    for plan in plans.values():
        for edge in plan.edges:
            if edge.partitioning is Partitioning.HASH:
                graph.connect(plan.name, edge.target, key=key_of)
            else:
                graph.connect(plan.name, edge.target, partitioning=edge.partitioning.value)
    return graph


class Shape(NamedTuple):
    """A graph by numbers: the parallelism of each node, and edges as (source, target, spread)."""

    parallelism: tuple[int, ...]
    edges: tuple[tuple[int, int, Partitioning], ...]
    walks: tuple[int, ...]
    hops: int = 3


def make_plans(shape: Shape) -> dict[str, Plan]:
    """The plans of a shape. Node 0 is a source unless it has inputs; nodes without outputs are two-phase sinks."""
    total = sum(shape.parallelism)
    plans: dict[str, Plan] = {}
    for number, parallelism in enumerate(shape.parallelism):
        out = [(target, partitioning) for source, target, partitioning in shape.edges if source == number]
        has_inputs = any(target == number for _, target, _ in shape.edges)
        plan = Plan(
            name=f"n{number}",
            number=number,
            parallelism=parallelism,
            first=sum(shape.parallelism[:number]),
            total=total,
            edges=tuple(Edge(f"n{target}", partitioning, shape.parallelism[target]) for target, partitioning in out),
            walks=shape.walks[number],
            hops=shape.hops,
            is_source=not has_inputs or number == 0,
            is_sink=has_inputs and number != 0 and not out,
            takes_batches=number % 2 == 0,
        )
        plans[plan.name] = plan
    return plans


def random_shape(choose: Choose, *, nodes_max: int, parallelism_max: int, cycles: bool) -> Shape:
    """Any directed graph, or any acyclic one; every node has an edge."""
    count = 2 + choose(nodes_max - 1)
    parallelism = tuple(1 + choose(parallelism_max) for _ in range(count))
    pairs = {(source, source + 1): None for source in range(count - 1)}  # connected, so that something happens
    for _ in range(choose(count + 1)):
        source, target = choose(count), choose(count)
        if not cycles:
            source, target = min(source, target), max(source, target)
        if cycles or source != target:
            pairs[source, target] = None
    edges = []
    for source, target in pairs:
        partitionings: list[Partitioning] = [
            partitioning for partitioning in Partitioning if partitioning is not Partitioning.FORWARD
        ]
        if parallelism[source] == parallelism[target]:
            partitionings.append(Partitioning.FORWARD)
        edges.append((source, target, partitionings[choose(len(partitionings))]))
    walks = (3, *(choose(3) for _ in range(count - 1)))
    return Shape(parallelism, tuple(edges), walks)
