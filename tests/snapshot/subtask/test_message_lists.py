"""`Node.onMessages`: lists of one channel with their keys, never across a cut, for nodes of every kind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.errors import GraphError, NodeError
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import Context, Node, Sink
from cutline.snapshot.subtask.events import SnapshotRequested, Started
from cutline.snapshot.subtask.restored import Restored, RestoredChannels
from cutline.testing import ListSink, ListSource, Simulator
from tests.snapshot.hosted import Hosted, taken, values
from tests.snapshot.subtask.test_input_processor import Feed, ran


@pytest.fixture(autouse=True, params=[False, True], ids=["encoded", "by reference"])
def _placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes see the same whether they are in one worker or not."""
    monkeypatch.setattr(Hosted, "are_together", request.param)


class Lists(Node):
    """Notes the lists, and empties them."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def onMessages(self, messages: list[Any], context: Context) -> None:
        self.got.append((list(messages), context.keys and list(context.keys), context.key, str(context.sender)))
        messages.clear()
        if context.keys:
            context.keys.clear()


class Everything(Lists):
    """Has all hooks."""

    def onMessage(self, message: Any, context: Context) -> None:
        raise AssertionError("onMessages takes them")

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.got.append(batch.to_pylist())


PAIRS = [("a", 1), ("b", 2), ("a", 3)]


def test_lists_come_with_keys_and_sender() -> None:
    """At most as many as the turn allows; the next turn has the rest, with the keys that belong to them."""
    hosted = ran(Lists(), *PAIRS, limit=2, key=lambda pair: pair[0])
    hosted["b"].run(0.0, 2)
    assert hosted.node("b").got == [(PAIRS[:2], ["a", "b"], None, "a[0]"), (PAIRS[2:], ["a"], None, "a[0]")]
    assert hosted["b"].context.keys is None and hosted["b"].context.key is None


def test_without_a_key_there_are_no_keys() -> None:
    """As `context.key` is None then."""
    assert ran(Lists(), *PAIRS).node("b").got == [(PAIRS, None, None, "a[0]")]


def test_rows_come_as_a_list_unless_there_is_a_hook_for_batches() -> None:
    """And no message comes by `onMessage`."""
    batch = pa.record_batch({"x": [1, 2]})
    assert ran(Lists(), batch).node("b").got == [([{"x": 1}, {"x": 2}], None, None, "a[0]")]
    assert ran(Everything(), batch, 7).node("b").got == [[{"x": 1}, {"x": 2}], ([7], None, None, "a[0]")]


def test_a_cut_falls_between_lists() -> None:
    """What was not passed on is the channel's state, whatever the node did to its list; a restore passes it on."""
    hosted = ran(Lists(), *PAIRS, limit=2, key=lambda pair: pair[0])
    hosted["b"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted["b"].run(0.0, 2)
    hosted.carry("a", "b")
    [snapshot] = taken(hosted["b"])
    [cut] = snapshot.received.values()
    assert (cut.processed, values(cut)) == (2, PAIRS[2:])
    channel = ChannelId(Subtask("a"), Subtask("b"))
    again = hosted.machine(Subtask("b"), RestoredChannels({channel: 2}, {channel: cut.frames}))
    again.restore(Restored(b"".join(snapshot.state)), 0.0)
    again.step(Started(), 0.0)
    again.run(0.0, 10)
    assert hosted.node("b").got == [(PAIRS[2:], ["a"], None, "a[0]")]


def test_a_list_that_fails_is_one_failure() -> None:
    """The error names hook and node."""

    class Fails(Node):
        def onMessages(self, messages: list[Any], context: Context) -> None:
            raise ValueError(len(messages))

    with pytest.raises(NodeError, match=r"onMessages of b\[0\]: ValueError: 3"):
        ran(Fails(), *PAIRS)


def test_a_node_without_any_hook_for_messages_is_refused() -> None:
    """The error names all three."""
    with pytest.raises(GraphError, match="neither onMessage nor onMessages nor onBatch"):
        Hosted(Graph("g").add("a", Feed(1)).add("b", Node()).connect("a", "b"))


class Totals(Node):
    """Sums by key; sends each sum on, together."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def onMessages(self, messages: list[tuple[str, int]], context: Context) -> None:
        assert context.keys is not None
        results = []
        for key, (_, value) in zip(context.keys, messages, strict=True):
            self.sums[key] = total = self.sums.get(key, 0) + value
            results.append((key, total))
        context.sendAll(results)

    def snapshotState(self, snapshotId: int, timestamp: float) -> dict[str, int]:
        return self.sums

    def restoreState(self, state: dict[str, int]) -> None:
        self.sums = state


class Prints(Sink):
    """A sink that takes lists."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def onMessages(self, messages: list[Any], context: Context) -> None:
        self.rows += messages


@given(st.integers(0, 2**16))
def test_every_kind_of_node_in_the_simulator(seed: int) -> None:
    """With faults and snapshots everywhere, the sums are those of a loop; checked by the checkers of every history."""
    pairs = [(word, number) for number, word in enumerate(["x", "y", "z", "x"] * 6)]
    graph = Graph("g").add("numbers", ListSource(*pairs), parallelism=2).add("totals", Totals(), parallelism=2)
    graph.add("out", ListSink()).add("log", Prints()).connect("numbers", "totals", key=lambda pair: pair[0])
    graph.connect("totals", "out").connect("totals", "log")
    history = Simulator(graph, seed, faults=2, snapshotInterval=0.1).run()
    sums: dict[str, int] = {}
    for word, number in pairs:
        sums[word] = sums.get(word, 0) + number
    rows = history.output("out")
    assert len(rows) == len(pairs)
    assert {word: max(total for each, total in rows if each == word) for word in sums} == sums
