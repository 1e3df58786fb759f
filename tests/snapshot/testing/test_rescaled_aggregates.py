"""Aggregates that go on with other numbers of subtasks: the totals are those of a run without a restore."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cutline import Graph, KeyedAggregate, PartialAggregate
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.node import Node
from cutline.snapshot.testing.simulator import Odds
from cutline.testing import ListSink, ListSource, Simulator
from tests.run_size import scaled

SCHEMA = "word STRING, n LONG"
WORDS = [f"w{each}" for each in range(7)]
TOTALS = {"n": ("n", "sum")}


def batch(number: int) -> pa.RecordBatch:
    """A batch of five rows."""
    words = [WORDS[(number + row) % len(WORDS)] for row in range(5)]
    return pa.RecordBatch.from_pydict({"word": words, "n": [number + row for row in range(5)]})


BATCHES = [batch(number) for number in range(30)]


def graph(parallelism: int, *, is_in_two_steps: bool) -> Graph:
    """Sums by word, with the same number of subtasks for all nodes but the output."""
    made = Graph("sums").add("batches", ListSource(*BATCHES), parallelism=parallelism)
    totals: Node = KeyedAggregate("word", aggregates=TOTALS)
    made.add("totals", totals, parallelism=parallelism).add("out", ListSink())
    if not is_in_two_steps:
        return made.connect("batches", "totals", key="word", schema=SCHEMA).connect(
            "totals", "out", partitioning="rebalance"
        )
    partial = PartialAggregate("word", aggregates=TOTALS, rows=20)
    made.add("partial", partial, parallelism=parallelism).connect("batches", "partial", schema=SCHEMA)
    made.connect("partial", "totals", key="word", schema=partial.schemaOf(SCHEMA))
    return made.connect("totals", "out", partitioning="rebalance")


def due() -> dict[str, int]:
    """The sums."""
    sums: dict[str, int] = {}
    for each in BATCHES:
        for row in each.to_pylist():
            sums[row["word"]] = sums.get(row["word"], 0) + row["n"]
    return sums


def found(rows: Sequence[Any]) -> dict[str, int]:
    """The sums that came out, each once."""
    sums = {row["word"]: row["n"] for row in rows}
    assert len(sums) == len(rows)
    return sums


@pytest.mark.parametrize("is_in_two_steps", [False, True])
def test_totals_are_those_of_a_run_without_restores(is_in_two_steps: bool) -> None:
    """Groups are rows, types of columns are for all takers, and what a partial aggregate had not sent has one heir."""
    for seed in range(scaled(12)):
        chance, files = Random(seed), dict[str, bytes]()
        for parallelism in (2, 4, 3, 1, 2):
            simulator = Simulator(
                graph(parallelism, is_in_two_steps=is_in_two_steps), chance.randrange(10**6),
                files=files, workers=2, odds=Odds(request=15, requests=10**6), maxSteps=chance.randrange(150, 400),
            )  # fmt: skip
            history = simulator.run()
            assert history.outcome is not Outcome.FAILED, history.reason
            if history.outcome is Outcome.FINISHED:
                break
        else:
            history = Simulator(graph(2, is_in_two_steps=is_in_two_steps), seed, files=files, workers=2).run()
        assert history.outcome is Outcome.FINISHED, history.reason
        assert found(history.output("out")) == due()
