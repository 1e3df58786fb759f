"""An aggregate that keeps totals in a store, and notes how many records it has handled.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replayed_nodes import JOBS, PARTITIONS, Records, first_burst
from cutline import Context, Graph, PostgreSQLStore, Sum
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.operators.monoid import Monoid
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate

#: Incarnations of a run that can be told apart, and subtasks of the aggregate.
_SHAPE = (64, 16)


class Handled:
    """Records that the subtasks of an aggregate have handled in each incarnation, in memory that processes share."""

    def __init__(self, path: Path) -> None:
        path.touch()
        with path.open("r+b") as file:
            file.truncate(8 * _SHAPE[0] * _SHAPE[1])
        self.numbers = np.memmap(path, np.int64, "r+", shape=_SHAPE)

    def in_incarnation(self, incarnation: int) -> int:
        """Return how many records an incarnation has handled."""
        return int(self.numbers[incarnation].sum())


class NotedTotals(PersistentAggregate):
    """Notes how many messages it got."""

    def __init__(self, monoid: Monoid, store: AggregateStore, path: Path) -> None:
        super().__init__(monoid, store, itemgetter(1))
        self.path = path

    def open(self, context: Context) -> None:
        super().open(context)
        self.handled = Handled(self.path).numbers[context.incarnation]

    def onMessages(self, messages: Sequence[Any], context: Context) -> None:
        super().onMessages(messages, context)
        self.handled[context.subtask.index] += len(messages)


class CountedStore(PostgreSQLStore):
    """A table ``totals`` that notes in a folder the snapshot and the number of cells of each write that succeeded."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, table="totals")
        self.folder = folder

    def write(self, claim: StoreClaim, snapshotId: int, items: Sequence[tuple[Any, Any]]) -> None:
        super().write(claim, snapshotId, items)
        # A file for each writer, because lines of two writers in one file could mix.
        with open(self.folder / f"cells-{os.getpid()}-{threading.get_ident()}", "a") as file:
            file.write(f"{snapshotId} {len(items)}\n")

    def cells(self) -> Counter[int]:
        """Return the number of cells that were written for each snapshot."""
        cells: Counter[int] = Counter()
        for path in self.folder.glob("cells-*"):
            for line in path.read_text().splitlines():
                snapshot_id, count = map(int, line.split())
                cells[snapshot_id] += count
        return cells


def totals_graph(job: str, folder: Path, store: AggregateStore, parallelism: int) -> Graph:
    """Make a job that ends when the file ``enough`` is in the folder, and notes its records in the file ``handled``."""
    graph = Graph(f"{job}_totals").add("records", Records(job, folder / "enough"), parallelism=parallelism)
    graph.add("totals", NotedTotals(Sum(), store, folder / "handled"), parallelism=parallelism)
    return graph.connect("records", "totals", key=itemgetter(0))


def records_and_sum(job: str, offsets: dict[str, int]) -> tuple[int, int]:
    """Return how many records a source has sent up to its offsets, and the sum of their values."""
    bursts = JOBS[job]()
    sizes = [len(burst) for burst in bursts]
    sums = [sum(value for _, value in burst) for burst in bursts]
    records = total = 0
    for partition, offset in offsets.items():
        begin, (rounds, rest) = first_burst(partition, len(bursts)), divmod(offset, len(bursts))
        some = [(begin + number) % len(bursts) for number in range(rest)]
        records += rounds * sum(sizes) + sum(sizes[number] for number in some)
        total += rounds * sum(sums) + sum(sums[number] for number in some)
    assert set(offsets) <= set(PARTITIONS)
    return records, total
