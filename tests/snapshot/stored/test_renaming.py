"""A stored snapshot with the names that nodes have now."""

from __future__ import annotations

from dataclasses import replace

from cutline import Graph
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.renaming import with_present_names
from cutline.snapshot.stored.topology_record import record_of_topology, topology_of_record
from tests.snapshot import sample
from tests.snapshot.graphs import Passive


def topology(node: str, dead: str) -> Topology:
    """A node whose failed messages go to another one."""
    graph = Graph("g").add("a", Passive()).add(node, Passive()).add(dead, Passive())
    return build(graph.connect("a", node, onError=dead), "unaligned").topology


def test_a_graph_has_the_present_names_everywhere() -> None:
    """In nodes, edges and components, and where failed messages go. Other names stay."""
    stored = replace(sample.manifest(), topology=record_of_topology(topology("old", "dead")), records=())
    renamed = with_present_names(stored, {"old": "new", "dead": "failed"})
    assert topology_of_record(renamed.topology) == topology("new", "failed")
