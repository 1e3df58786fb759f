"""Hold the acknowledgements of a worker's subtasks until the rows that their snapshots need are stored.

Owns the generation logs of one incarnation. No I/O and no threads. A subtask without keyed state has no log, and its
acknowledgements pass through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from cutline.snapshot.coordinator import control
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.list_rules import ListEntry, LocalVersion, StepBase
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.stored.part import PartKind
from cutline.snapshot.subtask.reports import (
    OwnStateCaptured,
    RowsCaptured,
    RowsMigrated,
    RowsSealed,
    StepCaptured,
    VersionBegun,
)
from cutline.snapshot.worker.generations import AwaitVersion, CompactRows, Declined, GenerationLog, RowTask, StoreRows
from cutline.snapshot.worker.row_tasks import (
    RowResult,
    RowsEncoded,
    RowsMerged,
    RowsNotStored,
    RowsRefused,
    RowsStored,
    VersionFailed,
    VersionMade,
)

#: Bytes of one subtask's parts and rows that may travel inside its acknowledgement. A larger message of the control
#: connection is refused, and names and numbers need room, too.
ACKNOWLEDGED_BYTES_MAX = 32 * 1024 * 1024


#: Kinds of parts that a log lists.
_KINDS = (PartKind.ROWS, PartKind.OWN, PartKind.STEPS)


#: Reports about what logs list.
RowReport = RowsMigrated | RowsCaptured | RowsSealed | VersionBegun | OwnStateCaptured | StepCaptured


@dataclass(slots=True)
class Outcome:
    """Work for the host, and messages to the coordinator."""

    tasks: list[RowTask] = field(default_factory=list)
    messages: list[control.WorkerMessage] = field(default_factory=list)


class RowLogs:
    """The generation logs of one worker's subtasks in one incarnation.

    Parameters
    ----------
    incarnation : int
    run : str
    restored : iterable of control.RestoredSubtask
    inline_bytes_max : int
        Bytes of one subtask's rows that may go inside the manifest.
    """

    def __init__(
        self, incarnation: int, run: str, restored: Iterable[control.RestoredSubtask], inline_bytes_max: int
    ) -> None:
        #: 0 before the first deployment
        self.incarnation = incarnation
        self._run = run
        self._inline_bytes_max = inline_bytes_max
        self._logs: dict[tuple[PartKind, Subtask], GenerationLog] = {}
        #: {subtask: first and end of its key groups}
        self._groups: dict[Subtask, tuple[int, int]] = {}
        #: {(snapshot_id, subtask): acknowledgement that waits for rows}
        self._held: dict[tuple[int, Subtask], control.SnapshotAcknowledged] = {}
        #: {subtask: restored snapshot, or 0}
        self._restored: dict[Subtask, int] = {}
        #: {(snapshot_id, subtask): its local version, or None while that is made}, of snapshots that are pending
        self._versions: dict[tuple[int, Subtask], LocalVersion | None] = {}
        #: {(snapshot_id, subtask): step that its cut has ended}, of snapshots that are pending
        self._steps: dict[tuple[int, Subtask], StepCaptured] = {}
        for each in restored:
            snapshot_id = 0 if each.origin is None else each.origin.snapshot_id
            self._restored[each.subtask] = snapshot_id
            own, steps = (
                [ListEntry(handle, 0, KEY_GROUPS) for handle in handles] for handles in (each.own, each.steps)
            )
            for kind, entries in zip(_KINDS, (each.rows, tuple(own), tuple(steps)), strict=True):
                if entries:
                    self._logs[kind, each.subtask] = GenerationLog(
                        each.subtask, run, entries, inline_bytes_max, snapshot_id, kind, needs_base=each.needs_base
                    )

    def take(self, report: RowReport) -> Outcome:
        """Take what a cut, or a restore, has given."""
        match report:
            case RowsMigrated():
                return self.migrated(report)
            case RowsCaptured():
                return self.captured(report)
            case RowsSealed():
                return self.sealed(report)
            case VersionBegun():
                return self.version_begun(report)
            case OwnStateCaptured():
                return self.captured_own(report)
            case StepCaptured():
                return self.captured_step(report)
            case _:
                assert_never(report)

    def migrated(self, report: RowsMigrated) -> Outcome:
        """Put migrated rows in the place of the restored list."""
        subtask = report.subtask
        log = GenerationLog(subtask, self._run, (), self._inline_bytes_max, self._restored.get(subtask, 0))
        self._logs[PartKind.ROWS, subtask] = log
        return self._outcome(subtask, log.migrated(report.rows))

    def captured(self, report: RowsCaptured) -> Outcome:
        """Add the rows of a cut."""
        subtask = report.subtask
        self._groups[subtask] = (report.groups.start, report.groups.stop)
        log = self._log_of(PartKind.ROWS, subtask)
        return self._outcome(subtask, log.captured(report.snapshot_id, report.rows))

    def sealed(self, report: RowsSealed) -> Outcome:
        """Add rows that leave memory between two cuts."""
        return self._outcome(report.subtask, self._log_of(PartKind.ROWS, report.subtask).sealed(report.rows))

    def version_begun(self, report: VersionBegun) -> Outcome:
        """Hold the acknowledgement of a cut until the local version is durable."""
        self._groups[report.subtask] = (report.groups.start, report.groups.stop)
        self._versions[report.snapshot_id, report.subtask] = None
        return Outcome([AwaitVersion(report.subtask, report.version)])

    def captured_own(self, report: OwnStateCaptured) -> Outcome:
        """Add the change of own state of a cut."""
        log = self._log_of(PartKind.OWN, report.subtask)
        return self._outcome(report.subtask, log.captured_own(report.snapshot_id, report.change))

    def captured_step(self, report: StepCaptured) -> Outcome:
        """Add the step of a log that a cut has ended."""
        log = self._log_of(PartKind.STEPS, report.subtask)
        outcome = self._outcome(report.subtask, log.captured_own(report.snapshot_id, report.step))
        # Without its bytes, which the log holds.
        self._steps[report.snapshot_id, report.subtask] = replace(
            report, step=OwnChange(False, ()), generation=log.newest
        )
        return outcome

    def published(self, snapshot_id: int) -> None:
        """Drop the steps behind a published snapshot that has the state of all subtasks."""
        for (published, subtask), step in self._steps.items():
            if published == snapshot_id and step.is_base:
                self._logs[PartKind.STEPS, subtask].drop_through(step.generation)

    def worked(self, result: RowResult) -> Outcome:
        """Take the result of a task. Acknowledge the snapshots whose rows are now stored."""
        if isinstance(result, VersionMade | VersionFailed):
            return self._version_over(result)
        subtask = result.task.subtask
        kind = result.task.kind if isinstance(result.task, StoreRows | CompactRows) else PartKind.ROWS
        log = self._logs[kind, subtask]
        match result:
            case RowsEncoded(task, rows):
                decisions = log.encoded(task, rows)
            case RowsMerged(merged, rows):
                decisions = log.merged(merged, rows)
            case RowsRefused(refused, reason):
                decisions = log.refused(refused, reason)
            case RowsStored(stored, entries):
                decisions = log.stored(stored, entries)
            case RowsNotStored(failed, reason):
                decisions = log.failed(failed, f"{subtask} could not be stored: {reason}")
        return self._acknowledge_waiting(subtask, self._outcome(subtask, decisions))

    def _version_over(self, result: VersionMade | VersionFailed) -> Outcome:
        subtask, snapshot_id = result.task.subtask, result.task.version.snapshot_id
        if (snapshot_id, subtask) not in self._versions:
            return Outcome()  # the snapshot is over
        if isinstance(result, VersionMade):
            self._versions[snapshot_id, subtask] = result.version
            return self._acknowledge_waiting(subtask, Outcome())
        return Outcome(messages=[self._decline(subtask, snapshot_id, f"{subtask} has no version: {result.reason}")])

    def _acknowledge_waiting(self, subtask: Subtask, outcome: Outcome) -> Outcome:
        waiting = [message for (_, each), message in self._held.items() if each == subtask]
        for message in waiting:
            self._acknowledge(message, outcome)
        return outcome

    def parts_stored(self, messages: Iterable[control.WorkerMessage]) -> Outcome:
        """Take the messages about an upload. Those of snapshots whose rows are not stored yet are held."""
        outcome = Outcome()
        for message in messages:
            match message:
                case control.SnapshotAcknowledged(self.incarnation):
                    self._acknowledge(message, outcome)
                case control.SnapshotDeclined(self.incarnation, snapshot_id, subtask):
                    self._forget(snapshot_id, subtask)
                    outcome.messages.append(message)
                case _:
                    outcome.messages.append(message)
        return outcome

    def discard_below(self, snapshot_id: int) -> None:
        """Drop snapshots below `snapshot_id`, because they are published or aborted. Their rows stay."""
        for log in self._logs.values():
            log.discard_below(snapshot_id)
        self._held = {at: message for at, message in self._held.items() if at[0] >= snapshot_id}
        self._steps = {at: step for at, step in self._steps.items() if at[0] >= snapshot_id}
        self._versions = {at: version for at, version in self._versions.items() if at[0] >= snapshot_id}

    def _log_of(self, kind: PartKind, subtask: Subtask) -> GenerationLog:
        if (kind, subtask) not in self._logs:
            self._logs[kind, subtask] = GenerationLog(subtask, self._run, (), self._inline_bytes_max, kind=kind)
        return self._logs[kind, subtask]

    def _forget(self, snapshot_id: int, subtask: Subtask) -> None:
        for kind in _KINDS:
            if (kind, subtask) in self._logs:
                self._logs[kind, subtask].forget(snapshot_id)

    def _outcome(self, subtask: Subtask, decisions: Iterable[RowTask | Declined]) -> Outcome:
        outcome = Outcome()
        for decision in decisions:
            if isinstance(decision, Declined):
                outcome.messages.append(self._decline(subtask, decision.snapshot_id, decision.reason))
            else:
                outcome.tasks.append(decision)
        return outcome

    def _decline(self, subtask: Subtask, snapshot_id: int, reason: str) -> control.SnapshotDeclined:
        self._held.pop((snapshot_id, subtask), None)
        self._forget(snapshot_id, subtask)
        return control.SnapshotDeclined(self.incarnation, snapshot_id, subtask, reason)

    def _acknowledge(self, message: control.SnapshotAcknowledged, outcome: Outcome) -> None:
        """Add the list of rows to an acknowledgement, and let it go. Hold it while a row is not stored."""
        snapshot_id, subtask = message.snapshot_id, message.record.subtask
        step = self._steps.get((snapshot_id, subtask))
        kinds = _KINDS if step is None or step.has_state else (PartKind.STEPS,)
        logs = {kind: log for kind in kinds if (log := self._logs.get((kind, subtask))) is not None}
        if not all(log.has_cut(snapshot_id) for log in logs.values()):
            return  # it was declined, or the snapshot is over
        lists = {kind: log.list_of(snapshot_id) for kind, log in logs.items()}
        version = self._versions.get((snapshot_id, subtask))
        if None in lists.values() or (version is None and (snapshot_id, subtask) in self._versions):
            self._held[snapshot_id, subtask] = message
            return
        self._held.pop((snapshot_id, subtask), None)
        self._forget(snapshot_id, subtask)
        if logs:
            own, steps = (
                tuple(entry.handle for entry in lists.get(kind) or ()) for kind in (PartKind.OWN, PartKind.STEPS)
            )
            record = replace(
                message.record,
                groups=self._groups.get(subtask) if kinds is _KINDS else None,
                rows=lists.get(PartKind.ROWS) or None, own=own or None, steps=steps or None,
            )  # fmt: skip
            if step is not None and step.is_base:
                base = StepBase(snapshot_id, self.incarnation, step.generation, step.sent, step.processed)
                record = replace(record, steps=None, base=base, version=version)
            message = replace(message, record=record)
        outcome.messages.append(self._within_limit(message))

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
