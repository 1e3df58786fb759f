"""Output in two phases: what is prepared, kept, committed and discarded, and when (PROTOCOL 8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import NodeError, RestoreRefused
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import Context, Node, Sink
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.events import MinSnapshotIdRaised, SnapshotPublished, SnapshotRequested, Started
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import Restored
from cutline.snapshot.subtask.two_phase import PreparedOutput
from tests.snapshot.hosted import Hosted, state_of, taken


class Ledger(Sink):
    """Notes what it is asked to do; prepares what is in `rows`, or nothing."""

    def __init__(self, raising: str = "") -> None:
        self.raising = raising
        self.rows: list[str] = []
        self.log: list[Any] = []

    def note(self, hook: str, *values: Any) -> None:
        self.log.append((hook, *values))
        if hook == self.raising:
            raise RuntimeError(f"{hook} fails")

    def open(self, context: Context) -> None:
        self.note("open")

    def onMessage(self, message: Any, context: Context) -> None:
        self.rows.append(message)

    def prepareCommit(self, snapshotId: int) -> Any:
        self.note("prepareCommit", snapshotId)
        prepared, self.rows = self.rows, []
        return prepared or None

    def commit(self, snapshotId: int, prepared: Any) -> None:
        self.note("commit", snapshotId, prepared)

    def discardUncommitted(self, context: Context) -> None:
        self.note("discardUncommitted")

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.note("snapshotState", snapshotId)
        return None

    def restoreState(self, state: Any) -> None:
        self.note("restoreState")


class Start(Node):
    """Something for the sink to hang on."""


def hosted_ledger(raising: str = "") -> Hosted:
    """A ledger, started, with an empty log."""
    hosted = Hosted(Graph("ledger").add("a", Start()).add("l", Ledger(raising)).connect("a", "l"))
    hosted.node("l").log.clear()
    return hosted


def cut(hosted: Hosted, snapshot_id: int, *rows: str) -> SubtaskMachine:
    """The ledger writes rows and takes a snapshot."""
    hosted.node("l").rows = list(rows)
    hosted["l"].step(SnapshotRequested(snapshot_id, (), 1), 0.0)
    return hosted["l"]


def test_prepared_then_recorded_then_committed_in_order() -> None:
    """prepareCommit before snapshotState; a publication commits what was prepared up to its cut, once."""
    hosted = hosted_ledger()
    cut(hosted, 1, "a")
    cut(hosted, 2)
    cut(hosted, 3, "c")
    machine = cut(hosted, 4, "d")
    hosted.node("l").log.clear()
    machine.step(SnapshotPublished(3), 1.0)
    machine.step(SnapshotPublished(3), 1.0)
    machine.step(SnapshotPublished(2), 1.0)
    assert hosted.node("l").log == [("commit", 1, ["a"]), ("commit", 3, ["c"])]
    machine.step(SnapshotPublished(4), 1.0)
    assert hosted.node("l").log[2:] == [("commit", 4, ["d"])]


def test_the_order_of_hooks_at_a_cut() -> None:
    """prepareCommit, then snapshotState, so that what was prepared is in the snapshot."""
    hosted = hosted_ledger()
    machine = cut(hosted, 1, "a")
    assert hosted.node("l").log == [("prepareCommit", 1), ("snapshotState", 1)]
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "l")
    (snapshot,) = taken(machine)
    assert state_of(snapshot).uncommitted == [(1, ["a"])]
    assert snapshot.status.uncommitted == (1,)


def test_an_abort_discards_nothing() -> None:
    """What an aborted snapshot prepared is committed with the next one published."""
    hosted = hosted_ledger()
    machine = cut(hosted, 1, "a")
    machine.step(MinSnapshotIdRaised(2), 0.0)
    cut(hosted, 2, "b")
    machine.step(SnapshotPublished(2), 1.0)
    assert hosted.node("l").log[-2:] == [("commit", 1, ["a"]), ("commit", 2, ["b"])]


def test_what_is_prepared_after_a_cut_waits_whatever_its_id() -> None:
    """A late marker of an aborted snapshot prepares rows behind the published cut: not to be committed with it."""
    hosted = hosted_ledger()
    cut(hosted, 3, "c")
    machine = cut(hosted, 2, "late")
    machine.step(SnapshotPublished(3), 1.0)
    assert hosted.node("l").log[-1] == ("commit", 3, ["c"])
    cut(hosted, 4)
    machine.step(SnapshotPublished(4), 1.0)
    assert hosted.node("l").log[-1] == ("commit", 2, ["late"])


def test_committing_by_id_would_commit_it_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule above, taken away: a restore would replay what is committed already."""

    def by_id(self: PreparedOutput, snapshot_id: int) -> None:
        while due := [each for each in sorted(self._values) if each[0] <= snapshot_id]:
            self._values.remove(due[0])
            self._values.appendleft(due[0])
            self._commit_first()

    monkeypatch.setattr(PreparedOutput, "commit_through", by_id)
    hosted = hosted_ledger()
    cut(hosted, 3, "c")
    cut(hosted, 2, "late").step(SnapshotPublished(3), 1.0)
    assert ("commit", 2, ["late"]) in hosted.node("l").log


def test_a_restore_commits_all_that_the_snapshot_holds_then_discards() -> None:
    """open, commit again; at the start, when all subtasks have done so, discardUncommitted; then events."""
    hosted = hosted_ledger()
    cut(hosted, 1, "a")
    machine = cut(hosted, 2, "b")
    hosted["a"].step(SnapshotRequested(2, (), 2), 0.0)
    hosted.carry("a", "l")
    (snapshot,) = taken(machine)
    again = hosted.machine(Subtask("l"))
    again.restore(Restored(b"".join(snapshot.state)), 1.0)
    assert hosted.node("l").log == [
        ("restoreState",), ("open",), ("commit", 1, ["a"]), ("commit", 2, ["b"]),
    ]  # fmt: skip
    again.step(Started(), 1.0)
    again.step(SnapshotPublished(2), 1.0)
    assert hosted.node("l").log[4:] == [("discardUncommitted",)]


def test_several_values_of_one_snapshot_are_restored_and_committed() -> None:
    """A subtask that takes over others commits the values of each, in their order (PROTOCOL 8)."""
    hosted = hosted_ledger()
    machine = cut(hosted, 1, "a")
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "l")
    (snapshot,) = taken(machine)
    both = replace(state_of(snapshot), uncommitted=[(1, ["a"]), (2, ["b"]), (1, ["c"])])
    again = hosted.machine(Subtask("l"))
    again.restore(Restored(b"".join(both.encode(Codec()))), 1.0)
    committed = [entry for entry in hosted.node("l").log if entry[0] == "commit"]
    assert committed == [("commit", 1, ["a"]), ("commit", 2, ["b"]), ("commit", 1, ["c"])]


def test_other_data_than_pairs_is_refused() -> None:
    """By name, whatever it is in the place of the prepared output."""

    def stored(uncommitted: Any) -> bytes:
        fields = Codec().decode_state(b"".join(NodeState(0, None, [], 0.0, [], False, False, [], {}).encode(Codec())))
        return b"".join(Codec().encode_state({**fields, "uncommitted": uncommitted}))

    assert NodeState.decode(stored([[3, "c"], [3, "d"]]), Codec()).uncommitted == [(3, "c"), (3, "d")]
    for wrong in (7, [[1]], {3: "c"}):
        with pytest.raises(RestoreRefused, match="a stored state cannot be read here"):
            NodeState.decode(stored(wrong), Codec())


def test_a_fresh_start_discards_what_earlier_incarnations_prepared() -> None:
    """A run that died before its first published snapshot leaves prepared rows too."""
    hosted = Hosted(Graph("ledger").add("a", Start()).add("l", Ledger()).connect("a", "l"))
    assert hosted.node("l").log == [("open",), ("discardUncommitted",)]


@pytest.mark.parametrize("hook", ["prepareCommit", "commit", "discardUncommitted"])
def test_failures_roll_back_like_those_of_on_message(hook: str) -> None:
    """prepareCommit and commit failures end the subtask with a NodeError that names the hook; none is an abort."""
    with pytest.raises(NodeError, match=rf"{hook} of l\[0\]: RuntimeError: {hook} fails"):
        cut(hosted_ledger(hook), 1, "a").step(SnapshotPublished(1), 1.0)


def test_a_sink_without_commit_prepares_nothing() -> None:
    """A plain node has no two phases, and costs nothing."""
    assert not PreparedOutput(Start(), Codec()).is_two_phase
    assert PreparedOutput(Ledger(), Codec()).is_two_phase
