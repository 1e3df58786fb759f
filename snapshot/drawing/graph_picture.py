"""A graph, drawn: what is written in its nodes and on its edges. The door to the drawing of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapshot.drawing.html import drawn_or_text, needs_matplotlib, svg_of_lines
from snapshot.drawing.labels import shortened
from snapshot.errors import GraphError
from snapshot.plan.compiled_graph import build
from snapshot.plan.topology import EdgeSpec, NodeSpec, Topology

if TYPE_CHECKING:
    from snapshot.graph import Graph

#: Characters of a name of the user's that a box or an edge has room for.
_CHARACTERS = 28
#: So many edges that are all alike are told once.
_EDGES_OF_A_KIND = 6


def svg_of_graph(graph: Graph) -> str:
    """The graph as SVG; what is wrong with it, where it cannot be built; what to install, where that is missing."""
    try:
        topology = build(graph, "unaligned").topology
    except GraphError as error:
        return svg_of_lines(str(error).splitlines())
    return drawn_or_text(lambda: svg_of_topology(topology))


def svg_of_topology(topology: Topology) -> str:
    """A graph that was built.

    Raises
    ------
    ImportError
        where matplotlib is missing.
    """
    with needs_matplotlib():
        from snapshot.drawing.graph_plot import EdgeNote, graph_plotted
    nodes = {
        node.name: [shortened(node.class_name.rpartition(".")[2], _CHARACTERS), role(node)] for node in topology.nodes
    }
    lines = {(edge.source, edge.target): _edge_lines(edge) for edge in topology.edges}
    common = next(iter(lines.values()), [])
    if len(lines) < _EDGES_OF_A_KIND or any(each != common for each in lines.values()):
        common = []
    edges = {edge: EdgeNote([] if common else words, is_loud=False) for edge, words in lines.items()}
    caption = f"{topology.name}: {len(topology.subtasks)} subtasks, {len(topology.channels)} channels"
    all_edges = f"; all edges {', '.join(common)}" if common else ""
    return graph_plotted(topology, nodes, edges, caption + all_edges, "svg").decode()


def class_of(node: NodeSpec) -> str:
    """The name of its class, without the module's."""
    return shortened(node.class_name.rpartition(".")[2], _CHARACTERS)


def role(node: NodeSpec) -> str:
    """Whether it is a source or a sink, and how many subtasks it has."""
    kinds = [kind for kind, holds in (("source", node.is_source), ("sink", node.is_sink)) if holds] or ["node"]
    return f"{' and '.join(kinds)}, {node.parallelism} subtask{'s' * (node.parallelism > 1)}"


def _edge_lines(edge: EdgeSpec) -> list[str]:
    partitioning = edge.partitioning.value if edge.key is None else f"{edge.partitioning.value} by {edge.key}"
    return [shortened(partitioning, _CHARACTERS), str(edge.alignment)]
