"""A source that sends a list, and a sink that gathers a list: for tests of the nodes between them.

In a simulation `History.output` returns the visible rows of a `ListSink`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from cutline.snapshot.node import END, Context, Sink, Source
from cutline.snapshot.node import End as EndType


@dataclass(frozen=True)
class Pause:
    """Item of a `ListSource` at which the source sends nothing for the given seconds."""

    seconds: float


@dataclass(frozen=True)
class Failure:
    """Item of a `ListSource` at which the source raises, in its first incarnation only."""

    reason: str = "a failure that the test asked for"


#: Names of the partitions of any list. So up to 60 subtasks take turns, evenly, because 60 has many divisors.
_PARTITIONS = tuple(f"{number:02}" for number in range(60))


class ListSource(Source):
    """Sends one item a poll. Several subtasks take turns at the items, also after a restore with another parallelism.

    Parameters
    ----------
    items : Any
        Messages. A `Pause` or a `Failure` among the messages acts instead of being sent.
    """

    guarantee = "exactly_once"

    def __init__(self, *items: Any) -> None:
        self.items = items
        #: {partition: place of its next item}; None before `open`. Partition k has the items k, k + 60, and so on.
        self.next: dict[str, int] | None = None

    def partitions(self) -> Sequence[str]:
        return _PARTITIONS

    def open(self, context: Context) -> None:
        if self.next is None:
            self.next = {name: int(name) for name in context.partitions}

    def poll(self, context: Context) -> float | EndType | None:
        assert self.next is not None
        partition, place = min(self.next.items(), key=itemgetter(1), default=("", len(self.items)))
        if place >= len(self.items):
            return END
        item = self.items[place]
        if isinstance(item, Failure) and context.incarnation == 1:
            raise RuntimeError(item.reason)
        self.next[partition] += len(_PARTITIONS)
        if isinstance(item, Pause):
            return item.seconds
        if not isinstance(item, Failure):
            context.send(item)
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        assert self.next is not None
        return dict(self.next)

    def restoreState(self, state: Any) -> None:
        self.next = state


class ListSink(Sink):
    """Gathers messages and makes them visible with each published snapshot: exactly once, in two phases."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        #: (token, rows) that were committed and not taken yet
        self.visible: list[tuple[str, list[Any]]] = []

    def open(self, context: Context) -> None:
        self.name = f"{context.run}/{context.subtask}/{context.incarnation}"

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
        """Return the rows that were committed since the last call."""
        visible, self.visible = self.visible, []
        return visible

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.rows or None  # None, so that another parallelism has nothing to divide

    def restoreState(self, state: Any) -> None:
        self.rows = state or []
