"""Differences between states that are stored in several pieces: keyed rows, timers, and own state in deltas."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from cutline.barrier_runtime.cli import state_difference
from cutline.barrier_runtime.cli.records import subtasks
from cutline.barrier_runtime.cli.state_difference import StateComparison
from cutline.snapshot.errors import GraphError
from cutline.snapshot.graph import Graph
from cutline.snapshot.node import Context, Node
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.choosers import Odds
from cutline.snapshot.testing.lists import ListSource
from cutline.snapshot.testing.simulator import Simulator


class Keyed(Node):
    """Has a state of each kind, and a timer that is never due."""

    def open(self, context: Context) -> None:
        self.count = context.getReducingState("count", "sum")
        self.seen = context.getListState("seen")
        self.by_name = context.getMapState("by name")
        self.odd = context.getValueState("odd")

    def onMessage(self, message: Any, context: Context) -> None:
        self.count.add(1)
        self.seen.appendValue(message)
        self.by_name.updateValue("last", message)
        self.odd.update(Fraction(message))
        context.registerTimer(1e9 + message)


class Deltas(Node):
    """Keeps its messages in deltas."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.new: list[Any] = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.all.append(message)
        self.new.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.new = []
        return self.all

    def restoreState(self, state: Any) -> None:
        self.all = list(state)

    def snapshotDelta(self, sinceSnapshotId: int) -> Any:
        new, self.new = self.new, []
        return new or None

    def applyDelta(self, delta: Any) -> None:
        self.all += delta


@pytest.fixture(scope="module")
def two() -> tuple[Snapshot, Snapshot]:
    """Two snapshots in the midst of the messages."""
    graph = Graph("g").add("in", ListSource(*range(40))).add("keyed", Keyed()).add("deltas", Deltas())
    graph.connect("in", "keyed", key=lambda number: number % 2).connect("in", "deltas")
    odds = Odds(request=20, requests=20)
    found = Simulator(graph, 1, retainedSnapshots=20, odds=odds).run().snapshots
    midst = next(each for each in found if min(map(len, _lists(each))) > 0)
    later = [each for each in found if not each.manifest.final][-1]
    assert all(early < late for early, late in zip(map(len, _lists(midst)), map(len, _lists(later)), strict=True))
    return midst, later


def _lists(snapshot: Snapshot) -> list[list[Any]]:
    """Return what each node has seen of the even numbers, or of all."""
    [changes] = snapshot.node("deltas").changes
    try:
        return [snapshot.node("keyed").keyedState("seen").get(0, []), [each for part in changes for each in part]]
    except GraphError:
        return [[], []]


def _compared(two: tuple[Snapshot, Snapshot], node: str, *, reads_all: bool = False, most: int = 20) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_difference, "CHANGES_MAX", most)
        before, after = (each.records(node)[0] for each in two)
        return StateComparison(two[1].read_part, reads_all=reads_all).of(before, after).as_record()


def test_keyed_states_and_timers_are_compared(two: tuple[Snapshot, Snapshot]) -> None:
    """Each state by key. A value that is not opened is compared as bytes."""
    found = _compared(two, "keyed")
    assert (found["comparison"], found["has_more_changes"]) == ("changed", True)
    found = _compared(two, "keyed", most=1_000)
    places = {each["path"]: (each["before"], each["after"]) for each in found["changes"]}
    counts = [each.node("keyed").keyedState("count") for each in two]
    assert places["count[0]"] == (str(counts[0][0]), str(counts[1][0]))
    last = 2 * (counts[1][0] - 1)
    assert places[f"seen[0][{counts[1][0] - 1}]"] == (None, str(last))
    assert places["by name[0]['last']"][1] == str(last)
    assert any(place.startswith("timers[0][") for place in places)
    assert "pickled" in places["odd[0]"][1]


def test_own_state_in_deltas_is_compared(two: tuple[Snapshot, Snapshot]) -> None:
    """Also where a state is stored as a whole again."""
    found = _compared(two, "deltas")
    assert found["comparison"] == "changed"
    assert found["changes"]


@pytest.mark.parametrize("node", ["keyed", "deltas", "in"])
def test_a_snapshot_equals_itself(two: tuple[Snapshot, Snapshot], node: str) -> None:
    """In all pieces."""
    assert _compared((two[1], two[1]), node)["comparison"] == "equal"


def test_sizes_count_all_pieces(two: tuple[Snapshot, Snapshot]) -> None:
    """Own state, deltas and keyed rows."""
    sizes = {each["subtask"]: each["state_bytes"] for each in subtasks(two[1])}
    for node in ("keyed", "deltas"):
        [record] = two[1].records(node)
        assert sizes[f"{node}[0]"] == record.state_size > record.state.size
        assert f"{record.state_size} bytes" in repr(two[1].node(node))


def test_large_rows_are_read_on_demand(two: tuple[Snapshot, Snapshot], monkeypatch: pytest.MonkeyPatch) -> None:
    """And are not called equal before."""
    monkeypatch.setattr(state_difference, "READ_BYTES_MAX", 0)
    assert _compared(two, "keyed")["comparison"] == "unknown"
    assert _compared(two, "keyed", reads_all=True)["comparison"] == "changed"
