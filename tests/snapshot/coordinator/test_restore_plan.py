"""The plan of a restore as data: what happens to each node and each edge, and the refusal in the same words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cutline import Graph, Node
from cutline.snapshot.coordinator.recovery import explain_restore, plan_restore
from cutline.snapshot.coordinator.restore_plan import Change, EdgeLine, NodeLine
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import KEY_GROUPS, Topology
from cutline.snapshot.stored.certificate import OwnStateKind
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.part import rows_part
from cutline.snapshot.stored.topology_record import record_of_topology
from tests.snapshot import sample
from tests.snapshot.sample import TOPOLOGY


class Passive(Node):
    """Takes messages."""

    def onMessage(self, message: Any, context: Any) -> None:
        pass


def pipeline(**parallelism: int) -> Graph:
    """Three nodes behind one another, of parallelism 1 unless given."""
    graph = Graph("g")
    for name in "abc":
        graph.add(name, Passive(), parallelism=parallelism.get(name, 1))
    return graph.connect("a", "b").connect("b", "c", key="word")


def topology_of(graph: Graph) -> Topology:
    """The graph, compiled."""
    return build(graph, "unaligned").topology


def lines(now: Topology, before: Topology) -> list[str]:
    """The lines of a restore from a snapshot without any part."""
    manifest = replace(sample.manifest(), topology=record_of_topology(before), records=())
    stored = replace(manifest, topology=record_of_topology(replace(before, edges=())))
    plan = explain_restore(replace(now, edges=()), stored, (), {})
    return [str(line) for line in plan.lines]


# ---------------------------------------------------------------- nodes


def test_a_line_for_each_node() -> None:
    """The same, new, removed, and of another parallelism, which is no difference of the graph."""
    before = topology_of(pipeline())
    changed = Graph("other").add("a", Passive(), parallelism=2).add("b", Passive()).add("d", Passive(), parallelism=4)
    assert lines(topology_of(changed), before) == [
        "= node a: parallelism 1 -> 2",
        "= node b: parallelism 1",
        "+ node d: not in the snapshot, parallelism 4",
        "- node c: not in the graph, parallelism 1",
    ]


def test_a_former_name_is_no_difference() -> None:
    """The line has both names. A node that is in the snapshot under its own name has no former name any more."""
    before = topology_of(Graph("g").add("old", Passive()))
    renamed = topology_of(Graph("g").add("new", Passive(), formerly="old"))
    assert lines(renamed, before) == ["= node new: parallelism 1, formerly old"]
    both = topology_of(Graph("g").add("old", Passive()).add("new", Passive()))
    assert lines(renamed, both) == ["= node new: parallelism 1", "- node old: not in the graph, parallelism 1"]


def test_versions_are_shown_where_they_differ() -> None:
    """A new node has no version before."""

    class Newer(Passive):
        stateVersion = 3

    before = topology_of(Graph("g").add("a", Passive()))
    now = topology_of(Graph("g").add("a", Newer()).add("b", Newer()))
    assert lines(now, before) == [
        "= node a: parallelism 1, version 1 -> 3",
        "+ node b: not in the snapshot, parallelism 1",
    ]


def test_rows_that_move() -> None:
    """Of two subtasks with all rows each in its half, three keep a third and a sixth."""
    half, origin = KEY_GROUPS // 2, (sample.RUN, 7, sample.SNAPSHOT_ID)
    before = replace(TOPOLOGY, nodes=(replace(TOPOLOGY.nodes[0], parallelism=2),), edges=(), components=())
    records = tuple(
        replace(sample.records()[0], subtask=subtask, sent=(), received=(), rows=(ListEntry(handle, *groups),))
        for subtask, groups in ((Subtask("P", 0), (0, half)), (Subtask("P", 1), (half, KEY_GROUPS)))
        for handle in [rows_part(*origin, subtask, (1, 1), groups, [b"x" * 1000], 300).inline()]
    )
    manifest = replace(sample.manifest(), topology=record_of_topology(before), records=records)
    now = replace(before, nodes=(replace(before.nodes[0], parallelism=3),))
    (line,) = explain_restore(now, manifest, (), {}).lines
    assert isinstance(line, NodeLine)
    assert (line.rows, line.moved_rows, line.parallelism_before, line.parallelism) == (600, 300, 2, 3)
    assert line.moved_bytes == pytest.approx(line.row_bytes / 2, abs=2)
    assert "keyed state of 600 rows" in str(line) and "300 rows" in str(line) and "move to other" in str(line)


# ---------------------------------------------------------------- edges


def test_messages_of_edges() -> None:
    """Kept on their channels, put on other channels, and dropped with their edge."""
    manifest = sample.manifest()
    kept = [line for line in explain_restore(TOPOLOGY, manifest, (), {}).lines if isinstance(line, EdgeLine)]
    assert [(line.kept, line.rerouted, line.dropped) for line in kept] == [(6, 0, 0), (1, 0, 0)]
    wider = replace(TOPOLOGY, nodes=tuple(replace(node, parallelism=2) for node in TOPOLOGY.nodes))
    moved = [line for line in explain_restore(wider, manifest, (), {}).lines if isinstance(line, EdgeLine)]
    assert [(line.kept, line.rerouted) for line in moved] == [(0, 6), (0, 1)]
    cut = explain_restore(replace(TOPOLOGY, edges=TOPOLOGY.edges[1:]), manifest, ("changedGraph",), {})
    gone = [line for line in cut.lines if line.change is Change.REMOVED]
    assert [str(line) for line in gone] == [f"- edge P->Q: not in the graph, {_division(0)}, 6 messages dropped"]
    assert cut.isRefused and cut.reason is not None and "droppedMessages" in cut.reason
    more = replace(TOPOLOGY, edges=(*TOPOLOGY.edges, replace(TOPOLOGY.edges[0], source="Q", target="Q")))
    added = [
        line for line in explain_restore(more, manifest, ("changedGraph",), {}).lines if line.change is Change.ADDED
    ]
    assert [(line.kept, line.rerouted, line.dropped) for line in added if isinstance(line, EdgeLine)] == [(0, 0, 0)]


def _division(number: int) -> str:
    return TOPOLOGY.edges[number].partitioning.value


def test_a_flipped_default_needs_a_yes() -> None:
    """Where only one end gets another parallelism, forward becomes rebalance. The line says why."""
    before = topology_of(pipeline())
    manifest = replace(sample.manifest(), topology=record_of_topology(replace(before, edges=before.edges[:0])))
    assert explain_restore(replace(topology_of(pipeline(a=2, b=2, c=2)), edges=()), manifest, (), {}).reason != ""
    forward, rebalanced = before.edges[0], topology_of(pipeline(b=2)).edges[0]
    line = EdgeLine(Change.CHANGED, "a", "b", forward.partitioning.value, rebalanced.partitioning.value, 0, 3, 0)
    assert str(line) == (
        "~ edge a->b: forward -> rebalance, 3 messages rerouted, "
        "the default is forward between nodes of equal parallelism, else rebalance"
    )


# ---------------------------------------------------------------- the refusal


def test_the_refusal_has_the_lines_of_the_plan() -> None:
    """A changed graph names each difference. Each refusal carries the whole plan as a note."""
    grown = replace(TOPOLOGY, nodes=(*TOPOLOGY.nodes, replace(TOPOLOGY.nodes[0], name="R")))
    plan = explain_restore(grown, sample.manifest(), (), {})
    with pytest.raises(RestoreRefused) as caught:
        plan_restore(grown, sample.manifest(), (), {})
    assert str(caught.value) == plan.reason
    assert "\n  + node R: not in the snapshot, parallelism 1\n" in str(caught.value)
    assert caught.value.__notes__ == [str(replace(plan, reason=None))]
    assert str(plan).endswith(f"refused: {plan.reason}")
    allowed = explain_restore(grown, sample.manifest(), ("changedGraph",), {})
    assert (allowed.isRefused, allowed.lines) == (False, plan.lines)


def test_a_fresh_start_is_all_new() -> None:
    """Without a snapshot there is nothing to refuse."""
    plan = explain_restore(TOPOLOGY, None, (), {})
    assert {line.change for line in plan.lines} == {Change.ADDED}
    assert (plan.snapshot_id, plan.isRefused) == (None, False)
    assert str(plan).startswith(f"run {TOPOLOGY.name!r}, a fresh start\n")


def test_a_plan_is_data() -> None:
    """JSON has every field of every line."""
    found = json.loads(json.dumps(explain_restore(TOPOLOGY, sample.manifest(), (), {}).as_dict()))
    assert [(line["kind"], line["change"]) for line in found["lines"]] == [("node", "=")] * 2 + [("edge", "=")] * 2
    assert found["lines"][0]["name"] == "P" and found["lines"][2]["kept"] == 6
    assert (found["snapshot"], found["isRefused"], found["reason"]) == (sample.SNAPSHOT_ID, False, None)


# ---------------------------------------------------------------- state of removed nodes, and versions


def test_what_a_removed_node_keeps_is_named() -> None:
    """Own state, keyed state, timers and prepared output. A node without any is removed like that."""
    first, second = sample.manifest().records
    kept = replace(
        second, status=replace(second.status, own_state=OwnStateKind.WHOLE, has_timers=True, uncommitted=(5, 6))
    )
    plain = replace(second, status=replace(second.status, has_timers=False, uncommitted=()))
    alone = replace(TOPOLOGY, nodes=TOPOLOGY.nodes[:1], edges=(), components=TOPOLOGY.components)
    allow = ("changedGraph", "droppedMessages")
    refused = explain_restore(alone, sample.manifest((first, kept)), allow, {}).reason
    assert refused is not None
    assert "Q[0]: its own state," in refused and "timers" in refused and "prepared output of 2 snapshots" in refused
    assert not explain_restore(alone, sample.manifest((first, plain)), allow, {}).isRefused
    assert not explain_restore(alone, sample.manifest((first, kept)), (*allow, "droppedState"), {}).isRefused


def test_versions_are_refused_by_the_manifest() -> None:
    """A newer version, and an older version of own state without its hook."""
    first, second = sample.manifest().records
    owned = replace(first, status=replace(first.status, own_state=OwnStateKind.WHOLE))
    raised = replace(TOPOLOGY, nodes=(replace(TOPOLOGY.nodes[0], raised_version=2), *TOPOLOGY.nodes[1:]))
    reason = explain_restore(raised, sample.manifest((owned, second)), (), {}).reason
    assert reason is not None and "migrateState(state, fromVersion)" in reason
    assert not explain_restore(raised, sample.manifest((first, second)), (), {}).isRefused
    able = replace(raised, nodes=(replace(raised.nodes[0], migrations=("migrateState",)), *TOPOLOGY.nodes[1:]))
    assert not explain_restore(able, sample.manifest((owned, second)), (), {}).isRefused
    newer = replace(sample.manifest(), topology=record_of_topology(raised))
    reason = explain_restore(TOPOLOGY, newer, (), {}).reason
    assert reason is not None and "has states of version 2 in the snapshot, and its stateVersion is 1" in reason
