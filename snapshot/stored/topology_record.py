"""Topology as plain data, for manifests and control messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutline.snapshot.plan.modes import mode_of_record, record_of_mode
from cutline.snapshot.plan.topology import Alignment, Component, EdgeSpec, NodeSpec, Partitioning, Topology
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.keys import StoredMap

_NODE = StoredMap(NodeSpec, keys.NODE, write={"migrations": list}, read={"migrations": tuple})
_ALIGNMENT = StoredMap(Alignment, keys.ALIGNMENT)
_EDGE = StoredMap(
    EdgeSpec,
    keys.EDGE,
    write={"partitioning": lambda partitioning: partitioning.value, "alignment": _ALIGNMENT.write},
    read={"partitioning": Partitioning, "alignment": _ALIGNMENT.read},
)
_COMPONENT = StoredMap(Component, keys.COMPONENT, write={"nodes": list}, read={"nodes": tuple})
_TOPOLOGY = StoredMap(
    Topology,
    keys.TOPOLOGY,
    write={
        "nodes": lambda nodes: [_NODE.write(node) for node in nodes],
        "edges": lambda edges: [_EDGE.write(edge) for edge in edges],
        "components": lambda parts: [_COMPONENT.write(part) for part in parts],
        "mode": record_of_mode,
    },
    read={
        "nodes": lambda nodes: tuple(map(_NODE.read, nodes)),
        "edges": lambda edges: tuple(map(_EDGE.read, edges)),
        "components": lambda parts: tuple(map(_COMPONENT.read, parts)),
        "mode": mode_of_record,
    },
)


def record_of_topology(topology: Topology) -> dict[str, Any]:
    """Return plain data that `topology_of_record` reads."""
    return _TOPOLOGY.write(topology)


def topology_of_record(record: Mapping[str, Any]) -> Topology:
    """Read the plain data of `record_of_topology`.

    Raises
    ------
    KeyError, TypeError, ValueError
        if the record is no topology. The caller knows the file, and names it in an error of its own.
    """
    return _TOPOLOGY.read(record)
