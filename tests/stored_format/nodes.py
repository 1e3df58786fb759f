"""Nodes and values of the stored snapshots. Stored bytes name this module and its classes: never rename, never move.

State is plain data, except in the fixtures that cover pickle. Sinks and aggregates are subclasses made here, because a
manifest names the class of each node.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from cutline import END, Context, DataFrameSource, KeyedAggregate, Node, ParquetSink, PartialAggregate, Source, Subtask
from cutline.testing import ListSink, Pause

#: Longer than a snapshot takes.
SECONDS_BETWEEN_ROWS = 0.5


class Point(NamedTuple):
    """A value that needs pickle, although its class is a tuple."""

    x: int
    y: int


@dataclass(frozen=True)
class Order:
    """A value that needs pickle."""

    number: int
    items: tuple[str, ...]


class Blob:
    """A value whose memory stands beside its pickle (PEP 574)."""

    def __init__(self, data: Any) -> None:
        self.data = bytes(data)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Blob, (pickle.PickleBuffer(self.data),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)


class Items(Source):
    """Sends its items in order. Its state is one number, so that it has no partitions."""

    guarantee = "exactly_once"

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.next: int | None = None

    def poll(self, context: Context) -> Any:
        if self.next is None:
            self.next = context.subtask.index
        if self.next >= len(self.items):
            return END
        item = self.items[self.next]
        self.next += context.parallelism
        if isinstance(item, Pause):
            return item.seconds
        context.send(item)
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = state


class Bundles(Source):
    """Sends the messages of one list together, a list a poll."""

    guarantee = "exactly_once"

    def __init__(self, *bundles: list[Any]) -> None:
        self.bundles = bundles
        self.next = 0

    def poll(self, context: Context) -> Any:
        if self.next >= len(self.bundles):
            return END
        context.sendAll(self.bundles[self.next])
        self.next += 1
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = state


class Collected(ListSink):
    """Gathers messages, in two phases. Its state is always a list."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.rows


class Totals(KeyedAggregate):
    """Aggregates by key."""


class PartialTotals(PartialAggregate):
    """Aggregates by key, ahead of `Totals`."""


class Tally(Node):
    """Passes messages on and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.count += 1
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return {"count": self.count}

    def restoreState(self, state: Any) -> None:
        self.count = state["count"]


class Gatherer(Node):
    """Passes messages on and keeps all of them, or what it was given, as its state."""

    def __init__(self, *kept: Any) -> None:
        self.kept = list(kept)

    def onMessage(self, message: Any, context: Context) -> None:
        self.kept.append(message)
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.kept

    def restoreState(self, state: Any) -> None:
        self.kept = list(state)


class BatchGatherer(Node):
    """Keeps batches as its state and passes them on."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.batches.append(batch)
        context.send(batch)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.batches

    def restoreState(self, state: Any) -> None:
        self.batches = list(state)


class Dice(Node):
    """Sends a number of its own chance for each message."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send([message, context.random.randrange(1_000_000)])


class Alarms(Node):
    """Sends each message a second after it came, by a timer; behind a hash edge together with its key."""

    def __init__(self) -> None:
        self.waiting: list[list[Any]] = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.waiting.append([context.now + 1.0, message])
        context.registerTimer(context.now + 1.0)

    def onTimer(self, at: float, context: Context) -> None:
        due = [message for when, message in self.waiting if when == at]
        self.waiting = [entry for entry in self.waiting if entry[0] != at]
        for message in due:
            context.send(message)
        context.send(["rang", context.key])

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.waiting

    def restoreState(self, state: Any) -> None:
        self.waiting = [list(entry) for entry in state]


class Shelves(Source):
    """Reads three partitions, one item of each a poll."""

    guarantee = "exactly_once"

    def __init__(self, items: int) -> None:
        self.items = items
        self.offsets: dict[str, int] = {}

    def partitions(self) -> Sequence[str]:
        return ("a", "b", "c")

    def poll(self, context: Context) -> Any:
        for partition in context.partitions:
            offset = self.offsets.get(partition, 0)
            if offset < self.items:
                context.send((partition, offset))
                self.offsets[partition] = offset + 1
        return END if all(self.offsets.get(each, 0) >= self.items for each in context.partitions) else None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return dict(self.offsets)

    def restoreState(self, state: Any) -> None:
        self.offsets = dict(state)


class Director(Node):
    """Sends each message to the subtask that its number names."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message, to=Subtask("out", message[1] % 2))


class Balls(Node):
    """Holds balls. Given one from outside, it throws it to the other node."""

    def __init__(self, *held: str) -> None:
        self.held = list(held)

    def onMessage(self, message: Any, context: Context) -> None:
        if context.sender is None:
            self.held.remove(message)
            context.send(message)
        else:
            self.held.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.held

    def restoreState(self, state: Any) -> None:
        self.held = list(state)


class SlowRows(DataFrameSource):
    """Sends a batch of a DataFrame now and then, so that a snapshot falls between two."""

    pollSeconds = SECONDS_BETWEEN_ROWS
    pauses = True

    def available(self, partition: str, start: Any) -> Any:
        stop = super().available(partition, start)
        if stop is not END:
            self.pauses = not self.pauses
        return None if self.pauses and stop is not END else stop


class Written(ParquetSink):
    """Writes rows, in two phases."""


class Staged(Written):
    """Writes rows and leaves them uncommitted, as a worker does that dies in time."""

    def commit(self, snapshotId: int, prepared: Any) -> None:
        pass


def key_of(message: Any) -> Any:
    """The key of a message: its first element."""
    return message[0]


class Visits(Node):
    """Keyed state of each kind, timers by key, and own state in deltas."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.new: list[str] = []

    def open(self, context: Context) -> None:
        self.last = context.getValueState("last")
        self.words = context.getListState("words")
        self.lengths = context.getMapState("lengths", ttl=3600)
        self.count = context.getReducingState("count", "sum")

    def onMessage(self, message: str, context: Context) -> None:
        if (last := self.last.get()) is not None and message < last:
            self.lengths.removeKey(last)
        self.last.update(message)
        self.words.appendValue(message)
        self.lengths.updateValue(message, len(message))
        self.count.add(1)
        context.registerTimer(context.now + 1.0)
        self.seen.append(message)
        self.new.append(message)

    def onTimer(self, at: float, context: Context) -> None:
        context.send(["rang", context.key, self.count.get()])

    def onEnd(self, context: Context) -> None:
        for name, state in (("last", self.last), ("words", self.words), ("lengths", self.lengths), ("n", self.count)):
            context.sendAll([[name, *item] for item in sorted(state.items())])
        context.send(["seen", sorted(self.seen)])

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


def initial_of(word: str) -> str:
    """The key of a word."""
    return word[0]
