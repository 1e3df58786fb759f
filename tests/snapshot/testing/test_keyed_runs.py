"""Simulated runs of nodes with keyed state: the same output as without faults, whatever fails and whenever."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from cutline import END, Context, Graph, Node, Source
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.rows import DirtyRows
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.node import End
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.testing.simulation import host
from cutline.testing import ListSink, ListSource, Simulator, checkRecovery
from tests.run_size import scaled
from tests.snapshot.keyed.cold_tiers import LateTier


class Totals(Node):
    """Both kinds of state in one node: keyed totals, and a count of its own in deltas."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.new: list[str] = []

    def open(self, context: Context) -> None:
        self.n = context.getValueState("n")

    def onMessage(self, message: str, context: Context) -> None:
        self.n.update((self.n.get() or 0) + 1)
        self.seen.append(message)
        self.new.append(message)

    def onEnd(self, context: Context) -> None:
        context.sendAll([*sorted(self.n.items()), ("seen", sorted(self.seen))])

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[str]:
        self.new = []
        return list(self.seen)

    def restoreState(self, state: list[str] | None) -> None:
        self.seen = list(state or ())

    def snapshotDelta(self, sinceSnapshotId: int) -> list[str] | None:
        new, self.new = self.new, []
        return new or None

    def applyDelta(self, delta: list[str]) -> None:
        self.seen += delta


WORDS = ["to", "be", "or", "not", "to", "be", "that", "is", "to", "be"]


def words(node: Node, parallelism: int = 2) -> Graph:
    """Words through a keyed node."""
    graph = Graph("words").add("words", ListSource(*WORDS)).add("node", node, parallelism=parallelism)
    return graph.add("out", ListSink()).connect("words", "node", key=_first_letter).connect("node", "out")


def _first_letter(word: str) -> str:
    return word[0]


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


class SealingTier(LateTier):
    """A cold tier of six changed rows, whose writer works at once."""

    sealed = 0

    def __init__(self) -> None:
        super().__init__(memtable_rows=6)
        self.writer.is_prompt = True

    def take_sealed(self) -> tuple[DirtyRows, ...]:
        taken = super().take_sealed()
        SealingTier.sealed += len(taken)
        return taken


@pytest.fixture(params=[HeapTier, SealingTier])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Tier]]:
    """The tier of all subtasks of simulated runs. Rows have left the cold tier between two cuts."""
    made: type[Tier] = request.param
    monkeypatch.setattr(host, "SubtaskEnvironment", partial(SubtaskEnvironment, tier_of=lambda _: made()))
    SealingTier.sealed = 0
    yield made
    assert (SealingTier.sealed > 0) == (made is SealingTier)


def test_keyed_and_own_state_in_deltas_survive_together(tier: type[Tier]) -> None:
    """Crashes, failed and torn stores and aborted snapshots: the output is that of a run without faults."""
    checkRecovery(words(Totals()), examples=scaled(100), faults=3)


class Many(Source):
    """Numbers, ten a poll."""

    def __init__(self) -> None:
        self.next = 0

    def poll(self, context: Context) -> End | None:
        if self.next >= 200:
            return END
        for _ in range(10):
            context.send((self.next % 40, self.next))
            self.next += 1
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.next

    def restoreState(self, state: int) -> None:
        self.next = state


class Last(Node):
    """The last number of each key, and a word that makes its row long."""

    def open(self, context: Context) -> None:
        self.last = context.getValueState("last")

    def onMessage(self, message: tuple[int, int], context: Context) -> None:
        self.last.update(message[1] if message[0] % 3 else [message[1], "x" * 30])
        if message[0] % 7 == 6:
            self.last.clear()

    def onEnd(self, context: Context) -> None:
        context.sendAll(sorted(self.last.items()))


def numbers() -> Graph:
    """Return numbers through a keyed node, whose lists grow long."""
    graph = Graph("last").add("numbers", Many()).add("last", Last(), parallelism=2).add("out", ListSink())
    return graph.connect("numbers", "last", key=_first).connect("last", "out")


def test_long_lists_are_compacted_and_read_back(tier: type[Tier]) -> None:
    """Many snapshots, some of them aborted, over several incarnations: lists are merged, and nothing is lost."""
    seen: dict[str, None] = {}
    for seed in range(scaled(60)):
        history = Simulator(numbers(), seed, faults=4).run()
        expected = {}
        for number in range(200):
            key = number % 40
            expected[key] = number if key % 3 else [number, "x" * 30]
            if key % 7 == 6:
                expected.pop(key, None)
        assert sorted(history.output("out")) == sorted(expected.items())
        seen.update(dict.fromkeys(history.seen))
    print(sorted(seen))
