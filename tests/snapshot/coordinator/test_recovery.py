"""The recovery plan, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline.snapshot.coordinator.recovery import ALLOWANCES, fresh_start, plan_restore
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Component, Partitioning, Topology
from cutline.snapshot.stored.certificate import OwnStateKind
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import PartKind
from tests.snapshot import in_flight, sample
from tests.snapshot.in_flight import Flight
from tests.snapshot.listed import keyed_records
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
    with pytest.raises(RestoreRefused, match=r"\+ node R: not in the snapshot[\s\S]*changedGraph"):
        plan_restore(grown, sample.manifest(), (), {})
    plan = plan_restore(grown, sample.manifest(), ("changedGraph",), {"R": ("a", "b")})
    assert [restored.state is None for restored in plan] == [False, False, True]
    assert (plan[2].channel_parts, plan[2].partitions) == ((), ("a", "b"))


def test_messages_are_dropped_only_when_that_is_allowed() -> None:
    """A channel that the graph no longer has, with messages: named, and counted."""
    cut_off = replace(TOPOLOGY, edges=TOPOLOGY.edges[1:])
    with pytest.raises(RestoreRefused, match=r"P\[0\]->Q\[0\]: 6 messages[\s\S]*droppedMessages"):
        plan_restore(cut_off, sample.manifest(), ("changedGraph",), {})
    plan = plan_restore(cut_off, sample.manifest(), ("changedGraph", "droppedMessages"), {})
    assert [restored.processed for restored in plan] == [((QP, 1),), ()]


def test_another_parallelism_is_refused() -> None:
    """Where a node keeps a state of its own that nobody can divide, even where the graph may have changed."""
    wider = replace(TOPOLOGY, nodes=tuple(replace(node, parallelism=2) for node in TOPOLOGY.nodes))
    first, second = sample.manifest().records
    owned = replace(first, status=replace(first.status, own_state=OwnStateKind.WHOLE))
    with pytest.raises(RestoreRefused, match="'P' had parallelism 1, now 2"):
        plan_restore(wider, sample.manifest((owned, second)), ("changedGraph",), {})


KEYED = in_flight.edge(2, 2)


def test_another_parallelism_needs_no_allowance() -> None:
    """Each subtask takes over from its donors; channels of the edge begin anew, and the partitioner afresh."""
    flights = {(0, 0): Flight(4, [(1, "a"), (2, "b")], overtaken=1), (1, 1): Flight(2, [(3, "c")])}
    plan = plan_restore(in_flight.edge(3, 4), in_flight.snapshot_of(KEYED, flights), (), {})
    assert [str(each.subtask) for each in plan] == [*(f"A[{i}]" for i in range(3)), *(f"B[{i}]" for i in range(4))]
    for each in plan:
        assert each.state is None and each.inheritance is not None and each.is_known
        assert each.processed == () and each.waves == ()
    assert [dict.fromkeys(n for _, n in each.sent) for each in plan[:3]] == [{3: None}, {2: None}, {1: None}]
    assert [each.fresh_outputs for each in plan] == [("B",)] * 3 + [()] * 4
    assert [[old.channel.target.index for old in each.reshaped[0].old] for each in plan[3:]] == [
        [0, 0], [0, 1, 0, 1], [1, 1], [1, 1],
    ]  # fmt: skip
    of_first = plan[3].channel_parts
    assert [(part.kind, part.first, part.last) for part in of_first] == [
        (PartKind.RECEIVED, 5, 5),
        (PartKind.SENT, 6, 6),
    ]


def test_a_node_that_is_not_rescaled_keeps_its_state_beside_one_that_is() -> None:
    """The edge between them is reshaped at both ends; other edges of the node are as they were."""
    cycle = in_flight.edge(2, 2, in_cycle=True)
    manifest = in_flight.snapshot_of(cycle, {(0, 0): Flight(4, [(1, "a")])})
    plan = {each.subtask: each for each in plan_restore(in_flight.edge(2, 3, in_cycle=True), manifest, (), {})}
    first = plan[Subtask("A")]
    assert first.state == manifest.records[0].state and first.inheritance is None
    assert [str(edge) for edge in first.reshaped] == ["B->A"]
    assert first.fresh_outputs == ("B",)


def test_waves_are_put_back_by_a_plain_restore() -> None:
    """Channels that are as they were keep the waves of their messages (PROTOCOL 6.11, waves)."""
    flights = {(1, 0): Flight(4, [(1, "a"), (2, "b")], waves=((5, 1), (6, 2)))}
    plan = plan_restore(KEYED, in_flight.snapshot_of(KEYED, flights), (), {})
    assert [each.waves for each in plan] == [(), (), ((in_flight.channel(1, 0), ((5, 1), (6, 2))),), ()]
    parts = in_flight.restored(plan, KEYED, None)
    assert parts.channels[Subtask("B")].waves == {in_flight.channel(1, 0): ((5, 1), (6, 2))}


@pytest.mark.parametrize("kind", OwnStateKind)
def test_own_state_that_nobody_can_divide_keeps_its_parallelism(kind: OwnStateKind) -> None:
    """Also where the graph may have changed. The old parallelism is restored."""
    statuses = {Subtask("B", i): replace(in_flight.STATUS, own_state=kind) for i in range(2)}
    manifest = in_flight.snapshot_of(KEYED, {}, statuses)
    assert plan_restore(KEYED, manifest, (), {})
    if kind is not OwnStateKind.WHOLE:
        assert plan_restore(in_flight.edge(2, 3), manifest, (), {})
        return
    with pytest.raises(RestoreRefused, match=r"node 'B' had parallelism 2, now 3, and 2 of its subtasks, B\[0\] first"):
        plan_restore(in_flight.edge(2, 3), manifest, ALLOWANCES, {})


def test_a_refused_edge_is_named_and_its_old_parallelism_works() -> None:
    """A directed message to a subtask that is gone."""
    before = in_flight.edge(2, 2, Partitioning.DIRECTED)
    manifest = in_flight.snapshot_of(before, {(0, 1): Flight(0, [(1, "a")])})
    with pytest.raises(RestoreRefused, match=r"edge A->B: 1 messages are in flight to subtasks above 0"):
        plan_restore(in_flight.edge(2, 1, Partitioning.DIRECTED), manifest, ALLOWANCES, {})
    assert plan_restore(before, manifest, (), {})


def test_another_number_of_key_groups_is_refused() -> None:
    """Even where the graph may have changed: a row would lie where its messages do not go."""
    manifest = sample.manifest()
    other = replace(manifest, topology={**manifest.topology, "key_groups": 128})
    with pytest.raises(RestoreRefused, match=r"snapshot 7000042: has 128 key groups, but .* into 32768"):
        plan_restore(TOPOLOGY, other, ("changedGraph",), {})


def test_lists_are_restored_as_they_were_published() -> None:
    """Key groups, rows in order with their clips, and own state. A subtask without lists restores none."""
    records = keyed_records()
    plan = plan_restore(TOPOLOGY, sample.manifest(records), (), {})
    assert [(each.groups, each.rows, each.own) for each in plan] == [
        (record.groups, record.rows, record.own or ()) for record in records
    ]
    plain = plan_restore(TOPOLOGY, sample.manifest(), (), {}) + fresh_start(TOPOLOGY, {})
    assert [(each.groups, each.rows, each.own) for each in plain] == [(None, (), ())] * 4


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
