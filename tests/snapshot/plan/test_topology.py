"""The expanded graph: subtasks, channels, initiators, placement, its record, what keeps a restore from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Context, Graph, Subtask
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import Partitioning, Topology
from cutline.snapshot.stored.topology_record import record_of_topology, topology_of_record
from tests.snapshot.graphs import Passive, Shape, reaches, shapes


def topology_of(shape: Shape) -> Topology:
    return build(shape.graph(), "unaligned").topology


def pipeline() -> Graph:
    graph = Graph("pipeline").add("a", Passive(), parallelism=2).add("b", Passive(), parallelism=2)
    return graph.add("c", Passive(), parallelism=3).connect("a", "b").connect("b", "c", key="word")


def test_channels_follow_the_spread_in_a_fixed_order() -> None:
    """Forward links equal indices, every other spread all to all; the order is edge, source index, target index."""
    topology = build(pipeline(), "unaligned").topology
    assert [str(channel) for channel in topology.channels] == [
        "a[0]->b[0]",
        "a[1]->b[1]",
        *[f"b[{source}]->c[{target}]" for source in range(2) for target in range(3)],
    ]
    assert [str(subtask) for subtask in topology.subtasks] == ["a[0]", "a[1]", "b[0]", "b[1]", "c[0]", "c[1]", "c[2]"]


@given(shapes())
def test_inputs_and_outputs_are_the_channels_seen_from_each_end(shape: Shape) -> None:
    """Every channel is an input once and an output once, in the order of `channels`, and knows its edge."""
    topology = topology_of(shape)
    for subtask in topology.subtasks:
        assert topology.inputs_of(subtask) == tuple(c for c in topology.channels if c.target == subtask)
        assert topology.outputs_of(subtask) == tuple(c for c in topology.channels if c.source == subtask)
    for channel in topology.channels:
        edge = topology.edge_of(channel)
        assert (edge.source, edge.target) == (channel.source.node, channel.target.node)


@given(shapes())
def test_in_cycle_and_cyclic_say_the_same_as_reachability(shape: Shape) -> None:
    """An edge is in a cycle when its target leads back to its source; a part is cyclic when a node leads to itself."""
    topology = topology_of(shape)
    for edge in topology.edges:
        assert edge.in_cycle == (int(edge.source[1:]) in reaches(shape.edges, int(edge.target[1:])))
    for node in topology.nodes:
        number = int(node.name[1:])
        assert topology.component_of(node.name).cyclic == (number in reaches(shape.edges, number))


@given(shapes())
def test_initiators_reach_everybody_and_none_is_needless(shape: Shape) -> None:
    """All without inputs are among them; together they reach all; without any one of them somebody is not reached."""
    topology = topology_of(shape)
    initiators = topology.initiators()
    assert topology.reachable(initiators) == topology.subtasks
    assert all(subtask in initiators for subtask in topology.subtasks if not topology.inputs_of(subtask))
    for initiator in initiators:
        others = [subtask for subtask in initiators if subtask != initiator]
        assert topology.reachable(others) != topology.subtasks


def test_forward_rings_are_separate_parts() -> None:
    """Two nodes in a ring with forward edges are as many rings of subtasks as they have subtasks."""
    topology = topology_of(Shape((3, 3), ((0, 1), (1, 0))))
    assert topology.initiators() == (Subtask("n0", 0), Subtask("n0", 1), Subtask("n0", 2))
    assert topology.reachable([Subtask("n1", 2)]) == (Subtask("n0", 2), Subtask("n1", 2))


@given(shapes(), st.integers(1, 5))
def test_placement_covers_all_and_uses_every_worker(shape: Shape, worker_count: int) -> None:
    """Each subtask has a worker; no worker is idle that a subtask could use; wide nodes' forward edges stay inside."""
    topology = topology_of(shape)
    placed = topology.place(worker_count)
    assert tuple(placed) == topology.subtasks
    assert len(set(placed.values())) == min(worker_count, len(topology.subtasks))
    for channel in topology.channels:
        wide = topology.node(channel.source.node).parallelism >= worker_count
        if wide and topology.edge_of(channel).partitioning is Partitioning.FORWARD:
            assert placed[channel.source] == placed[channel.target]


def test_single_subtasks_take_workers_in_turn() -> None:
    """Eight nodes with one subtask each fill four workers evenly."""
    placed = topology_of(Shape((1,) * 8, ())).place(4)
    assert list(placed.values()) == [0, 1, 2, 3, 0, 1, 2, 3]


@given(shapes())
def test_a_record_gives_the_same_topology_back(shape: Shape) -> None:
    """Through MessagePack without pickle, as in every manifest."""
    topology = topology_of(shape)
    codec = Codec(safe=True)
    assert topology_of_record(codec.decode(codec.encode(record_of_topology(topology)))) == topology


def test_a_record_is_read_without_users_modules() -> None:
    """A process that cannot import the node class still reads the topology."""
    data = Codec(safe=True).encode(record_of_topology(build(pipeline(), 2.5).topology))
    program = (
        "import sys\n"
        "from cutline.snapshot.channel.serialization import Codec\n"
        "from cutline.snapshot.stored.topology_record import topology_of_record\n"
        f"print(topology_of_record(Codec(safe=True).decode({data!r})).nodes[0].class_name)\n"
        "assert 'tests' not in sys.modules"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().endswith("graphs.Passive")


def test_unknown_names_are_key_errors() -> None:
    """A question about what is not in the graph is never answered with nothing."""
    topology = build(pipeline(), "unaligned").topology
    with pytest.raises(KeyError):
        topology.inputs_of(Subtask("a", 2))
    with pytest.raises(KeyError):
        topology.edge_of(ChannelId(Subtask("c"), Subtask("a")))


class Ends(Passive):
    """A node that acts on the end of an input."""

    def onEnd(self, context: Context) -> None:
        """Nothing."""


class EndsAgain(Ends):
    """One whose act may be repeated."""

    inherited = True


def test_a_node_says_whether_it_acts_on_an_end_once() -> None:
    """A rescale refuses to repeat such an act, and no other."""
    graph = Graph("g").add("none", Passive()).add("once", Ends()).add("often", EndsAgain())
    graph.connect("none", "once").connect("once", "often")
    assert [node.acts_on_end for node in build(graph, "unaligned").topology.nodes] == [None, True, None]
