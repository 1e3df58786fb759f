"""Totals in an SQLite store, live, by markers and by epochs: whatever is killed, each number counts once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Live, await_snapshots, wait_for
from benchmarks.process_table import is_gone, kill
from cutline import END, Context, Graph, Node, ReplayableSource, Run, SQLiteStore
from cutline.snapshot.operators.monoids import Sum
from cutline.snapshot.plan.modes import ModeWish, MonoidClocks
from tests.system.other_driver import other_driver
from tests.system.test_steps import FAULTS

pytestmark = [pytest.mark.spark, pytest.mark.ray]

PARTITIONS = ("a", "b", "c")
KEYS = 7


class Numbers(ReplayableSource):
    """Sends the numbers of three partitions, a slice at a time, until a file is there."""

    pollSeconds = 0.01

    def __init__(self, enough: Path) -> None:
        self.enough = enough

    def partitions(self) -> tuple[str, ...]:
        return PARTITIONS

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        return END if self.enough.exists() else start + 20

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
    return live.submit(live.runtime(snapshotInterval=0.2), sums(live), mode=mode)


def _totals(live: Live) -> dict[str, int]:
    store = store_of(live)
    keys = [*PARTITIONS, *(f"mod {rest}" for rest in range(KEYS))]
    found = dict(zip(keys, store.current(keys), strict=True))
    store.close()
    return {key: value for key, value in found.items() if value is not None}


def _expected(totals: dict[str, int]) -> dict[str, int]:
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


def _await_newer(run: Run, snapshot_id: int) -> None:
    wait_for("snapshots after the fault", lambda: any(each.id > snapshot_id for each in run.snapshots()))


def _finished(live: Live, run: Run) -> int:
    """Let the run end. Check that each number counts once in each of its keys, and return how many came."""
    (live.folder / "enough").touch()
    run.awaitTermination(DEADLINE_S)
    assert run.status["outcome"] == "finished", run.exception()
    totals = _totals(live)
    assert totals == _expected(totals)
    state: dict[str, int] = {}
    for each in run.snapshots()[-1].node("numbers").states:
        state.update(each)
    assert {partition: totals[partition] for partition in PARTITIONS} == {
        partition: count * (count + 1) // 2 for partition, count in state.items()
    }
    return sum(state.values())


MODES: list[ModeWish] = ["markers", "monoidClocks"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_number_counts_once(live: Live, mode: ModeWish, fault: str) -> None:
    """Killed twice, and then stopped and submitted again: totals are those of whole numbers at each moment."""
    run = submit(live, mode)
    for _ in range(2):
        published = await_snapshots(run, 3)
        FAULTS[fault](run)
        _await_newer(run, published[-1])
        if mode != "markers":  # whose totals lack what is in flight
            totals = _totals(live)
            assert totals == _expected(totals)
    run.stop(withSnapshot=True)
    run = submit(live, mode)
    await_snapshots(run, 1)
    print(f"{_finished(live, run):,} numbers")


@pytest.mark.parametrize("mode", ["monoidClocks", MonoidClocks(clock="negotiated")], ids=["epochs", "negotiated"])
def test_another_parallelism_goes_on(live: Live, mode: ModeWish) -> None:
    """Freely, because relays have no state, and totals belong to no subtask."""
    run = submit(live, mode)
    await_snapshots(run, 2)
    run.stop(withSnapshot=True)
    rescaled = sums(live).withParallelism({"numbers": 1, "relay": 3, "sums": 1})
    run = live.submit(live.runtime(snapshotInterval=0.2), rescaled, mode=mode)
    await_snapshots(run, 2)
    print(f"{_finished(live, run):,} numbers")


_SUBMIT = """
from tests.system.test_totals import submit
run = submit(live, "{mode}")
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_driver_is_resumed(live: Live, mode: ModeWish) -> None:
    """Its workers end by themselves, and can write no more into the store that the new run has taken."""
    with other_driver(live, _SUBMIT.format(mode=mode)) as driver:
        workers = [int(pid) for pid in driver.read_until("workers ").split()[1:]]
        kill(driver.pid)
        run = submit(live, mode)
        await_snapshots(run, 2)
        assert wait_for("the end of the old workers", lambda: all(is_gone(pid) for pid in workers))
    print(f"{_finished(live, run):,} numbers")
