"""Process the control messages of one worker, and the reports of its subtasks.

The machine owns the subtasks of the present incarnation, and every deadline. The machine has no I/O, no thread and no
clock. A shell passes events to `step` and performs the effects. The worker process, the simulator and the explorer are
such shells. Data does not pass through the machine: shells run the turns of `subtasks` themselves, and report
`TurnEnded` or `DataFailed`.

Rules, each with its reason:

1. A message of another incarnation is dropped, because the data of that incarnation is gone.
2. A registration names the incarnation of the worker, because a new coordinator adopts a run only when all agree.
3. A worker accepts only the highest claim received so far (PROTOCOL 7), because a fenced coordinator may still run.
   After a refused claim, every message is dropped until a coordinator connects, because the fenced coordinator may
   have queued messages before.
4. After a failure no subtask runs until the next `Deploy`, because all workers roll back to one snapshot together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from cutline.snapshot.coordinator import control
from cutline.snapshot.coordinator.deploy_chunks import DeploymentAssembler
from cutline.snapshot.error_text import printable
from cutline.snapshot.errors import ChannelError, CutlineError, GraphError, NodeError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.backend import INLINE_BYTES_MAX
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.subtask import reports
from cutline.snapshot.subtask.events import (
    AlignmentTimedOut,
    ClockAnnounced,
    ClockAsked,
    ComponentEnded,
    ControlEvent,
    MinSnapshotIdRaised,
    RequestAnswered,
    SnapshotPublished,
    SnapshotRequested,
    Started,
)
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.strand import ChangeCaptured, Strand
from cutline.snapshot.worker.acknowledgements import Acknowledgements, LedgerDecisions
from cutline.snapshot.worker.collector import Await, Collector, Decisions, Pass, ToCoordinator
from cutline.snapshot.worker.events import (
    AdmitPeers,
    AlignmentDeadline,
    CloseSubtasks,
    CoordinatorConnected,
    CoordinatorMessageReceived,
    DataFailed,
    Deadline,
    DeadlinePassed,
    DialPeers,
    DisconnectCoordinator,
    DropConnections,
    Effect,
    Event,
    FailureReportDeadline,
    FlushLinks,
    IdleDeadline,
    Leave,
    Log,
    OpenDataPlane,
    PartsRead,
    PartsStored,
    PartsUnreadable,
    PeerLost,
    PeersConnected,
    Perform,
    Performed,
    ReadParts,
    ReadPeers,
    RecordDeadline,
    Register,
    RemoveVersions,
    RepeatDeadline,
    ReportProgress,
    RequestDeadline,
    SendToCoordinator,
    Stage,
    StoreParts,
    TurnEnded,
    UploadDeadline,
)
from cutline.snapshot.worker.ledger import AnyTask, CollectorTask, Ledger, TaskRefused
from cutline.snapshot.worker.restored_parts import RestoredParts
from cutline.snapshot.worker.upload_batcher import BATCH_BYTES_MAX, BATCH_SECONDS_MAX, PendingUpload, UploadBatcher

#: permanent errors, which a retry cannot repair
_PERMANENT = (RestoreRefused, SnapshotCorrupt, GraphError)

_REPEAT, _IDLE, _FAILURE_REPORT = RepeatDeadline(), IdleDeadline(), FailureReportDeadline()


#: Makes the machines of a deployment.
MakeSubtasks = Callable[[RestoredParts], Mapping[Subtask, SubtaskMachine]]

#: Makes the ledgers of a deployment, of a run, for its machines, with so many bytes for each subtask in the manifest.
MakeLedgers = Callable[
    [control.Deploy, str, Mapping[Subtask, SubtaskMachine], int], Mapping[tuple[Subtask, Strand], Ledger]
]

#: Makes the collector of a deployment, of a run, for its machines, with the seconds that a node waits for an answer.
MakeCollector = Callable[[RestoredParts, str, Mapping[Subtask, SubtaskMachine], float], Collector]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Times and sizes of one worker."""

    #: seconds of quiet after which a worker counts as idle, because pauses between messages of a busy peer are shorter
    idle_seconds: float = 0.02
    #: seconds by which the report of a lost peer is delayed, because the peer's own reason must come first. A failed
    #: peer reports in milliseconds. Only two running workers that lost each other wait for the full delay.
    failure_report_seconds: float = 0.5
    #: seconds that a node waits for the answer to `requestSnapshot`. A coordinator answers in milliseconds. A lost
    #: coordinator is replaced in about a second.
    request_seconds: float = 5.0
    #: seconds after which the acknowledgement of an aggregate is sent again, until its snapshot is settled. One may be
    #: lost with a connection, and no timeout ends a snapshot for which only aggregates are missing (PROTOCOL 13.5)
    repeat_seconds: float = 10.0
    #: bytes; see `UploadBatcher`
    batch_bytes_max: int = BATCH_BYTES_MAX
    #: bytes of one subtask's keyed rows that may go inside the manifest
    inline_bytes_max: int = INLINE_BYTES_MAX


class _Makers(NamedTuple):
    subtasks: MakeSubtasks
    ledgers: MakeLedgers
    collector: MakeCollector


@dataclass(slots=True)
class _Data:
    """What is gathered of the snapshots of one incarnation."""

    uploads: UploadBatcher = field(default_factory=lambda: UploadBatcher(0))
    acknowledgements: Acknowledgements = field(default_factory=lambda: Acknowledgements(0, {}))
    #: id of the run's last snapshot, or None; the coordinator waits only for the commits of this snapshot
    last_snapshot: int | None = None
    #: subtasks that have restored steps to repeat
    replaying: dict[Subtask, None] = field(default_factory=dict)
    collector: Collector = field(default_factory=ToCoordinator)


class WorkerMachine:
    """The machine of one worker.

    Parameters
    ----------
    number : int
        The worker's number in its stage.
    make_subtasks : callable
        Makes the machines of a deployment, not yet restored. May raise CutlineError.
    make_ledgers : callable
        Makes the ledgers of a deployment: `snapshot.assembly.ledgers_of`.
    make_collector : callable
        Makes the collector of a deployment: `snapshot.assembly.collector_of`.
    settings : WorkerSettings, optional
    """

    def __init__(
        self,
        number: int,
        make_subtasks: MakeSubtasks,
        make_ledgers: MakeLedgers,
        make_collector: MakeCollector,
        settings: WorkerSettings = WorkerSettings(),  # frozen
    ) -> None:
        self.number = number
        self.stage = Stage.WAITING
        #: incarnation of the last deployment, or 0 before the first
        self.incarnation = 0
        #: {subtask: machine} of this incarnation; empty before the machines are made
        self.subtasks: Mapping[Subtask, SubtaskMachine] = {}
        #: {deadline: seconds since the epoch}; the shell reports a passed deadline with `DeadlinePassed`
        self.deadlines: dict[Deadline, float] = {}
        self._makers = _Makers(make_subtasks, make_ledgers, make_collector)
        self._settings = settings
        #: highest claim received so far, or 0
        self._claim = 0
        #: whether the connected coordinator has a lower claim; messages are dropped until the next connection
        self._is_coordinator_fenced = False
        self._assembler = DeploymentAssembler()
        #: `Deploy.worker_of_place` of the last deployment
        self.worker_of_place: tuple[int, ...] = ()
        self._data = _Data()
        self._is_reported_idle = False
        #: delayed report of a lost peer, or None
        self._failure: control.WorkerFailed | None = None
        self._effects: list[Effect] = []

    # ---------------------------------------------------------------- steps and deadlines

    def step(self, event: Event, now: float) -> list[Effect]:
        """Process one event.

        Parameters
        ----------
        event : Event
        now : float
            Seconds since the epoch.

        Returns
        -------
        list of Effect
            Effects to perform in order, before the next event.
        """
        try:
            self._take(event, now)
        except CutlineError as error:
            self._fail(error, now)
        if self.stage is Stage.RUNNING and self._data.acknowledgements.repeated:
            self.deadlines.setdefault(_REPEAT, now + self._settings.repeat_seconds)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline(self) -> float | None:
        """Return the time of the next deadline in seconds since the epoch, or None without deadlines."""
        return min(self.deadlines.values(), default=None)

    def passed_deadlines(self, now: float) -> list[Deadline]:
        """Return the deadlines that have passed at `now`."""
        return [deadline for deadline, at in self.deadlines.items() if at <= now]

    def validate(self) -> None:
        """Assert every invariant of the worker, and of its subtasks."""
        if self.stage in (Stage.WAITING, Stage.RESTORING):
            assert not self.subtasks
        if self.stage is not Stage.RUNNING:
            assert all(isinstance(deadline, FailureReportDeadline) for deadline in self.deadlines), self.deadlines
            assert not self._is_reported_idle
        assert (self._failure is None) == (_FAILURE_REPORT not in self.deadlines)
        assert self._failure is None or self.stage is Stage.FAILED
        assert not self._effects
        for machine in self.subtasks.values():
            machine.validate()

    def _take(self, event: Event, now: float) -> None:
        match event:
            case TurnEnded(is_idle):
                if self.stage is Stage.RUNNING:
                    self._dispatch_reports(now)
                    self._note_idleness(is_idle, now)
                    for after_turns in self._data.collector.after_turns:
                        self._follow(after_turns(now), now)
            case CoordinatorMessageReceived(message):
                self._obey(message, now)
            case PartsStored(messages):
                self._decided(self._data.acknowledgements.parts_stored(messages), now)
            case Performed(incarnation, task, result):
                if incarnation == self._data.acknowledgements.incarnation:
                    self._on_performed(task, result, now)
            case DeadlinePassed(deadline):
                if self.deadlines.pop(deadline, None) is not None:
                    self._pass_deadline(deadline, now)
            case DataFailed(error):
                self._fail(error, now)
            case PeerLost(incarnation, reason):
                if incarnation == self.incarnation:
                    self._fail(ChannelError(reason), now)
            case PartsRead(parts):
                if parts.deploy.incarnation == self.incarnation and self.stage is Stage.RESTORING:
                    self._restore(parts, now)
            case PartsUnreadable(incarnation, error):
                if incarnation == self.incarnation and self.stage is Stage.RESTORING:
                    self._fail(error, now)
            case PeersConnected(incarnation):
                if incarnation == self.incarnation and self.stage is Stage.CONNECTING:
                    self.stage = Stage.CONNECTED
                    self._send(control.WorkerConnected(self.number, self.incarnation))
            case CoordinatorConnected():
                self._is_coordinator_fenced = False
                is_running = self.stage is Stage.RUNNING
                running = self.incarnation if is_running else 0
                self._effects.append(Register(running, is_running and self._is_replaying, self.worker_of_place))
                self._forget_idleness()
            case _:
                assert_never(event)

    # ---------------------------------------------------------------- the coordinator

    def _obey(self, message: control.CoordinatorMessage, now: float) -> None:
        match message:
            case control.Welcome(claim, _):
                self._welcome(claim, now)
            case _ if self._is_coordinator_fenced:
                self._effects.append(Log("debug", f"{message} is of a fenced coordinator"))
            case control.Deploy():
                self._deploy(message)
            case control.Finish(reason):
                self._leave(f"leaving: {reason}", is_finished=True)
            case control.Quit(reason):
                text = f"leaving, so that the stage can be submitted again: {reason}"
                self._leave(text, is_finished=False)
            case _ if message.incarnation != self.incarnation:
                self._ignore(message)
            case control.Connect(incarnation, addresses):
                if self.stage is not Stage.RESTORED:
                    self._ignore(message)
                    return
                self.stage = Stage.CONNECTING
                self._effects.append(DialPeers(incarnation, addresses))
            case control.StartProcessing():
                self._start(message, now)
            case _ if self.stage is not Stage.RUNNING:
                self._ignore(message)
            case _ if isinstance(message, self._data.collector.obeys):
                self._follow(self._data.collector.obey(message, now), now)
            case control.TriggerSnapshot(_, snapshot_id, subtasks, running, min_snapshot_id):
                for subtask in subtasks:
                    self.deadlines.pop(RequestDeadline(subtask), None)
                self._pass(SnapshotRequested(snapshot_id, tuple(running), min_snapshot_id), now, subtasks)
            case control.AskClock() | control.AnnounceClock():
                self._negotiate(message, now)
            case control.AnswerSnapshotRequest(_, subtask):
                self.deadlines.pop(RequestDeadline(subtask), None)
                self._pass(RequestAnswered(), now, [subtask])
            case control.DiscardSnapshotsBelow(_, min_snapshot_id):
                self._discard_below(min_snapshot_id, now)
            case control.AnnouncePublished():
                self._published(message, now)
            case control.PruneVersions(_, kept):
                self._effects.append(RemoveVersions(kept))
            case control.EndComponent(_, nodes):
                self._pass(ComponentEnded(), now, [subtask for subtask in self.subtasks if subtask.node in nodes])
                self._forget_idleness()
            case control.NeighbourRecorded() | control.RecordNow() | control.PermitRecords():
                self._ignore(message)
            case _:
                assert_never(message)

    def _negotiate(self, message: control.AskClock | control.AnnounceClock, now: float) -> None:
        if isinstance(message, control.AskClock):
            asked = [subtask for subtask, machine in self.subtasks.items() if machine.components.assigner.gives_clock]
            self._pass(ClockAsked(message.snapshot_id), now, asked)
        else:
            self._pass(ClockAnnounced(message.snapshot_id, message.clock), now)

    def _start(self, message: control.StartProcessing, now: float) -> None:
        if self.stage is not Stage.CONNECTED:
            self._ignore(message)
            return
        self.stage = Stage.RUNNING
        self._pass(Started(), now)
        self._effects.append(ReadPeers())
        self._follow(self._data.collector.started(now), now)

    def _published(self, message: control.AnnouncePublished, now: float) -> None:
        self._decided(self._data.acknowledgements.settled(message.snapshot_id, 0), now)
        self._discard_below(message.min_snapshot_id, now)
        if message.is_last:
            self._data.last_snapshot = message.snapshot_id
        self._pass(SnapshotPublished(message.snapshot_id), now)

    def _welcome(self, claim: int, now: float) -> None:
        self._is_coordinator_fenced = claim < self._claim
        if self._is_coordinator_fenced:
            reason = f"the coordinator has claim {claim}, but {self._claim} is known"
            self._effects.append(DisconnectCoordinator(reason))
            return
        self._claim = claim
        # Answer the waiting requests, because an earlier coordinator received them and will never answer.
        asked = [deadline.subtask for deadline in self.deadlines if isinstance(deadline, RequestDeadline)]
        for subtask in asked:
            del self.deadlines[RequestDeadline(subtask)]
        if asked:
            self._pass(RequestAnswered(), now, asked)

    def _deploy(self, message: control.Deploy) -> None:
        if message.incarnation < self.incarnation or (
            message.incarnation == self.incarnation and self.stage not in (Stage.RESTORING, Stage.FAILED)
        ):
            self._ignore(message)
            return
        if message.incarnation > self.incarnation:
            self._drop_data()
            self.stage, self.incarnation = Stage.RESTORING, message.incarnation
            self._effects.append(AdmitPeers(message.incarnation))
        whole = self._assembler.take(message)
        if whole is None:
            self._send(control.DeployTaken(self.number, self.incarnation))
        elif self.stage is Stage.RESTORING:
            self.worker_of_place = whole.worker_of_place
            self._effects.append(ReadParts(whole))

    def _ignore(self, message: control.CoordinatorMessage) -> None:
        self._effects.append(Log("debug", f"{message} is not for incarnation {self.incarnation}, {self.stage.value}"))

    def _leave(self, text: str, *, is_finished: bool) -> None:
        self._effects += [Log("info", text), Leave(is_finished)]
        self._drop_data()
        self.stage = Stage.WAITING

    # ---------------------------------------------------------------- the data of one incarnation

    def _restore(self, parts: RestoredParts, now: float) -> None:
        try:
            self.subtasks = self._makers.subtasks(parts)
            for each in parts.deploy.subtasks:
                machine = self.subtasks[each.subtask]
                machine.restore(parts.restored(each, machine.context.run), now)
        except OSError as error:  # a spill file
            self._fail(error, now)
            return
        run = next((machine.context.run for machine in self.subtasks.values()), "")
        self._data = _Data(
            UploadBatcher(len(self.subtasks), self._settings.batch_bytes_max),
            Acknowledgements(
                self.incarnation,
                self._makers.ledgers(parts.deploy, run, self.subtasks, self._settings.inline_bytes_max),
            ),
            replaying=dict.fromkeys(parts.steps),
            collector=self._makers.collector(parts, run, self.subtasks, self._settings.request_seconds),
        )
        self.stage = Stage.RESTORED
        self._effects.append(OpenDataPlane(self.incarnation, self.subtasks, self.worker_of_place))
        self._send(control.WorkerRestored(self.number, self.incarnation, parts.rerouted))

    @property
    def _is_replaying(self) -> bool:
        return bool(self._data.replaying)

    def _drop_data(self) -> None:
        if self.stage is Stage.WAITING:
            return
        self._effects += [DropConnections(), CloseSubtasks(tuple(self.subtasks.values()))]
        self.subtasks = {}
        self._data = _Data()
        self._forget_deadlines()

    def _fail(self, error: Exception, now: float) -> None:
        """Stop all subtasks and report the reason. The coordinator then deploys a new incarnation (PROTOCOL 6.1)."""
        if self.stage in (Stage.WAITING, Stage.FAILED):
            return
        self.stage = Stage.FAILED
        self._forget_deadlines()
        for machine in self.subtasks.values():
            for report in machine.take_reports():
                if isinstance(report, reports.SuspectHandled):  # the failure is judged by it
                    self._send(control.SuspectHandled(self.incarnation, report.suspect))
        failed = control.WorkerFailed(
            self.number,
            self.incarnation,
            printable(str(error)),
            isinstance(error, _PERMANENT),
            error.failed_event if isinstance(error, NodeError) else None,
        )
        # A worker whose node raised closes the connections to its peers. The report of that worker must come first,
        # because only the first reason is shown and counted.
        if isinstance(error, ChannelError) and self._settings.failure_report_seconds:
            self._failure = failed
            self.deadlines[_FAILURE_REPORT] = now + self._settings.failure_report_seconds
        else:
            self._report_failure(failed)
        self._effects.append(DropConnections())

    def _report_failure(self, failed: control.WorkerFailed) -> None:
        self._effects.append(Log("warning", f"rolling back: {failed.reason}"))
        self._send(failed)

    def _forget_deadlines(self) -> None:
        self.deadlines.clear()
        self._failure = None
        self._is_reported_idle = False

    def _pass_deadline(self, deadline: Deadline, now: float) -> None:
        match deadline:
            case AlignmentDeadline(snapshot_id, subtask):
                self._pass(AlignmentTimedOut(snapshot_id), now, [subtask])
            case RequestDeadline(subtask):
                text = f"{subtask} asked for a snapshot and got no answer; it goes on without"
                self._effects.append(Log("warning", text))
                self._pass(RequestAnswered(), now, [subtask])
            case UploadDeadline(snapshot_id):
                self._store(self._data.uploads.release(snapshot_id))
            case RepeatDeadline():
                if messages := self._data.acknowledgements.repeated.values():
                    self._effects.append(SendToCoordinator(tuple(messages)))
            case IdleDeadline():
                self._is_reported_idle = True
                self._send(control.WorkerIdle(self.number, self.incarnation, True))
            case RecordDeadline(subtask):
                self._follow(self._data.collector.due(subtask, now), now)
            case FailureReportDeadline():
                failed, self._failure = self._failure, None
                assert failed is not None
                self._report_failure(failed)
            case _:
                assert_never(deadline)

    # ---------------------------------------------------------------- the subtasks

    def _pass(self, event: ControlEvent, now: float, subtasks: Iterable[Subtask] | None = None) -> None:
        """Pass an event to all subtasks, or to the named subtasks, and process their reports."""
        for subtask in self.subtasks if subtasks is None else subtasks:
            self.subtasks[subtask].step(event, now)
        self._effects.append(FlushLinks())
        self._dispatch_reports(now)

    def _discard_below(self, min_snapshot_id: int, now: float) -> None:
        """Drop snapshots below `min_snapshot_id`, because they are published or aborted (PROTOCOL 3.4, minimum id)."""
        self._data.uploads.discard_below(min_snapshot_id)
        self._decided(self._data.acknowledgements.settled(0, min_snapshot_id), now)
        for deadline in list(self.deadlines):
            if isinstance(deadline, AlignmentDeadline | UploadDeadline) and deadline.snapshot_id < min_snapshot_id:
                del self.deadlines[deadline]
        self._pass(MinSnapshotIdRaised(min_snapshot_id), now)

    def _dispatch_reports(self, now: float) -> None:
        """Process the subtasks' reports, in order."""
        committed: list[Subtask] = []  # one message, because all commit in one turn
        for machine in self.subtasks.values():
            for report in machine.take_reports():
                self._dispatch(report, now, committed)
        if committed:
            assert self._data.last_snapshot is not None
            self._send(control.PublicationDone(self.incarnation, self._data.last_snapshot, tuple(committed)))

    def _dispatch(self, report: reports.Report, now: float, committed: list[Subtask]) -> None:
        match report:
            case Contribution(snapshot_id):
                if uploads := self._data.uploads.add(report, now):
                    self.deadlines.pop(UploadDeadline(snapshot_id), None)
                    self._store(uploads)
                else:
                    self.deadlines.setdefault(UploadDeadline(snapshot_id), now + BATCH_SECONDS_MAX)
            case ChangeCaptured():
                self._decided(self._data.acknowledgements.captured(report), now)
            case reports.ClockGiven(snapshot_id, subtask, seen, has_ended):
                self._send(control.ClockAnswered(self.incarnation, snapshot_id, subtask, seen, has_ended))
            case reports.RecordTaken():
                self._follow(self._data.collector.captured(report, now), now)
            case reports.Replayed(subtask):
                del self._data.replaying[subtask]
                if not self._data.replaying:
                    self._send(control.WorkerReplayed(self.number, self.incarnation))
            case reports.SnapshotFailed(snapshot_id, subtask, reason):
                declined = control.SnapshotDeclined(self.incarnation, snapshot_id, subtask, reason)
                self._decided(self._data.acknowledgements.parts_stored([declined]), now)
            case reports.SnapshotAsked(subtask):
                self._follow(self._data.collector.asked(subtask, now), now)
            case reports.PublicationHandled(snapshot_id, subtask):
                if snapshot_id == self._data.last_snapshot and self._data.acknowledgements.may_report(report):
                    committed.append(subtask)
            case reports.SuspectHandled(suspect):
                self._send(control.SuspectHandled(self.incarnation, suspect))
            case reports.AlignmentStarted(snapshot_id, subtask, timeout):
                self.deadlines[AlignmentDeadline(snapshot_id, subtask)] = now + timeout
            case reports.SubtaskEnded(subtask):
                self._note_end(subtask, now)
            case _:
                assert_never(report)

    def _note_end(self, subtask: Subtask, now: float) -> None:
        self._effects.append(Log("info", f"{subtask} has ended"))
        self._effects.append(ReportProgress())
        self._follow(self._data.collector.ended(subtask, now), now)

    def _store(self, uploads: tuple[PendingUpload, ...]) -> None:
        if uploads:
            self._effects.append(StoreParts(self.incarnation, uploads))

    def _on_performed(self, task: AnyTask, result: object, now: float) -> None:
        if isinstance(result, TaskRefused):
            self._fail(result.error, now)
        elif not isinstance(task, CollectorTask):
            self._decided(self._data.acknowledgements.done(task, result), now)
        elif self.stage is Stage.RUNNING:
            self._follow(self._data.collector.performed(task, result, now), now)

    def _decided(self, decisions: LedgerDecisions, now: float) -> None:
        self._effects += [Perform(self.incarnation, task) for task in decisions.tasks]
        is_running = self.stage is Stage.RUNNING
        self._follow(self._data.collector.stored(decisions.messages, now, is_running=is_running), now)

    def _follow(self, decisions: Decisions, now: float) -> None:
        """Perform the decisions of the collector, each before the collector makes the next one."""
        for decision in decisions:
            match decision:
                case Pass(event, subtasks):
                    self._pass(event, now, subtasks)
                case Await(deadline, at):
                    self.deadlines[deadline] = at
                case _:
                    self._effects.append(decision)

    def _note_idleness(self, is_idle: bool, now: float) -> None:
        """Report changes between busy and idle, but not each pause."""
        if not is_idle:
            was_reported = self._is_reported_idle
            self._forget_idleness()
            if was_reported:
                self._send(control.WorkerIdle(self.number, self.incarnation, False))
        elif not self._is_reported_idle and now >= self.deadlines.setdefault(_IDLE, now + self._settings.idle_seconds):
            del self.deadlines[_IDLE]
            self._pass_deadline(_IDLE, now)

    def _forget_idleness(self) -> None:
        """Clear the reported idleness, because the next idle period must be reported again."""
        self._is_reported_idle = False
        self.deadlines.pop(_IDLE, None)

    def _send(self, message: control.WorkerMessage) -> None:
        self._effects.append(SendToCoordinator((message,)))
