"""A source that sends a list, and a sink that gathers one: for tests of the nodes between them.

In a simulation `History.output` gives what a `ListSink` has made visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from snapshot.node import END, Context, Sink, Source
from snapshot.node import End as EndType


@dataclass(frozen=True)
class Pause:
    """An item of a `ListSource`: it sends nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Failure:
    """An item of a `ListSource`: it raises here, in its first incarnation only."""

    reason: str = "a failure that the test asked for"


class ListSource(Source):
    """Sends its items, one a poll; several subtasks take turns at them.

    Parameters
    ----------
    items : Any
        Messages; a `Pause` or a `Failure` among them is obeyed instead.
    """

    guarantee = "exactly_once"

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.next: int | None = None

    def poll(self, context: Context) -> float | EndType | None:
        if self.next is None:
            self.next = context.subtask.index
        if self.next >= len(self.items):
            return END
        item = self.items[self.next]
        if isinstance(item, Failure) and context.incarnation == 1:
            raise RuntimeError(item.reason)
        self.next += context.parallelism
        if isinstance(item, Pause):
            return item.seconds
        if not isinstance(item, Failure):
            context.send(item)
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = state


class ListSink(Sink):
    """Gathers messages and makes them visible with each published snapshot: exactly once, in two phases."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        #: (token, rows) that were committed and that nobody has taken
        self.visible: list[tuple[str, list[Any]]] = []

    def open(self, context: Context) -> None:
        self.name = f"{context.subtask}/{context.incarnation}"

    def onMessage(self, message: Any, context: Context) -> None:
        self.rows.append(message)

    def prepareCommit(self, snapshotId: int) -> Any:
        if not self.rows:
            return None
        rows, self.rows = self.rows, []
        return [f"{self.name}/{snapshotId}", rows]

    def commit(self, snapshotId: int, prepared: Any) -> None:
        self.visible.append((prepared[0], prepared[1]))

    def take_visible(self) -> list[tuple[str, list[Any]]]:
        """What was committed since the last call."""
        visible, self.visible = self.visible, []
        return visible

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.rows

    def restoreState(self, state: Any) -> None:
        self.rows = state
