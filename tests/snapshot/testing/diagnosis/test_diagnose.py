"""Mistakes in nodes, told apart by what a probe saw in one run with a crash."""

from __future__ import annotations

from typing import Any

import pytest

from cutline import Context, Node
from cutline.snapshot.testing.diagnosis.diagnose import Diagnosis, Mistake, diagnose
from cutline.snapshot.testing.diagnosis.probe import Probe
from cutline.snapshot.testing.steps import Crash, Deliver, Initiate, Poll, Quiesce, Step
from cutline.snapshot.testing.trial import Trial
from tests.snapshot.testing.broken import Averages, ForgetsCount, LosesCount, SharesLedger2, through

#: A snapshot between the first two messages of the node, and a crash after the second.
_SCHEDULE: list[Step] = [
    *(Poll("numbers"), Deliver("numbers", "node"), Initiate(1, "numbers"), Deliver("numbers", "node", marker=True)),
    *(Deliver("node", "out", marker=True), Quiesce()),
    *(Poll("numbers"), Deliver("numbers", "node"), Crash("node")),
]


class ForgetsCountAndCounts(ForgetsCount):
    """Its state names the snapshot that it is for."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [snapshotId, self.total]

    def restoreState(self, state: Any) -> None:
        _, self.total = state


class ShowsCount(Averages):
    """Its class shows the count of the last instance, which is also in the state."""

    shown = 0

    def open(self, context: Context) -> None:
        type(self).shown = self.count

    def onMessage(self, number: int, context: Context) -> None:
        super().onMessage(number, context)
        type(self).shown = self.count


def diagnosed(node: Node) -> list[Diagnosis]:
    """What is found in the run of the schedule."""
    probe, plain, trial = Probe(), Probe(), Trial(through(node))
    reference = trial.run((), mutation=plain.mutation).history
    history = trial.run(_SCHEDULE, mutation=probe.mutation).history
    assert any(history.origins.values())
    return diagnose(history, probe, reference, plain)


@pytest.mark.parametrize(
    ("node", "mistake", "where"),
    [
        (ForgetsCount(), Mistake.KEPT_OUTSIDE, "count"),
        (ForgetsCountAndCounts(), Mistake.KEPT_OUTSIDE, "count"),
        (LosesCount(), Mistake.LOST, "count"),
        (SharesLedger2(), Mistake.SHARED, "numbers"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Node) else None,
)
def test_a_mistake_is_told_by_its_place(node: Node, mistake: Mistake, where: str) -> None:
    """A state that differs after the restore was not recorded, not adopted, or changed while it was stored."""
    assert (mistake, where) in [(each.mistake, each.where) for each in diagnosed(node)]
    assert {each.mistake for each in diagnosed(node)} == {mistake}


@pytest.mark.parametrize("node", [Averages(), ShowsCount()])
def test_a_sound_node_has_no_mistake(node: Node) -> None:
    """After the same crash. What a restore brings back need not be what a fresh node has."""
    assert diagnosed(node) == []
