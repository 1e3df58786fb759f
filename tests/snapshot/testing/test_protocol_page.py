"""docs/PROTOCOL.md: the example of rule 6.8 is what a restore does."""

from __future__ import annotations

from typing import Any

from cutline import Context, Graph, Node, Subtask, keyGroup
from cutline.snapshot.channel.partitioning import groups_of
from cutline.testing import Deliver, Initiate, ListSink, ListSource, Poll, Quiesce, Simulator
from tests.source_files import ROOT


class _Counts(Node):
    """Counts its messages by key, and sends each on."""

    def open(self, context: Context) -> None:
        self.n = context.getReducingState("n", "count")

    def onMessage(self, message: Any, context: Context) -> None:
        self.n.add(1)
        context.send(message)


def _itself(message: Any) -> Any:
    return message


def _key_of(new: int, old: int) -> int:
    """Return a key that a subtask of two owns in the snapshot, and a subtask of three afterwards."""
    both = range(max(groups_of(new, 3).start, groups_of(old, 2).start), groups_of(new, 3).stop)
    return next(key for key in range(1_000) if keyGroup(key) in both and keyGroup(key) in groups_of(old, 2))


_X, _Y, _Z = _key_of(0, 0), _key_of(1, 0), _key_of(2, 1)


def _graph(parallelism: int) -> Graph:
    sent = (_X, _X, _Z, _Z, _Z, _X, _Y, _Y, _Z)
    graph = Graph("example").add("s", ListSource(*sent)).add("b", _Counts(), parallelism=parallelism)
    return graph.add("out", ListSink()).connect("s", "b", key=_itself).connect("b", "out", partitioning="rebalance")


def _cut(simulator: Simulator, parallelism: int) -> list[tuple[int, int, list[int]]]:
    """Take a snapshot with all that is in flight. Return S, p and the messages of each channel of the edge."""
    subtasks = [str(Subtask("b", index)) for index in range(parallelism)]
    markers = [("s", name) for name in subtasks] + [(name, "out") for name in subtasks]
    for step in (Initiate(1, "s"), *(Deliver(*channel, marker=True) for channel in markers), Quiesce()):
        simulator.take(step)
    snapshot = simulator.history.snapshots[-1]
    channels = [snapshot.channel("s", Subtask("b", index)) for index in range(parallelism)]
    return [(channel.sent, channel.processed, channel.messages) for channel in channels]


def test_two_channels_become_three() -> None:
    """The numbers at both ends, and the messages of each channel, are those of the picture."""
    files: dict[str, bytes] = {}
    before = Simulator(_graph(2), files=files)
    for step in (*[Poll("s")] * 9, *[Deliver("s", "b[0]")] * 2, *[Deliver("s", "b[1]")] * 3):
        before.take(step)
    assert _cut(before, 2) == [(5, 2, [_X, _Y, _Y]), (4, 3, [_Z])]
    assert _cut(Simulator(_graph(3), files=files), 3) == [(5, 4, [_X]), (5, 3, [_Y, _Y]), (5, 4, [_Z])]
    page = (ROOT / "docs/PROTOCOL.md").read_text()
    numbers = ("S = 5, p = 2", "S = 4, p = 3", "sent 5, processed 4", "sent 5, processed 3")
    assert [page.count(text) for text in numbers] == [1, 1, 2, 1]
