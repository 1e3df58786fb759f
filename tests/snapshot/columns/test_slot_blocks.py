"""Captures of slots: a write is noted and copied once an interval, whether or not all slots were written before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.columns.slot_blocks import BLOCK_SLOTS, CapturedSlots, Fill, SlotBlocks
from tests.run_size import scaled


def captured(capture: CapturedSlots) -> dict[int, int]:
    """The changed slots of a capture, and their values."""
    parts = [part for block in range(capture.block_count) if (part := capture.copy(block)) is not None]
    return {int(slot): int(value) for part in parts for slot, value in zip(part.slots, part.columns[0], strict=True)}


WRITES = st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=6)


@settings(max_examples=scaled(300), deadline=None)
@given(intervals=st.lists(st.tuples(WRITES, st.booleans()), max_size=5), grows=st.booleans())
def test_a_capture_has_what_was_written_in_its_interval(
    intervals: list[tuple[list[list[int]], bool]], grows: bool
) -> None:
    """With values as they were at the capture, however many writes come before its copy is made."""
    blocks = SlotBlocks([Fill(np.int64, 0)])
    blocks.grow(6)
    values: dict[int, int] = {}
    waiting: list[tuple[CapturedSlots, dict[int, int]]] = []
    number = 0
    for writes, is_copied_late in intervals:
        changed: dict[int, int] = {}
        for slots in writes:
            blocks.write(np.array(slots, np.int64), 6)
            for slot in slots:
                number += 1
                blocks.columns[0][slot] = values[slot] = changed[slot] = number
        if grows:
            blocks.grow(2 * BLOCK_SLOTS)
        capture = blocks.capture()
        if is_copied_late:
            waiting.append((capture, dict(changed)))
        else:
            assert captured(capture) == changed
            capture.end()
    for capture, changed in waiting:
        assert captured(capture) == changed


def test_a_write_after_forgetting_is_noted() -> None:
    """A slot that came and went is no change, until it is written again."""
    blocks = SlotBlocks([Fill(np.int64, 0)])
    blocks.grow(2)
    both = np.array([0, 1])
    blocks.write(both, 2)
    blocks.forget(np.array([0]))
    blocks.write(np.array([0]), 2)
    blocks.write(both, 2)
    assert sorted(captured(blocks.capture())) == [0, 1]
    assert not blocks.has_changes


def test_captures_wait_side_by_side() -> None:
    """A capture keeps its values while a later capture waits too, and a write comes behind both."""
    blocks = SlotBlocks([Fill(np.int64, 0)])
    blocks.grow(1)
    slot = np.array([0])
    captures = []
    for value in (1, 2, 3):
        blocks.write(slot, 1)
        blocks.columns[0][0] = value
        captures.append(blocks.capture())
        captures.append(blocks.capture())
    changed, unchanged = captures[::2], captures[1::2]
    assert [captured(each) for each in changed] == [{0: 1}, {0: 2}, {0: 3}]
    assert [captured(each) for each in unchanged] == [{}, {}, {}]
