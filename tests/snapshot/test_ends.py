"""Ends: of streams, of cycles, of the run; a finished subtask still cuts (PROTOCOL 5)."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.errors import NodeError
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import END, Context, End, Node, Source
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.events import ComponentEnded, SnapshotRequested, Started
from cutline.snapshot.subtask.restored import Restored, RestoredChannels
from tests.snapshot.hosted import Hosted, state_of, taken, values

AB, BC = ChannelId(Subtask("a"), Subtask("b")), ChannelId(Subtask("b"), Subtask("c"))


class Once(Source):
    """Sends one message, then ends."""

    def __init__(self) -> None:
        self.done = False

    def poll(self, context: Context) -> float | End | None:
        if self.done:
            return END
        self.done = True
        context.send("once")
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.done

    def restoreState(self, state: Any) -> None:
        self.done = state


class Relay(Node):
    """Passes messages on, and says good-bye: outward, or to whom `last` names."""

    def __init__(self, last: str | None = None) -> None:
        self.last = last
        self.got: list[Any] = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.got.append(message)
        if message != "bye" and "c" in context.outputs:
            context.send(message, "c")

    def onEnd(self, context: Context) -> None:
        assert context.sender is not None
        self.got.append((context.sender.node, context.inputs))
        if context.outputs and not context.inputs:
            context.send("bye", self.last)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.got

    def restoreState(self, state: Any) -> None:
        self.got = state


def chain() -> Hosted:
    """a -> b -> c, with the message and the end of a waiting at b."""
    hosted = Hosted(
        Graph("chain").add("a", Once()).add("b", Relay()).add("c", Relay()).connect("a", "b").connect("b", "c")
    )
    hosted["a"].run(0.0, 10)
    hosted.seal_and_carry("a", "b")
    return hosted


def test_a_channel_is_closed_when_its_end_is_processed() -> None:
    """PROTOCOL 5.1: the end waits behind messages, and onEnd may still send."""
    hosted = chain()
    assert hosted["a"].status is Status.ENDED
    statuses = []
    for _ in range(2):
        hosted["b"].run(1.0, 1)
        statuses.append(hosted["b"].status)
    assert statuses == [Status.RUNNING, Status.ENDED]
    hosted.seal_and_carry("b", "c")
    hosted["c"].run(1.0, 10)
    assert hosted.node("c").got == ["once", "bye", ("b", ())]


def test_an_end_in_flight_is_recorded_and_restored() -> None:
    """PROTOCOL 5.1: the end is channel state like any message; after a restore the receiver does not wait for ever."""
    hosted = chain()
    hosted["b"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    (snapshot,) = taken(hosted["b"])
    cut = snapshot.received[AB]
    assert [frame.kind for frame in cut.frames] == [PayloadKind.VALUES, PayloadKind.CONTROL]
    (sent,) = snapshot.sent.values()
    again = hosted.machine(Subtask("b"), RestoredChannels({AB: 0}, {AB: cut.frames}, {BC: sent.sent}))
    again.restore(Restored(b"".join(snapshot.state)), 1.0)
    again.step(Started(), 1.0)
    again.run(1.0, 10)
    assert (again.status, hosted.node("b").got) == (Status.ENDED, ["once", ("a", ())])


def test_a_finished_subtask_still_cuts() -> None:
    """PROTOCOL 5.2: it records, sends markers, and is restored as finished, without a second end."""
    hosted = chain()
    (end,) = hosted["a"].outputs.values()
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    (snapshot,) = taken(hosted["a"])
    assert (snapshot.status.ended, snapshot.status.passive, state_of(snapshot).ended) == (True, True, True)
    again = hosted.machine(Subtask("a"), RestoredChannels(sent={AB: end.sent}))
    again.restore(Restored(b"".join(snapshot.state)), 1.0)
    again.step(Started(), 1.0)
    assert (again.status, again.run(2.0, 10), again.next_wake(), again.idle) == (Status.ENDED, 0, None, True)
    (end,) = again.outputs.values()
    assert not end.buffer.has_data
    again.step(SnapshotRequested(2, (), 2), 0.0)
    assert end.buffer.take() == Marker(2, 2, 2, aligned=False)


def test_a_finished_subtask_passes_aligned_markers_on() -> None:
    """PROTOCOL 5.2 with 4.1: its inputs hold nothing but markers, and a turn takes them."""
    graph = Graph("aligned").add("a", Once()).add("b", Relay()).add("c", Relay()).connect("a", "b").connect("b", "c")
    hosted = Hosted(graph, "aligned")
    hosted["a"].run(0.0, 10)
    hosted.seal_and_carry("a", "b")
    hosted["b"].run(1.0, 10)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    assert hosted["b"].runnable
    hosted["b"].run(1.0, 10)
    items = hosted.seal_and_carry("b", "c")
    assert [type(item) for item in items] == [Frame, Frame, Marker]
    assert [snapshot.snapshot_id for snapshot in taken(hosted["b"])] == [1]


def cycle(last: str | None) -> Hosted:
    """a -> b <-> d, b -> c; all that a sent is processed by b."""
    graph = Graph("cycle").add("a", Once()).add("b", Relay(last)).add("d", Relay()).add("c", Relay())
    hosted = Hosted(graph.connect("a", "b").connect("b", "d").connect("d", "b").connect("b", "c"))
    hosted["a"].run(0.0, 10)
    hosted.seal_and_carry("a", "b")
    hosted["b"].run(1.0, 10)
    return hosted


def test_a_cycle_ends_as_a_whole() -> None:
    """PROTOCOL 5: inside a cycle no end is sent; when it is over, onEnd runs for its inner inputs and sends outward."""
    hosted = cycle(None)
    machine = hosted["b"]
    assert (machine.status, machine.idle) == (Status.RUNNING, True)
    machine.step(ComponentEnded(), 2.0)
    machine.step(ComponentEnded(), 2.0)  # said twice: nothing more happens
    assert (machine.status, hosted.node("b").got) == (Status.ENDED, ["once", ("a", ("d",)), ("d", ())])
    machine.seal()
    (to_d, to_c) = machine.outputs.values()
    assert (to_d.buffer.has_data, to_c.ended) == (False, True)
    frame = to_c.buffer.take()
    assert isinstance(frame, Frame)
    assert values((frame,)) == ["once", "bye"]


def test_after_its_end_a_cycle_is_closed_inside() -> None:
    """In the last onEnd of a cycle, sending to its members is an error that names them."""
    with pytest.raises(NodeError, match="the cycle with 'd' has ended; onEnd may send outward only"):
        cycle("d")["b"].step(ComponentEnded(), 2.0)
