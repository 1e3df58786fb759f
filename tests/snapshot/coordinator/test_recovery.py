"""The recovery plan, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snapshot.coordinator.recovery import ALLOWANCES, fresh_start, plan_restore
from snapshot.errors import RestoreRefused
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.topology import Component, Topology
from snapshot.stored.manifest import Manifest
from snapshot.stored.part import PartKind
from tests.snapshot import sample
from tests.snapshot.sample import PQ, QP, TOPOLOGY, P, Q


def test_a_fresh_start_restores_nothing() -> None:
    """Every subtask as it was submitted."""
    plan = fresh_start(TOPOLOGY, {})
    assert [(r.subtask, r.state, r.processed, r.sent, r.channel_parts) for r in plan] == [
        (subtask, None, (), (), ()) for subtask in TOPOLOGY.subtasks
    ]


def test_counters_and_parts_go_to_the_right_ends() -> None:
    """p to the receiver, S to the sender, the receiver's part before the sender's (PROTOCOL 1.3, 6.2)."""
    plan = {restored.subtask: restored for restored in plan_restore(TOPOLOGY, sample.manifest(), (), {})}
    assert (plan[Q].processed, plan[P].sent) == (((PQ, 2),), ((PQ, 8),))
    assert (plan[P].processed, plan[Q].sent) == (((QP, 1),), ((QP, 2),))
    assert [(h.kind, h.first, h.last) for h in plan[Q].channel_parts] == [
        (PartKind.RECEIVED, 3, 5),
        (PartKind.SENT, 6, 8),
    ]
    assert [(h.kind, h.first, h.last) for h in plan[P].channel_parts] == [(PartKind.RECEIVED, 2, 2)]
    assert plan[P].state == sample.manifest().records[0].state


def test_another_graph_is_refused_unless_allowed() -> None:
    """Each difference is said; a node that is new starts fresh."""
    grown = replace(TOPOLOGY, nodes=(*TOPOLOGY.nodes, replace(TOPOLOGY.nodes[0], name="R")))
    with pytest.raises(RestoreRefused, match=r"node 'R' is not in the snapshot[\s\S]*changedGraph"):
        plan_restore(grown, sample.manifest(), (), {})
    states = [restored.state is None for restored in plan_restore(grown, sample.manifest(), ("changedGraph",), {})]
    assert states == [False, False, True]


def test_messages_are_dropped_only_when_that_is_allowed() -> None:
    """A channel that the graph no longer has, with messages: named, and counted."""
    cut_off = replace(TOPOLOGY, edges=TOPOLOGY.edges[1:])
    with pytest.raises(RestoreRefused, match=r"P\[0\]->Q\[0\]: 3 messages[\s\S]*droppedMessages"):
        plan_restore(cut_off, sample.manifest(), ("changedGraph",), {})
    plan = plan_restore(cut_off, sample.manifest(), ("changedGraph", "droppedMessages"), {})
    assert [restored.processed for restored in plan] == [((QP, 1),), ()]


def test_another_parallelism_is_refused() -> None:
    """Even where the graph may have changed: state is not redistributed."""
    wider = replace(TOPOLOGY, nodes=(replace(TOPOLOGY.nodes[0], parallelism=2), TOPOLOGY.nodes[1]))
    with pytest.raises(RestoreRefused, match="'P' had parallelism 1, now 2"):
        plan_restore(wider, sample.manifest(), ("changedGraph",), {})


def test_a_new_edge_to_a_node_that_has_ended_is_refused() -> None:
    """It would take no message. From a node that has ended, too, the edge carries an end and nothing else."""
    first, second = sample.manifest().records
    grown = replace(
        TOPOLOGY,
        nodes=(*TOPOLOGY.nodes, replace(TOPOLOGY.nodes[0], name="R")),
        edges=(*TOPOLOGY.edges, replace(TOPOLOGY.edges[0], source="R", target="Q")),
    )
    ended = replace(second, status=replace(second.status, ended=True))
    assert len(plan_restore(grown, sample.manifest(), ("changedGraph",), {})) == 3
    with pytest.raises(RestoreRefused, match=r"edge R->Q is new, and Q\[0\] has ended"):
        plan_restore(grown, sample.manifest((first, ended)), ("changedGraph",), {})
    both = tuple(replace(record, status=replace(record.status, ended=True)) for record in (first, second))
    inner = replace(grown, edges=(*TOPOLOGY.edges, replace(TOPOLOGY.edges[0], source="Q", target="Q")))
    assert len(plan_restore(inner, sample.manifest(both), ("changedGraph",), {})) == 3


def test_ends_that_the_snapshots_graph_did_not_send_are_sent() -> None:
    """On new channels, and on those of a cycle that is gone, where the sender has ended and the receiver has not."""
    first, second = sample.manifest().records
    ended = replace(first, status=replace(first.status, ended=True))
    nodes = (*TOPOLOGY.nodes, replace(TOPOLOGY.nodes[0], name="R", component=1))
    components = (*TOPOLOGY.components, Component(("R",), False))
    edge = replace(TOPOLOGY.edges[0], source="P", target="R")
    grown = replace(TOPOLOGY, nodes=nodes, components=components, edges=(*TOPOLOGY.edges, edge))
    assert _missing_ends(grown, sample.manifest((ended, second))) == {P: (ChannelId(P, Subtask("R")),)}
    assert _missing_ends(grown, sample.manifest()) == {}
    # The cycle as it was ends as a whole. Without the edge QP, PQ carries an end as any other channel.
    assert _missing_ends(TOPOLOGY, sample.manifest((ended, second))) == {}
    broken = replace(
        TOPOLOGY,
        nodes=(TOPOLOGY.nodes[0], replace(TOPOLOGY.nodes[1], component=1)),
        edges=TOPOLOGY.edges[:1],
        components=(Component(("P",), False), Component(("Q",), False)),
    )
    assert _missing_ends(broken, sample.manifest((ended, second))) == {P: (PQ,)}
    # What has ended needs no end.
    both = (ended, replace(second, status=replace(second.status, ended=True)))
    assert _missing_ends(broken, sample.manifest(both)) == {}


def _missing_ends(topology: Topology, manifest: Manifest) -> dict[Subtask, tuple[ChannelId, ...]]:
    """The ends that a restore sends, of the subtasks that send some."""
    plan = plan_restore(topology, manifest, ALLOWANCES, {})
    return {restored.subtask: restored.missing_ends for restored in plan if restored.missing_ends}
