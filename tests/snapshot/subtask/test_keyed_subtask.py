"""Keyed state inside a subtask's machine: the current key of each hook, the report of a cut, restores, lost state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from cutline.snapshot.errors import GraphError, NodeError
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.node import Context, Node, Source
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.subtask.events import SnapshotRequested, Started
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.reports import Report, SnapshotFailed
from cutline.snapshot.subtask.restored import Restored, RestoredChannels
from cutline.snapshot.subtask.strand import ChangeCaptured, RowsCaptured
from tests.snapshot.hosted import Hosted, changes_of, only, state_of
from tests.snapshot.keyed.keyed_subtask import encoded

CHANNEL = ChannelId(Subtask("a"), Subtask("b"))


class Letters(Source):
    """Sends what the test gives it, and never ends."""

    def poll(self, context: Context) -> float:
        return 1e6

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class Counter(Node):
    """Counts by key, in every way that a hook may use."""

    def open(self, context: Context) -> None:
        self.n = context.getReducingState("n", "sum")
        self.seen: list[Any] = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.n.add(1)
        self.seen.append((context.key, self.n.get()))
        if message == "timer":
            context.registerTimer(context.now + 5)

    def onTimer(self, at: float, context: Context) -> None:
        self.n.add(10)
        self.seen.append((at, context.key, self.n.get()))


def hosted(node: Node, key: Callable[[Any], Any] | None = str) -> Hosted:
    """A graph in which `a` sends what is injected to `b`."""
    graph = Graph("keyed").add("a", Letters()).add("b", node)
    return Hosted(graph.connect("a", "b") if key is None else graph.connect("a", "b", key=key))


def send(host: Hosted, *messages: Any) -> None:
    """Let `b` handle messages."""
    for message in messages:
        host["a"].inject(message, 0.0)
    host.seal_and_carry("a", "b")
    while host["b"].runnable:
        host["b"].run(0.0, 100)


def cut(host: Hosted, snapshot_id: int) -> list[Report]:
    """The reports of `b` on a snapshot that `a` begins."""
    host["a"].step(SnapshotRequested(snapshot_id, (), snapshot_id), 0.0)
    host.carry("a", "b")
    return host["b"].take_reports()


def restored(host: Hosted, snapshot: list[Report], segments: list[Segment]) -> SubtaskMachine:
    """A new incarnation of `b`, and the node in `host.node`."""
    machine = host.machine(Subtask("b"), RestoredChannels(processed={CHANNEL: host["b"].inputs[CHANNEL].processed}))
    machine.restore(Restored(b"".join(only(snapshot, Contribution).state), segments), 0.0)
    machine.step(Started(), 0.0)
    return machine


def test_messages_and_timers_have_a_current_key() -> None:
    """Also None, for messages that the sender has read the key of and for those that it has not."""
    host = hosted(Counter(), key=lambda message: None if message == "none" else str(message))
    host["a"].outputs[CHANNEL].take_objects()
    send(host, "x", "none", "x", "timer")
    host["b"].run(5.0, 10)
    assert host.node("b").seen == [("x", 1), (None, 1), ("x", 2), ("timer", 1), (5.0, "timer", 11)]
    with pytest.raises(NodeError, match="no current key"):
        host.node("b").n.get()


def test_a_cut_reports_the_changed_rows_ahead_of_its_snapshot() -> None:
    """Each changed row once; without a change the report says so. A restore from the rows goes on."""
    host = hosted(Counter())
    send(host, "x", "timer")
    reports = cut(host, 1) + cut(host, 2)
    assert [type(report) for report in reports] == [ChangeCaptured, Contribution] * 2
    first, second = only(reports[:2], ChangeCaptured), only(reports[2:], ChangeCaptured)
    assert (first.snapshot_id, first.subtask, first.change.groups) == (1, Subtask("b"), range(32_768))
    assert (second.snapshot_id, second.change.rows) == (2, None)
    assert first.change.rows is not None
    rows = {table.spec.name: dict(table.rows) for table in first.change.rows.tables}
    assert rows == {"n": {"x": 1, "timer": 1}, "#timers": {"timer": {5.0: True}}}

    again = restored(host, reports[:2], [encoded(first.change.rows)])
    assert again.next_wake() == 5.0
    again.run(5.0, 10)
    assert host.node("b").seen == [(5.0, "timer", 11)]


class FailsAtCuts(Counter):
    """Its own state fails."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.n.addAll(["of the cut"], [1])
        if snapshotId == 1:
            raise ValueError("not now")
        return "own"

    def restoreState(self, state: Any) -> None:
        """Never called here."""


def test_a_capture_that_fails_leaves_the_rows_to_the_next() -> None:
    """The swap is the last step of a cut. What snapshotState itself changed is in its cut."""
    host = hosted(FailsAtCuts())
    send(host, "x")
    reports = cut(host, 1)
    assert any(isinstance(report, SnapshotFailed) for report in reports)
    assert not changes_of(reports, RowsCaptured)
    (captured,) = changes_of(cut(host, 2), RowsCaptured)
    assert {table.spec.name: table.rows for table in captured.rows.tables} == {"n": {"x": 1, "of the cut": 2}}


def test_a_subtask_without_keys_reports_no_rows() -> None:
    """A node behind a plain edge that asks for no state; one that asks does report."""
    host = hosted(Letters(), key=None)
    assert not changes_of(cut(host, 1), RowsCaptured)
    host = hosted(Counter(), key=None)
    assert changes_of(cut(host, 1), RowsCaptured)[0].rows is None


def test_a_node_behind_a_plain_edge_has_no_current_key() -> None:
    """With parallelism 1 it may have state, and bulk calls only."""
    host = hosted(Counter(), key=None)
    with pytest.raises(NodeError, match=r"onMessage of b\[0\]: .*no current key here: use getAll"):
        send(host, "x")


def test_a_node_of_several_subtasks_needs_keys() -> None:
    """A GraphError at open, because another start cannot help."""
    graph = Graph("keyed").add("a", Letters()).add("b", Counter(), parallelism=2)
    with pytest.raises(GraphError, match=r"b\[0\]: state 'n': a node of parallelism 2 needs an input with a key"):
        Hosted(graph.connect("a", "b", partitioning="rebalance"))


class Unkeyed(Node):
    """Sets timers of no key and of a key."""

    def open(self, context: Context) -> None:
        context.registerTimer(3.0)

    def onMessage(self, message: Any, context: Context) -> None:
        context.registerTimer(4.0)

    def onTimer(self, at: float, context: Context) -> None:
        assert context.key == {3.0: None, 4.0: "x"}[at]


def test_timers_of_no_key_stay_in_the_state_part() -> None:
    """Those of a key are rows only."""
    host = hosted(Unkeyed())
    send(host, "x")
    reports = cut(host, 1)
    assert state_of(only(reports, Contribution)).timers == [(3.0, None)]
    assert [table.rows for table in changes_of(reports, RowsCaptured)[0].rows.tables] == [{"x": {4.0: True}}]
    assert host["b"].run(9.0, 10) == 2


class HoldsStates(Node):
    """Keeps its states in attributes of all kinds, made before `open`."""

    def __init__(self, counts: bool = False) -> None:
        self.state: Any = None
        self.states: dict[str, Any] = {}
        self.update: Any = None
        self.counts = 0 if counts else None

    def open(self, context: Context) -> None:
        self.state = context.getValueState("v")
        self.states["m"] = context.getMapState("m")
        self.update = self.state.update

    def onMessage(self, message: Any, context: Context) -> None:
        self.update(message)
        if self.counts is not None:
            self.counts += 1


@pytest.mark.parametrize("counts", [False, True])
def test_states_are_no_lost_state(counts: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A node that keeps all in states is not warned of; another attribute that changes is named alone."""
    host = hosted(HoldsStates(counts))
    send(host, "x", "y")
    with caplog.at_level(logging.WARNING):
        cut(host, 1)
    warned = [record.getMessage() for record in caplog.records if "snapshotState" in record.getMessage()]
    assert len(warned) == counts
    assert all("attributes counts but" in text for text in warned)


class Iterates(Node):
    """Keeps an iterator from one message to the next."""

    def open(self, context: Context) -> None:
        self.n = context.getReducingState("n", "sum")
        self.n.addAll(["p", "q"], [1, 1])
        self.found: Any = None

    def onMessage(self, message: Any, context: Context) -> None:
        if message == "same":
            assert len(dict(self.n.items())) == 2
        elif self.found is None:
            self.found = self.n.items()
            next(self.found)
        else:
            next(self.found)


@pytest.mark.parametrize("together", [True, False])
def test_an_iterator_ends_with_its_hook(together: bool) -> None:
    """Also where the next message comes in the same frame."""
    host = hosted(Iterates())
    send(host, "same")
    with pytest.raises(NodeError, match="valid only in the hook that called items"):
        if together:
            send(host, "x", "x")
        else:
            send(host, "x")
            send(host, "x")
