"""Decide when the differences of an aggregate's subtask go to its store, and which of them join (PROTOCOL 13).

Owns the differences of one incarnation between their cut and the commit of their snapshot. No I/O and no threads: the
host performs the tasks of one subtask in order, and makes a call that failed again until it succeeds.

::

    captured ─┬─ nothing undecided ─> WriteTotals ─> acknowledged ─┬─ published ─> CommitTotals
              └─ else waits ──────────────^                        └─ aborted ──> joins the next one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.difference_gate import HeldDifferences
from cutline.snapshot.operators.monoid import Monoid
from cutline.snapshot.operators.persistent_aggregate import joined
from cutline.snapshot.subtask.strand import DifferenceCaptured, Strand
from cutline.snapshot.worker.ledger import Lane, Listed


@dataclass(frozen=True, slots=True)
class WriteTotals:
    """Add a difference to the totals of its keys. The sums do not count yet."""

    subtask: Subtask
    snapshot_id: int
    difference: Mapping[Any, Any]

    lane: ClassVar[Lane] = Lane.IN_ORDER
    strand: ClassVar[Strand] = Strand.TOTALS
    publishes: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class CommitTotals:
    """Let the totals of a published snapshot count."""

    subtask: Subtask
    snapshot_id: int

    lane: ClassVar[Lane] = Lane.IN_ORDER
    strand: ClassVar[Strand] = Strand.TOTALS

    @property
    def publishes(self) -> int:
        """Return the snapshot, because its publication waits until its totals count."""
        return self.snapshot_id


TotalsTask = WriteTotals | CommitTotals


@dataclass(slots=True)
class _Difference:
    snapshot_id: int
    states: dict[Any, Any]
    size: int


class TotalsLedger:
    """The differences of one subtask.

    Parameters
    ----------
    subtask : Subtask
    monoid : Monoid
    hold : callable
        Takes what is in memory, because the subtask stops for more than memory holds.
    """

    is_repeated: ClassVar[bool] = True

    def __init__(self, subtask: Subtask, monoid: Monoid, hold: Callable[[HeldDifferences], None]) -> None:
        self._subtask = subtask
        self._monoid = monoid
        self._hold = hold
        #: given to the store, and neither published nor aborted
        self._undecided: _Difference | None = None
        #: captured meanwhile. Only after the decision it is known whether the undecided one joins it
        self._waiting: _Difference | None = None
        #: of aborted snapshots, for the next capture
        self._carried: _Difference | None = None
        self._written: dict[int, None] = {}

    @property
    def held(self) -> HeldDifferences:
        """What is in memory of differences whose cut is over."""
        found = [each for each in (self._undecided, self._waiting, self._carried) if each is not None]
        is_waiting = self._undecided is not None or self._waiting is not None
        return HeldDifferences(is_waiting, sum(each.size for each in found), sum(len(each.states) for each in found))

    def captured(self, cut: int | None, change: DifferenceCaptured) -> list[TotalsTask]:
        """Add the difference of a cut."""
        assert cut is not None
        captured = self._join(self._carried, _Difference(cut, change.states, change.size))
        self._carried = None
        self._waiting = self._join(self._waiting, captured)
        tasks = self._write_waiting()
        self._hold(self.held)
        return tasks

    def done(self, task: TotalsTask, result: None) -> list[TotalsTask]:
        """Note that the store has a difference, or has committed one."""
        undecided = self._undecided
        if isinstance(task, WriteTotals) and undecided is not None and undecided.snapshot_id == task.snapshot_id:
            self._written[task.snapshot_id] = None
        return []

    def ready(self, cut: int) -> Listed | None:
        """Return nothing to list, or None while the store does not have the difference of a cut."""
        return {} if cut in self._written else None

    def left(self, cut: int) -> None:
        """Keep the difference until its snapshot is settled."""

    def settled(self, published: int, below: int) -> list[TotalsTask]:
        """Commit a published snapshot, and carry on the differences of aborted ones."""
        tasks = [*self._published(published), *self._settled_below(below)]
        self._hold(self.held)
        return tasks

    def _published(self, snapshot_id: int) -> list[TotalsTask]:
        """Commit a published snapshot. Announcements may come again, and of restored snapshots."""
        if self._undecided is None or self._undecided.snapshot_id != snapshot_id:
            return []
        self._undecided = None
        return [CommitTotals(self._subtask, snapshot_id), *self._write_waiting()]

    def _settled_below(self, min_snapshot_id: int) -> list[TotalsTask]:
        """Carry on the differences of aborted snapshots: all below `min_snapshot_id` that were not published."""
        self._written = {each: None for each in self._written if each >= min_snapshot_id}
        if self._undecided is not None and self._undecided.snapshot_id < min_snapshot_id:
            self._carried, self._undecided = self._join(self._carried, self._undecided), None
        if self._waiting is not None and self._waiting.snapshot_id < min_snapshot_id:
            self._carried, self._waiting = self._join(self._carried, self._waiting), None
        if self._waiting is not None and self._carried is not None:
            self._waiting, self._carried = self._join(self._carried, self._waiting), None
        return self._write_waiting()

    def _write_waiting(self) -> list[TotalsTask]:
        if self._undecided is not None or self._waiting is None:
            return []
        self._undecided, self._waiting = self._waiting, None
        return [WriteTotals(self._subtask, self._undecided.snapshot_id, self._undecided.states)]

    def _join(self, earlier: _Difference | None, later: _Difference) -> _Difference:
        if earlier is None:
            return later
        states = joined(dict(earlier.states), later.states, self._monoid)  # a copy, because its task may still run
        return _Difference(later.snapshot_id, states, earlier.size + later.size)
