"""The contract of a tier: where the rows of one subtask are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.keyed.cold_timers import ColdTimers
from cutline.snapshot.keyed.restored_rows import RestoredRows
from cutline.snapshot.keyed.rows import DirtyRows, DirtyTable
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.keyed.versions import PendingVersion

#: takes the changed rows of all states of a subtask
TakeDirty = Callable[[], tuple[DirtyRows, ...]]


class KeyedTimers(Protocol):
    """The timers of a subtask, as far as their rows are concerned."""

    #: changed rows since the last call of `take_dirty`, or more
    changed_rows: int

    def attach(self, cold: ColdTimers) -> None:
        """Let a tier keep timers outside memory."""

    def restore_rows(self, rows: Iterable[tuple[Any, float]]) -> None:
        """Register restored timers: pairs of key and time."""

    def take_dirty(self) -> DirtyTable | None:
        """Return the rows that changed since the last call, or None without any."""


class Tier(Protocol):
    """Where the rows of one subtask are kept."""

    #: whether `turn` may have work
    has_turns: bool
    #: whether the tier keeps all rows in memory, where a state may keep them by the column
    has_columns: bool

    def bind(self, take: TakeDirty, backpressure: BackpressureFlag) -> None:
        """Set what belongs to the subtask: the function that takes all changed rows, and the flag that stops it."""

    def restore(self, rows: RestoredRows) -> None:
        """Keep the rows of a snapshot outside memory, oldest segment first, if the tier keeps rows there."""

    def open_state(self, table: StateTable, rows: RestoredRows) -> None:
        """Put the restored rows of a state where the tier keeps rows, and attach cold rows to the table, if any.

        Raises
        ------
        RestoreRefused
            if the stored state is of another kind.
        SnapshotCorrupt
            if a row cannot be decoded.
        """

    def open_timers(self, timers: KeyedTimers, rows: RestoredRows) -> None:
        """Register the restored timers, or attach cold timers. Called once, after `restore`."""

    def capture(self) -> tuple[DirtyRows, ...]:
        """Return the rows that changed since the last call, in the sequence of writes. Cannot fail, in constant time.

        Storage releases each element, and empties the dicts of a table, which are nobody else's any more.
        """

    def take_sealed(self) -> tuple[DirtyRows, ...]:
        """Return changed rows that leave memory before the next capture, which does not return them again."""

    @property
    def is_due(self) -> bool:
        """Whether `turn` has work that no event causes."""

    def begin_version(self, snapshot_id: int) -> PendingVersion:
        """Begin a version of the rows outside memory, as they are after the last `capture`."""

    def turn(self) -> None:
        """Do what is due between two events.

        Raises
        ------
        StateError
            if rows cannot be kept.
        """

    def close(self) -> None:
        """Give up all rows. May be called again."""
