"""The rows of the benchmark of keyed state: keys and values of known sizes, always as new objects.

Messages bring new objects, whose hashes are not known yet. So each call makes its keys and values anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.keyed_subtask import StoredSubtask

#: Characters of a key and of a value. Both are ASCII, so characters are bytes.
KEY_BYTES = 13
VALUE_BYTES = 100

#: Rows of one bulk call.
BULK_ROWS = 8_192

Pairs = list[tuple[str, str]]


def key_of(number: int) -> str:
    """Return a key of `KEY_BYTES` bytes."""
    return f"user-{number:08}"


def pairs_of(numbers: Sequence[int], version: int) -> Pairs:
    """Return new keys, and new values that differ from those of other versions."""
    return [(f"user-{number:08}", f"{version:08}{number:092}") for number in numbers]


def bulk_of(numbers: Sequence[int], version: int) -> tuple[list[str], list[str]]:
    """Return the keys and values of `pairs_of` by the column."""
    return [f"user-{number:08}" for number in numbers], [f"{version:08}{number:092}" for number in numbers]


def in_slices(numbers: Any, length: int = BULK_ROWS) -> Iterator[Any]:
    """Yield the numbers, or rows, of one bulk call after another."""
    return (numbers[start : start + length] for start in range(0, len(numbers), length))


def write_rows(subtask: StoredSubtask, numbers: Sequence[int], version: int) -> None:
    """Write the rows of numbers in bulk, as slices of messages."""
    for some in in_slices(numbers):
        subtask.rows.updateAll(*bulk_of(some, version))
        subtask.end_slice()


def add_rows(subtask: StoredSubtask, numbers: Sequence[int], version: int) -> None:
    """Add `version` to the sums of integer keys in bulk, as slices of messages."""
    for some in in_slices(np.asarray(numbers)):
        subtask.rows.addAll(some, np.full(len(some), version))
        subtask.end_slice()


def chosen(count: int, share: float, seed: int) -> list[int]:
    """Return a share of the numbers below `count`, each once, in any sequence."""
    chance = np.random.default_rng(seed)
    found: list[int] = chance.permutation(count)[: round(count * share)].tolist()
    return found


def uniform(count: int, length: int, seed: int) -> list[int]:
    """Return `length` random numbers below `count`."""
    found: list[int] = np.random.default_rng(seed).integers(0, count, length).tolist()
    return found
