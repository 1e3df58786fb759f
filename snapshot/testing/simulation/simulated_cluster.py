"""A whole simulated run: drivers, coordinators, workers, wires and a store, around the real machines.

Everything that could happen next is a place on the agenda; which one does is a chooser's business. Looks, as it goes,
that ids are used once, that what is published is exact, and that nothing of a settled snapshot stays behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import LoggerAdapter
from typing import Any

from snapshot.channel.serialization import Codec
from snapshot.coordinator import control, events
from snapshot.coordinator.fence import Fence
from snapshot.coordinator.machine import Coordinator, Outcome, RunSettings
from snapshot.coordinator.pending_snapshot import SnapshotRequest
from snapshot.errors import SnapshotCorrupt
from snapshot.ids import Subtask
from snapshot.node import defines
from snapshot.plan.compiled_graph import CompiledGraph
from snapshot.snapshot import Snapshot
from snapshot.stored.fence_answers import perform
from snapshot.stored.part import Handle, PartKind, decode_frames
from snapshot.stored.run_store import RunStore
from snapshot.subtask.assembly import SubtaskParts
from snapshot.subtask.machine import SubtaskMachine
from snapshot.subtask.observer import Observer
from snapshot.testing.checking.verdict import CheckFailed
from snapshot.testing.history import History
from snapshot.testing.payload import pack
from snapshot.testing.simulation.driver import Driver
from snapshot.testing.simulation.history_log import HistoryLog
from snapshot.testing.simulation.hook_failure import inject_hook_failure
from snapshot.testing.simulation.host import Host
from snapshot.testing.simulation.scheduler import Scheduler
from snapshot.testing.simulation.simulated_coordinator import SimulatedCoordinator, StoreRequest
from snapshot.testing.simulation.store import SimulatedBackend
from snapshot.testing.simulation.worker import Worker
from snapshot.testing.steps import Land
from snapshot.trace import Kind
from snapshot.worker.machine import WorkerMachine

#: Names of drivers, in the order of their submissions.
_OWNERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


#: How the reason begins for which a snapshot is aborted that was under way when the run ended.
_RUN_OVER = "the run has ended"

#: Events of machines between two looks at their invariants: the looks cost as much as the events.
_VALIDATE_EVERY = 8


@dataclass(frozen=True)
class Mutation:
    """The classes that a run is made of; mutants of them show that the checkers bite."""

    coordinator: type[Coordinator] = Coordinator
    fence: type[Fence] = Fence
    machine: Callable[[SubtaskParts], SubtaskMachine] = SubtaskMachine
    #: another observer of each subtask, beside the history
    observer: Callable[[Subtask, int], Observer | None] = lambda subtask, incarnation: None
    worker: type[Worker] = Worker
    worker_machine: type[WorkerMachine] = WorkerMachine


class SimulatedCluster:
    """One run, however many drivers, stages and lives it takes.

    Parameters
    ----------
    compiled : CompiledGraph
    settings : RunSettings
    seed : int
        Told to nodes as their chance.
    seals_each : bool
        Every message goes in a frame of its own.
    validates : bool
        Have machines assert their invariants now and then: see `is_time_to_validate`.
    files : dict, optional
        ``{path: bytes}`` of the store, read and written.
    """

    def __init__(
        self,
        compiled: CompiledGraph,
        settings: RunSettings,
        *,
        seed: int,
        seals_each: bool,
        validates: bool,
        resubmits: bool,
        files: dict[str, bytes] | None = None,
        mutation: Mutation | None = None,
    ) -> None:
        self.compiled = compiled
        self.run = settings.run
        self.seed = seed
        self._validates = validates
        self._events = 0
        self.mutation = mutation or Mutation()
        self.scheduler = Scheduler()
        self.codec = Codec()
        self.logger: LoggerAdapter[Any] = _Silent()
        topology = compiled.topology
        self.history = History(topology, self.codec)
        self.history_log = HistoryLog(self.history, self.scheduler, self.codec, seals_each=seals_each)
        self.placement = topology.place(settings.worker_count)
        self.drivers: list[Driver] = []
        self.processes: list[Worker] = []
        #: {subtask: hook of its next instance that is to raise}
        self.hook_failures: dict[Subtask, str] = {}
        self._settings = settings
        self._resubmits = resubmits
        self._files = {} if files is None else files
        #: every part that was ever published
        self._museum: dict[Handle, bytes] = {}
        self._store = self.open_store(None)
        self._backends: dict[int, SimulatedBackend] = {}
        self._checked: dict[int, None] = {}
        self._deployed: dict[int, None] = {}
        #: {snapshot_id: who triggered it}
        self._triggered: dict[int, str] = {}
        self._coordinator_count = 0
        self._landings = 0
        self._requests = 0
        self._late = self.scheduler.group()
        self._adopt_stored()
        self.submit()

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.scheduler.now

    def is_time_to_validate(self) -> bool:
        """Now and then is enough: what breaks an invariant of a machine does not mend by itself."""
        self._events += 1
        return self._validates and not self._events % _VALIDATE_EVERY

    def see(self, what: str) -> None:
        """Something happened that must happen in some run."""
        self.history.seen[what] += 1

    # ---------------------------------------------------------------- the run as a whole

    def submit(self) -> None:
        """Another driver submits the run, under the same name."""
        self.drivers.append(Driver(self, _OWNERS[len(self.drivers)], self._settings))

    @property
    def driver(self) -> Driver:
        """The one that submitted last."""
        return self.drivers[-1]

    @property
    def is_over(self) -> bool:
        """The run has ended, and nobody is left who has yet to find out."""
        if self.drivers[-1].outcome is None or any(driver.outcome is None for driver in self.drivers):
            return False
        return not self._wants_result and not any(
            simulated.requests for driver in self.drivers for simulated in driver.zombies
        )

    @property
    def _wants_result(self) -> bool:
        """All drivers have ended, and none with the result."""
        again = (Outcome.FENCED, Outcome.STOPPED) if self._resubmits else (Outcome.FENCED,)
        is_left = all(driver.outcome is not None for driver in self.drivers)
        return is_left and self.driver.outcome in again and len(self.drivers) < len(_OWNERS)

    def resubmit(self) -> None:
        """Somebody submits the run again, if nobody has its result."""
        if self.drivers[-1].outcome is not None and self._wants_result:
            self.submit()

    def dismiss(self) -> None:
        """The run is over: its workers hear what the coordinator said last."""
        for worker in self.workers:
            if worker.driver.outcome in (Outcome.FINISHED, Outcome.STOPPED):
                worker.drain_inbox()

    def request_snapshot(self, *, stops: bool, pinned: bool = False) -> None:
        """The driver orders a snapshot, or that the run stop after one."""
        self._requests += 1
        stops = stops and self.driver.stop_request is None
        request = SnapshotRequest(self._requests, pinned=pinned, initiators=None, deadline=None)
        self.driver.request(request, stops=stops)

    def worker_of(self, subtask: Subtask) -> Worker | None:
        """The process that runs a subtask now; None: none does."""
        running = [worker for worker in self.workers if subtask in worker.hosts]
        return max(running, key=lambda worker: worker.incarnation, default=None)

    @property
    def has_replaced(self) -> bool:
        """A process has been replaced by another one, or is about to be: both may live, and run the same subtasks."""
        return len(self.processes) > self._settings.worker_count

    @property
    def workers(self) -> list[Worker]:
        """The processes that live, lingering ones among them."""
        return [worker for worker in self.processes if worker.is_alive]

    # ---------------------------------------------------------------- what processes need

    def open_store(self, process: int | None) -> RunStore:
        """The run's store, as one process sees it."""
        backend = SimulatedBackend(self._files)
        if process is not None:
            self._backends[process] = backend
        return RunStore(backend, self.run)

    def backend_of(self, process: int) -> SimulatedBackend:
        """By which faults get into the store of a process."""
        return self._backends[process]

    def fork(self, driver: Driver, launch: str, number: int) -> Worker:
        """A new worker process."""
        worker = self.mutation.worker(self, driver, launch, number, len(self.processes))
        self.processes.append(worker)
        return worker

    def new_coordinator(self, driver: Driver, coordinator: Coordinator) -> SimulatedCoordinator:
        """A new life of a coordinator."""
        self._coordinator_count += 1
        return SimulatedCoordinator(self, driver, coordinator, self._coordinator_count - 1)

    def coordinator_changed(self, driver: Driver) -> None:
        """There is one now that workers may connect to, or none any more."""
        for worker in self.workers:
            if worker.driver is driver:
                worker.find_coordinator()

    def peers(self, addresses: Sequence[bytes]) -> dict[int, Worker]:
        """The processes behind addresses, by number, also where they are gone."""
        return {number: self.processes[int(address)] for number, address in enumerate(addresses)}

    def peers_changed(self) -> None:
        """A worker has connected, or dropped its connections."""
        for worker in self.workers:
            worker.check_peers()

    def worker_left(self, worker: Worker) -> None:
        """A process has ended."""
        worker.driver.worker_left(worker)
        self.peers_changed()

    def leave_behind(self, requests: Iterable[StoreRequest]) -> None:
        """Whoever asked for these is gone; they may still happen, or not."""
        for request in requests:
            if isinstance(request, events.AskStore):
                step = Land(self._landings)
                self._landings += 1
                self._late.once(step, lambda r=request: self._land(r))  # type: ignore[misc]  # a default binds it now

    def _land(self, request: events.AskStore) -> None:
        self.see("a request of a lost coordinator reached the store")
        perform(self._store, request.effect, request.manifest)

    def fail_next_hook(self, machine: SubtaskMachine) -> None:
        """A new instance of a node is there: one of its hooks may be meant to raise."""
        hook = self.hook_failures.pop(machine.subtask, None)
        if hook is not None and defines(machine.node, hook):
            inject_hook_failure(machine.node, hook)

    def pack(self, message: object) -> bytes:
        """A message as the history keeps it."""
        return pack(message, self.codec)

    # ---------------------------------------------------------------- what is written down, and looked at

    def committed(self, host: Host, visible: Sequence[tuple[str, list[Any]]]) -> None:
        """A `ListSink` has made rows visible."""
        for token, rows in visible:
            self.history.committed[host.subtask.node].setdefault(token, [self.pack(row) for row in rows])

    def refuse(self, incarnation: int, what: str) -> None:
        """Something of another incarnation came and was dropped."""
        self.history.seen["refused"] += 1
        self.history_log.note(Kind.REFUSED, incarnation, text=what)

    def deployed(self, message: control.Deploy) -> None:
        """Workers are told to begin an incarnation; none of them may ever hear it."""
        if message.incarnation not in self._deployed:
            self._deployed[message.incarnation] = None
            states = [restored.state for restored in message.subtasks if restored.state is not None]
            origin = (states[0].incarnation, states[0].snapshot_id) if states else None
            self.history_log.note(Kind.DEPLOYED, message.incarnation, snapshot_id=origin[1] if origin else 0)

    def check_published(self, simulated: SimulatedCoordinator) -> None:
        """Keep what somebody counts as published; it stays readable after it is removed."""
        for snapshot_id in simulated.coordinator.history:
            if snapshot_id not in self._checked:
                self._checked[snapshot_id] = None
                self._keep(snapshot_id)

    def _adopt_stored(self) -> None:
        """Have the witness begin where earlier runs left the store."""
        store = self._store
        for snapshot in store.read_snapshots(self.codec):
            self.history_log.adopt(snapshot.manifest, lambda handle: decode_frames(handle, store.read_part(handle)))

    def _keep(self, snapshot_id: int) -> None:
        try:
            manifest = self._store.read_snapshot(snapshot_id, self.codec).manifest
            for record in manifest.records:
                for handle in record.handles:
                    if handle.path is not None:
                        self._museum[handle] = self._store.read_stored(handle)
        except SnapshotCorrupt as error:
            raise CheckFailed("integrity", f"snapshot {snapshot_id}: {error}") from error
        snapshot = Snapshot(manifest, self._museum.__getitem__, self.codec)
        self.history.snapshots.append(snapshot)
        kinds = [handle.kind for record in manifest.records for handle in record.handles]
        if PartKind.RECEIVED in kinds or PartKind.SENT in kinds:
            self.see("a snapshot with messages in flight")
        if PartKind.SENT in kinds:
            self.see("a sender's part")
        self.history_log.note(Kind.PUBLISHED, snapshot.manifest.incarnation, snapshot_id=snapshot_id)

    def check_triggers(self, simulated: SimulatedCoordinator, effects: Sequence[events.Effect]) -> None:
        """Ids are never used twice (PROTOCOL 3.2)."""
        triggered = [effect.message for effect in effects if isinstance(effect, events.SendToWorker)]
        ids = dict.fromkeys(
            message.snapshot_id for message in triggered if isinstance(message, control.TriggerSnapshot)
        )
        who = f"life {simulated.number}"
        for snapshot_id in ids:
            if snapshot_id in self._triggered:
                raise CheckFailed("ids", f"{snapshot_id} is used twice: by {self._triggered[snapshot_id]} and {who}")
            self._triggered[snapshot_id] = who

    def check_settled(self, worker: Worker) -> None:
        """When the run is over, nobody still records a snapshot that was aborted (PROTOCOL 3.4)."""
        simulated = worker.driver.simulated
        assert simulated is not None
        coordinator = simulated.coordinator
        pending = [snapshot_id for snapshot_id, reason in coordinator.aborted if reason.startswith(_RUN_OVER)]
        below = min(pending, default=1 << 63)
        aborted = [snapshot_id for snapshot_id, _ in coordinator.aborted if snapshot_id < below]
        for host in worker.hosts.values():
            recorder = host.machine.snapshotter.recorder
            left = [snapshot_id for snapshot_id in aborted if recorder.phase(snapshot_id) is not None]
            if left:
                raise CheckFailed("no leak", f"{host.subtask} still holds {left}, aborted long ago")


class _Silent(LoggerAdapter[Any]):
    """What nodes log in a simulation is not kept."""

    def __init__(self) -> None:
        super().__init__(None, {})

    def isEnabledFor(self, level: int) -> bool:  # the name is logging's
        return False

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        pass
