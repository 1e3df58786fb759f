"""Every order of steps of a small graph with keyed state: a crash never loses, doubles or mixes rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cutline import Context, Graph, Node
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.keyed.segment import Segment
from cutline.testing import explore


class Words(Node):
    """Sends two words at the start."""

    def onStart(self, context: Context) -> None:
        for word in ("to", "to"):
            context.send(word)


class Count(Node):
    """Counts words in rows, and keeps nothing else."""

    def open(self, context: Context) -> None:
        self.n = context.getReducingState("n", "sum")

    def onMessage(self, word: str, context: Context) -> None:
        self.n.add(1)


def _word(word: str) -> str:
    return word


def counted() -> Graph:
    """Two words, and a node that counts them."""
    return Graph("words").add("words", Words()).add("count", Count()).connect("words", "count", key=_word)


@pytest.mark.slow
def test_rows_survive_a_crash_in_every_order_of_steps() -> None:
    """Two snapshots that may overlap, and a crash. Each row is restored with what was processed before its cut."""
    found = explore(counted(), snapshots=[(), ()], crashes=1)
    print(found)
    assert found.violation is None, str(found)
    assert found.states > 10_000


def test_rows_that_are_not_restored_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explorer compares rows, not only what the node itself returns."""

    def without_rows(states: KeyedStates, segments: Sequence[Segment], now: float, **how: Any) -> None:
        restore(states, (), now, **how)

    restore = KeyedStates.restore
    monkeypatch.setattr(KeyedStates, "restore", without_rows)
    found = explore(counted(), crashes=1)
    assert found.violation is not None and found.violation.startswith("equivalence"), str(found)
