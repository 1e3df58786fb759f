"""Counts the words of real text while a worker is killed, and compares with Spark's own count of the same lines.

::

    lines ──batches──> split ──batches, by hash of the word──> count ──at the end──> counts (Parquet)

`lines` is a DataFrame, `split` an ordinary node, `count` a `KeyedAggregate`. Start it with ``cutline demo wordcount``.
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

from barrier_runtime import BarrierRuntime, DataFrameSource, ParquetSink
from barrier_runtime.cli_progress import duration_text, watch
from snapshot import Context, Graph, KeyedAggregate, Node
from snapshot.errors import GraphError
from state_backends import FileSystemBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

#: Means the same to Python and to Java.
WORD = "[A-Za-z_]+"

#: Folders of the standard library's that are not it.
_NOT_LIBRARY = ("site-packages", "dist-packages", "__pycache__")

#: How many snapshots are kept: all, because they are counted at the end.
_RETAINED = 100_000


class Split(Node):
    """Sends the words of lines. It has no state."""

    def __init__(self) -> None:
        self._word = re.compile(WORD)

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Send the words of a batch of lines."""
        text = "\n".join(batch.column("line").to_pylist())
        context.send(pa.record_batch({"word": pa.array(self._word.findall(text), pa.string())}))


class Count(KeyedAggregate):
    """Counts the words that are its own by hash, and sends the counts when there are no more words."""

    def __init__(self) -> None:
        super().__init__("word", aggregates={"count": ("word", "count")})
        self._has_counted = False  # in this incarnation

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Count, and say when it began."""
        super().onBatch(batch, context)
        if not self._has_counted:
            self._has_counted = True
            context.increment(f"first count of {context.subtask}", context.now)


class Killer:
    """Kills a worker once half of the words are counted, and measures how long nothing is counted then."""

    def __init__(self, half: int) -> None:
        self._half = half
        self._killed_at = 0.0
        self._killed_in = 0  # incarnation
        #: seconds from the kill to the first word counted; None: not known yet, or the run was over before it was seen
        self.recovery_seconds: float | None = None

    @property
    def has_killed(self) -> bool:
        """It was time to, before the run was over."""
        return self._killed_at > 0

    def look(self, progress: Mapping[str, Any]) -> str | None:
        """Kill if it is time to; returns what is to be said about it."""
        counted = progress["progress"]["processed"].get("count", 0)
        if not self.has_killed and counted >= self._half and progress["workers"]:
            worker, pid = max(progress["workers"].items())
            self._killed_at, self._killed_in = time.time(), progress["incarnation"]
            os.kill(pid, signal.SIGKILL)
            return f"{counted:,} words are counted: SIGKILL to worker {worker}, process {pid}"
        if self.has_killed and self.recovery_seconds is None and progress["incarnation"] > self._killed_in:
            metrics = progress["progress"]["metrics"]
            firsts = [at for metric, at in metrics.items() if metric.startswith("first count of ")]
            if firsts:
                self.recovery_seconds = min(firsts) - self._killed_at
                return f"words are counted again {duration_text(self.recovery_seconds)} after the kill"
        return None


def read_lines(spark: SparkSession, folder: Path | None) -> DataFrame:
    """All lines of all files below `folder`; None: of the standard library of this Python."""
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
    """The counts by Spark's own means."""
    words = lines.select(explode(regexp_extract_all("line", lit(WORD), lit(0))).alias("word"))
    return {row["word"]: row["count"] for row in words.groupBy("word").count().toLocalIterator()}


def make_graph(lines: DataFrame, output: str, parallelism: int) -> Graph:
    """The pipeline."""
    graph = Graph("wordcount")
    (
        graph.source("lines", DataFrameSource(lines), parallelism=parallelism)
        .process("split", Split(), parallelism=parallelism, schema="line STRING")
        .keyBy("word")
        .process("count", Count(), parallelism=parallelism, schema="word STRING")
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
    """Run it all; returns whether the counts are equal and, with `kill`, a worker was killed.

    Raises
    ------
    GraphError
        if there is no text, or `output` is there already.
    """
    if output is not None and output.exists():
        raise GraphError(f"{output} is there already; give a new folder, so that it holds the counts and nothing else")
    with tempfile.TemporaryDirectory(prefix="cutline-wordcount-") as scratch:
        # Many small files make many small partitions; and they are read twice, by Spark's count and for Cutline.
        with console.status("Spark counts the words"):
            lines = read_lines(spark, folder).coalesce(2 * parallelism).cache()
            expected = count_in_spark(lines)
        total = sum(expected.values())
        if not total:
            raise GraphError(f"there are no words below {folder}")
        _say(console, f"Spark counts {total:,} words, {len(expected):,} distinct ones")
        target = str(output.absolute()) if output else f"{scratch}/counts"
        killer = Killer(total // 2) if kill else None
        restarts = _count(spark, console, make_graph(lines, target, parallelism), scratch, interval, killer)
        rows = [(row["word"], row["count"]) for row in spark.read.parquet(target).toLocalIterator()]
        is_equal = len(rows) == len(expected) and dict(rows) == expected
        _say(console, f"Cutline counts {sum(n for _, n in rows):,} words, {len(rows):,} distinct ones")
        _say(console, "every count is equal" if is_equal else "THE COUNTS DIFFER")
    if killer is not None and not (killer.has_killed and restarts):
        _say(console, "no worker was killed in time: nothing was proved; try more text")
        return False
    return is_equal


def _count(
    spark: SparkSession, console: Console, graph: Graph, scratch: str, interval: float, killer: Killer | None
) -> int:
    """Run it, and say how it went; returns the number of restarts."""
    backend = FileSystemBackend(f"{scratch}/snapshots")
    runtime = BarrierRuntime(spark, backend=backend, snapshotInterval=interval, retainedSnapshots=_RETAINED)
    with console.status("submitting the graph"):
        run = runtime.submit(graph)
    for progress in watch(run, graph, console):
        said = killer.look(progress) if killer else None
        if said:
            _say(console, said)
    run.awaitTermination()
    restarts = len(run.status["restarts"])
    recovered = f", recovery {duration_text(killer.recovery_seconds)}" if killer and killer.recovery_seconds else ""
    _say(console, f"{len(run.snapshots())} snapshots, {restarts} restarts{recovered}")
    return restarts


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
