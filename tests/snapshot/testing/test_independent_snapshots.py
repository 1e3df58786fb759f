"""Snapshots that several subtasks start by themselves, whose ids cross: each cut is exact (PROTOCOL 3.3)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline import Context, Graph, Node
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulation.host import CROSSING
from cutline.snapshot.testing.steps import Deliver, Quiesce, Step
from cutline.testing import Impossible, Initiate, Simulator, judge
from tests.run_size import scaled

NODES = "abc"


class _Player(Node):
    """Returns a ball until it has no bounces left."""

    def __init__(self) -> None:
        self.seen = 0

    def onStart(self, context: Context) -> None:
        for bounces in (3, 4):
            context.send(bounces)

    def onMessage(self, message: Any, context: Context) -> None:
        self.seen += 1
        if message:
            context.send(message - 1)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.seen

    def restoreState(self, state: Any) -> None:
        self.seen = state


def graph() -> Graph:
    """Return three players, each of which sends to the others."""
    made = Graph("g")
    for name in NODES:
        made.add(name, _Player())
    for source, target in permutations(NODES, 2):
        made.connect(source, target)
    return made


def _sound(history: History) -> None:
    assert history.outcome is Outcome.FINISHED, history.reason
    broken = [verdict for verdict in judge(history) if not verdict.holds]
    assert broken == []


@pytest.mark.parametrize("order", [*permutations((1, 2, 3)), (1, 3, 2), (7, 3, 5)])
def test_ids_may_be_started_in_any_order(order: tuple[int, ...]) -> None:
    """Each by another subtask, at the same time. What is published is exact."""
    script = [Initiate(number, name) for number, name in zip(order, NODES, strict=True)]
    history = Simulator(graph(), script, maxConcurrentSnapshots=3).run()
    _sound(history)
    assert (CROSSING in history.seen) == (list(order) != sorted(order))


def test_a_subtask_may_record_the_higher_id_first() -> None:
    """Both snapshots are published, the lower id first."""
    two = Graph("g").add("a", _Player()).add("b", _Player()).connect("a", "b").connect("b", "a")
    simulator = Simulator(two, [Initiate(2, "a"), Initiate(1, "b")])
    _sound(simulator.run())
    cuts = [(each.subtask.node, each.snapshot_id % 1_000_000) for each in simulator.history.cuts.values()]
    assert [number for name, number in cuts if name == "a"][:2] == [2, 1]
    assert [number for name, number in cuts if name == "b"][:2] == [1, 2]
    published = [snapshot.id % 1_000_000 for snapshot in simulator.history.snapshots]
    assert 2 in published and published == sorted(published)


def test_an_id_below_an_ended_snapshot_is_used_up() -> None:
    """The store publishes in ascending order, so a snapshot that ended closes all lower ids."""
    script = [Initiate(2, "a"), *(move for move in MOVES if move.marker), *MOVES, Quiesce()]
    simulator = Simulator(graph(), script, skipsImpossible=True, maxSteps=len(script))
    assert [snapshot.id % 1_000_000 for snapshot in simulator.run().snapshots] == [2]
    with pytest.raises(Impossible, match="an id is used once"):
        simulator.take(Initiate(1, "b"))


def test_rule_3_3_is_still_checked() -> None:
    """Where ids go up, a subtask records them in that order."""
    history = Simulator(graph(), [Initiate(1, "a"), Initiate(2, "b"), Initiate(3, "c")]).run()
    _sound(history)
    for name in NODES:
        ids = [each.snapshot_id for each in history.cuts.values() if each.subtask.node == name]
        assert ids == sorted(ids)


MOVES = [Deliver(*ends, marker=is_marker) for ends in permutations(NODES, 2) for is_marker in (False, True)]
_STEPS = st.one_of(
    st.builds(Initiate, st.integers(1, 6), st.sampled_from(NODES)),
    st.sampled_from([*MOVES, Quiesce()]),
)


@settings(max_examples=scaled(200))
@given(st.lists(_STEPS, max_size=40), st.integers(1, 4))
def test_every_cut_is_exact(script: list[Step], most: int) -> None:
    """Whatever starts when, between which other steps."""
    _sound(Simulator(graph(), script, skipsImpossible=True, maxConcurrentSnapshots=most).run())
