"""From `context.send` to channels: which edge, which subtask, what is refused and how that is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.errors import NodeError
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import Context, End, Node, Source
from cutline.snapshot.subtask.events import SnapshotRequested
from cutline.snapshot.subtask.output_edge import BATCH_ROWS_MAX
from cutline.snapshot.subtask.restored import Restored
from tests.snapshot.hosted import Hosted, values


class Start(Source):
    """Never acts by itself: the tests send through its context."""

    def poll(self, context: Context) -> float | End | None:
        return 60.0


class Take(Node):
    """Takes anything."""

    def onMessage(self, message: Any, context: Context) -> None:
        pass


def hosted(parallelism: int = 1, **edge: Any) -> Hosted:
    """a, with an edge of that kind to b and a plain one to c."""
    graph = Graph("g").add("a", Start(), parallelism=1).add("b", Take(), parallelism=parallelism).add("c", Take())
    return Hosted(graph.connect("a", "b", **edge).connect("a", "c"))


def sent(host: Hosted) -> dict[str, list[Any]]:
    """What waits on each channel out of a."""
    host["a"].seal()
    found = {}
    for channel, end in host["a"].outputs.items():
        frames = []
        while (item := end.buffer.take()) is not None:
            frames.append(item)
        found[str(channel.target)] = values(tuple(frames))  # type: ignore[arg-type]  # no marker was sent
    return found


def test_to_every_edge_to_one_and_to_a_subtask() -> None:
    """None: every outgoing edge; a name: by that edge's rule; a Subtask: to it."""
    host = hosted(2, partitioning="rebalance")
    context = host["a"].context
    context.send("all")
    context.send("by rule", "b")
    context.send("named", Subtask("b", 0))
    assert sent(host) == {"b[0]": ["all", "named"], "b[1]": ["by rule"], "c[0]": ["all"]}


def test_to_every_subtask() -> None:
    """Broadcast: a copy for each."""
    host = hosted(2, partitioning="broadcast")
    host["a"].context.send("x", "b")
    host["a"].context.send(pa.record_batch({"x": [1]}), "b")
    assert sent(host) == {"b[0]": ["x", {"x": 1}], "b[1]": ["x", {"x": 1}], "c[0]": []}


def test_the_turn_of_rebalance_is_in_the_snapshot() -> None:
    """A restored subtask spreads on from where it was."""
    host = hosted(2, partitioning="rebalance")
    host["a"].context.send("x", "b")
    host["a"].step(SnapshotRequested(1, (), 1), 0.0)
    for end in host["a"].outputs.values():
        while end.buffer.take() is not None:
            pass
    (snapshot,) = (report for report in host["a"].take_reports() if hasattr(report, "state"))
    again = host.machine(Subtask("a"))
    again.restore(Restored(b"".join(snapshot.state)), 0.0)
    again.context.send("y", "b")
    assert again.outputs[ChannelId(Subtask("a"), Subtask("b", 1))].has_open_frame


def test_what_the_sender_changes_later_is_not_seen() -> None:
    """A message belongs to the receiver once sent."""
    host = hosted()
    message = ["x"]
    host["a"].context.send(message)
    message.append("y")
    assert sent(host) == {"b[0]": [["x"]], "c[0]": [["x"]]}


def endless() -> Iterator[int]:
    """What nothing can pickle."""
    yield 1


def test_errors_name_node_channel_and_type() -> None:
    """What cannot be sent is an error at send, with all that is needed to find it."""
    context = hosted(2, key=lambda message: message)["a"].context
    with pytest.raises(NodeError, match=r"a\[0\]: there is no edge to 'd'; there are edges to \['b', 'c'\]"):
        context.send("x", "d")
    with pytest.raises(NodeError, match=r"a\[0\]: there is no channel to b\[2\]"):
        context.send("x", Subtask("b", 2))
    with pytest.raises(NodeError, match=r"a\[0\]->c\[0\]: generator cannot be pickled"):
        context.send(endless(), "c")
    with pytest.raises(NodeError, match=r"a\[0\]->b: a float cannot be spread: TypeError"):
        context.send(1.5, "b")
    with pytest.raises(NodeError, match=r"a\[0\]->b\[0\]: generator cannot be pickled"):
        hosted(2, partitioning="broadcast")["a"].context.send(endless(), "b")


def test_a_batch_must_have_the_schema_of_its_edge() -> None:
    """Both schemas are shown."""
    context = hosted(schema="x long")["a"].context
    context.send(pa.record_batch({"x": [1]}), "b")
    with pytest.raises(NodeError, match=r"(?s)a\[0\]->b: a batch with the schema\ny: int64.*x: int64"):
        context.send(pa.record_batch({"y": [1]}), "b")


def test_a_huge_batch_leaves_in_parts() -> None:
    """In order, each row once."""
    host = hosted(2, partitioning="rebalance")
    host["a"].context.send(pa.record_batch({"x": range(2 * BATCH_ROWS_MAX + 1)}), "b")
    host["a"].seal()
    taken = [list(iter(end.buffer.take, None)) for end in host["a"].outputs.values()]
    counts = [[frame.count for frame in frames if isinstance(frame, Frame)] for frames in taken]
    assert counts == [[BATCH_ROWS_MAX, 1], [BATCH_ROWS_MAX], []]


def test_a_directed_edge_wants_a_name() -> None:
    """It has no rule of its own."""
    host = hosted(2, partitioning="directed")
    host["a"].context.send("x", Subtask("b", 1))
    with pytest.raises(NodeError, match="give send the Subtask"):
        host["a"].context.send("x", "b")
