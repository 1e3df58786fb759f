"""Brings the workers of the newest stage to run one incarnation, and notices when they no longer do.

Owns who is there, how far they are, what they restore, and the deadlines of all that. Must not know of snapshots
in the making, of claims, nor when a run ends: each method returns what the coordinator has to act on, if anything.
A failure of data that runs is `IncarnationFailed`; any other is counted here, once for each attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from snapshot.coordinator.control import (
    Connect,
    Deploy,
    Quit,
    RestoredSubtask,
    StartProcessing,
    Welcome,
    WorkerRegistered,
)
from snapshot.coordinator.deploy_chunks import deploy_chunks
from snapshot.coordinator.events import CancelStage, ReadManifest
from snapshot.coordinator.outbox import Outbox
from snapshot.coordinator.recovery import fresh_start, plan_restore
from snapshot.coordinator.restart_policy import Restarts
from snapshot.coordinator.run_state import DEPLOYED, Phase, RunSettings
from snapshot.coordinator.worker_registry import WorkerRegistry
from snapshot.errors import RestoreRefused
from snapshot.ids import Subtask
from snapshot.stored.manifest import Manifest


@dataclass(frozen=True, slots=True)
class IncarnationFailed:
    """The incarnation has lost a part: it is to be rolled back. Until then nothing more is reported of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unrecoverable:
    """Trying again cannot help, or was tried too often."""

    reason: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """All workers still run one incarnation: it goes on as it is (PROTOCOL 7.5)."""


@dataclass(frozen=True, slots=True)
class Restored:
    """All are restored. `connect` makes them go on."""

    #: all that was restored had ended: nothing is left to run
    is_over: bool


@dataclass(frozen=True, slots=True)
class Started:
    """All were told to act."""


DeploymentResult = IncarnationFailed | Unrecoverable | Adopted | Restored | Started


class Deployment:
    """The workers of one run, seen by one life of its coordinator.

    Parameters
    ----------
    settings : RunSettings
    placement : mapping of Subtask to int
        Number of the worker of each subtask.
    registry : WorkerRegistry
    restarts : Restarts
    outbox : Outbox
    """

    def __init__(
        self,
        settings: RunSettings,
        placement: Mapping[Subtask, int],
        registry: WorkerRegistry,
        restarts: Restarts,
        outbox: Outbox,
    ) -> None:
        self.phase = Phase.CLAIMING
        #: the newest manifest that was read or published, so that it need not be read again
        self.known: Manifest | None = None
        self._settings = settings
        self._placement = placement
        self._registry = registry
        self._restarts = restarts
        self._outbox = outbox
        #: the claim held, 0 for none; the number of the next incarnation
        self._claim = 0
        #: newest snapshot of the run's history
        self._newest: int | None = None
        #: what workers may still process is not adopted: something failed, or this life has deployed or adopted
        self._must_restore = False
        self._is_over = False
        #: {worker: what it is still to be deployed with, a message each}
        self._to_deploy: dict[int, deque[tuple[RestoredSubtask, ...]]] = {}
        #: the run's first stage was launched, and none of its workers has come
        self._never_started = False
        #: when the phase has lasted too long; None: it may last
        self._until: float | None = None

    def next_deadline(self) -> float | None:
        """When `check_deadlines` is due."""
        return self._restarts.not_before if self._waits_for_delay else self._until

    def check_deadlines(self) -> DeploymentResult | None:
        """Go on when a delay is over; give the stage up when a phase has lasted too long."""
        if self._waits_for_delay:
            return self._proceed()
        if self._until is None or self._outbox.now < self._until:
            return None
        if self.phase is Phase.GATHERING and self._never_started:
            # A barrier stage starts as a whole or not at all, and where it never did it will not the next time.
            return Unrecoverable(
                f"none of {self._settings.worker_count} workers registered in {self._settings.gathering_timeout:g} s. "
                f"The stage starts when Spark has {self._settings.worker_count} free slots at one time: give it more "
                "cores, free some, or ask for fewer with BarrierRuntime(workers=...)"
            )
        return self.give_up_stage(f"{self._who_is_late()} in time")

    # ---------------------------------------------------------------- claims

    def await_claim(self) -> None:
        """A rollback was decided: nothing is deployed before its claim is there."""
        self._enter(Phase.CLAIMING, None)

    def claimed(self, claim: int, newest: int | None) -> DeploymentResult | None:
        """A claim was taken; the run goes on from the snapshot `newest` of its history."""
        self._claim, self._newest = claim, newest
        self._outbox.broadcast(Welcome(claim, self._settings.worker_count))
        return self._gather()

    # ---------------------------------------------------------------- who is there

    def registered(self, registration: WorkerRegistered) -> DeploymentResult | None:
        """A worker came, or came back."""
        worker = registration.worker
        if registration.launch != self._registry.launch or not 0 <= worker < self._settings.worker_count:
            self._outbox.send(worker, Quit("its stage is over: a newer one takes, or has taken, its place"))
            return None
        self._never_started = False
        result = self.lost(worker, "it registered anew")
        self._registry.register(registration)
        if self._claim:  # a life that has no claim yet cannot say who it is; `claimed` will
            self._outbox.send(worker, Welcome(self._claim, self._settings.worker_count))
        return result or self._proceed()

    def lost(self, worker: int, reason: str) -> DeploymentResult | None:
        """A worker is gone."""
        if worker not in self._registry:
            return None
        self._registry.remove(worker)
        return self._broken(f"worker {worker} was lost: {reason}") if self.phase in DEPLOYED else None

    def failed(self, worker: int, incarnation: int, reason: str) -> DeploymentResult | None:
        """Nothing runs at this worker any more."""
        if incarnation == self._registry.incarnation and self.phase in DEPLOYED:
            return self._broken(reason)
        if worker not in self._registry or not incarnation or self._registry[worker].running != incarnation:
            return None
        # What this life might have adopted is broken.
        self._registry[worker].running = 0
        if self._must_restore:
            return None
        self._must_restore = True
        return self._count(reason) or self._proceed()

    def stage_launched(self, launch: str) -> DeploymentResult | None:
        """Only who registers with `launch` belongs to the run from now on."""
        if launch == self._registry.launch:
            return None  # said again
        result = self._lose_stage("another barrier stage was launched") if self._registry.launch else None
        self._registry.new_stage(launch)
        self._never_started = not self._restarts.history and not self._must_restore
        self._restarts.is_counted = False
        return result

    def stage_ended(self, launch: str, reason: str) -> DeploymentResult | None:
        """All workers of the stage are gone, or of no use any more."""
        if not launch or launch != self._registry.launch:
            return None
        return self._lose_stage(f"the barrier stage failed: {reason}")

    def give_up_stage(self, reason: str) -> DeploymentResult | None:
        """A whole deadline has passed. Who hangs in user code hears no message: only the end of the stage ends him."""
        if self._registry.launch:
            self._outbox.put(CancelStage(self._registry.launch, reason))
        self._restarts.is_counted = False  # so this is a failure of its own
        return self._lose_stage(reason)

    def _lose_stage(self, reason: str) -> DeploymentResult | None:
        # Spark lets the survivors of a failed stage linger for seconds; the next stage needs their slots.
        self._outbox.broadcast(Quit(reason))
        self._registry.new_stage("")
        if self.phase in DEPLOYED:
            return self._broken(reason)
        if self.phase is Phase.GATHERING:
            self._enter(Phase.GATHERING, self._settings.gathering_timeout)
        return None if self._restarts.is_counted else self._count(reason)

    # ---------------------------------------------------------------- how far they are

    def manifest_read(self, manifest: Manifest) -> DeploymentResult | None:
        """Answer to `ReadManifest`."""
        self.known = manifest
        return self._gather()  # some may have left in the meantime

    def deploy_taken(self, worker: int, incarnation: int) -> None:
        """A worker has an instalment: the next one goes out."""
        is_current = incarnation == self._registry.incarnation and self.phase is Phase.RESTORING
        if is_current and self._to_deploy.get(worker):
            self._deploy_next(worker)

    def restored(self, worker: int, incarnation: int) -> DeploymentResult | None:
        """A worker has its state and channel state."""
        if incarnation != self._registry.incarnation or self.phase is not Phase.RESTORING:
            return None
        self._registry[worker].restored = incarnation
        return None if self._registry.not_restored() else Restored(self._is_over)

    def connect(self) -> None:
        """All are restored: let them connect."""
        self._enter(Phase.CONNECTING, self._settings.gathering_timeout)
        self._outbox.broadcast(Connect(self._registry.incarnation, self._registry.addresses()))

    def connected(self, worker: int, incarnation: int) -> DeploymentResult | None:
        """A worker has connections to all of its peers. Once all have, they are told to start (PROTOCOL 6.1)."""
        if incarnation != self._registry.incarnation or self.phase is not Phase.CONNECTING:
            return None
        self._registry[worker].connected = incarnation
        if self._registry.not_connected():
            return None
        self._enter(Phase.RUNNING, None)
        self._outbox.broadcast(StartProcessing(incarnation))
        return Started()

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
            self._must_restore = True
            if len(running) == 1:
                self._registry.incarnation = running[0]
                self._enter(Phase.RUNNING, None)
                return Adopted()
            # Some failed while no coordinator was there.
            result = self._count(f"the workers hold different incarnations: {running}; 0 is none")
            if result is not None:
                return result
        return self._restore() if self._outbox.now >= self._restarts.not_before else None

    def _restore(self) -> DeploymentResult | None:
        settings = self._settings
        source = settings.forked_from if self._newest is None else (settings.run, self._newest)
        if source is None:
            self._deploy(fresh_start(settings.topology), is_final=False)
            return None
        if self.known is None or (self.known.run, self.known.snapshot_id) != source:
            self._enter(Phase.READING, None)
            self._outbox.put(ReadManifest(*source))
            return None
        try:
            plan = plan_restore(settings.topology, self.known, settings.allow)
        except RestoreRefused as error:
            return Unrecoverable(str(error))
        self._deploy(plan, is_final=self.known.final)
        return None

    def _deploy(self, plan: list[RestoredSubtask], *, is_final: bool) -> None:
        self._must_restore = True
        # Nodes that were added to the graph since a final snapshot have still to run.
        self._is_over = is_final and all(restored.state is not None for restored in plan)
        # The claim was taken before anything of this incarnation exists, so its number is the incarnation's.
        self._registry.incarnation = self._claim
        for worker in self._registry.numbers():
            own = (restored for restored in plan if self._placement[restored.subtask] == worker)
            self._to_deploy[worker] = deque(deploy_chunks(own))
            self._deploy_next(worker)
        # What may be written in the time of a snapshot can be read in it.
        self._enter(Phase.RESTORING, self._settings.policy.timeout)

    def _deploy_next(self, worker: int) -> None:
        waiting = self._to_deploy[worker]
        subtasks = waiting.popleft()
        self._outbox.send(worker, Deploy(self._registry.incarnation, subtasks, has_more=bool(waiting)))

    def _broken(self, reason: str) -> IncarnationFailed:
        """PROTOCOL 6.1: several reports in one incarnation are one failure, so only the first finds it deployed."""
        self.await_claim()
        return IncarnationFailed(reason)

    def _count(self, reason: str) -> Unrecoverable | None:
        too_many = self._restarts.count(reason, self._outbox.now, self._outbox.epoch)
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
