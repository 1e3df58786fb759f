"""Keep all rows of a subtask in memory."""

from __future__ import annotations

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.errors import StateError
from cutline.snapshot.keyed.restored_rows import RestoredRows
from cutline.snapshot.keyed.rows import DirtyRows
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.keyed.tier import KeyedTimers, TakeDirty
from cutline.snapshot.keyed.versions import PendingVersion


class HeapTier:
    """The tier that keeps all rows in memory."""

    has_turns = False
    is_due = False
    has_columns = True

    def __init__(self) -> None:
        self._take: TakeDirty = tuple

    def bind(self, take: TakeDirty, backpressure: BackpressureFlag) -> None:
        """See `Tier`."""
        self._take = take

    def restore(self, rows: RestoredRows) -> None:
        """See `Tier`."""

    def open_state(self, table: StateTable, rows: RestoredRows) -> None:
        """See `Tier`."""
        rows.fill(table)

    def open_timers(self, timers: KeyedTimers, rows: RestoredRows) -> None:
        """See `Tier`."""
        timers.restore_rows(rows.timers())

    def capture(self) -> tuple[DirtyRows, ...]:
        """See `Tier`."""
        return self._take()

    def take_sealed(self) -> tuple[DirtyRows, ...]:
        """See `Tier`."""
        return ()

    def begin_version(self, snapshot_id: int) -> PendingVersion:
        """See `Tier`."""
        raise StateError("rows in memory have no versions: use keyedState=RocksDBState()")

    def turn(self) -> None:
        """See `Tier`."""

    def close(self) -> None:
        """See `Tier`."""
