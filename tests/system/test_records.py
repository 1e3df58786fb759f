"""Runs whose subtasks record themselves alone, live: whatever is killed, each output comes once, in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.live import DEADLINE_S, Live, wait_for
from cutline import END, ChannelLogs, Context, Graph, GraphError, MemoryBackend, Node, Run, Source
from cutline.barrier_runtime.dataframes.nodes import ParquetSink
from cutline.snapshot.node import End
from tests.system.parquet import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.ray]

KEYS = 7


class Numbers(Source):
    """Sends numbered messages of keys, by chance, until a file is there. Nothing reads them again."""

    guarantee = "exactly_once"

    def __init__(self, enough: Path) -> None:
        self.enough = enough
        self.counts = dict.fromkeys(range(KEYS), 0)

    def poll(self, context: Context) -> float | End | None:
        if self.enough.exists():
            return END
        for _ in range(random.randrange(1, 6)):
            key = random.randrange(KEYS)
            self.counts[key] += 1
            context.send((context.subtask.index, key, self.counts[key]))
        return 0.02

    def snapshotState(self, snapshotId: int, timestamp: float) -> object:
        return dict(self.counts)

    def restoreState(self, state: object) -> None:
        assert isinstance(state, dict)
        self.counts = state


class Number(Node):
    """Numbers the messages of a source and key, and adds chance."""

    def open(self, context: Context) -> None:
        self.last = context.getValueState("last")

    def onMessage(self, message: tuple[int, int, int], context: Context) -> None:
        source, key, number = message
        last = dict(self.last.get() or {})
        assert number == last.get(source, 0) + 1, (message, last)
        self.last.update({**last, source: number})
        context.send({"source": source, "key": key, "n": number, "chance": random.random()})


def key_of(message: tuple[int, int, int]) -> int:
    """The key of a message."""
    return message[1]


def numbers(live: Live) -> Graph:
    """Numbers of two sources, numbered by two subtasks, to Parquet."""
    graph = Graph("numbers").add("numbers", Numbers(live.folder / "enough"), parallelism=2)
    graph.add("number", Number(), parallelism=2)
    graph.add("out", ParquetSink(str(live.folder / "out"), "source LONG, key LONG, n LONG, chance DOUBLE"))
    return graph.connect("numbers", "number", key=key_of).connect("number", "out")


def submit(live: Live) -> Run:
    """Submit the numbers."""
    return live.submit(live.runtime(), numbers(live), mode=ChannelLogs(interval=0.4))


def _records(run: Run) -> int:
    """Return the number of records of the sink in this incarnation, 0 before all runs."""
    status = run.status
    nodes = status["mode"]["nodes"] if status["phase"] == "running" else {}
    return int(nodes.get("out", {"records": 0})["records"])


def await_records(run: Run) -> None:
    """Wait for records of the sink in this incarnation."""
    wait_for("records of the sink", lambda: _records(run) >= 3)


def finished(live: Live, run: Run) -> int:
    """Let the run end. Check that each number of each source and key came once, and return how many came."""
    (live.folder / "enough").touch()
    run.awaitTermination(DEADLINE_S)
    assert run.status["outcome"] == "finished", run.exception()
    rows = sorted(row[:3] for row in rows_of(live.folder / "out"))
    counts: dict[tuple[int, int], int] = {}
    for source, key, n in rows:
        assert n == counts.get((source, key), 0) + 1, (source, key, n)
        counts[source, key] = n
    assert len(counts) == 2 * KEYS
    return len(rows)


def test_a_snapshot_on_request_is_one_of_all_subtasks(live: Live) -> None:
    """A snapshot is made of records that are newer than the request, and can be read as any other."""
    run = submit(live)
    await_records(run)
    snapshot = run.takeSnapshot()
    assert all(any(counts.values()) for counts in snapshot.node("numbers").states)
    finished(live, run)


def test_what_the_mode_needs(live: Live) -> None:
    """Refused before anything starts: a cycle, and a backend that does not outlive the coordinator."""
    graph = Graph("cycle").add("a", Number()).add("b", Number()).connect("a", "b").connect("b", "a")
    with pytest.raises(GraphError, match="mode 'channelLogs' cannot run graph 'cycle': node 'a' is on a cycle"):
        live.runtime().submit(graph, mode="channelLogs")
    with pytest.raises(GraphError, match="a MemoryBackend does not outlive the coordinator"):
        live.runtime(backend=MemoryBackend()).submit(numbers(live), mode="channelLogs")
