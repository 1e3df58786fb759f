"""A replayable source reads slices in turn, keeps offsets, and reads the same slices again."""

from __future__ import annotations

from typing import Any

import pytest

from cutline import END, Context, Graph, GraphError, ReplayableSource
from cutline.snapshot.plan.compiled_graph import build
from cutline.testing import ListSink, Simulator


class Numbers(ReplayableSource):
    """Sends the numbers below an end, two at a time; a partition without an end has nothing yet."""

    pollSeconds = 3.0

    def __init__(self, **ends: int | None) -> None:
        self.ends = ends
        self.first_calls: list[str] = []

    def partitions(self) -> list[str]:
        return sorted(self.ends)

    def first(self, partition: str) -> int:
        self.first_calls.append(partition)
        return 0

    def available(self, partition: str, start: int) -> Any:
        end = self.ends[partition]
        return None if end is None else END if start == end else min(start + 2, end)

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        for number in range(start, stop):
            context.send(f"{partition}{number}")


class Sent:
    """A context that keeps what is sent."""

    def __init__(self, *partitions: str) -> None:
        self.partitions = partitions
        self.messages: list[str] = []

    def send(self, message: str) -> None:
        """Keep a message."""
        self.messages.append(message)


def polled(source: Numbers, context: Any, times: int) -> list[Any]:
    """What polls return, and what was read."""
    return [(source.poll(context), source.last_read) for _ in range(times)]


def test_partitions_are_read_in_turn() -> None:
    """A slice a poll, until each has ended; a partition of another subtask is left alone."""
    context: Any = Sent("a", "c")
    source = Numbers(a=3, b=9, c=2)
    assert polled(source, context, 5) == [
        (None, ("a", 2)), (None, ("c", 2)), (None, ("a", 3)), (END, None), (END, None),
    ]  # fmt: skip
    assert context.messages == ["a0", "a1", "c0", "c1", "a2"]
    assert source.snapshotState(1, 0.0) == {"a": 3, "c": 2}
    assert source.first_calls == ["a", "c"]


def test_the_offset_of_a_partition_that_was_dropped_is_forgotten() -> None:
    """Listed again it begins anew, perhaps at another subtask, whose offset this one would replace at a rescale."""
    context: Any = Sent("a")
    source = Numbers(a=9)
    source.restoreState({"a": 4, "gone": 7})
    assert polled(source, context, 1) == [(None, ("a", 6))]
    assert source.snapshotState(1, 0.0) == {"a": 6}


def test_a_source_waits_while_nothing_is_there() -> None:
    """For its own time, and goes on where there is something."""
    context: Any = Sent("a", "b")
    source = Numbers(a=2, b=None)
    assert polled(source, context, 3) == [(None, ("a", 2)), (3.0, None), (3.0, None)]
    source.ends["b"] = 1
    assert polled(source, context, 2) == [(None, ("b", 1)), (END, None)]


def test_partitions_are_read_one_behind_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sequential source: none is begun before the one ahead has ended, also while that has nothing."""
    monkeypatch.setattr(Numbers, "sequential", True)
    context: Any = Sent("a", "b", "c")
    source = Numbers(a=3, b=None, c=1)
    assert polled(source, context, 4) == [(None, ("a", 2)), (None, ("a", 3)), (3.0, None), (3.0, None)]
    source.ends["b"] = 1
    assert polled(source, context, 3) == [(None, ("b", 1)), (None, ("c", 1)), (END, None)]


def test_a_restored_source_goes_on_at_its_offsets() -> None:
    """A new partition begins with its first offset."""
    context: Any = Sent("a", "b")
    source = Numbers(a=3, b=1)
    source.restoreState({"a": 2})
    assert polled(source, context, 3) == [(None, ("a", 3)), (None, ("b", 1)), (END, None)]
    assert (context.messages, source.first_calls) == (["a2", "b0"], ["b"])


def test_slices_are_read_again() -> None:
    """A replay reads to the same stops, and polls go on behind them."""
    context: Any = Sent("a", "b")
    source = Numbers(a=3, b=4)
    source.read_again("b", 2, context)
    source.read_again("a", 2, context)
    source.read_again("b", 3, context)
    assert context.messages == ["b0", "b1", "a0", "a1", "b2"]
    assert polled(source, context, 3) == [(None, ("a", 3)), (None, ("b", 4)), (END, None)]


def test_an_empty_slice_is_an_error() -> None:
    """Else the source would be polled for ever."""
    context: Any = Sent("a")
    source = Numbers(a=1)
    source.available = lambda partition, start: start  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"available\('a', 0\) returned its start: a read would be empty"):
        source.poll(context)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("partitions", "is a ReplayableSource without partitions"),
        ("first", "is a ReplayableSource without first"),
        ("available", "is a ReplayableSource without available"),
        ("read", "is a ReplayableSource without read"),
    ],
)
def test_a_missing_hook_is_named(missing: str, said: str) -> None:
    """Before anything runs."""
    hooks = {"partitions": lambda self: ["a"], "first": lambda self, partition: 0}
    hooks |= {
        "available": lambda self, partition, start: END,
        "read": lambda self, partition, start, stop, context: None,
    }
    del hooks[missing]
    source = type("Partial", (ReplayableSource,), hooks)()
    with pytest.raises(GraphError, match=said):
        build(Graph("g").add("numbers", source), "aligned")


@pytest.mark.parametrize("hook", ["poll", "snapshotState", "restoreState"])
def test_a_final_hook_is_not_replaced(hook: str) -> None:
    """A source that polls otherwise could not be replayed."""
    source = type("Other", (Numbers,), {hook: lambda self, *arguments: None})(a=1)
    with pytest.raises(GraphError, match=f"defines {hook}, which a ReplayableSource has already"):
        build(Graph("g").add("numbers", source), "aligned")


def _numbers() -> Graph:
    graph = Graph("numbers").add("numbers", Numbers(a=5, b=4, c=3), parallelism=2)
    return graph.add("out", ListSink()).connect("numbers", "out")


def test_a_replayable_source_runs_by_markers_too() -> None:
    """With faults, each message once."""
    expected = sorted(
        f"{partition}{number}" for partition, end in (("a", 5), ("b", 4), ("c", 3)) for number in range(end)
    )
    for seed in range(10):
        history = Simulator(_numbers(), seed, faults=3, snapshotInterval=0.1).run()
        assert sorted(history.output("out")) == expected, history.reason
