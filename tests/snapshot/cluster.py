"""A whole cluster in memory: drivers, coordinators, workers, channels and a store, and the faults between them.

The machines are the real ones. Everything that could happen next is a step; which one does is asked of
`choose(n)`, so one seed is one history. ::

    Cluster(PROGRAMS[0], choose=Random(7).randrange).run()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from snapshot.coordinator import control, events
from snapshot.coordinator.fence import Fence
from snapshot.coordinator.machine import Coordinator, Outcome, RunSettings
from snapshot.coordinator.restart_policy import RestartPolicy
from snapshot.coordinator.snapshot_book import SnapshotOrder, SnapshotPolicy
from snapshot.subtask.assembly import SubtaskParts
from state_backends.memory import MemoryBackend
from state_backends.store import RunStore
from tests.snapshot.cluster_driver import Driver, StoreRequest
from tests.snapshot.cluster_faults import inject
from tests.snapshot.cluster_programs import RUN, WORLDS, Program, World
from tests.snapshot.cluster_store import perform
from tests.snapshot.cluster_truth import CODEC, Truth, Violation
from tests.snapshot.cluster_worker import ClusterMachine, ClusterWorker, Connection

Choose = Callable[[int], int]
Step = Callable[[Choose], None]

#: Steps after which a run that has not ended hangs: ten times what the longest takes.
STEPS_MAX = 40_000

#: Parts above this size are stored on their own, so that both ways are taken.
INLINE_BYTES_MAX = 250

#: One step in so many is a fault, an order of the driver, or time that passes.
_FAULT_EVERY, _ORDER_EVERY, _TICK_EVERY = 60, 80, 12


@dataclass(frozen=True)
class Mutation:
    """The classes that a cluster is made of; mutants of them show that the checkers bite."""

    coordinator: type[Coordinator] = Coordinator
    fence: type[Fence] = Fence
    machine: Callable[[SubtaskParts], ClusterMachine] = ClusterMachine
    worker: type[ClusterWorker] = ClusterWorker


class Cluster:
    """One run, however many drivers, stages and lives it takes.

    Parameters
    ----------
    program : Program
    choose : callable
        ``choose(n)`` is one of 0 … n - 1.
    seed : int
        Told to nodes as their chance, and shown.
    faults : int
        How many happen at most.
    """

    def __init__(
        self, program: Program, choose: Choose, *, seed: int = 0, faults: int = 3, mutation: Mutation | None = None
    ) -> None:
        self.program = program
        self.seed = seed
        self.now = 0.0
        self.mutation = mutation or Mutation()
        self.seen: dict[str, int] = {}
        self.steps = 0
        self.world = WORLDS[RUN] = World()
        self.truth = Truth(program, self.world)
        self._choose = choose
        self._faults = faults
        self._orders = choose(3)
        self._backend = MemoryBackend()
        self._backend.inline_bytes_max = INLINE_BYTES_MAX
        self._store = self.open_store()
        self._late: list[events.AskStore] = []
        self._checked: list[int] = []
        #: {snapshot_id: who triggered it}
        self._triggered: dict[int, str] = {}
        self._requests = 0
        self._settings = self._make_settings()
        self.placement = program.built.topology.place(program.workers)
        self.drivers: list[Driver] = []
        self._processes: list[ClusterWorker] = []
        self.submit()

    def _make_settings(self) -> RunSettings:
        choose = self._choose
        return RunSettings(
            run=RUN,
            topology=self.program.built.topology,
            worker_count=self.program.workers,
            policy=SnapshotPolicy(
                interval=(None, 0.2, 0.5)[choose(3)],
                timeout=4.0,
                min_pause=(0.0, 0.1)[choose(2)],
                max_concurrent=1 + choose(3),
                tolerable_failures=choose(3),
            ),
            restart_policy=RestartPolicy(maxRestarts=None, delay=0.1, maxDelay=1.0),
            retained=1 + choose(3),
            allow=(),
            forked_from=None,
            gathering_timeout=3.0,
            regathering_timeout=3.0,
        )

    # ---------------------------------------------------------------- the schedule

    def run(self) -> None:
        """Take steps until the run is finished; then look at what came of it.

        Raises
        ------
        Violation
            naming the checker.
        """
        while self.drivers[-1].outcome is not Outcome.FINISHED or self._left_over():
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Violation("liveness", f"not finished after {STEPS_MAX:,} steps: {self._standing()}")
            self._step()
        self.truth.check_output()
        newest = self._store.read_snapshots(CODEC)[-1]
        if not newest.manifest.final:
            raise Violation("termination", f"finished, but snapshot {newest.id} is not final")

    def _left_over(self) -> bool:
        """Whether somebody is still about to find out that the run is no longer his, or is writing to the store."""
        zombies = [life for driver in self.drivers for life in driver.zombies]
        return any(driver.outcome is None for driver in self.drivers) or any(life.requests for life in zombies)

    def _step(self) -> None:
        choose = self._choose
        driver = self.drivers[-1]
        if driver.outcome in (Outcome.STOPPED, Outcome.FENCED):
            self.submit()  # somebody wants the result
            return
        if self._faults and driver.outcome is None and not choose(_FAULT_EVERY):
            self._faults -= 1
            inject(self, choose)
            return
        if self._orders and driver.outcome is None and not choose(_ORDER_EVERY):
            self._orders -= 1
            self._order(driver)
            return
        if self._late and not choose(_ORDER_EVERY):
            self._land_late()
            return
        if not choose(_TICK_EVERY):
            self.now += 0.02
        actors: list[Driver | ClusterWorker] = [*self.drivers, *self.workers]
        first = choose(len(actors))
        for actor in (*actors[first:], *actors[:first]):
            steps = actor.steps()
            if steps:
                steps[choose(len(steps))](choose)
                return
        self._wait(actors)

    def _wait(self, actors: Sequence[Driver | ClusterWorker]) -> None:
        """Nothing can happen before time passes."""
        wakes = [wake for actor in actors if (wake := actor.next_wake()) is not None]
        if not wakes:
            raise Violation("liveness", f"nothing will ever happen again: {self._standing()}")
        self.now = max(self.now, min(wakes))

    def _standing(self) -> str:
        lives = [f"{d.owner}: {d.life.coordinator.phase.value if d.life else 'no coordinator'}" for d in self.drivers]
        return f"{', '.join(lives)}; at {self.now:.2f}"

    def see(self, what: str) -> None:
        """Something happened that must happen in some run."""
        self.seen[what] = self.seen.get(what, 0) + 1

    # ---------------------------------------------------------------- what drivers and workers need

    def open_store(self) -> RunStore:
        """The run's store, as one process sees it."""
        return RunStore(self._backend, RUN, clock=lambda: self.now)

    def connect(self, worker: ClusterWorker) -> Connection | None:
        """A control connection to the coordinator of the worker's driver."""
        return next(d for d in self.drivers if worker.launch.startswith(f"{d.owner} ")).connect(worker)

    def fork(self, launch: str, number: int) -> ClusterWorker:
        """A new worker process."""
        worker = self.mutation.worker(self, launch, number, str(len(self._processes)).encode())
        self._processes.append(worker)
        return worker

    @property
    def workers(self) -> list[ClusterWorker]:
        """The processes that live, lingering ones among them."""
        return [worker for worker in self._processes if worker.is_alive]

    def peers(self, worker: ClusterWorker, addresses: Sequence[bytes]) -> dict[int, ClusterWorker]:
        """The processes behind addresses, by number, also where they are gone."""
        return {number: self._processes[int(address)] for number, address in enumerate(addresses)}

    def leave_behind(self, requests: Sequence[StoreRequest]) -> None:
        """Whoever asked for these is gone; they may still happen, or not."""
        self._late += [request for request in requests if isinstance(request, events.AskStore)]

    def submit(self) -> None:
        """Another driver submits the run, under the same name."""
        number = len(self.drivers)
        self.drivers.append(Driver(self, "ABCDEFGH"[number], self._settings))

    # ---------------------------------------------------------------- the schedule's other choices

    def _order(self, driver: Driver) -> None:
        """The driver orders a snapshot, or that the run stop after one."""
        self._requests += 1
        choose = self._choose
        subtasks = self.program.built.topology.subtasks
        initiators = None if choose(2) else tuple(subtasks[choose(len(subtasks))] for _ in range(1 + choose(2)))
        deadline = None if choose(2) else self.now + 0.5
        stops = not choose(3) and driver.stop_request is None
        order = SnapshotOrder(self._requests, not choose(2), initiators, None if stops else deadline)
        driver.order(order, stops=stops)

    def _land_late(self) -> None:
        request = self._late.pop(self._choose(len(self._late)))
        if self._choose(3):
            self.see("a request of a lost coordinator reached the store")
            perform(self._store, request.effect, request.manifest)

    # ---------------------------------------------------------------- checkers

    def check_published(self, history: Sequence[int]) -> None:
        """Every snapshot that somebody counts as published is exact, and no id is published twice."""
        for snapshot_id in history:
            if snapshot_id not in self._checked:
                self._checked.append(snapshot_id)
                snapshot = self._store.read_snapshot(snapshot_id, CODEC)
                if self.truth.check_snapshot(snapshot):
                    self.see("a snapshot with messages in flight")

    def check_triggers(self, owner: str, effects: Sequence[events.Effect]) -> None:
        """Ids are never used twice, and ascend over all lives of an owner (PROTOCOL 3.2)."""
        told = [effect.message for effect in effects if isinstance(effect, events.TellWorker)]
        ids = dict.fromkeys(message.snapshot_id for message in told if isinstance(message, control.TriggerSnapshot))
        for snapshot_id in ids:
            if snapshot_id in self._triggered:
                raise Violation("ids", f"{snapshot_id} is used twice: by {self._triggered[snapshot_id]} and {owner}")
            self._triggered[snapshot_id] = owner

    def check_settled(self, worker: ClusterWorker) -> None:
        """When the run is over, nobody still records a snapshot that was aborted (PROTOCOL 3.4)."""
        life = next(d for d in self.drivers if worker.launch.startswith(f"{d.owner} ")).life
        assert life is not None
        coordinator = life.coordinator
        pending = [snapshot_id for snapshot_id, reason in coordinator.aborted if coordinator.reason in reason]
        below = min(pending, default=1 << 63)
        aborted = [snapshot_id for snapshot_id, _ in coordinator.aborted if snapshot_id < below]
        for machine in worker.machines.values():
            left = [snapshot_id for snapshot_id in aborted if machine.cutter.recorder.phase(snapshot_id) is not None]
            if left:
                raise Violation("no leak", f"{machine.subtask} still holds {left}, aborted long ago")
