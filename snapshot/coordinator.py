"""The coordinator's decisions: trigger, collect, publish, abort, roll back, end. A state machine without I/O.

``step`` is its one door. The shell around it (a Ray actor, the simulator) performs the effects in order and
brings what comes of them back as events. Who may publish is `snapshot.fence`'s; which snapshot is due is
`snapshot.snapshot_book`'s; what is restored is `snapshot.recovery`'s.

::

    CLAIMING ─> GATHERING ─┬─ all still run one incarnation ───────────────┐
       ^                   └─> READING ─> RESTORING ─> CONNECTING ─> RUNNING ─> FINISHING ─> ENDED
       │                                      │             │           │           │
       └──────────── rollback: a worker failed or was lost ─────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from snapshot.certificate import problems
from snapshot.control import (
    AnnouncePublished,
    AnswerSnapshotRequest,
    Connect,
    CoordinatorMessage,
    Deploy,
    EndComponent,
    Finish,
    PublicationDone,
    Quit,
    RestoredSubtask,
    SettleSnapshots,
    SnapshotAcknowledged,
    SnapshotAskedFor,
    SnapshotDeclined,
    StartProcessing,
    TriggerSnapshot,
    Welcome,
    WorkerConnected,
    WorkerFailed,
    WorkerIdle,
    WorkerRegistered,
    WorkerRestored,
)
from snapshot.coordinator_events import (
    AskStore,
    Begin,
    CloseOrder,
    CollectOrphans,
    DeleteSnapshots,
    Effect,
    Event,
    ManifestRead,
    ManifestUnreadable,
    ReadManifest,
    SnapshotOrdered,
    SnapshotsDeleted,
    StageEnded,
    StageLaunched,
    StopOrdered,
    StoreAnswered,
    TellWorker,
    TimePassed,
    WorkerLost,
    WorkerSaid,
)
from snapshot.errors import RestoreRefused, SnapshotCorrupt
from snapshot.fence import Fence
from snapshot.fence_events import (
    Continue,
    FenceEffect,
    Publish,
    Published,
    Rollback,
    Start,
    Stop,
    Unpublished,
    WriteManifest,
)
from snapshot.ids import Subtask
from snapshot.manifest import Manifest
from snapshot.members import Members
from snapshot.recovery import fresh_start, plan_restore
from snapshot.restart_policy import RestartCounter, RestartPolicy
from snapshot.snapshot_book import PendingSnapshot, SnapshotBook, SnapshotPolicy
from snapshot.termination import ended_components, is_final
from snapshot.topology import Topology


class Phase(Enum):
    """Where the run stands; the diagram is the module's."""

    CLAIMING = "claiming"
    GATHERING = "gathering"
    READING = "reading"
    RESTORING = "restoring"
    CONNECTING = "connecting"
    RUNNING = "running"
    FINISHING = "finishing"
    ENDED = "ended"


#: Phases in which workers hold data of the current incarnation, so that losing one means rolling back.
_DEPLOYED = (Phase.RESTORING, Phase.CONNECTING, Phase.RUNNING, Phase.FINISHING)


class Outcome(Enum):
    """How a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Restart:
    """One rollback: kept and shown."""

    at: float  #: seconds since the epoch
    reason: str


@dataclass(frozen=True)
class RunSettings:
    """What the driver decided for a run."""

    run: str
    topology: Topology
    worker_count: int
    policy: SnapshotPolicy
    restart_policy: RestartPolicy
    #: newest snapshots that retention keeps, besides the pinned
    retained: int
    #: names of `snapshot.recovery.ALLOWANCES`
    allow: tuple[str, ...]
    #: (run, snapshot_id) that a fork starts from while it has no snapshot of its own
    forked_from: tuple[str, int] | None
    #: seconds for all workers to register, after which the stage is given up
    gathering_timeout: float


class Coordinator:
    """One life of a run's coordinator.

    Parameters
    ----------
    settings : RunSettings
    fence : Fence
        Fresh; the first event starts it.
    launch : str
        Token of the stage that is known to be newest.
    epoch_offset : float
        Seconds to add to the monotonic time of events for seconds since the epoch.
    """

    def __init__(self, settings: RunSettings, fence: Fence, *, launch: str, epoch_offset: float) -> None:
        self.settings = settings
        self.topology = settings.topology
        self.phase = Phase.CLAIMING
        self.outcome: Outcome | None = None
        self.reason = ""
        #: number of the claim of the last rollback; 0 before the first
        self.incarnation = 0
        #: ids of the run's published snapshots, ascending
        self.history: list[int] = []
        self.restarts: list[Restart] = []
        self.aborted: list[tuple[int, str]] = []
        self.book = SnapshotBook(settings.policy)
        self.members = Members(settings.worker_count)
        self.members.launch = launch
        self._fence = fence
        self._epoch_offset = epoch_offset
        self._placement = settings.topology.place(settings.worker_count)
        self._restart_counter = RestartCounter(settings.restart_policy)
        self._now = 0.0
        #: data that workers may still run is not taken over: something failed
        self._must_roll_back = False
        self._not_before = 0.0
        self._gathering_until = 0.0
        #: {snapshot_id: manifest that the fence is to write}
        self._manifests: dict[int, Manifest] = {}
        #: what was or is being restored
        self._restored_manifest: Manifest | None = None
        #: a worker was active since the last snapshot that idleness triggered
        self._was_active = True
        self._stop_after: int | None = None
        #: while FINISHING: the snapshot, and who has not committed it
        self._committing: tuple[int, dict[Subtask, None]] = (0, {})
        self._effects: list[Effect] = []

    # ---------------------------------------------------------------- the door

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take one event. `now`: seconds of a clock that never goes back. Effects are to be performed in order."""
        self._now = max(self._now, now)
        if self.phase is not Phase.ENDED or isinstance(event, SnapshotOrdered | StopOrdered | WorkerSaid):
            self._take(event)
        effects, self._effects = self._effects, []
        return effects

    def next_alarm(self) -> float | None:
        """When `TimePassed` is due; None: not before another event."""
        times: list[float | None] = [self.book.next_deadline()]
        if self.phase is Phase.RUNNING:
            times.append(self.book.due_at())
        if self.phase is Phase.GATHERING:
            times.append(self._not_before if self.members.all_there else self._gathering_until)
        return min((at for at in times if at is not None), default=None)

    @property
    def epoch(self) -> float:
        """Seconds since the epoch, at the last event."""
        return self._now + self._epoch_offset

    def _take(self, event: Event) -> None:
        match event:
            case Begin():
                self._fenced(self._fence.step(Start()))
            case WorkerSaid(worker, message):
                self._on_worker(worker, message)
            case WorkerLost(worker, reason):
                self._on_lost(worker, reason)
            case StageLaunched(launch):
                self.members.launch = launch
                self.members.clear()
                self._gathering_until = self._now + self.settings.gathering_timeout
            case StageEnded(launch, reason):
                self._on_stage_ended(launch, reason)
            case StoreAnswered(answer):
                self._on_store(answer)
            case ManifestRead(manifest):
                self._on_manifest(manifest)
            case ManifestUnreadable(reason):
                self._end(Outcome.FAILED, reason)
            case SnapshotsDeleted(snapshot_ids):
                self.history = [s for s in self.history if s not in snapshot_ids]
            case SnapshotOrdered(order):
                if self.phase is Phase.ENDED:
                    self._effects.append(CloseOrder(order.request, None, f"the run has ended: {self.reason}"))
                    return
                self.book.orders.append(order)
                self._trigger_ordered()
            case StopOrdered():
                self._on_stop(event)
            case TimePassed():
                self._on_time()
            case _:
                assert_never(event)

    # ---------------------------------------------------------------- workers

    def _on_worker(self, worker: int, message: object) -> None:
        match message:
            case WorkerRegistered():
                self._on_registered(message)
            case WorkerRestored(_, incarnation) if self._is_current(incarnation, Phase.RESTORING):
                self.members[worker].restored = incarnation
                self._connect_if_restored()
            case WorkerConnected(_, incarnation) if self._is_current(incarnation, Phase.CONNECTING):
                self.members[worker].connected = incarnation
                self._start_if_connected()
            case WorkerIdle(_, incarnation, idle) if self._is_current(incarnation, *_DEPLOYED):
                self.members[worker].idle = idle
                self._was_active = True
                self._trigger_if_idle()
            case WorkerFailed(_, incarnation, reason, is_permanent) if self._is_current(incarnation, *_DEPLOYED):
                if is_permanent:
                    self._end(Outcome.FAILED, reason)
                else:
                    self._roll_back(reason)
            case SnapshotAcknowledged(incarnation, snapshot_id, record) if self._is_current(incarnation, *_DEPLOYED):
                snapshot = self.book.acknowledge(snapshot_id, record, len(self.topology.subtasks))
                if snapshot is not None:
                    self._on_whole(snapshot)
            case SnapshotDeclined(incarnation, snapshot_id, _, reason) if self._is_current(incarnation, *_DEPLOYED):
                if snapshot_id in self.book.pending:
                    self._abort(snapshot_id, reason)
            case SnapshotAskedFor(incarnation, subtask) if self._is_current(incarnation, *_DEPLOYED):
                self._on_asked(subtask)
            case PublicationDone(incarnation, snapshot_id, subtask) if self._is_current(incarnation, Phase.FINISHING):
                self._on_committed(snapshot_id, subtask)

    def _is_current(self, incarnation: int, *phases: Phase) -> bool:
        """PROTOCOL 6.1: what another incarnation says is not heard."""
        return incarnation == self.incarnation and self.phase in phases

    def _on_registered(self, registration: WorkerRegistered) -> None:
        worker = registration.worker
        if registration.launch != self.members.launch or not 0 <= worker < self.settings.worker_count:
            self._tell(worker, Quit("a newer stage has taken its place"))
            return
        if self.phase is Phase.ENDED:
            self._tell(worker, self._farewell())
            return
        if worker in self.members and self.phase in _DEPLOYED:
            self._on_lost(worker, "it registered anew")
        self.members.register(registration)
        self._tell(worker, Welcome(self._fence.claim, self.settings.worker_count))
        self._proceed_if_gathered()

    def _on_lost(self, worker: int, reason: str) -> None:
        if worker not in self.members:
            return
        self.members.remove(worker)
        if self.phase in _DEPLOYED:
            self._roll_back(f"worker {worker} was lost: {reason}")

    def _on_stage_ended(self, launch: str, reason: str) -> None:
        if launch != self.members.launch:
            return
        # Spark lets the survivors of a failed stage linger for seconds; the next stage needs their slots.
        self._tell_all(Quit("the stage has failed"))
        self.members.clear()
        self._gathering_until = self._now + self.settings.gathering_timeout
        if self.phase in _DEPLOYED:
            self._roll_back(f"the barrier stage failed: {reason}")

    # ---------------------------------------------------------------- from claim to running

    def _on_store(self, answer: object) -> None:
        try:
            effects = self._fence.step(answer)  # type: ignore[arg-type]  # checked where it was made
        except (RestoreRefused, SnapshotCorrupt) as error:
            self._end(Outcome.FAILED, str(error))
        else:
            self._fenced(effects)

    def _fenced(self, effects: Iterable[FenceEffect]) -> None:
        """Act on what the fence decides."""
        for effect in effects:
            match effect:
                case Continue(claim, history):
                    self._on_continue(claim, history)
                case Published(snapshot_id):
                    self._on_published(snapshot_id)
                case Unpublished(snapshot_id):
                    del self._manifests[snapshot_id]
                    self._abort(snapshot_id, "its manifest could not be written")
                case Stop(claim):
                    self._end(Outcome.FENCED, f"claim {claim.number} took the run: it was submitted again elsewhere")
                case WriteManifest(snapshot_id):
                    self._effects.append(AskStore(effect, self._manifests[snapshot_id]))
                case _:
                    self._effects.append(AskStore(effect, None))

    def _on_continue(self, claim: int, history: tuple[int, ...]) -> None:
        self.history = list(history)
        self._manifests.clear()
        self.book.take_block(claim, self._now)
        self.phase = Phase.GATHERING
        self._gathering_until = self._now + self.settings.gathering_timeout
        for worker in self.members.numbers():
            self._tell(worker, Welcome(claim, self.settings.worker_count))
        self._proceed_if_gathered()

    def _proceed_if_gathered(self) -> None:
        if self.phase is not Phase.GATHERING or not self.members.all_there or self._now < self._not_before:
            return
        running = self.members.common_incarnation()
        if running and not self._must_roll_back:
            self._adopt(running)
            return
        # The claim was taken before anything of this incarnation exists, so its number is the incarnation's.
        self.incarnation = self._fence.claim
        self._must_roll_back = True
        source = (self.settings.run, self.history[-1]) if self.history else self.settings.forked_from
        if source is None:
            self._restored_manifest = None
            self._deploy(fresh_start(self.topology))
        elif self._restored_manifest is not None and self._identity(self._restored_manifest) == source:
            self._on_manifest(self._restored_manifest)
        else:
            self.phase = Phase.READING
            self._effects.append(ReadManifest(*source))

    @staticmethod
    def _identity(manifest: Manifest) -> tuple[str, int]:
        return manifest.run, manifest.snapshot_id

    def _adopt(self, incarnation: int) -> None:
        """Coordinator was lost, data went on: take it over as it runs (PROTOCOL 7.5). What was pending is aborted."""
        self.incarnation = incarnation
        self.phase = Phase.RUNNING
        self._tell_all(SettleSnapshots(incarnation, self.book.floor))
        if self.history:
            # Told again: the life before may have published it without having said so.
            self._tell_all(AnnouncePublished(incarnation, self.history[-1], self.book.floor))
        self._on_running()

    def _on_manifest(self, manifest: Manifest) -> None:
        if self.phase not in (Phase.READING, Phase.GATHERING):
            return
        if not self.members.all_there:
            self.phase = Phase.GATHERING
            self._restored_manifest = manifest
            return
        try:
            plan = plan_restore(self.topology, manifest, self.settings.allow)
        except RestoreRefused as error:
            self._end(Outcome.FAILED, str(error))
            return
        self._restored_manifest = manifest
        self._deploy(plan)

    def _deploy(self, plan: list[RestoredSubtask]) -> None:
        self.phase = Phase.RESTORING
        for worker in self.members.numbers():
            subtasks = tuple(restored for restored in plan if self._placement[restored.subtask] == worker)
            self._tell(worker, Deploy(self.incarnation, subtasks))

    def _connect_if_restored(self) -> None:
        if not self.members.all_restored(self.incarnation):
            return
        if self._restored_manifest is not None and self._restored_manifest.final:
            # A finished run, submitted again: its commits were repeated by the restore, and that is all.
            self._end(Outcome.FINISHED, "all nodes have ended")
            return
        self.phase = Phase.CONNECTING
        self._tell_all(Connect(self.incarnation, self.members.addresses()))

    def _start_if_connected(self) -> None:
        if not self.members.all_connected(self.incarnation):
            return
        self.phase = Phase.RUNNING
        self._tell_all(StartProcessing(self.incarnation))
        self._on_running()

    def _on_running(self) -> None:
        self._must_roll_back = True
        self._was_active = True
        self._effects.append(CollectOrphans(self.incarnation))
        if (
            self._restored_manifest is not None
            and self.history
            and self._restored_manifest.snapshot_id == self.history[-1]
        ):
            self._end_components(self._restored_manifest)
        self._trigger_ordered()

    # ---------------------------------------------------------------- rollback and end

    def _roll_back(self, reason: str) -> None:
        """PROTOCOL 6.1. Several reports in one incarnation are one failure: only the first finds it deployed."""
        self.restarts.append(Restart(self.epoch, reason))
        delay = self._restart_counter.next_delay()
        if delay is None:
            self._end(Outcome.FAILED, f"{len(self.restarts)} restarts; the last was because {reason}")
            return
        self._not_before = self._now + delay
        self._must_roll_back = True
        self.book.give_up_all()
        self._stop_after = None
        self.phase = Phase.CLAIMING
        self._fenced(self._fence.step(Rollback()))

    def _end(self, outcome: Outcome, reason: str) -> None:
        self.phase, self.outcome, self.reason = Phase.ENDED, outcome, reason
        self._tell_all(self._farewell())
        self.book.give_up_all()
        for order in self.book.orders:
            self._effects.append(CloseOrder(order.request, None, f"the run has ended: {reason}"))
        self.book.orders.clear()

    def _farewell(self) -> CoordinatorMessage:
        return Finish(self.reason) if self.outcome in (Outcome.FINISHED, Outcome.STOPPED) else Quit(self.reason)

    def _on_stop(self, event: StopOrdered) -> None:
        if self.phase is Phase.ENDED:
            if event.order is not None:
                self._effects.append(CloseOrder(event.order.request, None, f"the run has ended: {self.reason}"))
        elif event.order is None:
            self._end(Outcome.STOPPED, "stopped by the driver")
        else:
            self._stop_after = event.order.request
            self.book.orders.append(event.order)
            self._trigger_ordered()

    def _finish_after(self, snapshot_id: int) -> None:
        """Wait until everybody has committed the last snapshot, then leave."""
        self.phase = Phase.FINISHING
        self._committing = (snapshot_id, dict.fromkeys(self.topology.subtasks))

    def _on_committed(self, snapshot_id: int, subtask: Subtask) -> None:
        last, waiting = self._committing
        if snapshot_id < last:
            return
        waiting.pop(subtask, None)
        if not waiting:
            if self._restored_manifest is not None and self._restored_manifest.final:
                self._end(Outcome.FINISHED, "all nodes have ended")
            else:
                self._end(Outcome.STOPPED, "stopped by the driver, after a snapshot")

    # ---------------------------------------------------------------- snapshots

    def _on_time(self) -> None:
        for order in self.book.expired_orders(self._now):
            self._effects.append(CloseOrder(order.request, None, f"none could be started while {self.phase.value}"))
        for snapshot in self.book.overdue(self._now):
            missing = self.book.missing(snapshot, self.topology.subtasks)
            who = ", ".join(str(subtask) for subtask in missing[:5])
            self._abort(
                snapshot.snapshot_id,
                f"not whole after {self.settings.policy.timeout:g} s; {len(missing)} subtasks are missing: {who}",
            )
        if self.phase is Phase.GATHERING:
            self._proceed_if_gathered()
            if self.phase is Phase.GATHERING and not self.members.all_there and self._now >= self._gathering_until:
                self._gathering_until = self._now + self.settings.gathering_timeout
                self._tell_all(Quit(f"workers {self.members.missing()} did not register in time"))
        due = self.book.due_at()
        if self.phase is Phase.RUNNING and due is not None and self._now >= due:
            self._trigger(self.topology.initiators())

    def _trigger_ordered(self) -> None:
        while self.phase is Phase.RUNNING and self.book.orders and self.book.has_room:
            self._trigger(self.book.orders[0].initiators or self.topology.initiators())

    def _trigger_if_idle(self) -> None:
        """Whether a quiet graph is over can only be read from a snapshot."""
        if self.phase is Phase.RUNNING and self.members.all_idle and self._was_active and not self.book.pending:
            self._was_active = False
            self._trigger(self.topology.initiators())

    def _on_asked(self, subtask: Subtask) -> None:
        if self.phase is not Phase.RUNNING or not self.book.may_ask(self._now):
            self._tell(self._placement[subtask], AnswerSnapshotRequest(self.incarnation, subtask))
            return
        inputs = self.topology.inputs_of(subtask)
        if inputs and self.topology.edge_of(inputs[0]).alignment.aligned:
            # PROTOCOL 4.2: it cannot initiate; the request is passed to those who can.
            self._trigger(self.topology.initiators())
            self._tell(self._placement[subtask], AnswerSnapshotRequest(self.incarnation, subtask))
        else:
            self._trigger((subtask,))

    def _trigger(self, initiators: tuple[Subtask, ...]) -> None:
        snapshot = self.book.open(self._now)
        # PROTOCOL 3.5: whom the initiators do not reach, the rest of the graph's own initiators do.
        reached = dict.fromkeys(self.topology.reachable(initiators))
        everybody = (*initiators, *(s for s in self.topology.initiators() if s not in reached))
        by_worker: dict[int, list[Subtask]] = {}
        for subtask in dict.fromkeys(everybody):
            by_worker.setdefault(self._placement[subtask], []).append(subtask)
        running = self.book.running_below(snapshot.snapshot_id)
        for worker, subtasks in by_worker.items():
            self._tell(
                worker,
                TriggerSnapshot(self.incarnation, snapshot.snapshot_id, tuple(subtasks), running, self.book.floor),
            )

    def _on_whole(self, snapshot: PendingSnapshot) -> None:
        records = tuple(snapshot.records[subtask] for subtask in self.topology.subtasks)
        wrong = problems(self.topology.channels, self.topology.subtasks, records, self.incarnation)
        if wrong:
            self._abort(snapshot.snapshot_id, "the cut is not consistent: " + "; ".join(wrong[:5]))
            return
        for lower in self.book.collecting_below(snapshot.snapshot_id):
            self.book.close_superseded(lower.snapshot_id, snapshot.snapshot_id, self._now)
            self.aborted.append((lower.snapshot_id, f"snapshot {snapshot.snapshot_id} was whole first"))
        snapshot.is_publishing = True
        self._manifests[snapshot.snapshot_id] = Manifest(
            run=self.settings.run,
            snapshot_id=snapshot.snapshot_id,
            incarnation=self.incarnation,
            claim=self._fence.claim,
            timestamp=snapshot.started_at + self._epoch_offset,
            duration=self._now - snapshot.started_at,
            final=is_final(records),
            pinned=snapshot.pinned,
            topology=self.topology.as_record(),
            records=records,
        )
        self._fenced(self._fence.step(Publish(snapshot.snapshot_id)))

    def _on_published(self, snapshot_id: int) -> None:
        snapshot = self.book.close_published(snapshot_id, self._now)
        manifest = self._manifests.pop(snapshot_id)
        self.history.append(snapshot_id)
        self._restart_counter.note_progress()
        self._restored_manifest = manifest  # the one that a rollback from here restores
        for order in snapshot.orders:
            self._effects.append(CloseOrder(order.request, snapshot_id, ""))
        self._tell_all(AnnouncePublished(self.incarnation, snapshot_id, self.book.floor))
        expired = tuple(self.history[: -self.settings.retained])
        if expired:
            self._effects.append(DeleteSnapshots(expired))
        if manifest.final or any(order.request == self._stop_after for order in snapshot.orders):
            self._finish_after(snapshot_id)
            return
        self._end_components(manifest)
        self._trigger_ordered()
        self._trigger_if_idle()

    def _end_components(self, manifest: Manifest) -> None:
        for part in ended_components(self.topology, manifest.records):
            self._tell_all(EndComponent(self.incarnation, part.nodes))

    def _abort(self, snapshot_id: int, reason: str) -> None:
        snapshot = self.book.close_failed(snapshot_id, self._now)
        self.aborted.append((snapshot_id, reason))
        for order in snapshot.orders:
            self._effects.append(CloseOrder(order.request, None, f"snapshot {snapshot_id}: {reason}"))
        if self.book.failures_in_a_row > self.settings.policy.tolerable_failures:
            self._roll_back(f"{self.book.failures_in_a_row} snapshots in a row failed, the last because {reason}")
            return
        self._tell_all(SettleSnapshots(self.incarnation, self.book.floor))
        self._trigger_ordered()
        self._trigger_if_idle()

    # ---------------------------------------------------------------- helpers

    def _tell(self, worker: int, message: CoordinatorMessage) -> None:
        self._effects.append(TellWorker(worker, message))

    def _tell_all(self, message: CoordinatorMessage) -> None:
        for worker in self.members.numbers():
            self._tell(worker, message)
