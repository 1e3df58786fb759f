"""Runs are rescaled live, 2 to 4 to 3 to 1, with workers killed in between: nothing is lost, doubled or disordered."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Live, await_snapshots, wait_for
from benchmarks.process_table import kill
from benchmarks.rescaled_nodes import LANES, everywhere, lanes_graph
from cutline import END, Context, Graph, Node, Source
from cutline.barrier_runtime.dataframes.nodes import ParquetSink
from cutline.barrier_runtime.driver.run import Run
from cutline.snapshot.errors import GraphError, RunFailed
from cutline.snapshot.node import End
from tests.slots import SLOTS

pytestmark = [pytest.mark.spark, pytest.mark.ray]

_WORDS = [f"word{number}" for number in range(40)]
_TEXTS = 8


def test_numbered_records_survive_three_rescales_and_kills(live: Live) -> None:
    """Each record is in the output once, each lane was in order at every parallelism, and nobody saw the run end."""
    output = live.folder / "output"
    sink = ParquetSink(str(output), "lane LONG, number LONG")
    graph = lanes_graph(live.folder / "job", 2, rate=3_000.0, rows=2_000, sink=sink)
    run = live.run(graph, trace=True)
    waiting = threading.Thread(target=run.awaitTermination)
    waiting.start()
    for parallelism in (4, 3, 1):
        _kill_a_worker(run)
        before = run.status["incarnation"]
        snapshot = run.rescale(everywhere(parallelism))
        status = run.status
        assert status["incarnation"] == before + 1 and waiting.is_alive()
        assert {node["parallelism"] for node in status["nodes"].values()} == {parallelism}
        assert sorted(status["workers"]) == list(range(parallelism))
        assert snapshot.id in [each.id for each in run.snapshots()]
    _kill_a_worker(run)
    (live.folder / "job" / "enough").touch()
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive() and run.exception() is None and run.status["outcome"] == "finished"
    assert run.status["restartCount"] == 4, run.status["restarts"]
    final = run.snapshots()[-1]
    final.verify()
    sent = {int(lane): count for state in final.node("lanes").states for lane, count in state.items()}
    assert sorted(sent) == list(range(LANES))
    rows = [tuple(row) for row in live.spark.read.parquet(str(output)).collect()]
    assert sorted(rows) == [(lane, number) for lane in range(LANES) for number in range(sent[lane])]
    assert len({event.incarnation for event in run.trace().events}) > 4, "the trace has all submissions"
    print(f"{len(rows)} records")


def _kill_a_worker(run: Run) -> None:
    """Kill a worker, and wait until the run has recovered and has published again."""
    await_snapshots(run, 2)
    before = run.status["incarnation"]
    kill(run.status["workers"][0])
    wait_for("the recovery", lambda: run.status["incarnation"] > before)
    await_snapshots(run, 1)


class Words(Source):
    """Sends words of several texts, over and over, until a file is there. A text is a partition."""

    guarantee = "exactly_once"

    def __init__(self, enough: Path) -> None:
        self.enough = enough
        self.offsets: dict[str, int] = {}

    def partitions(self) -> list[str]:
        return [f"text{number}" for number in range(_TEXTS)]

    def poll(self, context: Context) -> float | End:
        if self.enough.exists():
            return END
        for text in context.partitions:
            at = self.offsets.get(text, 0)
            context.sendAll([word_at(text, at + each) for each in range(5)])
            self.offsets[text] = at + 5
        return 0.005

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.offsets

    def restoreState(self, state: Any) -> None:
        self.offsets = dict(state)


def word_at(text: str, position: int) -> str:
    """The word of a text at a position."""
    return _WORDS[(position * 7 + int(text.removeprefix("text"))) % len(_WORDS)]


class Counted(Node):
    """Counts words, and sends each new count."""

    def open(self, context: Context) -> None:
        self.count = context.getReducingState("count", "sum")

    def onMessage(self, word: str, context: Context) -> None:
        self.count.add(1)
        context.send((word, self.count.get()))


def test_a_word_count_survives_three_rescales(live: Live) -> None:
    """Only the counting node is rescaled, beside a source and a sink that stay: each count of each word comes once."""
    output, enough = live.folder / "output", live.folder / "enough"
    graph = Graph("words").add("words", Words(enough), parallelism=2).add("counted", Counted(), parallelism=2)
    graph.add("out", ParquetSink(str(output), "word STRING, count LONG"), parallelism=2)
    graph.connect("words", "counted", key=str).connect("counted", "out", partitioning="rebalance")
    run = live.run(graph)
    for parallelism in (4, 3, 1):
        await_snapshots(run, 2)
        run.rescale({"counted": parallelism})
        if parallelism == 3:
            run._client.actor.kill(restart=True)  # the new instance waits as the first did, until the driver sees it
        else:
            kill(run.status["workers"][0])
    await_snapshots(run, 2)
    enough.touch()
    assert run.awaitTermination(DEADLINE_S) and run.status["outcome"] == "finished"
    offsets = {text: at for state in run.snapshots()[-1].node("words").states for text, at in state.items()}
    totals = Counter(word_at(text, each) for text, count in offsets.items() for each in range(count))
    rows = [tuple(row) for row in live.spark.read.parquet(str(output)).collect()]
    assert sorted(rows) == sorted((word, each + 1) for word, total in totals.items() for each in range(total))


def test_what_cannot_be_rescaled_goes_on(live: Live) -> None:
    """Too few slots, an unknown node, and a state that nobody can divide: refused before anything stops."""
    from benchmarks.live import pipeline

    job = pipeline(live.folder)
    run = live.run(job.graph)
    await_snapshots(run, 1)
    with pytest.raises(RunFailed, match=rf"would need {SLOTS + 1} slots at one time, and {SLOTS} are free"):
        run.rescale({"middle": SLOTS + 1})
    with pytest.raises(GraphError, match="there is no node muddle"):
        run.rescale({"muddle": 3})
    with pytest.raises(Exception, match=r"run 'job' is not rescaled, and goes on: (.|\n)*middle"):
        run.rescale({"middle": 3})
    assert run.status["incarnation"] == 1 and run.isActive
