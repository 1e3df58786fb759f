"""Messages that fail each time end the run by name, or go to the dead-letter edge (PROTOCOL 6.6)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot import Context, Graph, GraphError, Node
from snapshot.coordinator.restart_policy import RestartPolicy
from snapshot.coordinator.run_state import Outcome
from snapshot.testing import ListSink, ListSource, Simulator
from snapshot.testing.history import History

_BAD = (3, 4, 11)
_GOOD = [number for number in range(20) if number not in _BAD]


class Parser(Node):
    """Fails on some numbers, after it has sent and counted."""

    def __init__(self) -> None:
        self.seen = 0

    def onMessage(self, message: int, context: Context) -> None:
        self.seen += 1
        context.send(message)
        if message in _BAD:
            raise ValueError(f"cannot parse {message}")

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.seen

    def restoreState(self, state: int) -> None:
        self.seen = state


class BatchParser(Node):
    """Fails on batches with some numbers."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        numbers = batch.column("n").to_pylist()
        for number in numbers:
            context.send(number)
        if any(number in _BAD for number in numbers):
            raise ValueError(f"cannot parse {numbers}")


def batch(numbers: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def parsing(node: Node, source: Any, *, key: Any = None, schema: str | None = None, parallelism: int = 1) -> Graph:
    graph = Graph("g").add("numbers", source).add("parser", node, parallelism=parallelism)
    graph.add("out", ListSink()).add("dead", ListSink())
    return graph.connect("numbers", "parser", key=key, schema=schema, onError="dead").connect("parser", "out")


def check(history: History, message: Any = lambda number: number) -> None:
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(history.output("out")) == _GOOD
    letters = sorted(history.output("dead"), key=lambda letter: letter["error"].partition("cannot parse")[2])
    assert sorted(map(repr, (letter["message"] for letter in letters))) == sorted(repr(message(bad)) for bad in _BAD)
    for letter in letters:
        assert list(letter) == ["message", "error", "node", "channel", "sequenceNumber"]
        assert letter["node"] == "parser" and letter["channel"].startswith("numbers[0]->parser[")
        assert "cannot parse" in letter["error"]


def key_of(number: int) -> int:
    return number % 5


@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_messages_that_fail_are_set_aside_once(seed: int) -> None:
    """Whatever else fails, every other message is handled once, and what a failed hook sent or counted is undone."""
    policy = RestartPolicy(maxRestarts=50, poisonAfter=2)
    for graph in (
        parsing(Parser(), ListSource(*range(20))),
        parsing(Parser(), ListSource(*range(20)), key=key_of, parallelism=2),
    ):
        check(Simulator(graph, seed, snapshotInterval=0.5, restartPolicy=policy).run())


@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_of_a_batch_only_the_rows_that_fail_are_set_aside(seed: int) -> None:
    """Batches as they were sent, and messages gathered to batches."""
    policy = RestartPolicy(maxRestarts=50, poisonAfter=2)
    sent = ListSource(batch(range(7)), batch(range(7, 20)))
    check(
        Simulator(parsing(BatchParser(), sent, schema="n long"), seed, restartPolicy=policy).run(),
        lambda number: {"n": number},
    )


def test_a_message_that_fits_no_schema_is_set_aside() -> None:
    """Messages are gathered without the one that does not fit."""
    rows = [{"n": number} for number in range(6)]
    graph = parsing(BatchParser(), ListSource(*rows[:3], {"m": 1}, *rows[5:]), schema="n long")
    history = Simulator(graph, 0, restartPolicy=RestartPolicy(poisonAfter=1)).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(history.output("out")) == [0, 1, 2, 5]
    (letter,) = history.output("dead")
    assert letter["message"] == {"m": 1} and "do not fit the edge's schema" in letter["error"]
    assert letter["sequenceNumber"] == 4


def test_a_node_that_fails_at_a_letter_ends_the_run() -> None:
    """Its own edge has no onError, so the letter is a message as any other."""
    graph = parsing(Parser(), ListSource(3))
    graph.nodes[-1] = graph.nodes[-1].__class__("dead", Refuses(), 1)
    history = Simulator(graph, 0, restartPolicy=RestartPolicy(maxRestarts=50)).run()
    assert history.outcome is Outcome.FAILED
    assert "message 1 of parser[0]->dead[0] failed 3 times in a row" in history.reason


class Refuses(Node):
    """Fails on each message."""

    def onMessage(self, message: Any, context: Context) -> None:
        raise OSError("no place left")


class Alarm(Node):
    """Fails at each timer."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.registerTimer(context.now + 1.0)

    def onTimer(self, at: float, context: Context) -> None:
        raise ValueError("no alarm")


def test_a_timer_that_fails_ends_the_run_by_name() -> None:
    """Known by its key and its time."""
    graph = Graph("g").add("numbers", ListSource(7)).add("alarm", Alarm()).connect("numbers", "alarm", key=key_of)
    history = Simulator(graph, 0, snapshotInterval=0.2, restartPolicy=RestartPolicy(maxRestarts=50)).run()
    assert history.outcome is Outcome.FAILED
    assert "the timer of alarm[0] with key 2 at" in history.reason and "failed 3 times in a row" in history.reason


def test_the_edge_is_none_of_the_nodes() -> None:
    """A node neither sees it nor sends along it, and no other edge may take its place."""

    class ShowsOutputs(Node):
        def onMessage(self, message: Any, context: Context) -> None:
            context.send(context.outputs)

    history = Simulator(parsing(ShowsOutputs(), ListSource(1)), 0).run()
    assert history.output("out") == [("out",)] and history.output("dead") == []
    with pytest.raises(GraphError, match=r"edge parser->dead: declared 2 times"):
        Simulator(parsing(Parser(), ListSource(1)).connect("parser", "dead"), 0)
    with pytest.raises(GraphError, match=r"there is no node 'nowhere'"):
        Simulator(Graph("g").add("a", ListSource(1)).add("b", Parser()).connect("a", "b", onError="nowhere"), 0)
    with pytest.raises(GraphError, match=r"onError is a int"):
        Simulator(Graph("g").add("a", ListSource(1)).add("b", Parser()).connect("a", "b", onError=7), 0)  # type: ignore[arg-type]
