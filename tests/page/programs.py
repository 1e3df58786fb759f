"""Nodes of the run that is watched: a steady source, a node that fails once when it is told to, a sink that counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutline import Context, Graph, Node, Sink, Snapshot, Source

#: Messages in a poll, and seconds between two: enough to see, little to do for 64 subtasks on a small machine.
_BURST = 5
_PAUSE_SECONDS = 0.02

#: What the failing node says, with all that a page must not read as HTML.
REASON = '<img src=x onerror=alert(1)> & "quoted"'


class Numbers(Source):
    """Sends ascending numbers without an end."""

    def __init__(self) -> None:
        self.next = 0

    def poll(self, context: Context) -> float:
        for _ in range(_BURST):
            context.send(self.next)
            self.next += 1
        return _PAUSE_SECONDS

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = state


class Squares(Node):
    """Squares, and counts what it squared. Fails when the file `sign` is there, and takes it away."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def onMessage(self, message: Any, context: Context) -> None:
        if context.subtask.index == 0 and self.sign.exists():
            self.sign.unlink()
            raise ValueError(REASON)
        context.increment("squares")
        context.send(message * message)


class Totals(Sink):
    """Adds up."""

    def __init__(self) -> None:
        self.total = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.total += message

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.total

    def restoreState(self, state: Any) -> None:
        self.total = state


def watched(sign: Path) -> Graph:
    """64 subtasks, and an invariant that holds."""
    graph = Graph("watched")
    graph.add("numbers", Numbers(), parallelism=16)
    graph.add("squares", Squares(sign), parallelism=16)
    graph.add("totals", Totals(), parallelism=32)
    graph.connect("numbers", "squares").connect("squares", "totals", partitioning="rebalance")
    return graph.addInvariant("totals_are_positive", all_of(lambda total: total >= 0))


def all_of(holds: Callable[[Any], bool]) -> Callable[[Snapshot], bool]:
    """Of all totals."""
    return lambda snapshot: all(holds(total) for total in snapshot.node("totals").states)
