"""Hold the acknowledgements of a worker's subtasks until all that their snapshots list is stored.

Owns the ledgers of one incarnation. No I/O and no threads. A contribution whose cut took no change passes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cutline.snapshot.coordinator import control
from cutline.snapshot.ids import Subtask
from cutline.snapshot.subtask.reports import PublicationHandled
from cutline.snapshot.subtask.strand import ChangeCaptured, Strand
from cutline.snapshot.worker.ledger import Declined, Ledger, Listed, Task

#: Bytes of one subtask's parts and rows that may travel inside its acknowledgement. A larger message of the control
#: connection is refused, and names and numbers need room, too.
ACKNOWLEDGED_BYTES_MAX = 32 * 1024 * 1024

#: A snapshot and a subtask.
At = tuple[int, Subtask]

V = TypeVar("V")


@dataclass(slots=True)
class LedgerDecisions:
    """Work for the host, and messages to the coordinator."""

    tasks: list[Task] = field(default_factory=list)
    messages: list[control.WorkerMessage] = field(default_factory=list)


@dataclass(slots=True)
class _Cut:
    """A cut of a subtask that is not acknowledged."""

    #: ledgers of the changes that the cut took
    ledgers: list[Ledger] = field(default_factory=list)
    is_declined: bool = False


@dataclass(slots=True)
class _Publication:
    """A publication that waits for tasks of ledgers."""

    tasks_left: int = 0
    #: whether the subtask has handled the publication
    is_handled: bool = False


class Acknowledgements:
    """The acknowledgements of one worker in one incarnation.

    Parameters
    ----------
    incarnation : int
        0 before the first deployment.
    ledgers : mapping of (Subtask, Strand) to Ledger
    """

    def __init__(self, incarnation: int, ledgers: Mapping[tuple[Subtask, Strand], Ledger]) -> None:
        self.incarnation = incarnation
        self._ledgers = ledgers
        #: subtasks that have changes
        self._listing: dict[Subtask, None] = {}
        self._cuts: dict[At, _Cut] = {}
        #: acknowledgements that wait for their ledgers
        self._held: dict[At, control.SnapshotAcknowledged] = {}
        #: acknowledgements that went to the coordinator, and are repeated until their snapshots are settled, because
        #: they may have been lost, and no timeout ends their snapshots (PROTOCOL 13.5)
        self.repeated: dict[At, control.SnapshotAcknowledged] = {}
        self._publications: dict[At, _Publication] = {}

    def captured(self, report: ChangeCaptured) -> LedgerDecisions:
        """Give a change to its ledger."""
        ledger = self._ledgers[report.subtask, report.strand]
        self._listing[report.subtask] = None
        if report.snapshot_id is not None:
            self._cuts.setdefault((report.snapshot_id, report.subtask), _Cut()).ledgers.append(ledger)
        return self._decided(report.subtask, ledger.captured(report.snapshot_id, report.change))

    def done(self, task: Task, result: object) -> LedgerDecisions:
        """Give the result of a task to its ledger. Let go what has waited for it."""
        subtask = task.subtask
        decisions = self._decided(subtask, self._ledgers[subtask, task.strand].done(task, result))
        self._publication_task_done(task, decisions)
        for message in [message for (_, each), message in self._held.items() if each == subtask]:
            self._acknowledge(message, decisions)
        return decisions

    def parts_stored(self, messages: Iterable[control.WorkerMessage]) -> LedgerDecisions:
        """Take the messages about an upload. Those of cuts whose changes are not stored yet are held."""
        decisions = LedgerDecisions()
        for message in messages:
            match message:
                case control.SnapshotAcknowledged(self.incarnation):
                    self._acknowledge(message, decisions)
                case control.SnapshotDeclined(self.incarnation, snapshot_id, subtask):
                    self._leave(snapshot_id, subtask)
                    decisions.messages.append(message)
                case _:
                    decisions.messages.append(message)
        return decisions

    def settled(self, published: int, below: int) -> LedgerDecisions:
        """Take that a snapshot is published, and that all below an id are over. 0: none."""
        tasks = [task for ledger in self._ledgers.values() for task in ledger.settled(published, below)]
        for task in tasks:
            if task.publishes:
                at = (task.publishes, task.subtask)
                self._publications.setdefault(at, _Publication()).tasks_left += 1
        self._cuts = _from(below, self._cuts)
        self._held = _from(below, self._held)
        self.repeated = _from(below, self.repeated)
        return LedgerDecisions(tasks)

    def may_report(self, handled: PublicationHandled) -> bool:
        """Return whether the tasks of a publication are done. If not, the last of them reports it."""
        publication = self._publications.get((handled.snapshot_id, handled.subtask))
        if publication is None:
            return True
        publication.is_handled = True
        return False

    def _publication_task_done(self, task: Task, decisions: LedgerDecisions) -> None:
        at = (task.publishes, task.subtask)
        publication = self._publications.get(at)
        if publication is None:
            return
        publication.tasks_left -= 1
        if publication.tasks_left:
            return
        del self._publications[at]
        if publication.is_handled:
            decisions.messages.append(control.PublicationDone(self.incarnation, at[0], (task.subtask,)))

    def _decided(self, subtask: Subtask, decisions: Iterable[Task | Declined]) -> LedgerDecisions:
        decided = LedgerDecisions()
        for decision in decisions:
            if isinstance(decision, Declined):
                decided.messages.append(self._decline(subtask, decision.snapshot_id, decision.reason))
            else:
                decided.tasks.append(decision)
        return decided

    def _decline(self, subtask: Subtask, snapshot_id: int, reason: str) -> control.SnapshotDeclined:
        self._leave(snapshot_id, subtask)
        return control.SnapshotDeclined(self.incarnation, snapshot_id, subtask, reason)

    def _leave(self, snapshot_id: int, subtask: Subtask) -> None:
        """Let the ledgers forget a cut, so that nothing declines the snapshot again, or acknowledges it."""
        self._held.pop((snapshot_id, subtask), None)
        cut = self._cuts.setdefault((snapshot_id, subtask), _Cut())
        cut.is_declined = True
        for ledger in cut.ledgers:
            ledger.left(snapshot_id)

    def _acknowledge(self, message: control.SnapshotAcknowledged, decisions: LedgerDecisions) -> None:
        """Add what the ledgers list to an acknowledgement, and let it go. Hold it while a change is not stored."""
        snapshot_id, subtask = at = (message.snapshot_id, message.record.subtask)
        cut = self._cuts.get(at)
        if cut is None and subtask not in self._listing:
            decisions.messages.append(self._within_limit(message))
            return
        if cut is None or cut.is_declined:
            return  # because the snapshot is over
        listed: Listed = {}
        for ledger in cut.ledgers:
            found = ledger.ready(snapshot_id)
            if found is None:
                self._held[at] = message
                return
            listed |= found
        self._held.pop(at, None)
        del self._cuts[at]
        for ledger in cut.ledgers:
            ledger.left(snapshot_id)
        whole = replace(message, record=replace(message.record, **listed))
        passed = self._within_limit(whole)
        if passed is whole and any(ledger.is_repeated for ledger in cut.ledgers):
            self.repeated[at] = whole
        decisions.messages.append(passed)

    def _within_limit(self, message: control.SnapshotAcknowledged) -> control.WorkerMessage:
        inline = sum(len(handle.inline or b"") for handle in message.record.all_handles)
        if inline <= ACKNOWLEDGED_BYTES_MAX:
            return message
        subtask = message.record.subtask
        return self._decline(
            subtask,
            message.snapshot_id,
            f"{subtask} could not be stored: {inline:,} bytes of state and messages are too many to travel to the "
            f"coordinator (inline_total_bytes_max is {ACKNOWLEDGED_BYTES_MAX:,}). With a MemoryBackend all parts do: "
            "use a FileSystemBackend or an ObjectStoreBackend; with these only up to inlineBytesMax of a worker do: "
            "lower it",
        )


def _from(snapshot_id: int, found: dict[At, V]) -> dict[At, V]:
    return {at: each for at, each in found.items() if at[0] >= snapshot_id}
