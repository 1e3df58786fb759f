"""The textbook case: P and Q exchange coloured balls, P snapshots, and exactly the right balls are in flight."""

from __future__ import annotations

from typing import Any

from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import Context, Node
from cutline.snapshot.stored.certificate import problems
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.subtask.events import SnapshotRequested
from tests.snapshot.hosted import Hosted, state_of, taken, values

P, Q = Subtask("P"), Subtask("Q")
PQ, QP = ChannelId(P, Q), ChannelId(Q, P)


class Balls(Node):
    """Holds balls. Sends one a timer, in a given order, to the other node."""

    def __init__(self, held: list[str], to_send: list[str]) -> None:
        self.held = held
        self.to_send = to_send

    def onStart(self, context: Context) -> None:
        for at in range(len(self.to_send)):
            context.registerTimer(1.0 + at)

    def onTimer(self, at: float, context: Context) -> None:
        ball = self.to_send.pop(0)
        self.held.remove(ball)
        context.send(ball)

    def onMessage(self, message: Any, context: Context) -> None:
        self.held.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.held

    def restoreState(self, state: Any) -> None:
        self.held = state


def test_the_textbook_case() -> None:
    """P(red, green, blue), channel PQ empty, Q(brown, pink), channel QP = [orange]."""
    graph = Graph("balls")
    graph.add("P", Balls(["red", "green", "blue"], ["green"])).add("Q", Balls(["brown", "orange", "pink"], ["orange"]))
    graph.connect("P", "Q").connect("Q", "P")
    hosted = Hosted(graph)
    p, q = hosted["P"], hosted["Q"]

    p.step(SnapshotRequested(1, (), 1), 0.0)  # P records its state and sends its marker to Q,
    p.run(1.0, 10)  # then sends green to Q.
    assert hosted.node("P").held == ["red", "blue"]
    q.run(1.0, 10)  # Q had sent orange
    hosted.seal_and_carry("P", "Q")  # before the marker arrived, with green behind it.
    q.run(1.0, 10)
    hosted.seal_and_carry("Q", "P")
    p.run(1.0, 10)

    (of_p,), (of_q,) = taken(p), taken(q)
    assert state_of(of_p).state == ["red", "green", "blue"]
    assert values(of_p.sent[PQ]) + values(of_q.received[PQ]) == []
    assert state_of(of_q).state == ["brown", "pink"]
    assert values(of_p.received[QP]) + values(of_q.sent[QP]) == ["orange"]
    records = [record_of(each, 1, [part.inline() for part in parts_of(each, "balls", 1)]) for each in (of_p, of_q)]
    assert problems([PQ, QP], [P, Q], records, 1, run="balls") == []
    assert (sorted(hosted.node("P").held), sorted(hosted.node("Q").held)) == (
        ["blue", "orange", "red"],
        ["brown", "green", "pink"],
    )
