"""A sink that keeps totals by key in a store, exactly once: a subtask holds only what it has added since a cut.

Jason Jackson, "Exactly once semantics" (2014): a total is a sum of a monoid, so the store's part and the part in memory
are added when the part in memory is written. What a subtask has added since the last cut is its *difference*. The
difference of a snapshot is written to the store after the cut, and counts when the manifest exists (PROTOCOL 13).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from cutline.snapshot.errors import NodeError
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
        #: {place of an element in keys that are tuples: types of the element}; (): the keys themselves
        self._key_types: dict[tuple[int, ...], set[type]] = {}

    def onMessages(self, messages: Sequence[Any], context: Context) -> None:
        assert context.keys is not None  # because its inputs are partitioned by key
        self._note_types(context.keys, ())
        difference = self.differences.get(self.epoch)
        if difference is None:
            difference = self.differences[self.epoch] = self.monoid.accumulator()
        difference.addAll(context.keys, messages if self.value is None else [self.value(each) for each in messages])

    def _note_types(self, keys: Sequence[Any], place: tuple[int, ...]) -> None:
        types = self._key_types.setdefault(place, set())
        types.update(map(type, keys))
        if len(types) > 1:
            _refuse_equal_numbers(types)
        if tuple in types:
            tuples = keys if len(types) == 1 else [each for each in keys if type(each) is tuple]
            for number, elements in enumerate(zip_longest(*tuples)):
                self._note_types(elements, (*place, number))

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


def _refuse_equal_numbers(types: set[type]) -> None:
    """Refuse keys of which Python takes some for one, and a store for several."""
    numbers = types.intersection((bool, int, float, Fraction))
    if len(numbers) > 1:
        names = " and ".join(sorted(each.__name__ for each in numbers))
        raise NodeError(
            f"persistentAggregate has keys of types {names}: 1, 1.0 and True are one key in memory, and three in a "
            "store. Convert them in keyBy"
        )


def joined(earlier: dict[Any, Any], later: dict[Any, Any], monoid: Monoid) -> dict[Any, Any]:
    """Return the sum of two differences. Either may be changed."""
    if not earlier:
        return later
    for key, state in later.items():
        earlier[key] = monoid.plus(earlier[key], state) if key in earlier else state
    return earlier
