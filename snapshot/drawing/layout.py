"""Place the nodes of a drawn graph in layers from left to right, and the nodes of a cycle on a ring.

The method is a short form of Sugiyama, Tagawa & Toda 1981. A cycle is one block. A block stands to the right of all its
predecessors. An edge over several layers reserves a place in each. The order in a layer follows the neighbours. Inches,
shapes and colours are outside. Equal topologies give equal layouts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import cos, pi, sin
from typing import NamedTuple

from cutline.snapshot.plan.topology import Component, Topology

#: distance between neighbours on a ring, in places along the ring
_RING_STEP = 1.25
#: places that an edge reserves in a layer that it passes
_PASSAGE = 0.6
#: passes over the layers, each in both directions, until the orders are stable
_SWEEPS = 4


class Point(NamedTuple):
    """A point: x to the right, y downwards."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of nodes, in places. Two nodes are at least about one place apart."""

    points: dict[str, Point]  #: {node: centre}
    width: float  #: total width, including half a place around the outermost centres
    height: float


@dataclass(slots=True, eq=False)
class _Block:
    """A component, or the passage of an edge through a layer."""

    nodes: dict[str, Point] = field(default_factory=dict)  #: {node: centre}, relative to the middle of the block
    width: float = 1.0
    height: float = 1.0
    layer: int = 0
    before: list[_Block] = field(default_factory=list)
    after: list[_Block] = field(default_factory=list)
    y: float = 0.0  #: middle of the block, relative to the middle of its layer


def positions(topology: Topology) -> dict[str, tuple[float, float]]:
    """Return {node: (x, y)} from 0 to 1, to the right and downwards. Most messages go to the right."""
    placed = layout(topology)
    return {node: (point.x / placed.width, point.y / placed.height) for node, point in placed.points.items()}


def layout(topology: Topology) -> Layout:
    """Place the nodes of a graph."""
    layers = _layers(topology)
    for _ in range(_SWEEPS):
        for layer in layers:
            _settle(layer, forward=True)
        for layer in reversed(layers):
            _settle(layer, forward=False)
    height = max((sum(block.height for block in layer) for layer in layers), default=1.0)
    points: dict[str, Point] = {}
    left = 0.0
    for layer in layers:
        width = max(block.width for block in layer)
        for block in layer:
            for node, (x, y) in block.nodes.items():
                points[node] = Point(left + width / 2 + x, height / 2 + block.y + y)
        left += width
    return Layout({node.name: points[node.name] for node in topology.nodes}, max(left, 1.0), height)


def _layers(topology: Topology) -> list[list[_Block]]:
    """Return the layers of blocks. Each block stands after its predecessors; components are in topological order."""
    blocks = [_block(topology, component) for component in topology.components]
    pairs = dict.fromkeys(
        (topology.node(edge.source).component, topology.node(edge.target).component) for edge in topology.edges
    )
    # Sort by target, because the layer of each source must be final before its use.
    outer = sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda pair: (pair[1], pair[0]))
    for source, target in outer:
        blocks[target].layer = max(blocks[target].layer, blocks[source].layer + 1)
    layers: list[list[_Block]] = [[] for _ in range(max((block.layer + 1 for block in blocks), default=0))]
    for block in blocks:
        layers[block.layer].append(block)
    for source, target in outer:
        _lead(blocks[source], blocks[target], layers)
    return layers


def _lead(source: _Block, target: _Block, layers: list[list[_Block]]) -> None:
    """Connect two blocks, with a passage in each layer between them."""
    last = source
    for number in range(source.layer + 1, target.layer):
        passage = _Block(width=0.0, height=_PASSAGE, layer=number)
        layers[number].append(passage)
        last.after.append(passage)
        passage.before.append(last)
        last = passage
    last.after.append(target)
    target.before.append(last)


def _settle(layer: list[_Block], *, forward: bool) -> None:
    """Order a layer by the middles of the neighbours, and stack its blocks around the layer's middle."""

    def wished(block: _Block) -> float:
        neighbours = block.before if forward else block.after
        return sum(each.y for each in neighbours) / len(neighbours) if neighbours else block.y

    layer.sort(key=wished)
    top = -sum(block.height for block in layer) / 2
    for block in layer:
        block.y = top + block.height / 2
        top += block.height


def _block(topology: Topology, component: Component) -> _Block:
    """Make the block of a component: a node, or a ring of nodes that begins at the left."""
    order = _round(topology, component)
    count = len(order)
    if count == 1:
        return _Block({order[0]: Point(0.0, 0.0)})
    radius = max(0.5, count * _RING_STEP / (2 * pi))
    angles = [2 * pi * number / count for number in range(count)]
    nodes = {node: Point(-radius * cos(angle), -radius * sin(angle)) for node, angle in zip(order, angles, strict=True)}
    depth = max(point.y for point in nodes.values())
    return _Block(nodes, 1 + 2 * radius, 1 + 2 * depth)


def _round(topology: Topology, component: Component) -> list[str]:
    """Return the nodes of a component in the order of neighbours, from a node with an edge from outside."""
    inside = dict.fromkeys(component.nodes)
    entered = [edge.target for edge in topology.edges if edge.target in inside and edge.source not in inside]
    successors: dict[str, list[str]] = {node: [] for node in inside}
    for edge in topology.edges:
        if edge.source in inside and edge.target in inside:
            successors[edge.source].append(edge.target)
    order: list[str] = []
    node: str | None = entered[0] if entered else component.nodes[0]
    while node is not None:
        order.append(node)
        del inside[node]
        near = [each for last in reversed(order) for each in successors[last] if each in inside]
        node = near[0] if near else next(iter(inside), None)
    return order
