"""The keyed sum of the peers benchmark as a dataflow of Bytewax, which imports this file in its own environment.

The file imports nothing of Cutline, because that environment has no Cutline. Records come from ``bursts.json`` in the
folder of the run. The source's state in the recovery store tells when the first record was sent, and how many were.
``results-INDEX.json`` tells when the last result arrived, and how many did.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bytewax import operators
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition


class BurstsPartition(StatefulSourcePartition):  # type: ignore[misc]  # because the environment of mypy has no Bytewax
    """Returns one burst a call, for `seconds`. State: when the first burst was returned, and the number of bursts."""

    def __init__(self, bursts: list[list[tuple[str, int]]], seconds: float) -> None:
        self.bursts, self.seconds = bursts, seconds
        self.began_at = 0.0
        self.rounds = 0

    def next_batch(self) -> list[tuple[str, int]]:
        now = time.monotonic()
        if not self.rounds:
            self.began_at = now
        elif now >= self.began_at + self.seconds:
            raise StopIteration
        burst = self.bursts[self.rounds % len(self.bursts)]
        self.rounds += 1
        return [(key, value) for key, value in burst]

    def snapshot(self) -> tuple[float, int]:
        return self.began_at, self.rounds


class RecordsPartition(BurstsPartition):
    """Returns one record a call, as Bytewax's `TestingSource` does by default."""

    def __init__(self, bursts: list[list[tuple[str, int]]], seconds: float) -> None:
        super().__init__(bursts, seconds)
        self.waiting: list[tuple[str, int]] = []

    def next_batch(self) -> list[tuple[str, int]]:
        if not self.waiting:
            self.waiting = super().next_batch()[::-1]
        return [self.waiting.pop()]


class Bursts(FixedPartitionedSource):  # type: ignore[misc]
    """Has one partition for each worker."""

    def __init__(self, folder: Path, seconds: float, workers: int, *, is_single: bool) -> None:
        table = json.loads((folder / "bursts.json").read_text())
        self.bursts = [[(key, value) for key, value in burst] for burst in table]
        self.seconds, self.workers, self.is_single = seconds, workers, is_single

    def list_parts(self) -> list[str]:
        return [f"part-{number}" for number in range(self.workers)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> BurstsPartition:
        return (RecordsPartition if self.is_single else BurstsPartition)(self.bursts, self.seconds)


class RunningSum(StatefulBatchLogic):  # type: ignore[misc]
    """Emits the sum so far of one key for each value."""

    def __init__(self, total: int) -> None:
        self.total = total

    def on_batch(self, values: list[int]) -> tuple[list[int], bool]:
        results = []
        for value in values:
            self.total += value
            results.append(self.total)
        return results, self.RETAIN

    def snapshot(self) -> int:
        return self.total


class CountedPartition(StatelessSinkPartition):  # type: ignore[misc]
    """Counts results, and notes at its end the count and when the last result arrived."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended_at = 0.0
        self.count = 0

    def write_batch(self, items: list[Any]) -> None:
        self.count += len(items)
        self.ended_at = time.monotonic()

    def close(self) -> None:
        self.path.write_text(json.dumps([self.ended_at, self.count]))


class Counted(DynamicSink):  # type: ignore[misc]
    """Has one part on each worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CountedPartition:
        return CountedPartition(self.folder / f"results-{worker_index}.json")


def _add(total: int | None, value: int) -> tuple[int, int]:
    total = (total or 0) + value
    return total, total


def flow(folder: str, seconds: float, workers: int, is_single: bool) -> Dataflow:
    """Make the dataflow of a run with that many workers, for lists of records, or for one record at a time."""
    made = Dataflow("peer")
    records = operators.input("records", made, Bursts(Path(folder), seconds, workers, is_single=is_single))
    if is_single:
        sums = operators.stateful_map("sums", records, _add)
    else:
        sums = operators.stateful_batch("sums", records, lambda total: RunningSum(total or 0))
    operators.output("results", sums, Counted(Path(folder)))
    return made
