"""The node that adds up by key: differences by epoch, and the keys that it refuses."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from cutline import Context, Count, Graph, MemoryStore, PersistentAggregate, RestartPolicy, Sum
from cutline.snapshot.errors import GraphError
from cutline.testing import ListSource, Simulator


class _Keys:
    """The part of a context that the node reads."""

    def __init__(self, *keys: Any) -> None:
        self.keys = keys


def _added(*keys: Any) -> PersistentAggregate:
    node = PersistentAggregate(Sum(), MemoryStore(), lambda message: 1)
    context = cast(Context, _Keys(*keys))
    node.open(context)
    node.onMessages(keys, context)
    return node


def test_a_snapshot_takes_what_was_added_before_it() -> None:
    """Differences of epochs below its id, as one. The others stay."""
    node = _added("a", "b", "a")
    for epoch in (3, 7):
        node.epoch = epoch
        node.onMessages(["a"], cast(Context, _Keys("a")))
    held = node.held_bytes
    states, size = node.take_difference(7)
    assert states == {"a": 3, "b": 1} and 0 < size < held == size + node.held_bytes
    assert node.take_difference(8)[0] == {"a": 1}
    assert node.take_difference(9) == ({}, 0) and not node.held_bytes


@pytest.mark.parametrize(
    ("keys", "totals"),
    [
        ((1, True, np.int64(1), 2), {1: 3, 2: 1}),
        (((1, "a"), (True, "a"), (np.int8(1), np.str_("a"))), {(1, "a"): 3}),
    ],
)
def test_numbers_of_several_types_are_one_key(keys: tuple[Any, ...], totals: dict[Any, int]) -> None:
    """In memory and in a store, which would have several cells for them, because edges have plain keys."""
    store = MemoryStore()
    stream = Graph("g").source("places", ListSource(*range(len(keys))))
    graph = stream.keyBy(lambda place: keys[place]).persistentAggregate("counts", Count(), store)
    found = Simulator(graph, 1).run().output("counts")
    assert repr(sorted(found)) == repr(sorted(totals.items()))


def test_a_float_is_no_key() -> None:
    """The error names the expression that makes a key of it."""
    stream = Graph("g").source("in", ListSource(1.5))
    graph = stream.keyBy(lambda number: number).persistentAggregate("counts", Count(), MemoryStore())
    history = Simulator(graph, 1, restartPolicy=RestartPolicy(maxRestarts=0)).run()
    assert "float cannot be a key" in history.reason and "give round(k)" in history.reason


def test_any_object_with_zero_and_plus_is_a_monoid() -> None:
    """As the founding document has it, and totals come out."""

    class Longest:
        def zero(self) -> str:
            return ""

        def plus(self, a: str, b: str) -> str:
            return max(a, b, key=lambda text: (len(text), text))

    stream = Graph("g").source("words", ListSource("a", "bcd", "ef", "gh"))
    graph = stream.keyBy(lambda word: len(word) > 1).persistentAggregate("longest", Longest(), MemoryStore())  # type: ignore[arg-type]  # a user's object
    assert Simulator(graph, 1).run().output("longest") == [(False, "a"), (True, "bcd")]


def test_what_is_no_monoid_and_no_key_is_refused() -> None:
    """At the declaration, by name."""
    stream = Graph("g").source("words", ListSource("a"))
    with pytest.raises(GraphError, match="persistentAggregate adds up by key"):
        stream.persistentAggregate("sums", Sum(), MemoryStore())
    with pytest.raises(GraphError, match="is no monoid"):
        stream.keyBy(str).persistentAggregate("sums", Sum, MemoryStore())  # type: ignore[arg-type]  # the class
