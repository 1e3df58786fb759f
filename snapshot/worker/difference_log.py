"""Decide when the differences of an aggregate's subtask go to its store, and which of them join (PROTOCOL 13).

Owns the differences of one incarnation between their cut and the commit of their snapshot. No I/O and no threads: the
host performs the tasks of one subtask in order, and makes a call that failed again until it succeeds.

::

    captured ─┬─ nothing undecided ─> WriteTotals ─> acknowledged ─┬─ published ─> CommitTotals
              └─ else waits ──────────────^                        └─ aborted ──> joins the next one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cutline.snapshot.coordinator import control
from cutline.snapshot.ids import Subtask
from cutline.snapshot.operators.monoid import Monoid
from cutline.snapshot.operators.persistent_aggregate import joined
from cutline.snapshot.subtask.events import DifferencesHeld
from cutline.snapshot.subtask.reports import DifferenceCaptured, PublicationHandled


@dataclass(frozen=True, slots=True)
class WriteTotals:
    """Add a difference to the totals of its keys. The sums do not count yet."""

    subtask: Subtask
    snapshot_id: int
    difference: Mapping[Any, Any]


@dataclass(frozen=True, slots=True)
class CommitTotals:
    """Let the totals of a published snapshot count."""

    subtask: Subtask
    snapshot_id: int


TotalsTask = WriteTotals | CommitTotals


@dataclass(slots=True)
class _Difference:
    snapshot_id: int
    states: dict[Any, Any]
    size: int


class DifferenceLog:
    """The differences of one subtask.

    Parameters
    ----------
    subtask : Subtask
    monoid : Monoid
    """

    def __init__(self, subtask: Subtask, monoid: Monoid) -> None:
        self._subtask = subtask
        self._monoid = monoid
        #: given to the store, and neither published nor aborted
        self._undecided: _Difference | None = None
        #: captured meanwhile. Only after the decision it is known whether the undecided one joins it
        self._waiting: _Difference | None = None
        #: of aborted snapshots, for the next capture
        self._carried: _Difference | None = None
        self._written: dict[int, None] = {}

    @property
    def held(self) -> DifferencesHeld:
        """Bytes in memory of differences behind their cut, about, and whether one waits for its snapshot's end."""
        size = sum(each.size for each in (self._undecided, self._waiting, self._carried) if each is not None)
        return DifferencesHeld(self._undecided is not None or self._waiting is not None, size)

    @property
    def held_keys(self) -> int:
        """Keys in memory of differences behind their cut, once for each difference."""
        return sum(len(each.states) for each in (self._undecided, self._waiting, self._carried) if each is not None)

    def is_written(self, snapshot_id: int) -> bool:
        """Return whether the store has the difference of a snapshot."""
        return snapshot_id in self._written

    def captured(self, snapshot_id: int, states: dict[Any, Any], size: int) -> list[TotalsTask]:
        """Add the difference of a cut."""
        captured = self._join(self._carried, _Difference(snapshot_id, states, size))
        self._carried = None
        self._waiting = self._join(self._waiting, captured)
        return self._write_waiting()

    def published(self, snapshot_id: int) -> list[TotalsTask]:
        """Commit a published snapshot. Announcements may come again, and of restored snapshots."""
        if self._undecided is None or self._undecided.snapshot_id != snapshot_id:
            return []
        self._undecided = None
        return [CommitTotals(self._subtask, snapshot_id), *self._write_waiting()]

    def settled_below(self, min_snapshot_id: int) -> list[TotalsTask]:
        """Carry on the differences of aborted snapshots: all below `min_snapshot_id` that were not published."""
        self._written = {each: None for each in self._written if each >= min_snapshot_id}
        if self._undecided is not None and self._undecided.snapshot_id < min_snapshot_id:
            self._carried, self._undecided = self._join(self._carried, self._undecided), None
        if self._waiting is not None and self._waiting.snapshot_id < min_snapshot_id:
            self._carried, self._waiting = self._join(self._carried, self._waiting), None
        if self._waiting is not None and self._carried is not None:
            self._waiting, self._carried = self._join(self._carried, self._waiting), None
        return self._write_waiting()

    def written(self, snapshot_id: int) -> None:
        """Note that the store has the difference of a snapshot."""
        if self._undecided is not None and self._undecided.snapshot_id == snapshot_id:
            self._written[snapshot_id] = None

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


class DifferenceLogs:
    """The differences of one worker's subtasks, and what waits for their store.

    Parameters
    ----------
    logs : mapping of Subtask to DifferenceLog
    """

    def __init__(self, logs: Mapping[Subtask, DifferenceLog]) -> None:
        self._logs = logs
        #: acknowledgements that wait until the difference is written
        self._held: dict[tuple[int, Subtask], control.SnapshotAcknowledged] = {}
        #: acknowledgements that went to the coordinator, until their snapshots are settled
        self._sent: dict[tuple[int, Subtask], control.SnapshotAcknowledged] = {}
        #: publications that wait until the store has committed
        self._committing: dict[tuple[int, Subtask], PublicationHandled | None] = {}

    def __contains__(self, subtask: Subtask) -> bool:
        return subtask in self._logs

    def __iter__(self) -> Iterator[Subtask]:
        return iter(self._logs)

    def held(self, subtask: Subtask) -> DifferencesHeld:
        """Return the bytes of a subtask's differences behind their cut, about."""
        return self._logs[subtask].held

    def held_keys(self, subtask: Subtask) -> int:
        """Return the keys of a subtask's differences behind their cut, once for each difference."""
        return self._logs[subtask].held_keys

    def captured(self, report: DifferenceCaptured) -> list[TotalsTask]:
        """Add the difference of a cut."""
        return self._logs[report.subtask].captured(report.snapshot_id, report.states, report.size)

    def published(self, snapshot_id: int) -> list[TotalsTask]:
        """Commit a published snapshot."""
        tasks = [task for log in self._logs.values() for task in log.published(snapshot_id)]
        self._committing.update(((snapshot_id, each.subtask), None) for each in tasks if isinstance(each, CommitTotals))
        return tasks

    def settled_below(self, min_snapshot_id: int) -> list[TotalsTask]:
        """Carry on the differences of aborted snapshots."""
        self._held = {at: message for at, message in self._held.items() if at[0] >= min_snapshot_id}
        self._sent = {at: message for at, message in self._sent.items() if at[0] >= min_snapshot_id}
        return [task for log in self._logs.values() for task in log.settled_below(min_snapshot_id)]

    def may_pass(self, message: control.WorkerMessage) -> bool:
        """Return whether a message to the coordinator may go now. An acknowledgement that waits is kept."""
        if not isinstance(message, control.SnapshotAcknowledged) or message.record.subtask not in self._logs:
            return True
        snapshot_id, subtask = message.snapshot_id, message.record.subtask
        if self._logs[subtask].is_written(snapshot_id):
            self._sent[snapshot_id, subtask] = message
            return True
        self._held[snapshot_id, subtask] = message
        return False

    def is_committed(self, report: PublicationHandled) -> bool:
        """Return whether the store has committed a snapshot. If not, the report is kept."""
        at = (report.snapshot_id, report.subtask)
        if at not in self._committing:
            return True
        self._committing[at] = report
        return False

    def done(self, task: TotalsTask) -> control.SnapshotAcknowledged | PublicationHandled | None:
        """Take the end of a task. Return what has waited for it."""
        at = (task.snapshot_id, task.subtask)
        if isinstance(task, CommitTotals):
            return self._committing.pop(at, None)
        self._logs[task.subtask].written(task.snapshot_id)
        message = self._held.pop(at, None)
        if message is not None:
            self._sent[at] = message
        return message

    @property
    def unsettled(self) -> tuple[control.SnapshotAcknowledged, ...]:
        """Acknowledgements that may have been lost: no timeout ends the snapshot of a lost one (PROTOCOL 13.5)."""
        return tuple(self._sent.values())
