"""One driver of a simulated run: the supervisor of its barrier stage, and the instances of its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cutline.snapshot.assembly import completion_of, cut_start_of
from cutline.snapshot.coordinator import events
from cutline.snapshot.coordinator.machine import CoordinatorMachine, Outcome, Phase, RunSettings
from cutline.snapshot.coordinator.pending_snapshot import SnapshotRequest
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.simulation.connection import Connection
from cutline.snapshot.testing.simulation.scheduler import Group
from cutline.snapshot.testing.simulation.simulated_coordinator import SimulatedCoordinator
from cutline.snapshot.testing.simulation.worker import Worker
from cutline.snapshot.testing.simulation.world import World
from cutline.snapshot.testing.steps import Fork, Launch, NoticeExit, StartCoordinator


class Processes(Protocol):
    """The workers of a run: `snapshot.testing.simulation.simulated_cluster.SimulatedCluster`."""

    def fork(self, driver: Driver, launch: str, number: int) -> Worker:
        """Start a worker process."""

    def coordinator_changed(self, driver: Driver) -> None:
        """Note that workers may connect to a new coordinator, or to none any more."""


@dataclass
class Stage:
    """One submission of the barrier stage."""

    launch: str
    #: workers by number; None: the barrier task forks a new worker
    workers: list[Worker | None]
    is_failed: bool = False
    #: whether the coordinator knows of the stage, so that its workers may connect
    is_announced: bool = False


class UserRequests:
    """The snapshot requests of one driver's user."""

    def __init__(self) -> None:
        #: {request id: request} of the requests without an answer
        self.open: dict[int, SnapshotRequest] = {}
        #: id of the request after which the run is to stop, or None
        self.stop: int | None = None
        #: whether the present coordinator instance has answered `stop` with a snapshot
        self.is_stopping = False

    def add(self, request: SnapshotRequest, *, stops: bool) -> None:
        """Add a request, after which the run is to stop if `stops`."""
        self.open[request.request_id] = request
        if stops:
            self.stop = request.request_id

    def event(self, request: SnapshotRequest) -> events.StopRequested | events.SnapshotRequested:
        """Return the event by which a coordinator receives the request."""
        return events.StopRequested(request) if request.request_id == self.stop else events.SnapshotRequested(request)

    def answered(self, request: int, snapshot_id: int | None) -> None:
        """Note the present coordinator's answer to a request."""
        if self.open.pop(request, None) is not None:
            self.is_stopping |= request == self.stop and snapshot_id is not None


class DriverSteps:
    """The steps of a driver, each enabled while it is possible."""

    def __init__(
        self, group: Group, owner: str, start: Callable[[], None], launch: Callable[[], None], fork: Callable[[], None]
    ) -> None:
        self._group = group
        self._start = group.enabled_step(StartCoordinator(owner), start)
        self._launch = group.enabled_step(Launch(owner), launch)
        self._fork = group.enabled_step(Fork(owner), fork)

    def refresh(self, stage: Stage | None, *, has_coordinator: bool) -> None:
        """Enable the steps that are possible now, and disable all others."""
        self._start.set(not has_coordinator)
        self._launch.set(has_coordinator and (stage is None or stage.is_failed))
        is_up = stage is not None and not stage.is_failed and stage.is_announced
        self._fork.set(has_coordinator and is_up and stage is not None and None in stage.workers)

    def notice_exit(self, process: int, act: Callable[[], None]) -> None:
        """Enable the step that notices the end of a process."""
        self._group.once(NoticeExit(process), act)

    def end(self) -> None:
        """Disable all steps for ever."""
        self._group.end()


class Driver:
    """One submission of the run.

    Parameters
    ----------
    world : World
    processes : Processes
    owner : str
    settings : RunSettings
    """

    def __init__(self, world: World, processes: Processes, owner: str, settings: RunSettings) -> None:
        self.owner = owner
        self.settings = settings
        self.stage: Stage | None = None
        self.simulated: SimulatedCoordinator | None = None
        #: instances that were replaced as if dead, and that still run; nothing receives their messages any more
        self.zombies: list[SimulatedCoordinator] = []
        self.outcome: Outcome | None = None
        self.reason = ""
        self.requests = UserRequests()
        #: what happens to the next manifest, whose answer is lost: see `snapshot.testing.steps.Doubt`
        self.doubt: str | None = None
        self._world = world
        self._processes = processes
        self._starts = 0
        self._launches = 0
        group = world.scheduler.group()
        self._steps = DriverSteps(group, owner, self._start_coordinator, self._launch, self._fork)
        self.refresh()

    def refresh(self) -> None:
        """Enable the steps that are possible for this driver now, and disable all others."""
        if self.outcome is not None:
            self._steps.end()
        else:
            self._steps.refresh(self.stage, has_coordinator=self.simulated is not None)

    # ---------------------------------------------------------------- the coordinator

    def _start_coordinator(self) -> None:
        mutation = self._world.mutation
        self._starts += 1
        fence = mutation.fence(self.owner, f"{self.owner}{self._starts}")
        is_running = self.stage is not None and self.stage.is_announced and not self.stage.is_failed
        launch = self.stage.launch if self.stage is not None and is_running else ""
        coordinator = mutation.coordinator(
            self.settings, fence, cut_start_of, completion_of, launch=launch, epoch_offset=0.0
        )
        number = self._world.coordinators.next()
        simulated = self.simulated = SimulatedCoordinator(self._world, self, coordinator, number)
        simulated.step(events.Begin())
        if self.stage is not None and not self.stage.is_failed and not is_running:
            simulated.receive(events.StageLaunched(self.stage.launch))
        for request in self.requests.open.values():  # requested again of each new coordinator instance
            simulated.receive(self.requests.event(request))
        self.refresh()
        self._processes.coordinator_changed(self)

    def connect(self, worker: Worker) -> Connection:
        """Open a control connection to the present coordinator instance."""
        assert self.simulated is not None
        return self.simulated.connect(worker)

    @property
    def launch(self) -> str | None:
        """Return the launch of the newest stage, or None before the first."""
        return None if self.stage is None else self.stage.launch

    @property
    def coordinator(self) -> CoordinatorMachine | None:
        """Return the machine of the present coordinator, or None while there is none."""
        return None if self.simulated is None else self.simulated.coordinator

    def announced(self, simulated: SimulatedCoordinator, launch: str) -> None:
        """Note that the coordinator knows of a stage."""
        if simulated is self.simulated and self.stage is not None:
            self.stage.is_announced |= launch == self.stage.launch
            self.refresh()

    def stepped(self, simulated: SimulatedCoordinator) -> None:
        """Note that a coordinator instance has taken an event."""
        if self.requests.is_stopping and simulated is self.simulated and simulated.coordinator.phase is Phase.RUNNING:
            raise CheckFailed("stop", f"{self.owner} was to stop, has its last snapshot, and runs")
        if not simulated.is_over or self.outcome is not None:
            return
        self._world.see(f"a coordinator ended {simulated.outcome.value}")
        if simulated is not self.simulated:
            if simulated in self.zombies:
                self.zombies.remove(simulated)
        elif simulated.outcome is Outcome.SUPERSEDED:
            self.lose_coordinator()  # the process of that instance leaves, so a new instance is started
        else:
            self.outcome, self.reason = simulated.outcome, simulated.coordinator.reason
            self.refresh()

    def lose_coordinator(self, *, stays_alive: bool = False) -> None:
        """Lose the coordinator's process, or replace a coordinator that still runs."""
        assert self.simulated is not None
        simulated, self.simulated = self.simulated, None
        if stays_alive:
            self.zombies.append(simulated)
        simulated.disconnect()
        if not stays_alive:
            simulated.end()
        self.requests.is_stopping = False
        self.refresh()
        self._processes.coordinator_changed(self)

    def answered(self, simulated: SimulatedCoordinator, request: int, snapshot_id: int | None) -> None:
        """Note that a snapshot request is answered."""
        if simulated is self.simulated:
            self.requests.answered(request, snapshot_id)

    def cancelled(self, simulated: SimulatedCoordinator, launch: str) -> None:
        """Fail a stage that the coordinator gives up."""
        if simulated is self.simulated and self.stage is not None and self.stage.launch == launch:
            self.fail_stage("cancelled")

    def request(self, request: SnapshotRequest, *, stops: bool) -> None:
        """Request a snapshot for the user, or the end of the run after a snapshot. Every request is answered."""
        self.requests.add(request, stops=stops)
        if self.simulated is not None:
            self.simulated.receive(self.requests.event(request))

    def die(self) -> None:
        """Kill the driver's process, and its coordinator and workers with it."""
        if self.simulated is not None:
            self.lose_coordinator()
        if self.stage is not None:
            for worker in self.stage.workers:
                if worker is not None and worker.is_alive:
                    worker.leave()
        self.outcome, self.reason = Outcome.FENCED, "the driver was killed"
        self.refresh()

    # ---------------------------------------------------------------- the supervisor

    def _launch(self) -> None:
        assert self.simulated is not None
        self._launches += 1
        launch = f"{self.owner} stage {self._launches}"
        self.stage = Stage(launch, [None] * self.settings.worker_count)
        self.simulated.receive(events.StageLaunched(launch))
        self.refresh()

    def _fork(self) -> None:
        assert self.stage is not None
        number = self.stage.workers.index(None)
        self.stage.workers[number] = self._processes.fork(self, self.stage.launch, number)
        self.refresh()

    def worker_left(self, worker: Worker) -> None:
        """Note that a process of this driver has ended. Its barrier task notices the end in a later step."""
        stage = self.stage
        if stage is not None and worker in stage.workers and not stage.is_failed and self.outcome is None:
            self._steps.notice_exit(worker.process, lambda: self._notice_exit(worker))

    def _notice_exit(self, worker: Worker) -> None:
        stage = self.stage
        if stage is None or stage.is_failed or worker not in stage.workers:
            return
        if worker.has_quit:
            self.fail_stage(f"worker {worker.number} quit")
        else:
            stage.workers[worker.number] = None  # its barrier task forks the worker again
            self.refresh()

    def fail_stage(self, reason: str) -> None:
        """Fail the stage, because a barrier task is gone. The survivors linger until they receive `Quit`."""
        assert self.stage is not None
        self.stage.is_failed = True
        if self.simulated is not None:
            self.simulated.receive(events.StageEnded(self.stage.launch, reason))
        self.refresh()
