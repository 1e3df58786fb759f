"""One driver of a simulated run: the supervisor of its barrier stage, and the lives of its coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snapshot.coordinator import events
from snapshot.coordinator.machine import Outcome, Phase, RunSettings
from snapshot.coordinator.snapshot_book import SnapshotOrder
from snapshot.testing.checking.verdict import CheckFailed
from snapshot.testing.simulation.connection import Connection
from snapshot.testing.simulation.life import CoordinatorLife
from snapshot.testing.steps import Fork, Launch, NoticeExit, StartCoordinator

if TYPE_CHECKING:
    from snapshot.testing.simulation.worker import Worker
    from snapshot.testing.simulation.world import World


@dataclass
class Stage:
    """One submission of the barrier stage."""

    launch: str
    #: None: its barrier task forks a new one
    workers: list[Worker | None]
    is_failed: bool = False
    #: the coordinator knows of it, so its workers may come
    is_announced: bool = False


class Driver:
    """One submission of the run.

    Parameters
    ----------
    world : World
    owner : str
    settings : RunSettings
    """

    def __init__(self, world: World, owner: str, settings: RunSettings) -> None:
        self.owner = owner
        self.settings = settings
        self.stage: Stage | None = None
        self.life: CoordinatorLife | None = None
        #: lives that were taken for dead and are not; nobody hears them any more
        self.zombies: list[CoordinatorLife] = []
        self.outcome: Outcome | None = None
        self.reason = ""
        #: orders that are not answered: {request: order}, and the one after which the run is to stop
        self.orders: dict[int, SnapshotOrder] = {}
        self.stop_request: int | None = None
        #: the present life has answered that order with a snapshot
        self.is_stopping = False
        #: what becomes of the next manifest, which nobody learns: see `snapshot.testing.steps.Doubt`
        self.doubt: str | None = None
        self._world = world
        self._lives = 0
        self._launches = 0
        group = world.agenda.group()
        self._group = group
        self._start = group.place(StartCoordinator(owner), self._start_life)
        self._launch_place = group.place(Launch(owner), self._launch)
        self._fork_place = group.place(Fork(owner), self._fork)
        self._exits: Sequence[Worker] = ()
        self.refresh()

    def refresh(self) -> None:
        """Look again at what can happen to it."""
        if self.outcome is not None:
            self._group.end()
            return
        stage, has_life = self.stage, self.life is not None
        self._start.set(not has_life)
        self._launch_place.set(has_life and (stage is None or stage.is_failed))
        is_up = stage is not None and not stage.is_failed and stage.is_announced
        self._fork_place.set(has_life and is_up and stage is not None and None in stage.workers)

    # ---------------------------------------------------------------- the coordinator

    def _start_life(self) -> None:
        world = self._world
        self._lives += 1
        fence = world.mutation.fence(self.owner, f"{self.owner}{self._lives}")
        is_running = self.stage is not None and self.stage.is_announced and not self.stage.is_failed
        launch = self.stage.launch if self.stage is not None and is_running else ""
        coordinator = world.mutation.coordinator(self.settings, fence, launch=launch, epoch_offset=0.0)
        life = self.life = world.new_life(self, coordinator)
        life.step(events.Begin())
        if self.stage is not None and not self.stage.is_failed and not is_running:
            life.hear(events.StageLaunched(self.stage.launch))
        for order in self.orders.values():  # asked again of each new life
            self._tell(order)
        self.refresh()
        world.coordinator_changed(self)

    def connect(self, worker: Worker) -> Connection:
        """A control connection to the present life."""
        assert self.life is not None
        return self.life.connect(worker)

    def announced(self, launch: str) -> None:
        """The coordinator has heard of a stage."""
        if self.stage is not None:
            self.stage.is_announced |= launch == self.stage.launch
            self.refresh()

    def stepped(self, life: CoordinatorLife) -> None:
        """A life has taken an event."""
        if self.is_stopping and life is self.life and life.coordinator.phase is Phase.RUNNING:
            raise CheckFailed("stop", f"{self.owner} was to stop, has its last snapshot, and runs")
        if not life.is_over or self.outcome is not None:
            return
        self._world.see(f"a coordinator ended {life.outcome.value}")
        if life is not self.life:
            if life in self.zombies:
                self.zombies.remove(life)
        elif life.outcome is Outcome.SUPERSEDED:
            self.lose_life()  # its process leaves, so a new one is started
        else:
            self.outcome, self.reason = life.outcome, life.coordinator.reason
            self.refresh()

    def lose_life(self, *, lives_on: bool = False) -> None:
        """The coordinator's process is lost, or is taken for lost."""
        assert self.life is not None
        life, self.life = self.life, None
        if lives_on:
            self.zombies.append(life)
        life.hang_up()
        if not lives_on:
            life.end()
        self.is_stopping = False
        self.refresh()
        self._world.coordinator_changed(self)

    def answered(self, life: CoordinatorLife, request: int, snapshot_id: int | None) -> None:
        """An order is answered."""
        if life is self.life and self.orders.pop(request, None) is not None:
            self.is_stopping |= request == self.stop_request and snapshot_id is not None

    def cancelled(self, life: CoordinatorLife, launch: str) -> None:
        """The coordinator gives a stage up."""
        if life is self.life and self.stage is not None and self.stage.launch == launch:
            self.fail_stage("cancelled")

    def order(self, order: SnapshotOrder, *, stops: bool) -> None:
        """The user wants a snapshot, or the end of the run after one. Whatever happens, there is an answer."""
        self.orders[order.request] = order
        if stops:
            self.stop_request = order.request
        if self.life is not None:
            self._tell(order)

    def _tell(self, order: SnapshotOrder) -> None:
        assert self.life is not None
        stops = order.request == self.stop_request
        self.life.hear(events.StopOrdered(order) if stops else events.SnapshotOrdered(order))

    def die(self) -> None:
        """The driver's process is killed, and its coordinator and workers with it."""
        if self.life is not None:
            self.lose_life()
        if self.stage is not None:
            for worker in self.stage.workers:
                if worker is not None and worker.is_alive:
                    worker.leave()
        self.outcome, self.reason = Outcome.FENCED, "the driver was killed"
        self.refresh()

    # ---------------------------------------------------------------- the supervisor

    def _launch(self) -> None:
        assert self.life is not None
        self._launches += 1
        launch = f"{self.owner} stage {self._launches}"
        self.stage = Stage(launch, [None] * self.settings.worker_count)
        self.life.hear(events.StageLaunched(launch))
        self.refresh()

    def _fork(self) -> None:
        assert self.stage is not None
        number = self.stage.workers.index(None)
        self.stage.workers[number] = self._world.fork(self, self.stage.launch, number)
        self.refresh()

    def worker_left(self, worker: Worker) -> None:
        """A process of this driver has ended; the task above it notices."""
        stage = self.stage
        if stage is not None and worker in stage.workers and not stage.is_failed and self.outcome is None:
            self._group.once(NoticeExit(worker.process), lambda: self._notice_exit(worker))

    def _notice_exit(self, worker: Worker) -> None:
        stage = self.stage
        if stage is None or stage.is_failed or worker not in stage.workers:
            return
        if worker.has_quit:
            self.fail_stage(f"worker {worker.number} quit")
        else:
            stage.workers[worker.number] = None  # its barrier task forks it again
            self.refresh()

    def fail_stage(self, reason: str) -> None:
        """A barrier task is gone; the survivors linger until they are told to quit."""
        assert self.stage is not None
        self.stage.is_failed = True
        if self.life is not None:
            self.life.hear(events.StageEnded(self.stage.launch, reason))
        self.refresh()
