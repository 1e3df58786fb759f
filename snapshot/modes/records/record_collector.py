"""Let the subtasks of a worker record themselves, and collect their records (PROTOCOL 14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from cutline.snapshot.coordinator import control
from cutline.snapshot.errors import NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.records import record_writer
from cutline.snapshot.modes.records.record_tasks import RecordTask, WriteRecord
from cutline.snapshot.modes.records.record_writer import LocalCheckpointWriter
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.events import RecordRequested, RecordStored, RequestAnswered, SnapshotPublished
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.recording import Recording
from cutline.snapshot.subtask.reports import RecordTaken
from cutline.snapshot.worker.collector import Await, Decisions, Pass
from cutline.snapshot.worker.events import (
    Log,
    Perform,
    RecordDeadline,
    SendToCoordinator,
    StoreParts,
)
from cutline.snapshot.worker.ledger import CollectorTask, TaskFailed
from cutline.snapshot.worker.restored_parts import RestoredParts
from cutline.snapshot.worker.upload_batcher import PendingUpload


class LocalCheckpointCollector:
    """The records of one worker in one incarnation.

    Parameters
    ----------
    parts : RestoredParts
    run : str
    machines : mapping of Subtask to SubtaskMachine
        Machines that record themselves.
    """

    obeys: tuple[type[control.CoordinatorMessage], ...] = (
        control.TriggerSnapshot,
        control.NeighbourRecorded,
        control.RecordNow,
        control.PermitRecords,
        control.AnnouncePublished,
        control.DiscardSnapshotsBelow,
    )

    def __init__(self, parts: RestoredParts, run: str, machines: Mapping[Subtask, SubtaskMachine]) -> None:
        self.after_turns: tuple[Callable[[float], Decisions], ...] = (self._record_full_logs,)
        self._incarnation = parts.deploy.incarnation
        self._machines = machines
        channels = {each: (tuple(machine.inputs), tuple(machine.outputs)) for each, machine in machines.items()}
        recorded: dict[ChannelId, int] = {}
        for restored in parts.channels.values():
            recorded |= restored.processed
            recorded |= {channel: frames[-1].last for channel, frames in restored.frames.items() if frames}
        is_complete = all(each.state is not None and each.state.run == run for each in parts.deploy.subtasks)
        self._writer = LocalCheckpointWriter(run, self._incarnation, channels, recorded, is_complete=is_complete)

    # ---------------------------------------------------------------- captures

    def started(self, now: float) -> Decisions:
        """Let each subtask record itself in its turn. A subtask that has ended does so at once."""
        for place, (subtask, machine) in enumerate(self._machines.items(), 1):
            delay = self._recording(subtask).interval * place / len(self._machines)
            yield Await(RecordDeadline(subtask), now + (0.0 if machine.status is Status.ENDED else delay))

    def _record_full_logs(self, now: float) -> Decisions:
        """Let subtasks record themselves early, because their logs fill memory."""
        for subtask in self._machines:
            if self._recording(subtask).memory.is_half_full and self._writer.may_hurry(subtask):
                yield from self._record(subtask, now)

    def due(self, subtask: Subtask, now: float) -> Decisions:
        """Let a subtask record itself, because its time has come."""
        if not self._writer.is_over(subtask):
            yield from self._record(subtask, now)

    def asked(self, subtask: Subtask, now: float) -> Decisions:
        """Let a subtask record itself, because its node asks for a snapshot."""
        yield from self._record(subtask, now)
        yield Pass(RequestAnswered(), (subtask,))

    def ended(self, subtask: Subtask, now: float) -> Decisions:
        """Let a subtask record itself now, because it has ended."""
        yield Await(RecordDeadline(subtask), now)

    def _record(self, subtask: Subtask, now: float) -> Decisions:
        try:
            number = self._writer.begin(subtask, now)
        except OverflowError as error:
            raise NodeError(str(error)) from error
        if number is not None:
            yield Await(RecordDeadline(subtask), now + self._recording(subtask).interval)
            yield Pass(RecordRequested(number), (subtask,))

    def _recording(self, subtask: Subtask) -> Recording:
        recording = self._machines[subtask].components.recording
        assert recording is not None
        return recording

    # ---------------------------------------------------------------- results

    def captured(self, report: RecordTaken, now: float) -> Decisions:
        """Store the parts of a record."""
        self._writer.captured(report.taken.subtask, report.progress)
        yield StoreParts(self._incarnation, (PendingUpload(report.taken, now),))

    def stored(self, messages: Iterable[control.WorkerMessage], now: float, *, is_running: bool) -> Decisions:
        """Take the stored parts of records. A failed subtask records nothing."""
        if not is_running:
            return
        decisions = record_writer.Decisions()
        for message in messages:
            match message:
                case _ if message.incarnation != self._incarnation:
                    pass  # an upload of dropped data has ended
                case control.SnapshotAcknowledged(_, number, record):
                    self._writer.parts_stored(record, number, decisions)
                case control.SnapshotDeclined(_, number, subtask, reason):
                    yield from self._failed(subtask, number, reason, decisions)
                case _:
                    yield SendToCoordinator((message,))
        yield from self._decide(decisions, now)

    def performed(self, task: CollectorTask, result: object, now: float) -> Decisions:
        """Take what has become of a write, and of the check after it."""
        assert isinstance(task, RecordTask)
        decisions, subtask, number = record_writer.Decisions(), task.subtask, task.record.number
        if isinstance(result, TaskFailed):
            yield from self._failed(subtask, number, result.reason, decisions)
        else:
            assert result is None or isinstance(result, Claim)
            self._writer.written(subtask, number, task.next_claim, result, now, decisions)
        yield from self._decide(decisions, now)

    def _failed(self, subtask: Subtask, number: int, reason: str, decisions: record_writer.Decisions) -> Decisions:
        if self._writer.failed(subtask, number, decisions):
            yield Log("warning", f"record {number} of {subtask}: {reason}")
            yield self._message(control.RecordFailed(self._incarnation, subtask, number, reason))

    def obey(self, message: control.CoordinatorMessage, now: float) -> Decisions:
        """Take a message of the coordinator."""
        decisions = record_writer.Decisions()
        match message:
            case control.TriggerSnapshot(_, snapshot_id):
                decisions.due += self._writer.request(snapshot_id)
            case control.NeighbourRecorded(_, sent, processed, checkpoint):
                self._writer.neighbour_recorded(sent, processed, checkpoint, decisions)
            case control.RecordNow(_, subtasks):
                decisions.due += subtasks
            case control.PermitRecords(_, claim, is_complete):
                decisions.announce += self._writer.newest()
                self._writer.permitted(claim, is_complete, decisions)
            case control.AnnouncePublished(_, snapshot_id, _, is_last):
                if is_last:  # each record was committed when it was stored
                    yield self._message(control.PublicationDone(self._incarnation, snapshot_id, tuple(self._machines)))
            case _:
                pass  # lower ids mean nothing to records
        yield from self._decide(decisions, now)

    def _decide(self, decisions: record_writer.Decisions, now: float) -> Decisions:
        """Perform decisions about records. A record is announced before its commits, which may fail."""
        for record in decisions.write:
            yield Perform(self._incarnation, WriteRecord(record, self._writer.next_claim))
        for subtask, senders in decisions.awaits:
            yield self._message(control.RecordAwaits(self._incarnation, subtask, senders))
        for claim in decisions.fenced:
            yield self._message(control.RecordFenced(self._incarnation, claim))
        for record, seconds in decisions.announce:
            yield self._message(control.RecordAnnounced(self._incarnation, record, seconds))
        for subtask in decisions.stored:
            yield Pass(RecordStored(), (subtask,))
        for subtask, number in decisions.commit:
            yield Pass(SnapshotPublished(number), (subtask,))
        for subtask in decisions.failed:
            yield Await(RecordDeadline(subtask), now + self._recording(subtask).interval)
        for subtask in decisions.due:
            yield from self._record(subtask, now)

    def _message(self, message: control.WorkerMessage) -> SendToCoordinator:
        return SendToCoordinator((message,))
