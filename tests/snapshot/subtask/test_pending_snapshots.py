"""What a subtask says that it spent on a snapshot, by the stopwatch of its host."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import Context, Node
from cutline.snapshot.stored.contribution import Contribution, SnapshotTimings
from cutline.snapshot.subtask.events import AlignmentTimedOut, MarkerArrived, MinSnapshotIdRaised
from tests.snapshot.hosted import Hosted, taken


class Slow(Node):
    """Takes a second of the stopwatch for its state."""

    hosted: Hosted

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        self.hosted.now += 1.0
        return 1

    def restoreState(self, state: int) -> None: ...


class Quiet(Node):
    """Does nothing."""

    def onMessage(self, message: Any, context: Context) -> None: ...


def hosted(alignment: Any) -> Hosted:
    """Two that feed a slow one, which feeds a last one."""
    graph = Graph("fan").add("left", Quiet()).add("right", Quiet()).add("slow", Slow()).add("last", Quiet())
    graph.connect("left", "slow").connect("right", "slow").connect("slow", "last")
    found = Hosted(graph, alignment)
    found.node("slow").hosted = found
    return found


def arrive(found: Hosted, source: str, *, aligned: bool) -> None:
    """The marker of snapshot 1 comes to the slow one."""
    found["slow"].step(MarkerArrived(ChannelId(Subtask(source), Subtask("slow")), Marker(1, 1, 0, aligned)), 0.0)


def of_slow(found: Hosted) -> Contribution:
    """What the slow one hands out."""
    (snapshot,) = taken(found["slow"])
    return snapshot


def test_unaligned_from_the_first_marker_to_the_last() -> None:
    """The cut is at once, the recording goes on until the last marker; the capture is no part of it."""
    found = hosted("unaligned")
    found.now = 10.0
    arrive(found, "left", aligned=False)
    assert taken(found["slow"]) == []
    found.now = 14.0
    arrive(found, "right", aligned=False)
    assert of_slow(found).timings == SnapshotTimings(align=3.0, capture=1.0, upload=0.0)


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_aligned_from_the_first_marker_to_the_last(is_overtaken: bool) -> None:
    """The same, though it cuts at the end, or, out of time, in the middle; and until its own marker has left."""
    found = hosted("aligned")
    found.now = 10.0
    arrive(found, "left", aligned=True)
    found["slow"].run(0.0, 9)
    found.now = 12.0
    if is_overtaken:
        found["slow"].step(AlignmentTimedOut(1), 0.0)
    found.now += 2.0
    arrive(found, "right", aligned=True)
    found["slow"].run(0.0, 9)
    found.carry("slow", "last")
    assert of_slow(found).timings == SnapshotTimings(align=4.0, capture=1.0, upload=0.0)


def test_one_that_was_settled_leaves_nothing() -> None:
    """min_snapshot_id rises over a snapshot that only aligned here: it is forgotten, by the stopwatch too."""
    found = hosted("aligned")
    arrive(found, "left", aligned=True)
    found["slow"].step(MinSnapshotIdRaised(2), 0.0)
    assert found["slow"].snapshotter._pending._seen == {}
