"""The sequence in which nodes see keys: in runs that repeat work it is that of the stored form, in both tiers.

A replay begins with restored rows, which have lost the sequence of their writes. A node that sends what `items` gives
would differ from the run that it repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.segment import Segment
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask, TierMaker

TIERS: dict[str, TierMaker] = {"heap": HeapTier, "cold": LateTier}
KEYS: list[Any] = ["b", "a", ("x", 1), ("x",), 7, -7, 300, b"b", None, "aa"]


def _subtask(tier: str, segments: Sequence[Segment] = (), *, sorts: bool = True, is_batched: bool = False) -> Any:
    subtask = KeyedSubtask(TIERS[tier], segments, sorts=sorts, is_batched=is_batched)
    states = (subtask.value(), subtask.value("vt", 9.0), subtask.reducing(), subtask.list(), subtask.map())
    subtask.states.opened()
    return subtask, *states


def _write(made: Any, keys: Sequence[Any]) -> None:
    subtask, value, timed, total, some, words = made
    for key in keys:
        with subtask.key(key):
            value.update(str(key))
            timed.update(1)
            total.add(2)
            some.appendValue(3)
            for word in keys[:5]:
                words.updateValue(word, 4)


def _seen(made: Any) -> list[Any]:
    subtask, *states = made
    found = [list(state.items()) for state in states]
    maps = []
    for key in sorted(KEYS, key=repr):
        with subtask.key(key):
            maps.append((states[-1].keys(), states[-1].values(), list(states[-1].iterator())))
    return [*map(repr, found), *map(repr, maps)]


@pytest.mark.parametrize("writes", range(8))
def test_restored_keys_are_seen_as_before(writes: int) -> None:
    """In each tier, from a snapshot of each tier, whatever was captured between the writes."""
    random, seen = Random(writes), {}
    for tier in TIERS:
        made = _subtask(tier)
        _write(made, random.sample(KEYS, len(KEYS)))
        segments = [made[0].capture_segment()]
        _write(made, random.sample(KEYS, 4))
        segments.append(made[0].capture_segment())
        seen[tier] = _seen(made)
        for other in TIERS:
            seen[f"{tier} in {other}"] = _seen(_subtask(other, segments))
    for tier, found in seen.items():
        written_by = tier.partition(" ")[0]
        assert found == seen[written_by], tier


def test_the_sequence_of_writes_would_not_do() -> None:
    """The test can fail: rows in memory keep the sequence of their writes, where nothing is repeated."""
    made = _subtask("heap", sorts=False)
    _write(made, KEYS)
    assert _seen(made) != _seen(_subtask("heap", [made[0].capture_segment()], sorts=False))


def test_totals_by_the_column_are_seen_as_before() -> None:
    """Those of a node that gets batches."""
    subtask = KeyedSubtask(HeapTier, is_batched=True, sorts=True)
    total = subtask.reducing()
    subtask.states.opened()
    total.addAll([5, 3, 9, 1], [1, 2, 3, 4])
    restored = KeyedSubtask(HeapTier, [subtask.capture_segment()], is_batched=True, sorts=True)  # type: ignore[list-item]
    assert list(restored.reducing().items()) == list(total.items())
