"""The records of the keyed benchmarks, and their expected sums, computed from the number of records sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

import numpy as np
import pyarrow as pa

KEY_COUNT = 10_000
#: Values are 0 to `VALUE_COUNT` - 1.
VALUE_COUNT = 1_000
#: messages that a source sends in one poll
BURST_MESSAGES = 256
#: messages before a source repeats them; each key has several
TABLE_MESSAGES = 65_536
#: rows before a source repeats them
TABLE_ROWS = 1 << 20

Message = tuple[str, int]
Key = TypeVar("Key")


def bursts() -> list[list[Message]]:
    """Return the bursts that a source of messages sends again and again, in order."""
    chance = Random(7)
    names = [f"key-{number:05}" for number in range(KEY_COUNT)]
    table = [(chance.choice(names), chance.randrange(VALUE_COUNT)) for _ in range(TABLE_MESSAGES)]
    return [table[at : at + BURST_MESSAGES] for at in range(0, TABLE_MESSAGES, BURST_MESSAGES)]


def sums_of_bursts(rounds: Sequence[int]) -> dict[str, int]:
    """Return ``{key: sum}`` when each source subtask has sent its number of bursts in `rounds`."""
    sums: dict[str, int] = {}
    for number, burst in enumerate(bursts()):
        times = _times(rounds, number, TABLE_MESSAGES // BURST_MESSAGES)
        for key, value in burst if times else ():
            sums[key] = sums.get(key, 0) + value * times
    return sums


def table_of_rows(key_type: str) -> pa.Table:
    """Return all rows of a source. A row has a key of `key_type` (``int64`` or ``string``) and an int64 value."""
    chance = np.random.default_rng(7)
    keys = pa.array(chance.integers(0, KEY_COUNT, TABLE_ROWS))
    values = pa.array(chance.integers(0, VALUE_COUNT, TABLE_ROWS))
    return pa.table({"key": keys.cast(key_type), "value": values})


def batches(key_type: str, rows_per_batch: int) -> list[pa.RecordBatch]:
    """Return the batches that a source of batches sends again and again, in order."""
    found: list[pa.RecordBatch] = table_of_rows(key_type).to_batches(max_chunksize=rows_per_batch)
    return found


def groups_of_batches(key_type: str, rows_per_batch: int, rounds: Sequence[int]) -> dict[object, tuple[int, int]]:
    """Return ``{key: (count, sum)}`` when each source subtask has sent its number of batches in `rounds`."""
    counts, sums = np.zeros(KEY_COUNT, np.int64), np.zeros(KEY_COUNT, np.int64)
    every = batches(key_type, rows_per_batch)
    for number, batch in enumerate(every):
        times = _times(rounds, number, len(every))
        keys = batch.column("key").cast(pa.int64()).to_numpy()
        values = batch.column("value").to_numpy()
        counts += times * np.bincount(keys, minlength=KEY_COUNT)
        sums += times * np.bincount(keys, weights=values, minlength=KEY_COUNT).astype(np.int64)
    named = pa.array(range(KEY_COUNT)).cast(key_type).to_pylist()
    found = zip(named, counts.tolist(), sums.tolist(), strict=True)
    return {key: (count, total) for key, count, total in found if count}


def _times(rounds: Sequence[int], number: int, length: int) -> int:
    """Return how often all subtasks together have sent item `number` of a table of `length` items."""
    return sum((sent - number + length - 1) // length for sent in rounds)


def require_equal(what: str, found: Mapping[Key, object], expected: Mapping[Key, object]) -> None:
    """Compare a result with the expected one, and name the first differences.

    Raises
    ------
    RuntimeError
        if the results differ.
    """
    if found != expected:
        keys = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
        shown = "; ".join(f"{key!r}: {found.get(key)} instead of {expected.get(key)}" for key in keys[:5])
        raise RuntimeError(f"{what}: {len(keys)} keys are wrong: {shown}")
