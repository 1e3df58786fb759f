"""Deploy one incarnation on the workers of the newest stage, and detect its failure.

`Deployment` owns the registered workers, their progress, their restore plan, and the deadlines. Pending snapshots, the
taking of claims, and the end of a run are outside. Each method returns a result for the coordinator, or None. A failure
of running data is `IncarnationFailed`. `Deployment` counts any other failure, once for each attempt.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from cutline.snapshot.channel.rerouting import ReroutedCount
from cutline.snapshot.coordinator.control import (
    Connect,
    Deploy,
    Quit,
    RestoredSubtask,
    StartProcessing,
    Welcome,
    WorkerRegistered,
)
from cutline.snapshot.coordinator.deploy_chunks import deploy_chunks
from cutline.snapshot.coordinator.disk_placement import Placement
from cutline.snapshot.coordinator.events import CancelStage, ReadManifest
from cutline.snapshot.coordinator.outbox import Outbox
from cutline.snapshot.coordinator.recovery import fresh_start, plan_restore
from cutline.snapshot.coordinator.reshaping import rerouting_problems
from cutline.snapshot.coordinator.restart_policy import Restarts
from cutline.snapshot.coordinator.run_state import DEPLOYED, Phase, RunSettings
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.failed_event import FailedEvent
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.list_rules import Lists, StepBase
from cutline.snapshot.stored.manifest import Manifest


@dataclass(frozen=True, slots=True)
class IncarnationFailed:
    """The incarnation must be rolled back, because a part failed. No further result follows until the rollback."""

    reason: str
    #: message, rows or timer whose hook failed, or None for another failure
    failed_event: FailedEvent | None = None


@dataclass(frozen=True, slots=True)
class Unrecoverable:
    """The run must end, because a retry is useless or too many retries have failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """The incarnation continues unchanged, because all workers still run the same incarnation (PROTOCOL 7.5)."""


@dataclass(frozen=True, slots=True)
class Restored:
    """All workers are restored. The coordinator calls `connect` next, or ends the run."""

    #: whether every restored subtask had ended, so that nothing is left to run
    is_over: bool


@dataclass(frozen=True, slots=True)
class Started:
    """All workers process new events: `StartProcessing` was sent, and the restored steps are repeated."""


@dataclass(frozen=True, slots=True)
class CompositionNeeded:
    """A snapshot must be composed before anything is restored. `composed` follows."""


DeploymentResult = IncarnationFailed | Unrecoverable | Adopted | Restored | Started | CompositionNeeded


class Deployment:
    """The workers of one run, as one coordinator instance knows them.

    Parameters
    ----------
    settings : RunSettings
    placement : Placement
        Changed by a deployment on other hosts.
    registry : WorkerRegistry
    restarts : Restarts
    outbox : Outbox
    """

    def __init__(
        self,
        settings: RunSettings,
        placement: Placement,
        registry: WorkerRegistry,
        restarts: Restarts,
        outbox: Outbox,
    ) -> None:
        self.phase = Phase.CLAIMING
        #: newest manifest that was read or published, or None; kept because a restore then need not read the store
        self.known: Manifest | None = None
        self._settings = settings
        self._placement = placement
        self._registry = registry
        self._restarts = restarts
        self._outbox = outbox
        #: number of the held claim and of the next incarnation; 0 without a claim
        self._claim = 0
        #: id of the newest snapshot of the run's history, or None without a snapshot
        self._newest: int | None = None
        #: whether running data is not adopted, because of a failure or because this instance has deployed or adopted
        self._must_restore = False
        #: {subtask: lists that this incarnation restored}, or None for adopted workers, because a plan was never made
        self._restored_lists: dict[Subtask, Lists] | None = None
        self._is_over = False
        #: {worker: unsent chunks of its deployment}
        self._to_deploy: dict[int, deque[tuple[RestoredSubtask, ...]]] = {}
        #: whether the run's first stage was launched and none of its workers has registered
        self._never_started = False
        #: monotonic seconds of the phase's deadline, or None for no deadline
        self._until: float | None = None

    def newest_lists(self) -> dict[Subtask, Lists] | None:
        """Return the lists that the next snapshot continues, by subtask. None if this instance does not know them.

        They are those of the newest snapshot published in this incarnation, or else what the incarnation restored.
        """
        known = self.known
        if known is None or (known.run, known.incarnation) != (self._settings.run, self._registry.incarnation):
            return self._restored_lists
        return {record.subtask: record.lists for record in known.records}

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which `check_deadlines` is due, or None."""
        return self._restarts.not_before if self._waits_for_delay else self._until

    def check_deadlines(self) -> DeploymentResult | None:
        """Continue after a restart delay. Give up the stage after the deadline of a phase."""
        if self._waits_for_delay:
            return self._proceed()
        if self._until is None or self._outbox.now < self._until:
            return None
        if self.phase is Phase.GATHERING and self._never_started:
            # Do not retry, because a barrier stage starts as a whole or not at all, and a retry would fail again.
            return Unrecoverable(
                f"none of {self._settings.worker_count} workers registered in {self._settings.gathering_timeout:g} s. "
                f"The stage starts when Spark has {self._settings.worker_count} free slots at one time: give it more "
                "cores, free some, or ask for fewer with BarrierRuntime(workers=...)"
            )
        return self.give_up_stage(f"{self._who_is_late()} in time")

    # ---------------------------------------------------------------- claims

    def await_claim(self) -> None:
        """Wait for the claim of a rollback. Nothing is deployed before the claim."""
        self._enter(Phase.CLAIMING, None)

    def claimed(self, claim: int, newest: int | None) -> DeploymentResult | None:
        """Continue the run under a new claim, from the snapshot `newest` of its history (None: no snapshot)."""
        self._claim, self._newest = claim, newest
        self._outbox.broadcast(Welcome(claim, self._settings.worker_count))
        return self._gather()

    # ---------------------------------------------------------------- workers and stages

    def registered(self, registration: WorkerRegistered) -> DeploymentResult | None:
        """Register a worker, also a worker that registers again."""
        worker = registration.worker
        if registration.launch != self._registry.launch or not 0 <= worker < self._settings.worker_count:
            self._outbox.send(worker, Quit("its stage is over: a newer one takes, or has taken, its place"))
            return None
        self._never_started = False
        result = self.lost(worker, "it registered anew")
        self._registry.register(registration)
        if self._claim:  # before the first claim, `claimed` sends Welcome
            self._outbox.send(worker, Welcome(self._claim, self._settings.worker_count))
        return result or self._proceed()

    def lost(self, worker: int, reason: str) -> DeploymentResult | None:
        """Remove a lost worker."""
        if worker not in self._registry:
            return None
        self._registry.remove(worker)
        if self.phase is Phase.GATHERING and self._until is not None:
            # Anew, because while all were there only the restart delay counted, which may be longer.
            self._until = max(self._until, self._outbox.now + self._settings.regathering_timeout)
        return self._broken(f"worker {worker} was lost: {reason}") if self.phase in DEPLOYED else None

    def failed(
        self, worker: int, incarnation: int, reason: str, failed_event: FailedEvent | None
    ) -> DeploymentResult | None:
        """Handle the failure of a worker, where no subtask runs any more."""
        if incarnation == self._registry.incarnation and self.phase in DEPLOYED:
            return self._broken(reason, failed_event)
        if failed_event is not None and incarnation == self._registry.incarnation and self._restarts.lacks_failed_event:
            too_many = self._restarts.blame(failed_event, reason, self._outbox.now, self._outbox.epoch)
            return None if too_many is None else Unrecoverable(too_many)
        if worker not in self._registry or not incarnation or self._registry[worker].running != incarnation:
            return None
        # This instance could have adopted the data of the worker; now the data must be restored.
        self._registry[worker].running = 0
        if self._must_restore:
            return None
        self._must_restore = True
        return self._count(reason, failed_event) or self._proceed()

    def stage_launched(self, launch: str) -> DeploymentResult | None:
        """Accept only workers that register with `launch`."""
        if launch == self._registry.launch:
            return None  # repeated event
        result = self._lose_stage("another barrier stage was launched") if self._registry.launch else None
        self._registry.new_stage(launch)
        self._never_started = not self._restarts.history.count and not self._must_restore
        self._restarts.is_counted = False
        return result

    def stage_ended(self, launch: str, reason: str) -> DeploymentResult | None:
        """Drop the workers of a stage that has ended."""
        if not launch or launch != self._registry.launch:
            return None
        return self._lose_stage(f"the barrier stage failed: {reason}")

    def give_up_stage(self, reason: str) -> DeploymentResult | None:
        """Cancel the stage after a deadline, because a worker that hangs in user code receives no message."""
        if self._registry.launch:
            self._outbox.put(CancelStage(self._registry.launch, reason))
        self._restarts.is_counted = False  # because this is a separate failure
        return self._lose_stage(reason)

    def _lose_stage(self, reason: str) -> DeploymentResult | None:
        # Quit, because survivors of a failed stage linger for seconds, and the next stage needs their slots.
        self._outbox.broadcast(Quit(reason))
        self._registry.new_stage("")
        if self.phase in DEPLOYED:
            return self._broken(reason)
        if self.phase is Phase.GATHERING:
            self._enter(Phase.GATHERING, self._settings.gathering_timeout)
        return None if self._restarts.is_counted else self._count(reason)

    # ---------------------------------------------------------------- progress of the workers

    def manifest_read(self, manifest: Manifest) -> DeploymentResult | None:
        """Store the manifest that answers `ReadManifest`, and continue."""
        self.known = manifest
        return self._gather()  # gather again, because workers may have been lost

    def composed(self, manifest: Manifest) -> DeploymentResult | None:
        """Continue from the snapshot that was composed."""
        self._newest = manifest.snapshot_id
        return self.manifest_read(manifest)

    @property
    def base_of_incarnation(self) -> Manifest | None:
        """The snapshot with which the present incarnation goes on; None for a fresh start without one.

        A snapshot of the incarnation stands in its place: it has copies of what it cut out of logs, and the files of
        older parts may be gone with older snapshots.
        """
        return self.known if self._source is not None or self.has_own_snapshot else None

    @property
    def has_own_snapshot(self) -> bool:
        """Whether the present incarnation has a snapshot of this run."""
        at = (self._settings.run, self._registry.incarnation)
        return self.known is not None and (self.known.run, self.known.incarnation) == at

    @property
    def _needs_composition(self) -> bool:
        """Whether more may be stored than the snapshot to restore has (PROTOCOL 14.5). A final one has all."""
        if not self._settings.topology.row.restores_composed or self.known is None or self.known.final:
            return False
        return self.known.run == self._settings.run and self.known.incarnation != self._claim

    def _await_composition(self) -> CompositionNeeded:
        self._must_restore = True
        self._registry.incarnation = self._claim
        self._enter(Phase.READING, None)
        return CompositionNeeded()

    def deploy_taken(self, worker: int, incarnation: int) -> None:
        """Send the next chunk to a worker that received a chunk."""
        is_current = incarnation == self._registry.incarnation and self.phase is Phase.RESTORING
        if is_current and self._to_deploy.get(worker):
            self._deploy_next(worker)

    def restored(
        self, worker: int, incarnation: int, rerouted: tuple[ReroutedCount, ...] = ()
    ) -> DeploymentResult | None:
        """Record that a worker has restored its state and channel state, and how it took messages in flight."""
        if incarnation != self._registry.incarnation or self.phase is not Phase.RESTORING:
            return None
        self._registry[worker].restored, self._registry[worker].rerouted = incarnation, rerouted
        if self._registry.not_restored():
            return None
        counts = [count for number in self._registry.numbers() for count in self._registry[number].rerouted]
        if counts and self.known is not None:
            wrong = rerouting_problems(self._settings.topology, self.known, counts)
            if wrong:
                return Unrecoverable(f"messages in flight were not restored as they were: {'; '.join(wrong)}")
        return Restored(self._is_over)

    def connect(self) -> None:
        """Make the workers connect to their peers, because all workers are restored."""
        self._enter(Phase.CONNECTING, self._settings.gathering_timeout)
        self._outbox.broadcast(Connect(self._registry.incarnation, self._registry.addresses()))

    def connected(self, worker: int, incarnation: int) -> DeploymentResult | None:
        """Record that a worker is connected to its peers. When all are connected, start them (PROTOCOL 6.1)."""
        if incarnation != self._registry.incarnation or self.phase is not Phase.CONNECTING:
            return None
        self._registry[worker].connected = incarnation
        if self._registry.not_connected():
            return None
        self._outbox.broadcast(StartProcessing(incarnation))
        return self._run_or_replay(Started())

    def replayed(self, worker: int, incarnation: int) -> DeploymentResult | None:
        """Record that a worker has repeated its restored steps, also before this instance has adopted the workers."""
        if worker not in self._registry or incarnation not in (
            self._registry.incarnation,
            self._registry[worker].running,
        ):
            return None
        self._registry[worker].is_replaying = False
        if self.phase is not Phase.REPLAYING or self._registry.any_replaying:
            return None
        self._enter(Phase.RUNNING, None)
        return Started()

    def _run_or_replay(self, result: Started | Adopted) -> DeploymentResult | None:
        """Enter the phase of the workers. No snapshot begins before all have repeated their steps (PROTOCOL 12.4)."""
        is_replaying = self._registry.any_replaying
        self._enter(Phase.REPLAYING if is_replaying else Phase.RUNNING, None)
        return None if is_replaying else result

    # ---------------------------------------------------------------- steps

    def _gather(self) -> DeploymentResult | None:
        is_up = bool(self._registry.numbers())
        timeout = self._settings.regathering_timeout if is_up else self._settings.gathering_timeout
        self._enter(Phase.GATHERING, timeout)
        return self._proceed()

    def _proceed(self) -> DeploymentResult | None:
        if self.phase is not Phase.GATHERING or not self._registry.all_there:
            return None
        running = self._registry.running()
        if not self._must_restore and running != [0]:
            source = self._source
            if self._settings.topology.row.adopts_known and source is not None and not self._knows(source):
                self._read(*source)
                return None
            self._must_restore = True
            if self._has_gone_on_from(running):
                return self._restore()
            if len(running) == 1:
                self._registry.incarnation = running[0]
                self._placement.adopt(self._registry[0].registration.worker_of_place)
                return self._run_or_replay(Adopted())
            # Some workers failed while no coordinator ran.
            result = self._count(f"the workers hold different incarnations: {running}; 0 is none")
            if result is not None:
                return result
        return self._restore() if self._outbox.now >= self._restarts.not_before else None

    def _has_gone_on_from(self, running: list[int]) -> bool:
        """Return whether a restore of a higher incarnation is published that no worker has seen (PROTOCOL 14.6)."""
        known = self.known
        return known is not None and known.run == self._settings.run and known.incarnation > max(running)

    def _restore(self) -> DeploymentResult | None:
        settings = self._settings
        source = self._source
        if source is None:
            self._deploy(fresh_start(settings.topology, settings.partitions), is_final=False)
            return None
        if self.known is None or not self._knows(source):
            self._read(*source)
            return None
        try:
            plan = plan_restore(settings.topology, self.known, settings.allow, settings.partitions)
            plan = self._placement.host(plan, self._registry.disks())
        except RestoreRefused as error:
            return Unrecoverable(str(error))
        if self._needs_composition:  # only now, because nothing is composed of another graph
            return self._await_composition()
        self._deploy(plan, is_final=self.known.final)
        return None

    @property
    def _source(self) -> tuple[str, int] | None:
        """Run and id of the snapshot from which the run goes on, or None for a fresh start."""
        return self._settings.forked_from if self._newest is None else (self._settings.run, self._newest)

    def _knows(self, source: tuple[str, int]) -> bool:
        """Return whether `known` is this snapshot, which decides what state the next snapshots may list."""
        return self.known is not None and (self.known.run, self.known.snapshot_id) == source

    def _read(self, run: str, snapshot_id: int) -> None:
        self._enter(Phase.READING, None)
        self._outbox.put(ReadManifest(run, snapshot_id))

    def _deploy(self, plan: list[RestoredSubtask], *, is_final: bool) -> None:
        self._must_restore = True
        self._restored_lists = {
            each.subtask: Lists(each.groups, each.rows, each.own, each.steps, self._base_here(each.base), each.version)
            for each in plan
        }
        # A fresh node means that the run is not over, because nodes added since a final snapshot must still run.
        self._is_over = is_final and all(restored.is_known for restored in plan)
        # Use the claim's number, because the claim was taken before anything of this incarnation existed.
        self._registry.incarnation = self._claim
        for worker in self._registry.numbers():
            own = [
                replace(restored, suspects=self._restarts.suspects(restored.subtask))
                for restored in plan
                if self._placement.workers[restored.subtask] == worker
            ]
            self._registry[worker].is_replaying = any(restored.steps for restored in own)
            self._to_deploy[worker] = deque(deploy_chunks(own))
            self._deploy_next(worker)
        # Reuse the snapshot timeout, because a state that was written in that time can be read in that time.
        self._enter(Phase.RESTORING, self._settings.policy.timeout)

    def _base_here(self, base: StepBase | None) -> StepBase | None:
        """Return a restored base. That of another run is older than each of this run, whatever its id."""
        is_foreign = self.known is not None and self.known.run != self._settings.run
        return base._replace(snapshot_id=0) if base is not None and is_foreign else base

    def _deploy_next(self, worker: int) -> None:
        waiting = self._to_deploy[worker]
        subtasks = waiting.popleft()
        self._outbox.send(
            worker, Deploy(self._registry.incarnation, subtasks, bool(waiting), self._placement.worker_of_place)
        )

    def _broken(self, reason: str, failed_event: FailedEvent | None = None) -> IncarnationFailed:
        """Leave the deployed phases, because several reports in one incarnation are one failure (PROTOCOL 6.1)."""
        self.await_claim()
        return IncarnationFailed(reason, failed_event)

    def _count(self, reason: str, failed_event: FailedEvent | None = None) -> Unrecoverable | None:
        too_many = self._restarts.count(reason, self._outbox.now, self._outbox.epoch, failed_event)
        return None if too_many is None else Unrecoverable(too_many)

    def _enter(self, phase: Phase, seconds: float | None) -> None:
        self.phase = phase
        self._until = None if seconds is None else self._outbox.now + seconds

    @property
    def _waits_for_delay(self) -> bool:
        return self.phase is Phase.GATHERING and self._registry.all_there

    def _who_is_late(self) -> str:
        match self.phase:
            case Phase.GATHERING:
                return f"workers {self._registry.missing()} have not registered"
            case Phase.RESTORING:
                return f"workers {self._registry.not_restored()} have not restored their state"
            case _:
                return f"workers {self._registry.not_connected()} have not connected to their peers"
