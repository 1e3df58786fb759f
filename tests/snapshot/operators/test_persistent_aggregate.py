"""The node that adds up by key: differences by epoch, and the keys that it refuses."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, cast

import pytest

from cutline import Context, Graph, MemoryStore, NodeError, PersistentAggregate, Sum
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
    "keys",
    [
        *((1, True), (1, 2.0), (0.5, Fraction(1, 2)), ("a", 1, False)),
        *(((1, "a"), (True, "a")), (("a", 1), "b", ("a", 1.0)), (("a", (1, 2)), ("a", (1, 2.0)))),
    ],
)
def test_numbers_of_several_types_are_refused(keys: tuple[Any, ...]) -> None:
    """A store would have several cells for what is one key in memory, so totals would depend on the sequence."""
    with pytest.raises(NodeError, match=r"types \w+ and \w+: 1, 1.0 and True are one key in memory"):
        _added(*keys)


def test_numbers_of_several_types_may_stand_at_several_places() -> None:
    """Of keys that are tuples, also of several lengths."""
    assert _added((1, 2.0), (2, 2.0), ("a", "b"), (), (1,)).take_difference(1)[0]


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
