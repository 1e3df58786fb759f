"""Give a stored snapshot the names that nodes have now.

Owns what becomes of former names. Handles keep the names of the snapshot, because they prove the origin of parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cutline.snapshot.ids import renamed_channel, renamed_subtask
from cutline.snapshot.plan.topology import EdgeSpec, Topology
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.topology_record import record_of_topology, topology_of_record


def renames(topology: Topology, stored: Topology) -> dict[str, str]:
    """Return {name in the snapshot: name now} of the nodes that take over from a node of another name.

    A node whose own name is in the snapshot has taken over before, so its former name says nothing any more.
    """
    return {
        former: name
        for name, former in topology.former_names.items()
        if stored.has_node(former) and not stored.has_node(name)
    }


def with_present_names(manifest: Manifest, names: Mapping[str, str]) -> Manifest:
    """Return a manifest with the present names of nodes. Handles keep the names that prove the origin of parts."""
    if not names:
        return manifest
    topology = topology_of_record(manifest.topology)
    renamed = replace(
        topology,
        nodes=tuple(replace(node, name=names.get(node.name, node.name)) for node in topology.nodes),
        edges=tuple(_renamed_edge(edge, names) for edge in topology.edges),
        components=tuple(
            replace(part, nodes=tuple(names.get(name, name) for name in part.nodes)) for part in topology.components
        ),
    )
    records = tuple(_renamed_record(record, names) for record in manifest.records)
    return replace(manifest, topology=record_of_topology(renamed), records=records)


def _renamed_edge(edge: EdgeSpec, names: Mapping[str, str]) -> EdgeSpec:
    on_error = None if edge.on_error is None else names.get(edge.on_error, edge.on_error)
    source, target = names.get(edge.source, edge.source), names.get(edge.target, edge.target)
    return replace(edge, source=source, target=target, on_error=on_error)


def _renamed_record(record: SubtaskRecord, names: Mapping[str, str]) -> SubtaskRecord:
    return replace(
        record,
        subtask=renamed_subtask(record.subtask, names),
        sent=tuple(replace(entry, channel=renamed_channel(entry.channel, names)) for entry in record.sent),
        received=tuple(replace(entry, channel=renamed_channel(entry.channel, names)) for entry in record.received),
        waves=None
        if record.waves is None
        else tuple(replace(each, channel=renamed_channel(each.channel, names)) for each in record.waves),
    )
