"""The textbook's snapshot of two processes, taken live through two barrier tasks."""

from __future__ import annotations

import os
from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Live, wait_for
from cutline import Context, Graph, Node
from cutline.snapshot.errors import RunFailed

pytestmark = [pytest.mark.spark, pytest.mark.ray]


class _Balls(Node):
    """Holds balls; notes in a file which process held them."""

    def __init__(self, folder: str, *balls: str) -> None:
        self.folder, self.balls = folder, list(balls)

    def open(self, context: Context) -> None:
        with open(f"{self.folder}/{context.subtask.node}", "w") as file:
            file.write(str(os.getpid()))

    def onMessage(self, ball: str, context: Context) -> None:
        self.balls.append(ball)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.balls

    def restoreState(self, state: Any) -> None:
        self.balls = state


class _P(_Balls):
    """Asks for a snapshot before it acts on anything, so it records before orange; then sends green."""

    def onStart(self, context: Context) -> None:
        context.requestSnapshot()

    def onMessage(self, ball: str, context: Context) -> None:
        super().onMessage(ball, context)
        self.balls.remove("green")
        context.send("green")


class _Q(_Balls):
    """Sends orange before it acts on any marker."""

    def onStart(self, context: Context) -> None:
        self.balls.remove("orange")
        context.send("orange")


def test_textbook_case_live(live: Live) -> None:
    """P(red, green, blue), nothing on PQ, Q(brown, pink), orange on QP; and the run goes on to its own end."""
    graph = Graph("balls")
    graph.add("P", _P(str(live.folder), "red", "green", "blue"))
    graph.add("Q", _Q(str(live.folder), "orange", "brown", "pink"))
    graph.connect("P", "Q").connect("Q", "P")
    run = live.run(graph, workers=2, snapshotInterval=None)
    wait_for("P's snapshot", lambda: run.status["snapshots"])
    cut = run.snapshots()[0]
    assert cut.node("P").state == ["red", "green", "blue"]
    assert cut.node("Q").state == ["brown", "pink"]
    assert cut.channel("P", "Q").messages == []
    assert cut.channel("Q", "P").messages == ["orange"]
    assert (live.folder / "P").read_text() != (live.folder / "Q").read_text()  # two processes
    assert run.awaitTermination(DEADLINE_S)
    with pytest.raises(RunFailed, match="not traced; submit it by a BarrierRuntime"):
        run.trace()
    final = run.snapshots()[-1]
    assert final.node("P").state == ["red", "blue", "orange"]
    assert final.node("Q").state == ["brown", "pink", "green"]
