"""Cold tiers in memory, with four rows to a memtable and a cache of six, whose writer works when a test says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from cutline.snapshot.keyed.cold_tier import ColdLimits, ColdTier
from cutline.snapshot.keyed.row_store import Job, RowStore, Writer
from cutline.snapshot.testing.cold_memory import LateWriter, MemoryRowStore

_FEW: Final = ColdLimits(memtable_rows=4, cached_rows=6, checked_keys=1, near_timers=4, loaded_timers=2)


class PromptableWriter(LateWriter):
    """A late writer that does jobs at once while `is_prompt` is set."""

    is_prompt = False

    def submit(self, job: Job) -> None:
        """See `Writer`."""
        super().submit(job)
        if self.is_prompt:
            self.finish()


class LateTier(ColdTier):
    """A cold tier in memory. Limits that are given replace the few rows."""

    def __init__(self, **limits: Any) -> None:
        self.writer = PromptableWriter()
        self.rows = MemoryRowStore()
        super().__init__(self._open_memory, replace(_FEW, **limits))

    def _open_memory(self, _: object) -> tuple[RowStore, Writer]:
        return self.rows, self.writer
