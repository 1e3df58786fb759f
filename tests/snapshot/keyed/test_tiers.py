"""The tiers of the core keep what plain dicts keep."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from cutline.snapshot.columns import slot_blocks
from cutline.snapshot.keyed import column_table
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.row_keys import EXPIRIES_START, TIMERS_START
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.keyed.conformance import TierMachine, conformance
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask


class LateMachine(TierMachine):
    """The writer of the tier works when Hypothesis says so, also in the middle of a hook."""

    @property
    def tier(self) -> LateTier:
        """The tier of this incarnation."""
        assert isinstance(self.subtask.tier, LateTier)
        return self.subtask.tier

    @rule(is_prompt=st.booleans())
    def hurry(self, is_prompt: bool) -> None:
        self.tier.writer.is_prompt = is_prompt

    @rule(refusals=st.integers(1, 5))
    def refuse(self, refusals: int) -> None:
        self.tier.rows.refusals = refusals

    @rule(steps=st.integers(1, 30))
    def write(self, steps: int) -> None:
        for _ in range(steps):
            self.tier.writer.step()

    @rule(name=st.sampled_from(["v", "vt", "r", "l", "lt", "m", "mt"]), steps=st.integers(1, 30))
    def iterate(self, name: str, steps: int) -> None:
        expected = dict(getattr(self, name).items())
        found: list[Any] = []
        for pair in getattr(self, name).items():
            found.append(pair)
            self.write(steps)
            self.tier.turn()
        assert sorted(map(repr, found)) == sorted(map(repr, expected.items()))

    @rule()
    def expire(self) -> None:
        """Wait for ever: no row that has expired stays in the store, nor an index row."""
        self.wait(100.0)
        for _ in range(3):
            self.tier.writer.finish()
            self.tier.turn()
        rows = self.tier.rows.rows
        assert not [row for row, stored in rows.items() if row < TIMERS_START and stored[:1] == b"\xc1"]
        assert not [row for row in rows if EXPIRIES_START <= row < TIMERS_START]


class ColumnsMachine(TierMachine):
    """Incarnations keep sums by the column and in dicts in turn, so that each restores the rows of the other."""

    numbers = (1, -2, 2**40)

    is_batched = False

    def made(self) -> KeyedSubtask:
        self.is_batched = not self.is_batched
        return KeyedSubtask(self.make_tier, self.segments, self.now, is_batched=self.is_batched)


TestHeap = conformance(HeapTier)
TestColumns = conformance(HeapTier, ColumnsMachine)
TestLateTier = conformance(LateTier, LateMachine)


class TestSmallColumns(conformance(HeapTier, ColumnsMachine)):  # type: ignore[misc]
    """Blocks of two slots, so that tables grow, are built anew, and freeze some blocks of several."""

    def runTest(self) -> None:
        """Run the suite."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(slot_blocks, "_BLOCK_LOG2", 1)
            for module in (slot_blocks, column_table):
                patched.setattr(module, "BLOCK_SLOTS", 2)
            super().runTest()
