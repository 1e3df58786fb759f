"""Decide for a run: deploy, run, publish, roll back, end. A state machine without I/O.

Only ``step`` changes the machine. The shell (a Ray actor, the simulator) performs the effects in order, and passes the
results back as events. `snapshot.coordinator.fence` decides about publishing, `snapshot.coordinator.snapshot_tracker`
about snapshots, `snapshot.coordinator.deployment` about workers. This machine connects their decisions. ::

    CLAIMING ─> GATHERING ─┬─ all still run one incarnation ───────────────┐
       ^          │  ^     └─> RESTORING ─> CONNECTING ─> RUNNING <────────┘
       │          v  │              │           │           │ └─> FINISHING ─> ENDED
       │        READING             │           │           │         │
       └──────────── rollback: a worker failed or was lost ─┴─────────┘

A run that repeats steps is REPLAYING before RUNNING. Every phase ends by the store's answer, by a trigger, or by its
deadline. REPLAYING has no deadline, because a replay takes as long as the work that it repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import assert_never

from cutline.snapshot.coordinator import control, events
from cutline.snapshot.coordinator import fence_events as fencing
from cutline.snapshot.coordinator.bounded_history import BoundedHistory
from cutline.snapshot.coordinator.completion import (
    ClaimFound,
    Completion,
    CompletionParts,
    CompletionResult,
    NotWhole,
    StoredAlone,
    Unusable,
    Whole,
)
from cutline.snapshot.coordinator.cut_start import CutStart
from cutline.snapshot.coordinator.deployment import (
    Adopted,
    CompositionNeeded,
    Deployment,
    DeploymentResult,
    IncarnationFailed,
    Restored,
    Started,
    Unrecoverable,
)
from cutline.snapshot.coordinator.disk_placement import Placement
from cutline.snapshot.coordinator.fence import Fence, FenceState
from cutline.snapshot.coordinator.outbox import Outbox
from cutline.snapshot.coordinator.pending_snapshot import PendingSnapshot, SnapshotRequest
from cutline.snapshot.coordinator.restart_policy import Restart, Restarts
from cutline.snapshot.coordinator.retention import RemovalRequest, Retention
from cutline.snapshot.coordinator.run_state import DEPLOYED, Outcome, Phase, RunSettings
from cutline.snapshot.coordinator.snapshot_table import SnapshotTable
from cutline.snapshot.coordinator.snapshot_tracker import SnapshotTracker
from cutline.snapshot.coordinator.termination import RunTermination
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.failed_event import FailedEvent, Suspect
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.manifest import Manifest

__all__ = ["CoordinatorMachine", "Outcome", "Phase", "Restart", "RunSettings"]

#: Makes the start of the cuts of a graph.
MakeCutStart = Callable[[Topology], CutStart]

#: Makes the completion of a coordinator instance.
MakeCompletion = Callable[[CompletionParts], Completion]


class CoordinatorMachine:
    """A coordinator instance of one run.

    Parameters
    ----------
    settings : RunSettings
    fence : Fence
        A fresh fence, which the first event starts.
    make_cut_start : callable
        Makes the start of the cuts of a graph: `snapshot.assembly.cut_start_of`.
    make_completion : callable
        Makes the completion of this instance: `snapshot.assembly.completion_of`.
    launch : str
        Token of the newest known stage; "" for none.
    epoch_offset : float
        Seconds to add to the monotonic time of events, giving seconds since the epoch.
    """

    def __init__(
        self,
        settings: RunSettings,
        fence: Fence,
        make_cut_start: MakeCutStart,
        make_completion: MakeCompletion,
        *,
        launch: str,
        epoch_offset: float,
    ) -> None:
        self.settings = settings
        self.outcome: Outcome | None = None
        self.reason = ""
        self._fence = fence
        #: removals that were requested before this instance knew the history
        self._early_removals: list[RemovalRequest] = []
        #: whether restored data was unusable, and a new claim was taken to check that the run still has this owner
        self._has_doubted = False
        self._termination = RunTermination(settings.topology.subtasks)
        placement = Placement(settings.topology, settings.worker_count)
        self._registry = WorkerRegistry(settings.worker_count, launch)
        self._outbox = Outbox(self._registry, epoch_offset)
        self._restarts = Restarts(settings.restart_policy, settings.topology)
        self._retention = Retention(settings.retained)
        run, topology = settings.run, settings.topology
        self._tracker = SnapshotTracker(
            run, topology, placement.workers, settings.policy, self._registry, self._outbox, make_cut_start(topology)
        )
        self._deployment = Deployment(settings, placement, self._registry, self._restarts, self._outbox)
        #: how the pending snapshots become whole
        self.completion = make_completion(
            CompletionParts(
                settings, placement.workers, self._registry, self._outbox, self._restarts, self._tracker,
                self._deployment, fence,
            )
        )  # fmt: skip

    # ---------------------------------------------------------------- steps and properties

    def step(self, event: events.Event, now: float) -> list[events.Effect]:
        """Process one event. Return the effects to perform in order. `now` is in monotonic seconds."""
        self._outbox.now = max(self._outbox.now, now)
        if self.phase is Phase.ENDED:
            self._take_after_end(event)
        else:
            self._take(event)
        return self._outbox.take()

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which `TimePassed` is due, or None until another event."""
        if self.phase is Phase.ENDED:
            return None
        times = [self._tracker.table.next_deadline(), self._deployment.next_deadline(), self._termination.until]
        if self.phase is Phase.RUNNING:
            times.append(self._tracker.table.trigger_at(waits_for_idle=self._waits_for_idle_snapshot))
        return min((at for at in times if at is not None), default=None)

    @property
    def phase(self) -> Phase:
        """Phase of the run."""
        if self.outcome is not None:
            return Phase.ENDED
        return self._deployment.phase if self._termination.until is None else Phase.FINISHING

    @property
    def incarnation(self) -> int:
        """Number of the claim of the last rollback; 0 before the first."""
        return self._registry.incarnation

    @property
    def history(self) -> list[int]:
        """Ids of the run's published snapshots, ascending."""
        return self._retention.history

    @property
    def restarts(self) -> BoundedHistory[Restart]:
        """Failures after which the run continued, in order."""
        return self._restarts.history

    @property
    def aborted(self) -> BoundedHistory[tuple[int, str]]:
        """(id, reason) of the aborted snapshots, and (number, reason) of the failed records, in order."""
        return self._tracker.aborted

    @property
    def newest(self) -> Manifest | None:
        """Manifest of the snapshot that was published or restored last, or None if this instance knows none."""
        return self._deployment.known

    @property
    def pending(self) -> list[int]:
        """Ids of the pending snapshots, ascending."""
        return sorted(self._tracker.table.pending)

    @property
    def table(self) -> SnapshotTable:
        """The snapshot table of this instance."""
        return self._tracker.table

    @property
    def workers(self) -> dict[int, int]:
        """{worker number: process id} of the registered workers."""
        return self._registry.process_ids()

    @property
    def epoch(self) -> float:
        """Seconds since the epoch at the last event."""
        return self._outbox.epoch

    def _take(self, event: events.Event) -> None:
        match event:
            case events.Begin():
                self._fenced(self._fence.step(fencing.Start()))
            case events.WorkerMessageReceived(worker, message):
                self._on_worker(worker, message)
            case events.WorkerLost(worker, reason):
                self._on_deployment_result(self._deployment.lost(worker, reason))
            case events.StageLaunched(launch):
                self._on_deployment_result(self._deployment.stage_launched(launch))
            case events.StageEnded(launch, reason):
                self._on_deployment_result(self._deployment.stage_ended(launch, reason))
            case events.StoreAnswered(answer, check):
                self._on_store(answer, check)
            case events.ManifestRead(manifest):
                self.completion.read(manifest)
                self._on_deployment_result(self._deployment.manifest_read(manifest))
            case events.RecordsUnusable(reason):
                self._on_unusable(reason)
            case events.RecordsListed() | events.CutStored() | events.CutNotStored() | events.RecordsRemoved():
                self._on_completion_result(self.completion.answered(event))
            case events.SnapshotsDeleted(snapshot_ids, versions):
                if versions and self.phase is not Phase.CLAIMING:
                    self._outbox.broadcast(control.PruneVersions(self.incarnation, versions))
                self._on_removed(snapshot_ids)
            case events.SnapshotRequested(request):
                self._on_requested(request)
            case events.RemovalRequested(request):
                self._on_removal_requested(request)
            case events.PinChanged(snapshot_id, is_pinned):
                self._retention.reconsider(snapshot_id)
                self.table.stats.set_pinned(snapshot_id, is_pinned)
            case events.SnapshotInitiated(snapshot_id):
                self._tracker.table.open_given(snapshot_id, self._outbox.now)
            case events.StopRequested(request):
                self._on_stop(request)
            case events.RunGivenUp(reason):
                self._end(Outcome.FAILED, reason)
            case events.TimePassed():
                self._on_time()
            case _:
                assert_never(event)

    def _take_after_end(self, event: events.Event) -> None:
        match event:
            case events.WorkerMessageReceived(worker, control.WorkerRegistered()) if (
                self.outcome is not Outcome.SUPERSEDED
            ):
                self._outbox.send(worker, self._farewell())
            case events.SnapshotRequested(request) | events.StopRequested(SnapshotRequest() as request):
                self._tracker.refuse(request, self._why_over())
            case events.RemovalRequested(request):
                self._outbox.put(events.CloseRequest(request.request_id, None, self._why_over()))
            case _:
                pass  # late events have no effect

    # ---------------------------------------------------------------- workers

    def _on_worker(self, worker: int, message: control.WorkerMessage) -> None:
        match message:
            case control.WorkerRegistered():
                self._on_deployment_result(self._deployment.registered(message))
            case control.DeployTaken(_, incarnation):
                self._deployment.deploy_taken(worker, incarnation)
            case control.WorkerRestored(_, incarnation, rerouted):
                self._on_deployment_result(self._deployment.restored(worker, incarnation, rerouted))
            case control.WorkerConnected(_, incarnation):
                self._on_deployment_result(self._deployment.connected(worker, incarnation))
            case control.WorkerFailed(_, incarnation, reason, is_permanent, failed_event):
                if is_permanent and self._is_current(incarnation):
                    self._on_unusable(reason)
                else:
                    self._on_deployment_result(self._deployment.failed(worker, incarnation, reason, failed_event))
            case control.SuspectHandled(incarnation, suspect):
                if incarnation == self.incarnation:  # also after its end, because the report with the event may follow
                    self._on_handled(suspect)
            case control.WorkerReplayed(_, incarnation):
                self._on_deployment_result(self._deployment.replayed(worker, incarnation))
            case control.WorkerIdle(_, incarnation, idle):
                self._registry.note_idle(worker, incarnation if idle else 0)
                self._trigger_waiting()
            case control.SnapshotAskedFor(incarnation, subtask):
                may_start = self._is_current(incarnation) and self.phase is Phase.RUNNING
                self._tracker.ask(subtask, incarnation, may_start=may_start)
            case control.ClockAnswered(incarnation) if self._is_current(incarnation):
                self._tracker.answered(message)
            case control.SnapshotAcknowledged(incarnation) if self._is_current(incarnation):
                self._on_completion_result(self.completion.acknowledged(message))
            case control.SnapshotDeclined(incarnation, snapshot_id, _, reason) if self._is_current(incarnation):
                if self.table.is_collecting(snapshot_id):  # later only the store may end it (PROTOCOL 7.6)
                    self._abort(snapshot_id, reason)
            case (
                control.RecordAnnounced(incarnation)
                | control.RecordFailed(incarnation)
                | control.RecordAwaits(incarnation)
                | control.RecordFenced(incarnation)
            ) if self._is_current(incarnation):
                self._on_completion_result(self.completion.received(message))
            case control.PublicationDone(incarnation, snapshot_id, subtasks) if self._is_current(incarnation):
                self._on_committed(snapshot_id, subtasks)

    def _on_handled(self, suspect: Suspect) -> None:
        """Note that what had failed was handled, maybe after the cuts of what is on its way now."""
        self._restarts.note_handled(suspect, self.completion.on_its_way(suspect.subtask) + 1)

    def _is_current(self, incarnation: int) -> bool:
        """Return whether `incarnation` is deployed. Messages of other incarnations are dropped (PROTOCOL 6.1)."""
        return incarnation == self.incarnation and self._deployment.phase in DEPLOYED

    def _on_deployment_result(self, result: DeploymentResult | None) -> None:
        match result:
            case None:
                pass
            case IncarnationFailed(reason, failed_event):
                self._roll_back(reason, failed_event)
            case Unrecoverable(reason):
                self._end(Outcome.FAILED, reason)
            case Adopted():
                self.completion.begun(is_adopted=True)
                if self.history:
                    # Announce again, because the previous instance may have published without an announcement. First,
                    # because a worker takes what is settled and was not announced for aborted (PROTOCOL 13.4).
                    self._tracker.announce(self.history[-1])
                self._tracker.announce_min_snapshot_id()  # because pending snapshots were aborted
                self._on_running()
            case Restored(is_over):
                self._on_restored(is_over)
            case Started():
                self.completion.begun(is_adopted=False)
                self._on_running()
            case CompositionNeeded():
                self._on_completion_result(self.completion.compose_restored())
            case _:
                assert_never(result)

    def _on_restored(self, is_over: bool) -> None:
        if is_over or self._termination.is_stopping:
            # End now, because the restore has repeated the commits. A finished run submitted again ends here too.
            self._end(*self._termination.result())
        else:
            self._deployment.connect()

    def _on_running(self) -> None:
        self._has_doubted = False
        self._outbox.put(events.CollectOrphans(self.incarnation))
        self._trigger_waiting()

    # ---------------------------------------------------------------- the fence

    def _on_store(self, answer: fencing.Answer, check: fencing.ClaimSeen | None) -> None:
        try:
            effects = self._fence.step(answer)
            if check is not None and effects == [check.asked]:
                effects = self._fence.step(check)
        except (RestoreRefused, SnapshotCorrupt) as error:
            self._end(Outcome.FAILED, str(error))
        else:
            self._fenced(effects)

    def _fenced(self, effects: list[fencing.FenceEffect]) -> None:
        """Perform the fence's effects."""
        decisions = (fencing.Continue, fencing.Published, fencing.Unpublished, fencing.Stop)
        # Store effects come first, because a decision may lead to the next command to the fence.
        for effect in sorted(effects, key=lambda effect: isinstance(effect, decisions)):
            match effect:
                case fencing.Continue(claim, history):
                    self._retention.take_over(history)
                    self._tracker.take_block(claim, history)
                    self._on_deployment_result(self._deployment.claimed(claim, effect.snapshot_id))
                    early, self._early_removals = self._early_removals, []
                    for request in early:
                        self._on_removal_requested(request)
                case fencing.Published(snapshot_id):
                    self._on_published(snapshot_id)
                case fencing.Unpublished(snapshot_id):
                    self._abort(snapshot_id, "its manifest could not be written")
                case fencing.Stop(claim_of_other):
                    self._on_fenced(claim_of_other)
                case fencing.WriteManifest(snapshot_id):
                    manifest = self._tracker.manifests[snapshot_id]
                    self._outbox.put(events.AskStore(effect, manifest, self._fence.claim_check))
                case _:
                    is_repeated = self._fence.state is FenceState.PUBLISHING
                    self._outbox.put(events.AskStore(effect, None, is_repeated=is_repeated))

    def _on_fenced(self, claim: Claim) -> None:
        if claim.owner == self._fence.owner:
            self._end(Outcome.SUPERSEDED, f"claim {claim.number} is of another life of this coordinator")
        else:
            self._end(Outcome.FENCED, f"claim {claim.number} took the run: it was submitted again elsewhere")

    def restart_delay(self, now: float) -> float:
        """Return the seconds until the restart policy lets subtasks restart, or 0."""
        return max(0.0, self._restarts.not_before - now)

    # ---------------------------------------------------------------- rollback and end

    def _roll_back(self, reason: str, failed_event: FailedEvent | None = None) -> None:
        self._tracker.give_up_all(f"rolled back: {reason}")
        self.completion.rolled_back()
        self._termination.roll_back()
        self._deployment.await_claim()
        too_many = self._restarts.count(reason, self._outbox.now, self.epoch, failed_event)
        if too_many is None:
            self._fenced(self._fence.step(fencing.Rollback()))
        else:
            self._end(Outcome.FAILED, too_many)

    def _on_unusable(self, reason: str) -> None:
        """Take a new claim, because unusable data is damaged, or is gone because another coordinator took the run."""
        if self._has_doubted or self._deployment.phase not in (Phase.READING, *DEPLOYED):
            self._end(Outcome.FAILED, reason)
        else:
            self._has_doubted = True
            self._roll_back(reason)

    def _end(self, outcome: Outcome, reason: str) -> None:
        self.outcome, self.reason = outcome, reason
        if outcome is not Outcome.SUPERSEDED:  # else the workers belong to the other instance
            self._outbox.broadcast(self._farewell())
        self._tracker.close(self._why_over())

    def _farewell(self) -> control.Finish | control.Quit:
        is_success = self.outcome in (Outcome.FINISHED, Outcome.STOPPED)
        return control.Finish(self.reason) if is_success else control.Quit(self.reason)

    def _why_over(self) -> str:
        return f"the run has ended: {self.reason}"

    def _on_committed(self, snapshot_id: int, subtasks: tuple[Subtask, ...]) -> None:
        """End the run after the last commit. The last snapshot is the newest, so its commit includes all others."""
        if self.phase is Phase.FINISHING and snapshot_id >= self.history[-1] and self._termination.committed(subtasks):
            self._end(*self._termination.result())

    # ---------------------------------------------------------------- time

    def _on_time(self) -> None:
        now = self._outbox.now
        self._tracker.expire_requests(self.phase.value)
        for snapshot in self._tracker.table.overdue(now):
            self._abort(snapshot.snapshot_id, self._tracker.why_overdue(snapshot))
        self._on_deployment_result(self._deployment.check_deadlines())
        if self._termination.until is not None and now >= self._termination.until:
            if self._termination.waits_only_for(self.table.aggregates):  # which wait for their stores (PROTOCOL 13.5)
                self._termination.until = now + self.settings.policy.timeout
            else:
                self._on_deployment_result(self._deployment.give_up_stage(self._termination.who_is_late()))
        if self.phase is Phase.RUNNING:
            self._tracker.trigger_due()
            self._trigger_waiting()

    # ---------------------------------------------------------------- snapshots

    def _on_requested(self, request: SnapshotRequest) -> None:
        self._tracker.add_request(request)
        self._trigger_waiting()

    def _on_stop(self, request: SnapshotRequest | None) -> None:
        if request is None:
            self._end(Outcome.STOPPED, "stopped by the driver")
        else:
            self._termination.stop_requests.add(request.request_id)
            self._on_requested(request)

    def _trigger_waiting(self) -> None:
        """Start requested snapshots. When all workers are idle, start a snapshot to detect termination."""
        if self.phase is Phase.RUNNING:
            self._tracker.trigger_requested()
            self._on_completion_result(self.completion.compose_due())
            if self._waits_for_idle_snapshot and self._tracker.table.may_ask(self._outbox.now):
                self._tracker.trigger_idle()

    @property
    def _waits_for_idle_snapshot(self) -> bool:
        """All workers are idle, and no pending snapshot shows whether the run has terminated."""
        return self._tracker.cut_start.is_triggered and self._registry.all_idle and not self._tracker.table.pending

    def _on_completion_result(self, result: CompletionResult | None) -> None:
        match result:
            case None:
                pass
            case Whole(snapshot):
                self._on_whole(snapshot)
            case NotWhole(snapshot_id, reason):
                if self.phase is Phase.READING:
                    self._on_unusable(reason)
                else:
                    self._abort(snapshot_id, reason)
            case Unusable(reason):
                self._on_unusable(reason)
            case StoredAlone(is_first_round):
                if is_first_round:  # the restore has worked, and needs no snapshot to show it
                    self._note_progress(self.table.ids.first_id - 1, ())
                self._trigger_waiting()
                self.completion.remove_unneeded()
            case ClaimFound(claim):
                self._on_fenced(claim)
            case IncarnationFailed(reason):
                self._roll_back(reason)
            case _:
                assert_never(result)

    def _on_whole(self, snapshot: PendingSnapshot) -> None:
        """Publish a snapshot if its cut is consistent."""
        is_restore = self.phase is Phase.READING
        lists = None if is_restore else self._deployment.newest_lists()
        wrong = self._tracker.problems(snapshot, lists)
        if not wrong:
            self._tracker.begin_publish(snapshot, self._fence.claim)
            self._fenced(self._fence.step(fencing.Publish(snapshot.snapshot_id)))
        elif is_restore:
            self._on_unusable(f"the cut of the newest records is not consistent: {wrong}")
        else:
            self._abort(snapshot.snapshot_id, f"the cut is not consistent: {wrong}")

    def _on_published(self, snapshot_id: int) -> None:
        manifest, requests = self._tracker.mark_published(snapshot_id)
        is_restore = self.phase is Phase.READING
        is_last = not is_restore and self._termination.is_last(requests, is_final=manifest.final)
        self.completion.published(manifest)
        self._tracker.announce(snapshot_id, is_last=is_last)
        self._deployment.known = manifest
        self._retention.add(snapshot_id)
        if self._retention.is_sweep_due(self._outbox.now):
            self._outbox.put(events.CollectOrphans(self.incarnation))
        if not is_restore:  # else a run that fails again and again at its restore would go on, and lose older snapshots
            self._note_progress(snapshot_id, manifest.records)
            self.completion.remove_unneeded()
        if is_restore:
            self._on_deployment_result(self._deployment.composed(manifest))
        elif is_last:
            self._termination.await_commits(self._outbox.now + self.settings.policy.timeout)
        else:
            self._tracker.end_components(manifest)
            self._renew_or_trigger()

    def _note_progress(self, snapshot_id: int, records: Collection[SubtaskRecord]) -> None:
        """Begin a new row of restarts, and remove snapshots that are too many."""
        self._restarts.note_published(snapshot_id, records)
        self._remove_next()

    def _on_removal_requested(self, request: RemovalRequest) -> None:
        if self.phase is Phase.CLAIMING and not self.history:
            self._early_removals.append(request)  # because this instance does not know the history yet
        elif self._retention.request(request):
            self._remove_next()
        else:
            reason = f"the history has no snapshot {request.snapshot_id}, or the run continues from it"
            self._outbox.put(events.CloseRequest(request.request_id, None, reason))

    def _on_removed(self, snapshot_ids: tuple[int, ...]) -> None:
        for request in self._retention.removed(snapshot_ids):
            is_gone = request.snapshot_id not in self.history
            reason = "" if is_gone else "the snapshot is pinned or needed, or the store failed; the log has the cause"
            gone = request.snapshot_id if is_gone else None
            self._outbox.put(events.CloseRequest(request.request_id, gone, reason))
        self._remove_next()  # because a snapshot may have been published meanwhile

    def _remove_next(self) -> None:
        unsettled = (*self._tracker.undecided, *self.table.pending)
        if removal := self._retention.next_removal(unsettled):
            self._outbox.put(events.DeleteSnapshots(removal))

    def _renew_or_trigger(self) -> None:
        """Continue with snapshots. Take a new claim when the ids of the claim are used up (PROTOCOL 3.2)."""
        if self._tracker.table.ids.is_used_up:
            self._roll_back("all snapshot ids of its claim were used; a new claim brings new ones")
        else:
            self._trigger_waiting()

    def _abort(self, snapshot_id: int, reason: str) -> None:
        if snapshot_id not in self._tracker.table.pending:
            return
        self._tracker.abort(snapshot_id, reason)
        if self.phase is Phase.READING:
            self._roll_back(f"snapshot {snapshot_id} of the newest records: {reason}")
            return
        if self._tracker.table.has_failed_too_often:
            times = self._tracker.table.failures_in_a_row
            self._roll_back(f"{times} snapshots in a row failed, the last because {reason}")
            return
        self._tracker.announce_min_snapshot_id()
        self._remove_next()  # because a removal may have waited for this snapshot
        self._renew_or_trigger()
