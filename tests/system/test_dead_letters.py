"""Messages that fail each time, live: each is set aside once, and no other message is (PROTOCOL 6.6)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from benchmarks.live import DEADLINE_S, Live
from cutline import Context, Graph, Node
from cutline.testing import ListSource

pytestmark = [pytest.mark.spark, pytest.mark.ray]

_COUNT = 2_000
_BAD = frozenset({7, 501, 1_002, 1_503})


class _Forwards(Node):
    """Sends what it gets, from whichever input comes first."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class _Parser(Node):
    """Fails on some numbers."""

    def onMessage(self, message: int, context: Context) -> None:
        if message in _BAD:
            raise ValueError(f"cannot parse {message}")
        context.send(message)


class _BatchParser(Node):
    """Fails on batches with some numbers."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        numbers = batch.column("n").to_pylist()
        for number in numbers:
            context.send(number)
        if bad := _BAD.intersection(numbers):
            raise ValueError(f"cannot parse {sorted(bad)}")


class _Table(Node):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.rows.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.rows

    def restoreState(self, state: Any) -> None:
        self.rows = state


def _run(live: Live, graph: Graph) -> list[dict[str, Any]]:
    """Run to the end under the default policy, check what came out, and return the letters."""
    run = live.run(graph)
    assert run.awaitTermination(DEADLINE_S), run.status
    final = run.snapshots()[-1]
    final.verify()
    assert sorted(final.node("out").state) == sorted(set(range(_COUNT)) - _BAD)
    letters: list[dict[str, Any]] = final.node("dead").state
    return letters


def test_messages_behind_several_inputs_are_set_aside(live: Live) -> None:
    """In two subtasks at once, where each restart mixes the inputs otherwise."""
    graph = Graph("job").add("numbers", ListSource(*range(_COUNT)), parallelism=2)
    graph.add("mix", _Forwards(), parallelism=2).add("parser", _Parser(), parallelism=2)
    graph.add("out", _Table()).add("dead", _Table())
    graph.connect("numbers", "mix", partitioning="rebalance")
    graph.connect("mix", "parser", partitioning="rebalance", onError="dead").connect("parser", "out")
    letters = _run(live, graph)
    assert sorted(letter["message"] for letter in letters) == sorted(_BAD)
    assert all(f"ValueError: cannot parse {letter['message']}\n" in letter["error"] for letter in letters)


def test_rows_of_a_batch_are_set_aside(live: Live) -> None:
    """Those that fail, of a batch of them all."""
    rows = pa.RecordBatch.from_pydict({"n": pa.array(range(_COUNT), pa.int64())})
    graph = Graph("job").add("numbers", ListSource(rows)).add("parser", _BatchParser())
    graph.add("out", _Table()).add("dead", _Table())
    graph.connect("numbers", "parser", schema="n long", onError="dead").connect("parser", "out")
    letters = _run(live, graph)
    assert sorted(letter["message"]["n"] for letter in letters) == sorted(_BAD)
    assert {letter["sequenceNumber"] for letter in letters} == {number + 1 for number in _BAD}
