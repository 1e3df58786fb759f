"""Choose the subtask of an edge's target for each message: stable key hashes, key groups, a partitioner a partitioning.

Partitioners run in the sending subtask, once a message, so their code is written for speed. They know no channels.

A key's subtask is found in two steps, so that rescaling moves whole ranges of groups::

    key -> stable_hash -> group = hash mod KEY_GROUPS -> subtask = group * parallelism // KEY_GROUPS
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutline.snapshot.channel.key_hash import hash_columns, stable_hash
from cutline.snapshot.channel.plain_keys import PLAIN_KEYS, plain_key, plain_keys
from cutline.snapshot.channel.record_batches import take_rows
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.plan.topology import KEY_GROUPS, Partitioning

#: Return value of `Partitioner.choose` for a message that goes to every subtask of the target.
EVERY: Final = -1

#: Most keys whose target a hash partitioner remembers, and most bytes of such keys. A full memory is cleared at once.
_REMEMBERED_KEYS_MAX = 32_768
_REMEMBERED_BYTES_MAX = 8 * 1024 * 1024

#: Integer keys below this are found in batches by a table of 256 KiB, because ids are often small. The table takes a
#: fourth of the time of hashing.
_SMALL_KEYS_MAX = 131_072

#: Most targets that are found by a scan each. More targets are found by one sort, which costs as much as four scans.
_SCANNED_TARGETS_MAX = 4

Targets = npt.NDArray[np.uint16]
Split = list[tuple[int, pa.RecordBatch]]
#: Target, messages for the target, and their keys where the partitioner has read them.
Shares = list[tuple[int, list[Any], list[Any] | None]]


def key_function(key: Key) -> Callable[[Any], Any]:
    """Return the function that reads the key of a message: a column by name, a tuple of columns, or the user's own."""
    if callable(key):
        return key
    if isinstance(key, str):
        name = key
        return lambda message: message[name]
    names = tuple(key)
    return lambda message: tuple([message[name] for name in names])


def key_group(key: Any) -> int:
    """Return the group, from 0 to `KEY_GROUPS` - 1, of `key`. The group does not depend on the parallelism.

    Raises
    ------
    TypeError
        as `plain_key`.
    """
    return stable_hash(key) % KEY_GROUPS


def subtask_of_group(group: int, parallelism: int) -> int:
    """Return the index of the subtask that owns a key group."""
    return group * parallelism // KEY_GROUPS


def groups_of(index: int, parallelism: int) -> range:
    """Return the key groups that a subtask owns. The range is empty for some where `parallelism` > `KEY_GROUPS`."""
    return range(-(-index * KEY_GROUPS // parallelism), -(-(index + 1) * KEY_GROUPS // parallelism))


def heir_of(index: int, before: int, now: int) -> int:
    """Return the subtask, of `now`, that takes over from subtask `index` of `before` what belongs to no key.

    It is the owner of the first key group of the old subtask, so it takes over keys of the old subtask, too.
    """
    return subtask_of_group(min(groups_of(index, before).start, KEY_GROUPS - 1), now)


def donors_of(index: int, before: int, now: int) -> list[int]:
    """Return the subtasks, of `before`, from which subtask `index` of `now` takes over key groups, ascending."""
    own = groups_of(index, now)
    return [old for old in range(before) if heir_of(old, before, now) == index or _overlap(groups_of(old, before), own)]


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


class Partitioner(Protocol):
    """Choose the targets of one edge's messages in one sending subtask. Choices are deterministic, given `state`."""

    def choose(self, message: Any) -> int:
        """Return the index of the target's subtask, or `EVERY`.

        Raises
        ------
        TypeError
            when the message has no usable key, or the edge is directed. A user's key function may raise
            anything. The caller makes a `NodeError` of it.
        """

    def split(self, batch: pa.RecordBatch) -> Split:
        """Return the parts of a batch, each with the index of its target, ascending. Rows keep their order.

        Raises as `choose`.
        """

    def share(self, messages: list[Any]) -> Shares:
        """Return the messages for each target, in order, with their keys if known. A list may be empty.

        Raises as `choose`.
        """

    def state(self) -> int:
        """Return the state that the subtask's snapshot must hold, so that replay makes the same choices."""

    def restore(self, state: int) -> None:
        """Restore the state that `state` returned."""


class _Stateless:
    """Base of the partitioners whose choices depend only on the message."""

    def state(self) -> int:
        return 0

    def restore(self, state: int) -> None:
        pass


class _Forward(_Stateless):
    """Send from subtask *i* to subtask *i*."""

    def __init__(self, index: int) -> None:
        self._index = index

    def choose(self, message: Any) -> int:
        return self._index

    def share(self, messages: list[Any]) -> Shares:
        return [(self._index, messages, None)]

    def split(self, batch: pa.RecordBatch) -> Split:
        return [(self._index, batch)]


class _Rebalance:
    """Send to each subtask in turn. A batch is sent whole, because splitting costs more than the balance gains."""

    def __init__(self, index: int, parallelism: int) -> None:
        self._parallelism = parallelism
        self._next = index % parallelism  # senders begin at different targets

    def choose(self, message: Any) -> int:
        chosen = self._next
        self._next = (chosen + 1) % self._parallelism
        return chosen

    def share(self, messages: list[Any]) -> Shares:
        first, count = self._next, self._parallelism
        self._next = (first + len(messages)) % count
        turns = range(min(count, len(messages)))
        return [((first + turn) % count, messages[turn::count], None) for turn in turns]

    def split(self, batch: pa.RecordBatch) -> Split:
        return [(self.choose(batch), batch)]

    def state(self) -> int:
        return self._next

    def restore(self, state: int) -> None:
        self._next = state % self._parallelism


class _Broadcast(_Stateless):
    """Send each message to every subtask."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism

    def choose(self, message: Any) -> int:
        return EVERY

    def share(self, messages: list[Any]) -> Shares:
        return [(index, messages, None) for index in range(self._parallelism)]

    def split(self, batch: pa.RecordBatch) -> Split:
        return [(index, batch) for index in range(self._parallelism)]


class Directed(_Stateless):
    """Refuse every message whose sender does not name the subtask, because a directed edge has no rule."""

    def choose(self, message: Any) -> int:
        """See `Partitioner`."""
        raise TypeError("a directed edge has no rule of spreading: give send the Subtask that is to get the message")

    def share(self, messages: list[Any]) -> Shares:
        """See `Partitioner`."""
        return [(self.choose(message), [message], None) for message in messages]

    def split(self, batch: pa.RecordBatch) -> Split:
        """See `Partitioner`."""
        return [(self.choose(batch), batch)]


class HashPartitioner(_Stateless):
    """Send equal keys to the same subtask, in every process and on every machine.

    `key_of` and `remembered` serve a hot path that looks up keys of `PLAIN_KEYS` before the path calls `choose`.
    """

    def __init__(self, key: Key, parallelism: int) -> None:
        self._columns = None if callable(key) else (key,) if isinstance(key, str) else tuple(key)
        self._is_tuple = not isinstance(key, str)
        self.key_of = key_function(key)
        self._parallelism = parallelism
        #: {key: index of its target}; the dict is never replaced, because the hot path holds a reference
        self.remembered: dict[Any, int] = {}
        self._remembered_bytes = 0
        #: targets of the keys from 0 to `_SMALL_KEYS_MAX`, or None before such keys have come in a batch
        self._of_small: Targets | None = None

    def choose(self, message: Any) -> int:
        """See `Partitioner`."""
        key = self.key_of(message)
        return self._target(key if type(key) in PLAIN_KEYS else plain_key(key))

    def _target(self, key: Any) -> int:
        chosen = self.remembered.get(key)
        return self._learn(key) if chosen is None else chosen

    def share(self, messages: list[Any]) -> Shares:
        """See `Partitioner`."""
        keys = plain_keys(list(map(self.key_of, messages)))
        if self._parallelism == 1:
            return [(0, messages, keys)]
        targets = self._targets_of(keys)
        shares: Shares = [(target, [], []) for target in range(self._parallelism)]
        for message, key, target in zip(messages, keys, targets, strict=True):
            _, share, share_keys = shares[target]
            share.append(message)
            share_keys.append(key)  # type: ignore[union-attr]  # made above
        return shares

    def split(self, batch: pa.RecordBatch) -> Split:
        """See `Partitioner`."""
        if self._columns is None:
            chosen = np.array([self.choose(row) for row in batch.to_pylist()], dtype=np.uint16)
            return _split_by_target(batch, chosen, self._parallelism)
        columns = [_column(batch, name) for name in self._columns]
        if self._parallelism == 1:
            hash_columns([column[:0] for column in columns], as_tuple=self._is_tuple)  # raises for other types
            return [(0, batch)] if batch.num_rows else []
        targets = self._targets_of_small(columns[0]) if len(columns) == 1 else None
        if targets is None:
            targets = self._targets(columns)
        return _split_by_target(batch, targets, self._parallelism)

    def _targets_of(self, keys: list[Any]) -> list[int]:
        with suppress(KeyError):  # a new key
            return list(map(self.remembered.__getitem__, keys))
        return list(map(self._target, keys))

    def _targets(self, columns: Sequence[pa.Array]) -> Targets:
        return _targets(hash_columns(columns, as_tuple=self._is_tuple), self._parallelism)

    def _targets_of_small(self, column: pa.Array) -> Targets | None:
        """Look up the targets of `column`. Return None unless all keys are small integers."""
        if not pa.types.is_integer(column.type) or column.null_count or not len(column):
            return None
        keys = column.to_numpy()
        if keys.min() < 0 or keys.max() >= _SMALL_KEYS_MAX:
            return None
        if self._of_small is None:
            self._of_small = self._targets([pa.array(np.arange(_SMALL_KEYS_MAX))])
        found: Targets = self._of_small.take(keys)
        return found

    def _learn(self, key: Any) -> int:
        size = _held_bytes(key)
        self._remembered_bytes += size
        if len(self.remembered) >= _REMEMBERED_KEYS_MAX or self._remembered_bytes > _REMEMBERED_BYTES_MAX:
            self.remembered.clear()
            self._remembered_bytes = size
        chosen = self.remembered[key] = subtask_of_group(key_group(key), self._parallelism)
        return chosen


def _held_bytes(key: Any) -> int:
    return sum(map(_held_bytes, key)) if type(key) is tuple else int(key.__sizeof__())


def partitioner(partitioning: Partitioning, key: Key | None, index: int, parallelism: int) -> Partitioner:
    """Return the partitioner of an edge in the sending subtask `index`. `parallelism` is the target's."""
    match partitioning:
        case Partitioning.FORWARD:
            return _Forward(index)
        case Partitioning.REBALANCE:
            return _Rebalance(index, parallelism)
        case Partitioning.BROADCAST:
            return _Broadcast(parallelism)
        case Partitioning.DIRECTED:
            return Directed()
        case Partitioning.HASH:
            if key is None:
                raise ValueError("a hash edge without a key")
            return HashPartitioner(key, parallelism)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise TypeError(f"the batch has no key column {name!r}; it has {', '.join(batch.schema.names) or 'none'}")
    return batch.column(name)


def _targets(hashes: npt.NDArray[np.uint64], parallelism: int) -> Targets:
    """Return `subtask_of_group` of each hash's key group."""
    groups = hashes.astype(np.uint16) & np.uint16(KEY_GROUPS - 1)  # a power of two: the remainder is the low bits
    return (groups.astype(np.uint32) * np.uint32(parallelism) // np.uint32(KEY_GROUPS)).astype(np.uint16)


def _split_by_target(batch: pa.RecordBatch, targets: Targets, parallelism: int) -> Split:
    """Split a batch by the target of each row, with one gathering copy."""
    if parallelism <= _SCANNED_TARGETS_MAX:
        found = ((target, np.flatnonzero(targets == target)) for target in range(parallelism))
        return [(t, batch if len(rows) == len(targets) else take_rows(batch, rows)) for t, rows in found if len(rows)]
    order = np.argsort(targets, kind="stable")  # a radix sort, for 16 bits; rows for one target stay in order
    gathered, ordered = take_rows(batch, order), targets[order]
    changes = (np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()
    bounds = pairwise([0, *changes, len(ordered)]) if len(ordered) else ()
    return [(int(ordered[start]), gathered.slice(start, stop - start)) for start, stop in bounds]
