"""A sink that keeps totals by key in a store, exactly once: a subtask holds only what it has added since a cut.

Jason Jackson, "Exactly once semantics" (2014): a total is a sum of a monoid, so the store's part and the part in memory
are added when the part in memory is written. What a subtask has added since the last cut is its *difference*. The
difference of a snapshot is written to the store after the cut, and counts when the manifest exists (PROTOCOL 13).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cutline.snapshot.node import Context, Sink
from cutline.snapshot.operators.aggregate_store import AggregateStore
from cutline.snapshot.operators.monoid import Accumulator, Monoid, as_monoid


class PersistentAggregate(Sink):
    """Adds messages to totals by key, in a store. `Stream.persistentAggregate` makes one.

    Parameters
    ----------
    monoid : Monoid
        Or any object with ``zero()`` and ``plus(a, b)``.
    store : AggregateStore
    value : callable or None
        Returns the value of a message; None for the message itself.
    """

    guarantee = "exactly_once"

    def __init__(self, monoid: Monoid, store: AggregateStore, value: Callable[[Any], Any] | None = None) -> None:
        self.monoid = as_monoid(monoid)
        self.store = store
        self.value = value

    def open(self, context: Context) -> None:
        #: epoch of the messages that come next, which the subtask sets: 0 where a cut is one moment
        self.epoch = 0
        #: {epoch: what was added in the epoch}
        self.differences: dict[int, Accumulator] = {}

    def onMessages(self, messages: Sequence[Any], context: Context) -> None:
        assert context.keys is not None  # because its inputs are partitioned by key
        difference = self.differences.get(self.epoch)
        if difference is None:
            difference = self.differences[self.epoch] = self.monoid.accumulator()
        difference.addAll(context.keys, messages if self.value is None else [self.value(each) for each in messages])

    def take_difference(self, snapshot_id: int) -> tuple[dict[Any, Any], int]:
        """Remove and return what belongs to a snapshot, by key, and its bytes in memory, about."""
        found: dict[Any, Any] = {}
        size = 0
        for epoch in [epoch for epoch in self.differences if epoch < snapshot_id]:
            difference = self.differences.pop(epoch)
            size += difference.byteSize()
            found = joined(found, difference.drain(), self.monoid)
        return found, size

    @property
    def held_keys(self) -> int:
        """Keys in memory of what belongs to no snapshot yet, once for each epoch."""
        return sum(map(len, self.differences.values()))

    @property
    def held_bytes(self) -> int:
        """Bytes in memory of what belongs to no snapshot yet, about."""
        return sum(difference.byteSize() for difference in self.differences.values())


def joined(earlier: dict[Any, Any], later: dict[Any, Any], monoid: Monoid) -> dict[Any, Any]:
    """Return the sum of two differences. Either may be changed."""
    if not earlier:
        return later
    for key, state in later.items():
        earlier[key] = monoid.plus(earlier[key], state) if key in earlier else state
    return earlier
