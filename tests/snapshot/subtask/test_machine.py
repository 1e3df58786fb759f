"""One subtask whole: its life, requests from inside, failures of hooks, limits, what a restore brings back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import ChannelError, NodeError, RestoreRefused
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import END, Context, End, Node, Source
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.acts import Acts, Status
from cutline.snapshot.subtask.events import (
    MarkerArrived,
    MinSnapshotIdRaised,
    RequestAnswered,
    SnapshotPublished,
    SnapshotRequested,
    Started,
)
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.reports import (
    AlignmentStarted,
    PublicationHandled,
    SnapshotAsked,
    SnapshotFailed,
    SubtaskEnded,
)
from cutline.snapshot.subtask.restored import Restored
from tests.snapshot import sample
from tests.snapshot.hosted import Hosted, only, state_of, taken, values

CODEC = Codec()
A, B = Subtask("a"), Subtask("b")
AB, BB = ChannelId(A, B), ChannelId(B, B)


class Feed(Source):
    """Sends what it is given, one a poll."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)

    def poll(self, context: Context) -> float | End | None:
        if not self.messages:
            return END
        context.send(self.messages.pop(0))
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.messages

    def restoreState(self, state: Any) -> None:
        self.messages = state


class Recorder(Node):
    """Notes every hook; asks for a snapshot on "ask"; raises in hooks named by `raising`."""

    def __init__(self, raising: str = "") -> None:
        self.raising = raising
        self.log: list[Any] = []

    def note(self, hook: str, *values: Any) -> None:
        self.log.append((hook, *values))
        if hook == self.raising:
            raise RuntimeError(f"{hook} fails")

    def open(self, context: Context) -> None:
        self.note("open")

    def onStart(self, context: Context) -> None:
        self.note("onStart")

    def onMessage(self, message: Any, context: Context) -> None:
        self.note("onMessage", message)
        if message == "ask":
            context.requestSnapshot()
            context.requestSnapshot()

    def onTimer(self, at: float, context: Context) -> None:
        self.note("onTimer", at)

    def onEnd(self, context: Context) -> None:
        self.note("onEnd", context.sender and context.sender.node, context.inputs)

    def onPublished(self, snapshotId: int) -> None:
        self.note("onPublished", snapshotId)

    def close(self) -> None:
        self.note("close")

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.note("snapshotState", snapshotId)
        return list(self.log)

    def restoreState(self, state: Any) -> None:
        self.log = state
        self.note("restoreState")


def fed(node: Node, *messages: Any, limits: SubtaskLimits | None = None) -> Hosted:
    """A feed into a node, with all messages under way."""
    graph = Graph("fed").add("a", Feed(*messages)).add("b", node).connect("a", "b")
    hosted = Hosted(graph, limits=limits)
    hosted["a"].run(0.0, 100)
    hosted.seal_and_carry("a", "b")
    return hosted


def test_a_life_in_order() -> None:
    """Open, onStart, messages, onEnd, a snapshot after the end, close (API: order of a life)."""
    hosted = fed(Recorder(), "x")
    machine = hosted["b"]
    assert machine.runnable
    assert machine.run(1.0, 10) == 2
    assert machine.context.sender is None
    assert (machine.status, machine.idle, machine.runnable) == (Status.ENDED, True, False)
    only(machine.take_reports(), SubtaskEnded)
    machine.step(SnapshotRequested(1, (), 1), 0.0)
    machine.step(SnapshotPublished(1), 2.0)
    only(machine.take_reports(), PublicationHandled)
    assert machine.close() is None
    assert hosted.node("b").log == [
        ("open",), ("onStart",), ("onMessage", "x"), ("onEnd", "a", ()),
        ("snapshotState", 1), ("onPublished", 1), ("close",),
    ]  # fmt: skip


def test_nothing_is_handled_of_an_empty_or_held_channel() -> None:
    """A host that names the channel itself waits: for a message, and behind an aligned marker for the other input."""
    graph = Graph("two").add("a", Feed("x", "y")).add("c", Feed("z")).add("b", Recorder())
    hosted = Hosted(graph.connect("a", "b").connect("c", "b"), "aligned")
    assert hosted["b"].handle_next(AB, 0.0) == 0
    hosted["a"].poll_next(0.0)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted["a"].poll_next(0.0)
    hosted.seal_and_carry("a", "b")
    assert [hosted["b"].handle_next(AB, 1.0) for _ in range(4)] == [1, 0, 0, 0]
    hosted["c"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.seal_and_carry("c", "b")
    assert hosted["b"].handle_next(ChannelId(Subtask("c"), B), 1.0) == 0
    assert hosted["b"].handle_next(AB, 1.0) == 1
    assert hosted.node("b").log[2:] == [("onMessage", "x"), ("snapshotState", 1), ("onMessage", "y")]


def asked(hosted: Hosted) -> tuple[list[Any], list[Any]]:
    """Messages recorded in the state and in the channel, of a snapshot that a handler asked for."""
    machine = hosted["b"]
    assert machine.run(1.0, 10) == 2
    only(machine.take_reports(), SnapshotAsked)
    assert machine.run(2.0, 10) == 0  # no further event until the answer
    assert machine.handle_next(AB, 2.0) == 0
    machine.step(SnapshotRequested(1, (), 1), 0.0)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    (snapshot,) = taken(machine)
    assert machine.run(3.0, 10) == 2
    state = [note[1] for note in state_of(snapshot).state if note[0] == "onMessage"]
    return state, values(snapshot.received[AB])


def test_a_requested_snapshot_records_right_after_the_handler() -> None:
    """PROTOCOL 3.1: the handler that asked is in the state, the message behind it is not."""
    assert asked(fed(Recorder(), "x", "ask", "y")) == (["x", "ask"], ["y"])


def test_without_the_wait_a_requested_snapshot_comes_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 3.1, taken away: a subtask that goes on is not where the handler asked."""

    def ask_and_go_on(self: Acts) -> None:
        self.reports.append(SnapshotAsked(self.core.subtask))

    monkeypatch.setattr(Acts, "ask_snapshot", ask_and_go_on)
    with pytest.raises((AssertionError, ValueError)):
        asked(fed(Recorder(), "x", "ask", "y"))


def test_a_refused_request_lets_events_go_on() -> None:
    """PROTOCOL 3.1: policy may refuse, or the answer be late; the subtask goes on, and a second answer is nothing."""
    machine = fed(Recorder(), "ask", "y")["b"]
    machine.step(RequestAnswered(), 0.0)
    machine.run(1.0, 10)
    machine.step(RequestAnswered(), 0.0)
    assert machine.run(1.0, 10) == 2


@pytest.mark.parametrize("hook", ["open", "onStart", "onMessage", "onTimer", "onEnd", "onPublished"])
def test_a_failing_hook_is_named(hook: str) -> None:
    """What a hook raises becomes a NodeError with hook, subtask and traceback."""
    with pytest.raises(NodeError, match=rf"{hook} of b\[0\]: RuntimeError: {hook} fails\nTraceback"):
        machine = fed(Recorder(hook), "x")["b"]
        machine.context.registerTimer(1.0)
        machine.run(1.0, 10)
        machine.step(SnapshotPublished(1), 1.0)


def test_close_never_raises() -> None:
    """A failure of close is text for the log."""
    assert "close fails" in (fed(Recorder("close"))["b"].close() or "")


def test_a_failing_snapshot_state_aborts_that_snapshot_only() -> None:
    """The failure is reported with its traceback, markers go out, the subtask and the next snapshot go on."""
    hosted = fed(Recorder("snapshotState"), "x")
    machine = hosted["b"]
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    failed = only(machine.take_reports(), SnapshotFailed)
    assert (failed.snapshot_id, failed.subtask) == (1, B)
    assert "snapshotState of b[0]: RuntimeError: snapshotState fails\nTraceback" in failed.reason
    hosted.node("b").raising = ""
    hosted["a"].step(SnapshotRequested(2, (), 2), 0.0)
    hosted.carry("a", "b")
    assert [snapshot.snapshot_id for snapshot in taken(machine)] == [2]
    assert machine.run(1.0, 10) == 2


class Unstorable(Recorder):
    """Has a state that nothing can serialise, or one that sends."""

    def __init__(self, state: Callable[[], Any]) -> None:
        super().__init__()
        self.make = state

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.make()


def a_generator() -> Iterator[int]:
    """What nothing can pickle."""
    yield 1


def test_a_state_that_cannot_be_stored_aborts_that_snapshot_only() -> None:
    """The type is named; a state beyond its limit likewise."""
    machine = fed(Unstorable(a_generator))["b"]
    machine.step(SnapshotRequested(1, (), 1), 0.0)
    assert "generator" in only(machine.take_reports(), SnapshotFailed).reason
    machine = fed(Unstorable(lambda: b"x" * 1000), limits=SubtaskLimits(state_bytes_max=500))["b"]
    machine.step(SnapshotRequested(1, (), 1), 0.0)
    assert "state_bytes_max is 500" in only(machine.take_reports(), SnapshotFailed).reason


class Talkative(Recorder):
    """Sends while its state is recorded."""

    def open(self, context: Context) -> None:
        self.context = context

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.context.send("no")


def test_snapshot_state_must_not_send() -> None:
    """What is sent there would be on neither side of the cut."""
    machine = fed(Talkative())["b"]
    machine.step(SnapshotRequested(1, (), 1), 0.0)
    assert "b[0]: snapshotState must not send" in only(machine.take_reports(), SnapshotFailed).reason


@pytest.mark.parametrize("first", ["request", "marker"])
def test_recorded_bytes_are_capped(first: str) -> None:
    """PROTOCOL 1.7: beyond the cap the snapshot is aborted by name, once, and nothing is kept for it."""
    graph = Graph("two").add("a", Feed("x" * 100, "y" * 100)).add("b", Recorder())
    graph.connect("a", "b").connect("b", "b")
    hosted = Hosted(graph, limits=SubtaskLimits(recorded_bytes_max=150))
    machine = hosted["b"]
    hosted["a"].run(0.0, 100)
    if first == "request":
        machine.step(SnapshotRequested(1, (), 1), 0.0)
    hosted.seal_and_carry("a", "b")
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    failed = only(machine.take_reports(), SnapshotFailed)
    assert failed.reason == "b[0] had to record more than recorded_bytes_max = 150 bytes"
    hosted.carry("b", "b")
    assert taken(machine) == []
    assert machine.inputs[AB].recorded_bytes == 0
    machine.step(SnapshotRequested(2, (), 2), 0.0)
    assert machine.snapshotter.recorder.unfinished() == [2]


def test_a_snapshot_of_one_input_is_capped_too() -> None:
    """PROTOCOL 1.7: also where the first marker is the last, so that the recording is closed at once."""
    hosted = fed(Recorder(), "x" * 100, limits=SubtaskLimits(recorded_bytes_max=50))
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    only(hosted["b"].take_reports(), SnapshotFailed)


def test_a_recording_of_exactly_the_limit_is_stored() -> None:
    """PROTOCOL 1.7: the limit is the most that may be recorded."""
    size = len(CODEC.encode(["x" * 100]))  # a frame is a list
    for limit, is_taken in ((size, True), (size - 1, False)):
        hosted = fed(Recorder(), "x" * 100, limits=SubtaskLimits(recorded_bytes_max=limit))
        hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
        hosted.carry("a", "b")
        assert bool(taken(hosted["b"])) is is_taken


def sender_of_two(limit: int) -> Hosted:
    """A feed that has sent a message to each of two nodes, and was then asked for a snapshot."""
    graph = Graph("fork").add("a", Feed("x" * 100)).add("b", Recorder()).add("c", Recorder())
    hosted = Hosted(graph.connect("a", "b").connect("a", "c"), limits=SubtaskLimits(recorded_bytes_max=limit))
    hosted["a"].run(0.0, 1)
    hosted["a"].seal()
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    return hosted


def test_what_waits_at_a_sender_is_capped() -> None:
    """PROTOCOL 1.7: markers overtake the waiting messages of all outputs, which are then in the snapshot together."""
    size = 2 * len(CODEC.encode(["x" * 100]))  # a frame is a list
    (snapshot,) = taken(sender_of_two(size)["a"])
    assert [values(cut) for cut in snapshot.sent.values()] == 2 * [["x" * 100]]

    hosted = sender_of_two(size - 1)
    machine = hosted["a"]
    for end in machine.outputs.values():
        cut = end.buffer.settled(1)
        assert cut is not None and cut.frames == (), "nothing is kept for a snapshot that has failed"
    (failed,) = machine.take_reports()
    assert failed == SnapshotFailed(1, A, f"a[0] had to record more than recorded_bytes_max = {size - 1} bytes")
    for name in "bc":
        marker, frame = hosted.carry("a", name)
        assert isinstance(marker, Marker) and isinstance(frame, Frame)
    machine.step(SnapshotRequested(2, (), 2), 0.0)
    assert [snapshot.snapshot_id for snapshot in taken(machine)] == [2]


def test_the_shortest_alignment_timeout_of_the_edges_counts() -> None:
    """Each edge may wait for no longer than its own timeout, and a subtask has one deadline a snapshot."""
    graph = Graph("line").add("a", Feed("x")).add("b", Recorder()).add("c", Recorder())
    graph.connect("a", "b", alignment=2.0).connect("b", "c", alignment=1.0)
    hosted = Hosted(graph)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    timeouts = [only(hosted[name].take_reports(), AlignmentStarted).timeout for name in "ab"]
    assert timeouts == [2.0, 1.0]


def test_an_aborted_snapshot_takes_its_waiting_marker_along() -> None:
    """No subtask needs the marker of an aborted snapshot."""
    graph = Graph("line").add("a", Feed("x")).add("b", Recorder()).connect("a", "b", alignment="aligned")
    hosted = Hosted(graph)
    hosted["a"].run(0.0, 1)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted["a"].step(MinSnapshotIdRaised(2), 0.0)
    (frame,) = hosted.carry("a", "b")
    assert isinstance(frame, Frame)


def test_a_marker_before_the_start_is_refused() -> None:
    """PROTOCOL 5.4: a host that lets markers or requests in before onStart is wrong, and hears it."""
    graph = Graph("early").add("a", Feed()).add("b", Recorder()).connect("a", "b")
    machine = Hosted(graph, started=False)["b"]
    with pytest.raises(AssertionError):
        machine.step(SnapshotRequested(1, (), 1), 0.0)
    with pytest.raises(AssertionError):
        machine.step(MarkerArrived(AB, Marker(1, 1, 0, aligned=False)), 0.0)


class Dicer(Node):
    """Uses chance, timers and the clock."""

    def __init__(self) -> None:
        self.rolled: list[float] = []

    def onStart(self, context: Context) -> None:
        context.registerTimer(5.0)
        context.registerTimer(7.0)
        context.registerTimer(6.0)
        context.deleteTimer(6.0)
        self.rolled.append(context.random.random())

    def onTimer(self, at: float, context: Context) -> None:
        self.rolled += [at, context.now, context.random.random()]

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.rolled

    def restoreState(self, state: Any) -> None:
        self.rolled = state


def test_timers_chance_and_clock_are_in_the_snapshot() -> None:
    """A restored subtask goes on with the same timers and chance, and its clock never goes back."""
    hosted = Hosted(Graph("dice").add("d", Dicer()))
    machine = hosted["d"]
    assert machine.next_wake() == 5.0
    machine.run(5.5, 10)
    machine.step(SnapshotRequested(1, (), 1), 0.0)
    (snapshot,) = taken(machine)
    machine.run(9.0, 10)
    lived = list(hosted.node("d").rolled)

    again = hosted.machine(Subtask("d"), seed=99)
    again.restore(Restored(b"".join(snapshot.state)), 2.0)
    assert again.context.now == 5.5
    again.step(Started(), 3.0)
    assert again.next_wake() == 3.5, "1.5 s are left, whatever the host's clock says"
    again.run(5.5, 10)
    assert hosted.node("d").rolled == lived
    assert again.status is Status.ENDED  # no input, and no timer is left


class Bell(Source):
    """Has nothing to send, and rings once, long after its only poll."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def poll(self, context: Context) -> float | End | None:
        self.seen.append("poll")
        context.registerTimer(5.0)
        return END

    def onTimer(self, at: float, context: Context) -> None:
        self.seen.append(at)


def test_a_source_that_has_said_its_end_is_not_polled_after_a_restore() -> None:
    """The source has not ended yet, because its timer waits. A poll could send messages after END."""
    hosted = Hosted(Graph("bell").add("d", Bell()))
    machine = hosted["d"]
    machine.run(0.0, 10)
    assert (machine.status, machine.next_poll_at()) == (Status.RUNNING, None)
    machine.step(SnapshotRequested(1, (), 1), 0.0)
    (snapshot,) = taken(machine)

    again = hosted.machine(Subtask("d"))
    again.restore(Restored(b"".join(snapshot.state)), 1.0)
    again.step(Started(), 1.0)
    assert (again.status, again.next_poll_at(), again.next_wake()) == (Status.RUNNING, None, 5.0)
    assert again.run(5.0, 10) == 1
    assert hosted.node("d").seen == [5.0]
    assert again.status is Status.ENDED


def test_a_node_without_input_and_timers_ends_at_its_start() -> None:
    """No event ever comes to such a node, so nothing else would end the node."""
    machine = Hosted(Graph("alone").add("d", Recorder()))["d"]
    assert machine.status is Status.ENDED
    only(machine.take_reports(), SubtaskEnded)


def test_a_state_of_another_make_is_refused() -> None:
    """A state that cannot be read here says so as RestoreRefused, not as an empty start."""
    hosted = Hosted(Graph("dice").add("d", Dicer()))
    with pytest.raises(RestoreRefused, match="cannot be read here"):
        hosted.machine(Subtask("d")).restore(Restored(Codec().encode({"state": 1})), 0.0)
    pickled = NodeState(Dicer, None, [], 0.0, [], False, False, [], {}).encode(Codec())
    with pytest.raises(RestoreRefused, match="safe=True"):
        NodeState.decode(b"".join(pickled), Codec(safe=True))


def test_inputs_take_turns() -> None:
    """A busy input does not starve another: a slice that ends inside one channel goes on with the next."""
    graph = Graph("turns").add("a", Feed(*range(4))).add("c", Feed(*range(10, 14))).add("b", Recorder())
    hosted = Hosted(graph.connect("a", "b").connect("c", "b"))
    for name in "ac":
        hosted[name].run(0.0, 100)
        hosted.seal_and_carry(name, "b")
    for _ in range(4):
        hosted["b"].run(1.0, 2)
    assert [note[1] for note in hosted.node("b").log[2:]] == [0, 1, 10, 11, 2, 3, 12, 13]


def test_a_host_may_ask_for_an_input_that_has_nothing() -> None:
    """Nothing is handled, and nothing fails; then the messages come."""
    hosted = Hosted(Graph("turns").add("a", Feed(1, 2)).add("b", Recorder()).connect("a", "b"))
    machine = hosted["b"]
    [channel] = machine.inputs
    assert machine.handle_next(channel, 0.0) == 0
    hosted["a"].run(0.0, 100)
    hosted.seal_and_carry("a", "b")
    assert machine.handle_next(channel, 0.0) == 1


def test_errors_of_a_link_pass_through() -> None:
    """A gap on a link is a ChannelError of the channel, not of the node."""
    hosted = fed(Recorder(), "x")
    frame = hosted["b"].inputs[AB].head
    assert frame is not None
    assert not isinstance(frame, Marker)
    with pytest.raises(ChannelError, match="a repeat"):
        hosted["b"].deliver(AB, frame)


def test_an_unknown_control_frame_is_refused_by_name() -> None:
    """Messages before the frame are processed. The frame fails the subtask, and is not skipped."""
    machine = Hosted(Graph("fed").add("a", Feed()).add("b", Recorder()).connect("a", "b"))["b"]
    machine.deliver(AB, sample.values(1, "x"))
    machine.deliver(AB, Frame(2, 1, PayloadKind.CONTROL, b"\x01later"))
    with pytest.raises(ChannelError, match=r"a\[0\]->b\[0\]: message 2 is a control frame .*on all workers"):
        machine.run(1.0, 10)
    assert machine.inputs[AB].processed == 1
