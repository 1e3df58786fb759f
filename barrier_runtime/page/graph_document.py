"""The graph of a run as plain data for the page: what does not change while it is on, and where it is drawn."""

from __future__ import annotations

from typing import Any

from snapshot.drawing.layout import layout
from snapshot.plan.topology import Topology


def graph_document(topology: Topology) -> dict[str, Any]:
    """Nodes with their places, which are about one apart; edges; the size of all; where messages come in and leave."""
    drawn = layout(topology)
    into, out_of = flow_ends(topology)
    return {
        "width": drawn.width,
        "height": drawn.height,
        "nodes": [
            {
                "name": node.name,
                "class": node.class_name,
                "parallelism": node.parallelism,
                "isSource": node.is_source,
                "isSink": node.is_sink,
                "x": drawn.points[node.name].x,
                "y": drawn.points[node.name].y,
            }
            for node in topology.nodes
        ],
        "edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "spread": edge.partitioning.value,
                "alignment": str(edge.alignment),
            }
            for edge in topology.edges
        ],
        "into": into,
        "outOf": out_of,
    }


def flow_ends(topology: Topology) -> tuple[list[str], list[str]]:
    """Nodes whose sent messages come into the graph, and nodes whose processed ones leave it.

    A graph without sources, or without sinks, is a closed world: then it is what all its nodes send, or process.
    """
    names = [node.name for node in topology.nodes]
    sources = [node.name for node in topology.nodes if node.is_source]
    sinks = [node.name for node in topology.nodes if node.is_sink]
    return sources or names, sinks or names
