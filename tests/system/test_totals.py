"""Totals in an SQLite store, live, by markers and by epochs: whatever is killed, each number counts once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Live, await_snapshots
from cutline import END, Context, Graph, Node, ReplayableSource, Run, SQLiteStore
from cutline.snapshot.operators.monoids import Sum
from cutline.snapshot.plan.modes import ModeWish, MonoidClocks

pytestmark = [pytest.mark.spark, pytest.mark.ray]

PARTITIONS = ("a", "b", "c")
KEYS = 7


class Numbers(ReplayableSource):
    """Sends the numbers of three partitions, a slice at a time, until a file is there."""

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
        context.sendAll([(partition, number) for number in range(start, stop)])


class FanOut(Node):
    """Sends each number by two keys, so that it counts in several subtasks."""

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        partition, number = message
        context.sendAll([(partition, number), (f"mod {number % KEYS}", number)])


def key_of(message: tuple[str, int]) -> str:
    """The key of a message."""
    return message[0]


def number_of(message: tuple[str, int]) -> int:
    """What is added up: one more than the number, so that the number 0 shows."""
    return message[1] + 1


def store_of(live: Live) -> SQLiteStore:
    """The store of the totals."""
    return SQLiteStore(live.folder / "totals.db")


def sums(live: Live) -> Graph:
    """Numbers of two subtasks, through two relays, added up by two."""
    numbers = Graph("sums").source("numbers", Numbers(live.folder / "enough"), parallelism=2)
    relayed = numbers.rebalance().process("relay", FanOut(), parallelism=2)
    return relayed.keyBy(key_of).persistentAggregate("sums", Sum(), store_of(live), value=number_of, parallelism=2)


def submit(live: Live, mode: ModeWish) -> Run:
    """Submit the sums."""
    return live.submit(live.runtime(snapshotInterval=0.4), sums(live), mode=mode)


def totals_of(live: Live) -> dict[str, int]:
    """Return the totals that are in the store."""
    store = store_of(live)
    keys = [*PARTITIONS, *(f"mod {rest}" for rest in range(KEYS))]
    found = dict(zip(keys, store.current(keys), strict=True))
    store.close()
    return {key: value for key, value in found.items() if value is not None}


def expected(totals: dict[str, int]) -> dict[str, int]:
    """Return the totals of all keys, of as many numbers as the partitions have totals of."""
    found: Counter[str] = Counter()
    for partition in PARTITIONS:
        total, number = totals.get(partition, 0), 0
        while total > 0:
            number += 1
            total -= number
            found[partition] += number
            found[f"mod {(number - 1) % KEYS}"] += number
        assert total == 0, (partition, totals)
    return dict(found)


def finished(live: Live, run: Run) -> int:
    """Let the run end. Check that each number counts once in each of its keys, and return how many came."""
    (live.folder / "enough").touch()
    run.awaitTermination(DEADLINE_S)
    assert run.status["outcome"] == "finished", run.exception()
    totals = totals_of(live)
    assert totals == expected(totals)
    state: dict[str, int] = {}
    for each in run.snapshots()[-1].node("numbers").states:
        state.update(each)
    assert {partition: totals[partition] for partition in PARTITIONS} == {
        partition: count * (count + 1) // 2 for partition, count in state.items()
    }
    return sum(state.values())


@pytest.mark.parametrize("mode", ["monoidClocks", MonoidClocks(clock="negotiated")], ids=["epochs", "negotiated"])
def test_another_parallelism_goes_on(live: Live, mode: ModeWish) -> None:
    """Freely, because relays have no state, and totals belong to no subtask."""
    run = submit(live, mode)
    await_snapshots(run, 2)
    run.stop(withSnapshot=True)
    rescaled = sums(live).withParallelism({"numbers": 1, "relay": 3, "sums": 1})
    run = live.submit(live.runtime(snapshotInterval=0.4), rescaled, mode=mode)
    await_snapshots(run, 2)
    print(f"{finished(live, run):,} numbers")
