"""Count the words of real text while a worker is killed, and compare with Spark's own count of the same lines.

::

    lines ──batches──> split ──batches, by hash of the word──> count ──at the end──> counts (Parquet)

`lines` is a DataFrame, `split` an ordinary node, `count` a `KeyedAggregate`. Start: ``cutline demo wordcount``.
"""

from __future__ import annotations

import os
import re
import signal
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import explode, lit, make_valid_utf8, regexp_extract_all
from rich.console import Console

from cutline import (
    BarrierRuntime,
    Context,
    DataFrameSource,
    FileSystemBackend,
    Graph,
    KeyedAggregate,
    Node,
    ParquetSink,
)
from cutline.barrier_runtime.cli.progress import watch
from cutline.snapshot.drawing.labels import duration_text
from cutline.snapshot.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Pattern of a word, with the same meaning in Python and in Java.
WORD = "[A-Za-z_]+"

#: Folders in the standard library's folder that are not part of the library.
_NOT_LIBRARY = ("site-packages", "dist-packages", "__pycache__")

#: number of snapshots to keep: all, because they are counted at the end
_RETAINED = 100_000


class Split(Node):
    """Sends the words of lines. Has no state."""

    def __init__(self) -> None:
        self._word = re.compile(WORD)

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Send the words of a batch of lines."""
        text = "\n".join(batch.column("line").to_pylist())
        context.send(pa.record_batch({"word": pa.array(self._word.findall(text), pa.string())}))


class Kill:
    """Kills the process of a subtask after some words, and notes the time.

    Parameters
    ----------
    after : int
        Words that the first subtask of the count has counted before the kill.
    note : Path
        Path of a file that is written just before the kill.
    """

    def __init__(self, after: int, note: Path) -> None:
        self.after = after
        self.note = note

    @property
    def at(self) -> float | None:
        """The time of the kill in seconds since the epoch, or None before the kill."""
        return float(self.note.read_text()) if self.note.exists() else None

    def happen(self) -> None:
        """Kill this process, without any cleanup or notice."""
        self.note.write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)


class Count(KeyedAggregate):
    """Counts the words that are its own by hash, and sends the counts when there are no more words.

    The state has, besides the counts, when this incarnation counted its first words.
    """

    def __init__(self, kill: Kill | None) -> None:
        super().__init__("word", aggregates={"count": ("word", "count")})
        self._kill = kill
        self._counted = 0
        self._began_at: float | None = None

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Count a batch, and kill this process when it is time: once, in the first incarnation."""
        super().onBatch(batch, context)
        self._began_at = self._began_at or time.time()
        self._counted += batch.num_rows
        is_victim = context.subtask.index == 0 and context.incarnation == 1
        if self._kill is not None and is_victim and self._counted >= self._kill.after:
            self._kill.happen()

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return the types of the counts, whose rows are keyed state, and when the counts began to grow."""
        return super().snapshotState(snapshotId, timestamp), self._began_at

    def restoreState(self, state: Any) -> None:
        """Adopt the types only, because this incarnation has not begun to count."""
        super().restoreState(state[0])


def read_lines(spark: SparkSession, folder: Path | None) -> DataFrame:
    """Read all lines of all files below `folder`, or of this Python's standard library if `folder` is None."""
    if folder is not None:
        paths, pattern = [str(folder.absolute())], "*"
    else:
        library = Path(sysconfig.get_path("stdlib"))
        entries = [entry for entry in sorted(library.iterdir()) if entry.name not in _NOT_LIBRARY]
        paths = [str(entry) for entry in entries if entry.suffix == ".py" or any(entry.rglob("*.py"))]
        pattern = "*.py"
    text = spark.read.text(paths, recursiveFileLookup=True, pathGlobFilter=pattern)
    # Files that are not UTF-8 are read as they are, and Arrow would refuse them later.
    return text.select(make_valid_utf8("value").alias("line"))


def count_in_spark(lines: DataFrame) -> dict[str, int]:
    """Count the words by Spark alone."""
    words = lines.select(explode(regexp_extract_all("line", lit(WORD), lit(0))).alias("word"))
    return {row["word"]: row["count"] for row in words.groupBy("word").count().toLocalIterator()}


def make_graph(lines: DataFrame, output: str, parallelism: int, kill: Kill | None) -> Graph:
    """Make the pipeline."""
    graph = Graph("wordcount")
    (
        graph.source("lines", DataFrameSource(lines), parallelism=parallelism)
        .process("split", Split(), parallelism=parallelism, schema="line STRING")
        .keyBy("word")
        .process("count", Count(kill), parallelism=parallelism, schema="word STRING")
        .to("counts", ParquetSink(output, "word STRING, count LONG"), parallelism=parallelism)
    )
    return graph


def run_demo(
    spark: SparkSession,
    console: Console,
    *,
    folder: Path | None,
    output: Path | None,
    parallelism: int,
    interval: float,
    kill: bool,
) -> bool:
    """Run the demo. Return whether the counts are equal and, with `kill`, a worker was killed.

    Raises
    ------
    GraphError
        if there is no text, or `output` exists.
    """
    if output is not None and output.exists():
        raise GraphError(f"{output} is there already; give a new folder, so that it holds the counts and nothing else")
    with tempfile.TemporaryDirectory(prefix="cutline-wordcount-") as scratch:
        # Many small files make many small partitions. Spark's count and Cutline both read the lines, hence the cache.
        with console.status("Spark counts the words"):
            lines = read_lines(spark, folder).coalesce(2 * parallelism).cache()
            expected = count_in_spark(lines)
        total = sum(expected.values())
        if not total:
            raise GraphError(f"there are no words below {folder}")
        _print(console, f"Spark counts {total:,} words, {len(expected):,} distinct ones")
        target = str(output.absolute()) if output else f"{scratch}/counts"
        killing = Kill(total // (2 * parallelism), Path(scratch) / "killed") if kill else None
        restarts = _count(spark, console, make_graph(lines, target, parallelism, killing), scratch, interval, killing)
        killed = killing is not None and killing.at is not None
        rows = [(row["word"], row["count"]) for row in spark.read.parquet(target).toLocalIterator()]
        is_equal = len(rows) == len(expected) and dict(rows) == expected
        _print(console, f"Cutline counts {sum(n for _, n in rows):,} words, {len(rows):,} distinct ones")
        _print(console, "every count is equal" if is_equal else "THE COUNTS DIFFER")
    if kill and not (killed and restarts):
        _print(console, "no worker was killed: nothing was proved; try more text")
        return False
    return is_equal


def _count(
    spark: SparkSession, console: Console, graph: Graph, scratch: str, interval: float, kill: Kill | None
) -> int:
    """Run the graph, and print a summary. Return the number of restarts."""
    backend = FileSystemBackend(f"{scratch}/snapshots")
    runtime = BarrierRuntime(spark, backend=backend, snapshotInterval=interval, retainedSnapshots=_RETAINED)
    with console.status("submitting the graph"):
        run = runtime.submit(graph)
    for _ in watch(run, graph, console):
        pass  # `watch` prints the progress
    run.awaitTermination()
    snapshots = run.snapshots()
    restarts: int = run.status["restartCount"]
    killed_at = None if kill is None else kill.at
    recovered = ""
    if killed_at is not None:
        begun = [began_at for _, began_at in snapshots[-1].node("count").states if (began_at or 0) > killed_at]
        after = duration_text(min(begun) - killed_at) if begun else "not needed"
        recovered = f", recovery {after} from SIGKILL to the next words counted"
    _print(console, f"{len(snapshots)} snapshots, {restarts} restarts{recovered}")
    return restarts


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
