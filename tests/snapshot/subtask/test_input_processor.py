"""From frames to hooks: messages, rows and batches, keys, slices that end inside a frame."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cutline.snapshot.channel.frame_codec import frame_of_batch, messages_of
from cutline.snapshot.channel.message_hash import ChannelHash, content_hashes
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import NodeError
from cutline.snapshot.failed_event import FailedMessage
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import END, Context, End, Node, Source
from cutline.snapshot.subtask import input_processor
from cutline.snapshot.subtask.events import SnapshotRequested
from tests.snapshot.hosted import Hosted


@pytest.fixture(autouse=True, params=[False, True], ids=["encoded", "by reference"])
def _placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes see the same whether they are in one worker or not."""
    monkeypatch.setattr(Hosted, "are_together", request.param)


class Feed(Source):
    """Sends all at once."""

    def __init__(self, *messages: Any) -> None:
        self.messages = messages

    def poll(self, context: Context) -> float | End | None:
        for message in self.messages:
            context.send(message)
        return END


class Rows(Node):
    """Takes messages only; notes them with key and sender."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.got.append((message, context.key, str(context.sender)))


class Batches(Node):
    """Takes batches only."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.got.append((batch.to_pylist(), context.key))


class Both(Rows):
    """Takes each as it comes."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.got.append(batch.to_pylist())


def ran(node: Node, *messages: Any, limit: int = 100, **edge: Any) -> Hosted:
    """A feed into a node that has taken one turn."""
    hosted = Hosted(Graph("g").add("a", Feed(*messages)).add("b", node).connect("a", "b", **edge))
    hosted["a"].run(0.0, 10)
    hosted.seal_and_carry("a", "b")
    hosted["b"].run(0.0, limit)
    return hosted


BATCH = pa.record_batch({"x": [1, 2, 3]})


def test_messages_come_with_key_and_sender() -> None:
    """Behind a hash edge the key is there while the message is handled, and not after it."""
    hosted = ran(Rows(), ("a", 1), ("b", 2), key=lambda message: message[0])
    assert hosted.node("b").got == [(("a", 1), "a", "a[0]"), (("b", 2), "b", "a[0]")]
    assert (hosted["b"].context.key, hosted["b"].context.sender) == (None, None)


class Reminded(Rows):
    """Registers a timer for the key of each message."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.registerTimer(float(message[1]))

    def onTimer(self, at: float, context: Context) -> None:
        self.got.append((at, context.key, context.sender))


def test_a_timer_has_the_key_of_its_message() -> None:
    """The key is there while the timer is handled, and not after it."""
    hosted = ran(Reminded(), ("a", 2), ("b", 1), key=lambda message: message[0])
    for now, expected in ((1.0, (1.0, "b", None)), (2.0, (2.0, "a", None))):
        hosted["b"].run(now, 10)
        assert hosted.node("b").got[-1] == expected
        assert hosted["b"].context.key is None


def test_rows_of_a_batch_go_in_one_by_one() -> None:
    """A node without onBatch gets dicts, as many as the slice allows, and goes on inside the batch."""
    hosted = ran(Rows(), BATCH, limit=2, key="x")
    assert [got[0] for got in hosted.node("b").got] == [{"x": 1}, {"x": 2}]
    hosted["b"].run(0.0, 10)
    assert hosted.node("b").got[2] == ({"x": 3}, 3, "a[0]")


def test_messages_are_gathered_to_batches() -> None:
    """A node without onMessage gets the messages of a frame as one batch of the edge's schema."""
    assert ran(Batches(), {"x": 1}, {"x": 2}, schema="x long").node("b").got == [([{"x": 1}, {"x": 2}], None)]


def test_each_as_it_comes() -> None:
    """A node with both hooks gets messages as messages and batches as batches."""
    assert ran(Both(), "m", BATCH).node("b").got == [("m", None, "a[0]"), BATCH.to_pylist()]


def test_messages_that_do_not_fit_the_schema_are_named() -> None:
    """The error names the channel, the message, the column, the value and the type."""
    text = r"a\[0\]->b\[0\]: message 2 does not fit the edge's schema: column x: 'no number' .* as int64 holds"
    with pytest.raises(NodeError, match=text):
        ran(Batches(), {"x": 1}, {"x": "no number"}, schema="x long")


@pytest.mark.parametrize("place", range(5))
def test_the_message_that_does_not_fit_has_failed(place: int) -> None:
    """And not its whole frame, wherever the message is in the frame."""
    messages: list[Any] = [{"x": number} for number in range(5)]
    messages[place] = {"x": "no number"}
    with pytest.raises(NodeError) as caught:
        ran(Batches(), *messages, schema="x long")
    failed = caught.value.failed_event
    assert isinstance(failed, FailedMessage)
    assert (failed.number, failed.content) == (place + 1, next(content_hashes(messages[place : place + 1], Codec())))


@pytest.mark.parametrize(
    ("value", "schema"), [(1.5, "x long"), (1e300, "x float"), (True, "x long"), (None, "x long not null")]
)
def test_messages_are_not_converted(value: Any, schema: str) -> None:
    """The node gets each value as it was sent, or the message is refused."""
    with pytest.raises(NodeError, match=r"message 1 does not fit the edge's schema: column x: "):
        ran(Batches(), {"x": value}, schema=schema)


@pytest.mark.parametrize("message", [{"x": 1, "y": 2}, {"y": 2}, {}, (1,), 7])
def test_messages_with_other_columns_are_refused(message: Any) -> None:
    """A column more would be lost, one less be null, without a word."""
    with pytest.raises(NodeError, match=r"a\[0\]->b\[0\]: message 2 does not fit the edge's schema: .*\['x'\]"):
        ran(Batches(), {"x": 1}, message, schema="x long")


def test_a_restored_batch_of_another_schema_is_named() -> None:
    """Channel state may come from a graph whose edge had another schema."""
    hosted = Hosted(Graph("g").add("a", Feed()).add("b", Batches()).connect("a", "b", schema="y string"))
    hosted["b"].deliver(ChannelId(Subtask("a"), Subtask("b")), frame_of_batch(1, BATCH))
    with pytest.raises(NodeError, match=r"(?s)a\[0\]->b\[0\]: a batch with the schema\nx: int64.*y: string"):
        hosted["b"].run(0.0, 10)


def test_a_slice_inside_a_batch_hands_on_the_rest() -> None:
    """After a restore in the middle of a batch, onBatch gets the rows that are left."""
    hosted = ran(Rows(), BATCH, limit=1)
    hosted["b"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b")
    report = next(r for r in hosted["b"].take_reports() if hasattr(r, "received"))
    (cut,) = report.received.values()
    assert (cut.frames[0].first, cut.frames[0].count) == (2, 2)


class Lists(Node):
    """Takes lists, and notes them."""

    def __init__(self) -> None:
        self.got: list[list[int]] = []

    def onMessages(self, messages: list[int], context: Context) -> None:
        self.got.append(messages)


class Slowly(Source):
    """Sends a number in each poll."""

    def __init__(self) -> None:
        self.number = 0

    def poll(self, context: Context) -> float | End | None:
        self.number += 1
        context.send(self.number)
        return None


def test_a_replay_reads_each_waiting_frame_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many frames wait behind a list, and wherever the list ends."""
    hosted = Hosted(Graph("g").add("a", Slowly()).add("b", Lists()).connect("a", "b"))
    for _ in range(12):
        hosted["a"].run(0.0, 2)
        hosted.seal_and_carry("a", "b")
    [channel] = hosted["b"].core.inputs
    channel.hash = ChannelHash()
    frames, last = list(channel.end.frames()), channel.end.arrived
    assert len(frames) == 12
    read: list[int] = []

    def noted(frame: AnyFrame, codec: Codec) -> list[Any] | pa.RecordBatch:
        read.append(frame.first)
        return messages_of(frame, codec)

    monkeypatch.setattr(input_processor, "messages_of", noted)
    for count in (1, 4, last - 5):
        channel.handle_together(count)
    assert hosted.node("b").got == [[1], [2, 3, 4, 5], list(range(6, last + 1))]
    assert read == [frame.first for frame in frames]
