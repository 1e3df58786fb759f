"""Draw a graph, and choose the text in its nodes and on its edges."""

from __future__ import annotations

from cutline.snapshot.drawing.html import drawn_or_text, needs_matplotlib, picture, svg_of_lines
from cutline.snapshot.drawing.labels import shortened
from cutline.snapshot.errors import GraphError
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import DeclaredGraph
from cutline.snapshot.plan.topology import EdgeSpec, NodeSpec, Topology

#: characters of a user's name that a box or an edge has room for
_CHARACTERS = 28
#: number of edges from which identical notes are written once, in the caption
_EDGES_OF_A_KIND = 6


def html_of_graph(graph: DeclaredGraph) -> str:
    """Return the drawn graph as HTML, or text with the graph's errors or the missing package."""
    try:
        topology = build(graph, "unaligned").topology
    except GraphError as error:
        return picture(svg_of_lines(str(error).splitlines()), f"Errors of graph {graph.name}")
    return html_of_topology(topology)


def html_of_topology(topology: Topology) -> str:
    """Return a compiled topology as HTML, or text with the missing package."""
    edges = ", ".join(f"{edge.source} to {edge.target}" for edge in topology.edges)
    return picture(drawn_or_text(lambda: svg_of_topology(topology)), f"Graph {topology.name}: {edges}")


def svg_of_topology(topology: Topology) -> str:
    """Return the SVG of a compiled topology.

    Raises
    ------
    ImportError
        if matplotlib is missing.
    """
    with needs_matplotlib():
        from cutline.snapshot.drawing.graph_plot import EdgeNote, graph_plotted
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
    """Return the name of the node's class, without the module."""
    return shortened(node.class_name.rpartition(".")[2], _CHARACTERS)


def role(node: NodeSpec) -> str:
    """Return the node's role (source, sink or node) and its number of subtasks."""
    kinds = [kind for kind, holds in (("source", node.is_source), ("sink", node.is_sink)) if holds] or ["node"]
    return f"{' and '.join(kinds)}, {node.parallelism} subtask{'s' * (node.parallelism > 1)}"


def _edge_lines(edge: EdgeSpec) -> list[str]:
    partitioning = edge.partitioning.value if edge.key is None else f"{edge.partitioning.value} by {edge.key}"
    return [shortened(partitioning, _CHARACTERS), str(edge.alignment)]
