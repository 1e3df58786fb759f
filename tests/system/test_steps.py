"""Runs that repeat steps, live, in each mode that does: each output comes once. See also test_modes.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.live import DEADLINE_S, Live, await_snapshots, wait_for
from benchmarks.process_table import kill
from cutline import (
    END,
    Context,
    Deltas,
    Graph,
    GraphError,
    HeapState,
    InputLogging,
    MemoryBackend,
    Node,
    PersistentState,
    ReplayableSource,
    Run,
    SnapshotEditor,
)
from cutline.barrier_runtime.dataframes.nodes import DataFrameSource, ParquetSink
from cutline.snapshot.errors import RestoreRefused, RunFailed
from cutline.snapshot.plan.modes import ModeWish
from tests.barrier_runtime.driver.test_modes_page import blocks
from tests.system.parquet import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.ray]

WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")
PARTITIONS = ("a", "b", "c")


class Words(ReplayableSource):
    """Sends numbered words of three partitions, a slice at a time, until a file is there."""

    pollSeconds = 0.05

    def __init__(self, enough: Path) -> None:
        self.enough = enough

    def partitions(self) -> tuple[str, ...]:
        return PARTITIONS

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        return END if self.enough.exists() else start + 4

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        context.sendAll([WORDS[number % len(WORDS)] for number in range(start, stop)])


class Count(Node):
    """Counts words, and sends what the count is, with a number of its own."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.n = context.getReducingState("n", "count")

    def onMessage(self, word: str, context: Context) -> None:
        self.n.add(1)
        context.send({"word": word, "n": self.n.get()})


class Random(Count):
    """Counts words by chance that nobody logs."""

    def onMessage(self, word: str, context: Context) -> None:
        import random

        context.send({"word": word, "n": random.randrange(10**9)})


class Gated(DataFrameSource):
    """Sends the rows of a DataFrame, at first a few batches, and the rest when a file is there."""

    pollSeconds = 0.01
    batches = 0

    def __init__(self, df: DataFrame, gate: Path) -> None:
        super().__init__(df)
        self.gate = gate

    def available(self, partition: str, start: Any) -> Any:
        stop = super().available(partition, start)
        return None if self.batches >= 3 and not self.gate.exists() else stop

    def read(self, partition: str, start: Any, stop: Any, context: Context) -> None:
        self.batches += 1
        super().read(partition, start, stop, context)


class CountRows(Count):
    """Counts words in rows."""

    def onMessage(self, row: Any, context: Context) -> None:
        super().onMessage(row["word"], context)


def itself(word: str) -> str:
    """The key of a word."""
    return word


def words(live: Live, counting: Node) -> Graph:
    """Words, counted by two subtasks, to Parquet."""
    graph = Graph("words").add("words", Words(live.folder / "enough"), parallelism=2)
    graph.add("count", counting, parallelism=2)
    graph.add("out", ParquetSink(str(live.folder / "out"), "word STRING, n LONG"))
    return graph.connect("words", "count", key=itself).connect("count", "out")


def mode_called(live: Live, name: str) -> ModeWish:
    """A mode with state in each fourth snapshot."""
    modes: dict[str, ModeWish] = {
        "log": "inputLogging",
        "deltas": Deltas(every=4),
        "versions": PersistentState(str(live.folder / "disk"), every=4),
        "copied": PersistentState(str(live.folder / "disk"), every=4, copy=True),
    }
    return modes[name]


def submit(live: Live, counting: Node | None = None, mode: str = "log") -> Run:
    """Submit the words."""
    runtime = live.runtime(snapshotInterval=0.4)
    return live.submit(runtime, words(live, counting or Count()), mode=mode_called(live, mode))


def _kill_worker(run: Run) -> None:
    kill(run.status["workers"][0])


def finished(live: Live, run: Run) -> int:
    """Let the run end. Check that each count of each word came once, and return how many came."""
    (live.folder / "enough").touch()
    run.awaitTermination(DEADLINE_S)
    assert run.status["outcome"] == "finished", run.exception()
    rows = rows_of(live.folder / "out")
    counts = Counter(word for word, _ in rows)
    assert sorted(counts) == sorted(WORDS)
    assert sorted(rows) == sorted((word, n) for word, count in counts.items() for n in range(1, count + 1))
    return len(rows)


def _await_newer(run: Run, snapshot_id: int) -> None:
    wait_for("snapshots after the fault", lambda: any(each.id > snapshot_id for each in run.snapshots()))


@pytest.mark.parametrize("mode", ["copied", "versions"])
def test_a_lost_disk_costs_time_or_is_named(live: Live, mode: str) -> None:
    """Where the rows were copied, they are read from the backend. Else the run says which disk is needed."""
    run = submit(live, mode=mode)
    await_snapshots(run, 5)
    run.stop(withSnapshot=True)
    disk = live.folder / "disk" / "cutline-versions" / "disk"
    found = disk.read_text()
    disk.write_text("another")
    run = submit(live, mode=mode)
    if mode == "copied":
        finished(live, run)
    else:
        with pytest.raises(RunFailed, match=rf"subtask \d is on disk {found}, which no worker sees; bring it back"):
            run.awaitTermination(DEADLINE_S)


ROWS = 6_000


def rows(live: Live, word: str) -> Graph:
    """Rows of a DataFrame, counted by an expression's word. Half of them come when a file is there."""
    df = live.spark.range(0, ROWS, numPartitions=12).selectExpr(f"{word} AS word")
    graph = Graph("rows").add("rows", Gated(df, live.folder / "enough"), parallelism=2)
    graph.add("count", CountRows(), parallelism=2)
    graph.add("out", ParquetSink(str(live.folder / "out"), "word STRING, n LONG"))
    return graph.connect("rows", "count", key="word").connect("count", "out")


def _submit_rows(live: Live, mode: ModeWish) -> Run:
    """Return a run of which half the rows are counted, and written."""
    graph = rows(live, f"elt(id % {len(WORDS)} + 1, {str(WORDS)[1:-1]})")
    run = live.submit(live.runtime(snapshotInterval=0.4), graph, mode=mode)
    await_snapshots(run, 1)
    output = str(live.folder / "out")
    wait_for("the rows of three batches of each subtask", lambda: live.spark.read.parquet(output).count() == ROWS / 2)
    return run


@pytest.mark.parametrize("mode", ["inputLogging", Deltas(every=2)], ids=["log", "deltas"])
def test_rows_of_a_dataframe_come_once(live: Live, mode: ModeWish) -> None:
    """A worker is killed between batches. The same batches are read again, and the rest behind them."""
    run = _submit_rows(live, mode)
    _kill_worker(run)
    _await_newer(run, 1_999_999)  # the last id that the first incarnation could give
    assert finished(live, run) == ROWS


def test_a_fork_repeats_the_rows_of_its_origin(live: Live) -> None:
    """And goes on with the rest of them, whatever DataFrame it has."""
    run = _submit_rows(live, "inputLogging")
    run.stop(withSnapshot=True)
    graph, snapshot = rows(live, "'other'"), run.snapshots()[-1]
    fork = live.submit(live.runtime(), graph, name="fork", restoreFrom=snapshot, mode="inputLogging")
    assert finished(live, fork) == ROWS


def test_the_page_counts_words_of_a_dataframe(live: Live) -> None:
    """docs/MODES.md: the graph of a DataFrame is submitted as it stands there."""
    page: dict[str, Any] = {"__name__": "page"}  # no module, so that its classes go to the workers
    for code in blocks()[1:]:
        if "runtime" not in code.replace("barrier_runtime", ""):
            exec(code, page)
    (live.folder / "books").mkdir()
    (live.folder / "books" / "play.txt").write_text(f"{' '.join(WORDS)}\n" * 30)
    sink = ParquetSink(str(live.folder / "out"), "word STRING, n LONG")
    graph = page["words_of_rows"](live.spark.read.text(str(live.folder / "books")), sink)
    assert finished(live, live.submit(live.runtime(), graph, mode="inputLogging")) == 30 * len(WORDS)


def test_a_node_that_is_not_deterministic_ends_the_run(live: Live) -> None:
    """By its name, with step, subtask and keys, after a kill."""
    run = submit(live, Random())
    await_snapshots(run, 2)
    _kill_worker(run)
    with pytest.raises(
        RunFailed, match=r"step \d+: node 'count', subtask [01] sent something else on count->out than "
    ):
        run.awaitTermination(DEADLINE_S)


def test_a_mode_is_refused_before_anything_starts(live: Live) -> None:
    """A backend in memory, rows outside memory, and another mode for a run that has one."""
    graph = words(live, Count())
    with pytest.raises(GraphError, match="mode 'inputLogging' cannot run graph 'words': a MemoryBackend does not out"):
        live.runtime(backend=MemoryBackend()).submit(graph, mode="inputLogging")
    run = submit(live)
    await_snapshots(run, 1)
    run.stop(withSnapshot=True)
    with pytest.raises(RestoreRefused, match="run 'words' was made in mode 'inputLogging'; submit it so, or under ano"):
        live.runtime(keyedState=HeapState()).submit(graph)
    plan = live.runtime().plan(graph)
    assert not plan.isRefused, plan


class Tallies(Words):
    """Sends words with the number 1; one message with their number stands for all of a word."""

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        context.sendAll([(WORDS[number % len(WORDS)], 1) for number in range(start, stop)])

    def compactInput(self, partition: str, stop: int) -> Iterable[tuple[str, int]]:
        return Counter(WORDS[number % len(WORDS)] for number in range(stop)).items()


class Total(Node):
    """Adds numbers by word, and sends the total."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.n = context.getReducingState("n", "sum")

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        self.n.add(message[1])
        context.send({"word": message[0], "n": self.n.get()})


def first_of(message: tuple[str, int]) -> str:
    """The key of a message."""
    return message[0]


def tallies(live: Live) -> Graph:
    """Words with numbers, added by two subtasks, to Parquet."""
    graph = Graph("words").add("words", Tallies(live.folder / "enough"), parallelism=2)
    graph.add("total", Total(), parallelism=2)
    graph.add("out", ParquetSink(str(live.folder / "out"), "word STRING, n LONG"))
    return graph.connect("words", "total", key=first_of).connect("total", "out")


def test_a_run_goes_on_behind_compacted_input(live: Live) -> None:
    """Stopped, compacted, submitted again and killed: each count comes once."""
    mode = InputLogging(hashes="states")
    run = live.submit(live.runtime(snapshotInterval=0.4), tallies(live), mode=mode)
    await_snapshots(run, 5)
    run.stop(withSnapshot=True)
    editor = SnapshotEditor(run.snapshots()[-1]).compactInput(tallies(live))
    edited = editor.write(force=True)
    print(editor.edits[0])
    run = live.submit(live.runtime(snapshotInterval=0.4), tallies(live), mode=mode)
    published = await_snapshots(run, 3)
    assert published[0] > edited.id
    _kill_worker(run)
    _await_newer(run, published[-1])
    for record in run.snapshots()[-1].records("total"):
        assert (record.steps or ())[0].snapshot_id == edited.id, "the log begins with the compacted input"
    print(f"{finished(live, run):,} counts")
