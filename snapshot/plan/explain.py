"""A graph as text: its nodes, its edges, how each spreads and aligns, and why."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot.plan.topology import EdgeSpec, NodeSpec, Partitioning, Topology


def explanation(topology: Topology) -> str:
    """The text that `Graph.explain` prints."""
    subtasks, channels = len(topology.subtasks), len(topology.channels)
    lines = [f"Graph {topology.name}: {subtasks} subtasks, {channels} channels", "", "Nodes"]
    lines += _table([_node_cells(topology, node) for node in topology.nodes])
    if topology.edges:
        lines += ["", "Edges"]
        lines += _table([_edge_cells(topology, edge) for edge in topology.edges])
    started_by = ", ".join(str(subtask) for subtask in topology.initiators())
    return "\n".join([*lines, "", f"Snapshots are started at {started_by}"])


def _node_cells(topology: Topology, node: NodeSpec) -> list[str]:
    kinds = [kind for kind, holds in (("source", node.is_source), ("sink", node.is_sink)) if holds] or ["node"]
    remarks = [node.guarantee] if node.guarantee else []
    component = topology.component_of(node.name)
    if component.cyclic:
        remarks.append(f"on the cycle of {', '.join(component.nodes)}")
    return [node.name, " and ".join(kinds), f"x{node.parallelism}", node.class_name, "; ".join(remarks)]


def _edge_cells(topology: Topology, edge: EdgeSpec) -> list[str]:
    partitioning = edge.partitioning.value if edge.key is None else f"{edge.partitioning.value} by {edge.key}"
    alignment = f"{edge.alignment} ({edge.reason})"
    return [
        f"{edge.source} -> {edge.target}",
        f"{partitioning}: {_why_partitioning(topology, edge)}",
        alignment,
        _buffers(edge),
    ]


def _why_partitioning(topology: Topology, edge: EdgeSpec) -> str:
    targets = topology.node(edge.target).parallelism
    match edge.partitioning:
        case Partitioning.FORWARD:
            return "subtask i to subtask i"
        case Partitioning.REBALANCE:
            return f"in turn to {targets} subtasks"
        case Partitioning.HASH:
            return f"equal keys to the same of {targets} subtasks"
        case Partitioning.BROADCAST:
            return f"to all of {targets} subtasks"
        case Partitioning.DIRECTED:
            return f"to the one of {targets} subtasks that the sender names"


def _buffers(edge: EdgeSpec) -> str:
    return "on a cycle: spills instead of blocking" if edge.in_cycle else ""


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
