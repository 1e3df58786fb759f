"""Runs whose subtasks record themselves alone, live: whatever is killed, each output comes once, in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.live import DEADLINE_S, Live, wait_for
from benchmarks.process_table import coordinators, is_gone, kill, parent_of
from cutline import END, ChannelLogs, Context, Graph, GraphError, MemoryBackend, Node, Run, Source
from cutline.barrier_runtime.dataframes.nodes import ParquetSink
from cutline.snapshot.node import End
from tests.system.other_driver import other_driver

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
        for _ in range(random.randrange(1, 20)):
            key = random.randrange(KEYS)
            self.counts[key] += 1
            context.send((context.subtask.index, key, self.counts[key]))
        return 0.005

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
    return live.submit(live.runtime(), numbers(live), mode=ChannelLogs(interval=0.2))


def take_snapshots(run: Run) -> None:
    """Take one snapshot behind the other, which another process waits for."""
    while True:
        run.takeSnapshot()


def _kill_worker(run: Run) -> None:
    kill(run.status["workers"][0])


def _kill_task(run: Run) -> None:
    kill(parent_of(run.status["workers"][0]))


def _kill_coordinator(run: Run) -> None:
    for pid in coordinators():
        kill(pid)


FAULTS: dict[str, Callable[[Run], None]] = {
    "worker": _kill_worker,
    "task": _kill_task,
    "coordinator": _kill_coordinator,
}


def _records(run: Run) -> int:
    """Return the number of records of the sink in this incarnation, 0 before all runs."""
    status = run.status
    nodes = status["mode"]["nodes"] if status["phase"] == "running" else {}
    return int(nodes.get("out", {"records": 0})["records"])


def _is_newer(run: Run, incarnation: int) -> bool:
    return bool(run.status["incarnation"] > incarnation)


def _await_records(run: Run) -> None:
    wait_for("records of the sink", lambda: _records(run) >= 3)


def _finished(live: Live, run: Run) -> int:
    """Let the run end. Check that each number of each source and key came once, and return how many came."""
    (live.folder / "enough").touch()
    run.awaitTermination(DEADLINE_S)
    assert run.status["outcome"] == "finished", run.exception()
    rows = sorted(tuple(row)[:3] for row in live.spark.read.parquet(str(live.folder / "out")).collect())
    counts: dict[tuple[int, int], int] = {}
    for source, key, n in rows:
        assert n == counts.get((source, key), 0) + 1, (source, key, n)
        counts[source, key] = n
    assert len(counts) == 2 * KEYS
    return len(rows)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_number_comes_once(live: Live, fault: str) -> None:
    """Killed twice, and then stopped and submitted again, with sources and nodes that depend on chance."""
    run = submit(live)
    for _ in range(2):
        _await_records(run)
        incarnation = run.status["incarnation"]
        FAULTS[fault](run)
        if fault != "coordinator":
            wait_for("a new incarnation", partial(_is_newer, run, incarnation))
    _await_records(run)
    run.stop(withSnapshot=True)
    run = submit(live)
    _await_records(run)
    print(f"{_finished(live, run):,} numbers")


_SUBMIT = """
from threading import Thread
from tests.system.test_records import submit, take_snapshots
run = submit(live)
Thread(target=take_snapshots, args=[run], daemon=True).start()
"""


def test_a_killed_driver_is_resumed(live: Live) -> None:
    """Its workers end by themselves, and the run goes on from the records that they left."""
    with other_driver(live, _SUBMIT) as driver:
        workers = [int(pid) for pid in driver.read_until("workers ").split()[1:]]
        kill(driver.pid)
        run = submit(live)
        _await_records(run)
        assert wait_for("the end of the old workers", lambda: all(is_gone(pid) for pid in workers))
    print(f"{_finished(live, run):,} numbers")


def test_a_snapshot_on_request_is_one_of_all_subtasks(live: Live) -> None:
    """A snapshot is made of records that are newer than the request, and can be read as any other."""
    run = submit(live)
    _await_records(run)
    snapshot = run.takeSnapshot()
    assert all(any(counts.values()) for counts in snapshot.node("numbers").states)
    _finished(live, run)


def test_what_the_mode_needs(live: Live) -> None:
    """Refused before anything starts: a cycle, and a backend that does not outlive the coordinator."""
    graph = Graph("cycle").add("a", Number()).add("b", Number()).connect("a", "b").connect("b", "a")
    with pytest.raises(GraphError, match="mode 'channelLogs' cannot run graph 'cycle': node 'a' is on a cycle"):
        live.runtime().submit(graph, mode="channelLogs")
    with pytest.raises(GraphError, match="a MemoryBackend does not outlive the coordinator"):
        live.runtime(backend=MemoryBackend()).submit(numbers(live), mode="channelLogs")
