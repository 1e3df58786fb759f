"""One job in each mode: words are counted, a worker is killed, and what it costs is written down.

The words come without end, until `finish` asks for it, so that each mode has the same time. Each partition then writes
down where it ended, and all counts are compared with these places.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutline import (
    END,
    BarrierRuntime,
    Context,
    FileSystemBackend,
    Graph,
    Node,
    ParquetSink,
    ReplayableSource,
    Run,
    SQLiteStore,
    Sum,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cutline.snapshot.plan.modes import ModeWish

#: Different words, words of one read, and partitions of the source.
WORDS, READ_WORDS, PARTITIONS = 5_000, 500, 4
#: Seconds between snapshots, before the kill, and that a run may take for anything.
SNAPSHOT_S, RUN_S, DEADLINE_S = 0.5, 2.0, 100.0
#: Words that are counted before anything is measured.
_BEGUN = 50_000


def word(partition: str, place: int) -> str:
    """Return the word at a place of a partition."""
    return f"word-{(place * 7919 + int(partition)) % WORDS:04}"


class Words(ReplayableSource):
    """Sends words until the folder `ends` exists. Each partition writes there where it ended. An offset counts words.

    Parameters
    ----------
    ends : Path
    rate : int or None
        Words of a partition in a second; None: as many as the job takes.
    """

    def __init__(self, ends: Path, rate: int | None) -> None:
        self.ends, self.rate = ends, rate
        self.begun: dict[str, tuple[int, float]] = {}

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions."""
        return [str(number) for number in range(PARTITIONS)]

    def first(self, partition: str) -> int:
        """Begin with the first word."""
        return 0

    def available(self, partition: str, start: int) -> Any:
        """Return where the next read ends, or END, whose place a later incarnation may write anew."""
        if self.ends.exists():
            (self.ends / partition).write_text(str(start))
            return END
        first, at = self.begun.setdefault(partition, (start, time.monotonic()))
        is_early = self.rate is not None and start - first > self.rate * (time.monotonic() - at)
        return None if is_early else start + READ_WORDS

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        """Send the words of a slice."""
        context.sendAll([word(partition, place) for place in range(start, stop)])


class Count(Node):
    """Counts each word in keyed state, and sends the counts at the end."""

    deterministic = True

    def open(self, context: Context) -> None:
        """Ask for keyed state."""
        self.counts = context.getReducingState("counts", "sum")

    def onMessages(self, words: list[str], context: Context) -> None:
        """Count words."""
        self.counts.addAll(words, [1] * len(words))

    def onEnd(self, context: Context) -> None:
        """Send all counts."""
        context.sendAll([{"word": each, "n": count} for each, count in self.counts.items()])


@dataclass(frozen=True)
class Cost:
    """What a run has cost."""

    mode: str
    wordsPerSecond: float
    #: bytes that snapshots, logs and stores have, for each second of the run
    bytesPerSecond: float
    #: seconds from the kill of a worker until a word was counted that had not been counted before
    resumeSeconds: float


@dataclass
class Job:
    """The job in one mode.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        An empty folder.
    mode : ModeWish
        As of `submit`.
    name : str
        Name of the run.
    rate : int or None
        See `Words`.
    """

    spark: SparkSession
    folder: Path
    mode: ModeWish
    name: str
    rate: int | None = None
    run: Run = field(init=False)
    #: most words that were counted so far
    most: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.keepsTotals = self.name.startswith("monoidClocks")
        backend = FileSystemBackend(self.folder / "snapshots")
        runtime = BarrierRuntime(self.spark, backend=backend, workers=2, snapshotInterval=SNAPSHOT_S, page=False)
        self.run = runtime.submit(self.graph(), name=self.name, mode=self.mode)
        self.until("words", lambda: self.counted() > _BEGUN)

    def graph(self) -> Graph:
        """Return the graph: counts in keyed state, or totals in a store."""
        source, graph = Words(self.folder / "ends", self.rate), Graph("words")
        if self.keepsTotals:
            stream = graph.source("words", source, parallelism=2).keyBy(str)
            return stream.persistentAggregate("count", Sum(), self.store, value=_one, parallelism=2)
        graph.add("words", source, parallelism=2).add("count", Count(), parallelism=2)
        graph.add("out", ParquetSink(str(self.folder / "out"), "word string, n long"))
        return graph.connect("words", "count", key=str).connect("count", "out")

    @property
    def store(self) -> SQLiteStore:
        """A connection to the totals."""
        return SQLiteStore(self.folder / "totals.db")

    def counted(self) -> int:
        """Return how many words have been counted. A replay counts again from 0."""
        now = int(self.run.status["progress"]["processed"].get("count", 0))
        self.most = max(self.most, now)
        return now

    def until(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            if time.monotonic() > deadline or not self.run.isActive:
                raise RuntimeError(f"{self.name}: waited for {what} in vain: {self.run.status}")
            self.counted()
            time.sleep(0.05)

    def cost(self, mode: str) -> Cost:
        """Let the job run, kill a worker, and let it end. Return what that has cost."""
        words, began = self.counted(), time.monotonic()
        time.sleep(RUN_S)
        ran, had = time.monotonic() - began, self.counted()
        stored = sum(path.stat().st_size for path in _files(self.folder))
        self.kill()
        at = time.monotonic()
        self.until("a new incarnation", lambda: self.run.status["restartCount"] > 0)
        self.until("a word that is new", lambda: self.counted() > had)
        resumed = time.monotonic() - at
        self.finish()
        return Cost(mode, (had - words) / ran, stored / ran, resumed)

    def kill(self) -> None:
        """Kill a worker process."""
        os.kill(self.run.status["workers"][0], signal.SIGKILL)

    def finish(self) -> int:
        """End the job, compare every count, and return how many words were counted."""
        ends = self.folder / "ends"
        ends.mkdir()
        self.run.awaitTermination(DEADLINE_S)
        due = _due({path.name: int(path.read_text()) for path in ends.iterdir()})
        found = self.counts()
        assert found == due, f"{self.name}: {sum(found.values()):,} words were counted, but there are {due.total():,}"
        return due.total()

    def counts(self) -> dict[str, int]:
        """Return all counts that the run has put out."""
        if self.keepsTotals:
            every = [f"word-{number:04}" for number in range(WORDS)]
            found = zip(every, self.store.current(every), strict=True)
            return {each: count for each, count in found if count is not None}
        rows = self.spark.read.parquet(str(self.folder / "out")).collect()
        return {row["word"]: row["n"] for row in rows}


def _due(ends: dict[str, int]) -> Counter[str]:
    """Return how often each word is there up to the end of each partition."""
    due: Counter[str] = Counter()
    for partition, end in ends.items():
        rounds, rest = divmod(end, WORDS)  # each round has each word once
        due.update({f"word-{number:04}": rounds for number in range(WORDS)})
        due.update(word(partition, place) for place in range(rest))
    return +due


def _one(message: str) -> int:
    return 1


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
