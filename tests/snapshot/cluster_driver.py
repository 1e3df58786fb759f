"""One driver of the cluster: the supervisor of its barrier stage, and the lives of its coordinator.

The coordinator is the real one; this is the shell around it. Everything that the shell hears or has performed is
one step, taken when the cluster's schedule says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from snapshot.coordinator import control, events
from snapshot.coordinator.fence_events import DecideManifest, ManifestUndecided, StoreEffect, WriteManifest
from snapshot.coordinator.machine import Coordinator, Outcome, Phase, RunSettings
from snapshot.coordinator.run_state import DEPLOYED
from snapshot.coordinator.snapshot_book import SnapshotOrder
from snapshot.errors import SnapshotCorrupt
from snapshot.stored.manifest import Manifest
from tests.snapshot.cluster_store import perform
from tests.snapshot.cluster_truth import Violation
from tests.snapshot.cluster_worker import ClusterWorker, Connection

if TYPE_CHECKING:
    from tests.snapshot.cluster import Cluster

Choose = Callable[[int], int]

#: What the store is asked for on behalf of one life.
StoreRequest = events.AskStore | events.ReadManifest | events.DeleteSnapshots | events.CollectOrphans


@dataclass
class Stage:
    """One submission of the barrier stage."""

    launch: str
    #: None: its barrier task forks a new one
    workers: list[ClusterWorker | None]
    is_failed: bool = False
    #: the coordinator knows of it, so its workers may come
    is_announced: bool = False


@dataclass
class Life:
    """One life of the coordinator: what it is about to hear, and what it asked for."""

    coordinator: Coordinator
    number: int
    heard: deque[events.Event] = field(default_factory=deque)
    connections: dict[int, Connection] = field(default_factory=dict)
    requests: list[StoreRequest] = field(default_factory=list)


class Driver:
    """One submission of the run.

    Parameters
    ----------
    cluster : Cluster
    owner : str
    settings : RunSettings
    """

    def __init__(self, cluster: Cluster, owner: str, settings: RunSettings) -> None:
        self.owner = owner
        self.settings = settings
        self.stage: Stage | None = None
        self.life: Life | None = None
        #: lives that were taken for dead and are not; nobody hears them any more
        self.zombies: list[Life] = []
        self.outcome: Outcome | None = None
        #: orders that are not answered: {request: order}, and the one after which the run is to stop
        self.orders: dict[int, SnapshotOrder] = {}
        self.stop_request: int | None = None
        #: the present life has answered that order with a snapshot
        self.is_stopping = False
        #: the next manifest is written, but nobody learns it; or it is never written
        self.doubt: str | None = None
        self._cluster = cluster
        self._store = cluster.open_store()
        self._lives = 0
        self._launches = 0
        self._aborted_seen = 0

    # ---------------------------------------------------------------- steps

    def steps(self) -> list[Callable[[Choose], None]]:
        """What may happen to it now."""
        steps: list[Callable[[Choose], None]] = []
        for life in self.zombies:
            steps += self._steps_of(life)
        if self.outcome is not None:
            return steps
        if self.life is None:
            return [*steps, self._start_life]
        steps += self._steps_of(self.life)
        if self.stage is None or self.stage.is_failed:
            steps.append(self._launch)
        elif self.stage.is_announced and None in self.stage.workers:
            steps.append(self._fork)
        if (
            self.stage is not None
            and not self.stage.is_failed
            and any(w and not w.is_alive for w in self.stage.workers)
        ):
            steps.append(self._notice_exit)
        return steps

    def _steps_of(self, life: Life) -> list[Callable[[Choose], None]]:
        steps: list[Callable[[Choose], None]] = []
        if life.heard:
            steps.append(lambda choose: self._step(life, life.heard.popleft()))
        for worker, connection in life.connections.items():
            if connection.to_coordinator or not connection.is_open:
                steps.append(lambda choose, w=worker: self._hear(life, w))  # type: ignore[misc]
        if life.requests:
            steps.append(lambda choose: self._perform_request(life, choose))
        alarm = life.coordinator.next_alarm()
        if alarm is not None and alarm <= self._cluster.now:
            steps.append(lambda choose: self._step(life, events.TimePassed()))
        return steps

    def next_wake(self) -> float | None:
        """When time alone lets it act."""
        lives = [*self.zombies, *([self.life] if self.life and self.outcome is None else [])]
        alarms = [alarm for life in lives if (alarm := life.coordinator.next_alarm()) is not None]
        return min(alarms, default=None)

    # ---------------------------------------------------------------- the coordinator

    def _start_life(self, choose: Choose) -> None:
        self._lives += 1
        fence = self._cluster.mutation.fence(self.owner, f"{self.owner}{self._lives}")
        is_running = self.stage is not None and self.stage.is_announced and not self.stage.is_failed
        launch = self.stage.launch if self.stage is not None and is_running else ""
        coordinator = self._cluster.mutation.coordinator(self.settings, fence, launch=launch, epoch_offset=1000.0)
        self.life = Life(coordinator, self._lives)
        self._step(self.life, events.Begin())
        if self.stage is not None and not self.stage.is_failed and not is_running:
            self.life.heard.append(events.StageLaunched(self.stage.launch))
        for order in self.orders.values():  # asked again of each new life
            stops = order.request == self.stop_request
            self.life.heard.append(events.StopOrdered(order) if stops else events.SnapshotOrdered(order))

    def _hear(self, life: Life, worker: int) -> None:
        connection = life.connections[worker]
        if connection.to_coordinator:
            message = connection.to_coordinator.popleft()
            self._note(life, message)
            before, incarnation = life.coordinator.phase, life.coordinator.incarnation
            is_stale = before in DEPLOYED and message.incarnation != incarnation
            self._step(life, events.WorkerSaid(worker, message))
            came_back = isinstance(message, control.WorkerRegistered)
            if is_stale and not came_back and life.coordinator.phase is not before:
                raise Violation("fencing", f"{message} of another incarnation ended {before.value}")
        else:
            del life.connections[worker]
            self._step(life, events.WorkerLost(worker, "its connection ended"))

    def _note(self, life: Life, message: control.WorkerMessage) -> None:
        """What must be seen at times."""
        coordinator, see = life.coordinator, self._cluster.see
        incarnation = coordinator.incarnation
        match message:
            case control.SnapshotAcknowledged(other) if other != incarnation and incarnation:
                see("an acknowledgement of another incarnation")
            case control.WorkerFailed(_, incarnation_failed) if incarnation_failed == incarnation:
                if coordinator.phase is Phase.RESTORING:
                    see("a failure during restore")
                if coordinator.phase is Phase.FINISHING:
                    see("a failure while finishing")
            case _:
                pass

    def _step(self, life: Life, event: events.Event) -> None:
        coordinator = life.coordinator
        before = coordinator.phase
        effects = coordinator.step(event, self._cluster.now)
        if isinstance(event, events.StageLaunched) and life is self.life and self.stage is not None:
            self.stage.is_announced |= event.launch == self.stage.launch
        self._cluster.check_triggers(self.owner, effects)
        for effect in effects:
            self._perform(life, effect)
        self._watch(coordinator, before)
        if self.is_stopping and life is self.life and coordinator.phase is Phase.RUNNING:
            raise Violation("stop", f"{self.owner} was to stop, has its last snapshot, and runs")
        if coordinator.phase is Phase.ENDED:
            self._on_ended(life)

    def _watch(self, coordinator: Coordinator, before: Phase) -> None:
        self._cluster.check_published(coordinator.history)
        if before in (Phase.CLAIMING, Phase.GATHERING) and coordinator.phase is Phase.RUNNING:
            self._cluster.see("a run was adopted")
        for _, reason in coordinator.aborted[self._aborted_seen :]:
            if "was whole first" in reason:
                self._cluster.see("a snapshot overtook another")
            if "not whole after" in reason:
                self._cluster.see("a snapshot was aborted by its deadline")
        self._aborted_seen = len(coordinator.aborted)

    def _on_ended(self, life: Life) -> None:
        outcome = life.coordinator.outcome
        assert outcome is not None
        self._cluster.see(f"a coordinator ended {outcome.value}")
        if life is not self.life:
            self.zombies.remove(life)
        elif outcome is Outcome.SUPERSEDED:
            self.lose_life()  # its process leaves, so a new one is started
        else:
            self.outcome = outcome
            reason = life.coordinator.reason
            if outcome is Outcome.FAILED:
                raise Violation("liveness", f"the run failed: {reason}")

    def lose_life(self, *, lives_on: bool = False) -> None:
        """The coordinator's process is lost, or is taken for lost. What the store is doing for it may still happen."""
        assert self.life is not None
        if lives_on:
            self.zombies.append(self.life)
        else:
            self._cluster.leave_behind(self.life.requests)
        for connection in self.life.connections.values():
            connection.is_open = False
        self.life = None
        self.is_stopping = False

    # ---------------------------------------------------------------- effects

    def _perform(self, life: Life, effect: events.Effect) -> None:
        match effect:
            case events.TellWorker(worker, message):
                connection = life.connections.get(worker)
                if connection is not None and connection.is_open:
                    connection.to_worker.append(message)
            case events.CloseOrder(request, snapshot_id):
                if life is self.life and self.orders.pop(request, None) is not None:
                    self.is_stopping |= request == self.stop_request and snapshot_id is not None
            case events.CancelStage(launch):
                self._cluster.see("a stage was given up")
                if life is self.life and self.stage is not None and self.stage.launch == launch:
                    self.fail_stage("cancelled")
            case events.AskStore() | events.ReadManifest() | events.DeleteSnapshots() | events.CollectOrphans():
                life.requests.append(effect)
            case _:
                assert_never(effect)

    def _perform_request(self, life: Life, choose: Choose) -> None:
        request = life.requests.pop(choose(len(life.requests)))
        answer = self._answer(life, request)
        if answer is not None:
            life.heard.append(answer)

    def _answer(self, life: Life, request: StoreRequest) -> events.Event | None:
        match request:
            case events.AskStore(effect, manifest):
                return self._ask_store(effect, manifest)
            case events.ReadManifest(_, snapshot_id):
                try:
                    found = self._store.read_manifest(snapshot_id)
                except (SnapshotCorrupt, FileNotFoundError) as error:
                    return events.ManifestUnreadable(str(error))
                assert isinstance(found, Manifest)
                return events.ManifestRead(found)
            case events.DeleteSnapshots(snapshot_ids):
                return events.SnapshotsDeleted(self._delete(life, snapshot_ids))
            case events.CollectOrphans(incarnation):
                self._store.collect_orphans(life.coordinator.history, incarnation, 0.0)
                return None
            case _:
                assert_never(request)

    def _ask_store(self, effect: StoreEffect, manifest: Manifest | None) -> events.Event:
        if isinstance(effect, WriteManifest | DecideManifest) and self.doubt is not None:
            doubt, self.doubt = self.doubt, None
            self._cluster.see("a manifest was undecided")
            request = events.AskStore(effect, manifest)
            if doubt == "late":
                self._cluster.leave_behind([request])
            elif doubt == "done":
                perform(self._store, effect, manifest)
            return events.StoreAnswered(ManifestUndecided(effect))
        return events.StoreAnswered(perform(self._store, effect, manifest))

    def _delete(self, life: Life, snapshot_ids: tuple[int, ...]) -> tuple[int, ...]:
        removed: list[int] = []
        for snapshot_id in snapshot_ids:
            kept = [s for s in life.coordinator.history if s not in (*removed, snapshot_id)]
            try:
                manifest = self._store.read_manifest(snapshot_id)
                assert isinstance(manifest, Manifest)
                if manifest.pinned:
                    continue
                self._store.delete_snapshot(snapshot_id, kept)
            except FileNotFoundError:
                self._cluster.see("another coordinator had removed a snapshot")
            removed.append(snapshot_id)
        return tuple(removed)

    def order(self, order: SnapshotOrder, *, stops: bool) -> None:
        """The user wants a snapshot, or the end of the run after one. Whatever happens, there is an answer."""
        self.orders[order.request] = order
        if stops:
            self.stop_request = order.request
        if self.life is not None:
            self.life.heard.append(events.StopOrdered(order) if stops else events.SnapshotOrdered(order))

    def die(self) -> None:
        """The driver's process is killed, and its coordinator and workers with it."""
        if self.life is not None:
            self.lose_life()
        if self.stage is not None:
            for worker in self.stage.workers:
                if worker is not None:
                    worker.leave()
        self.outcome = Outcome.FENCED

    # ---------------------------------------------------------------- the supervisor

    def _launch(self, choose: Choose) -> None:
        assert self.life is not None
        self._launches += 1
        launch = f"{self.owner} stage {self._launches}"
        self.stage = Stage(launch, [None] * self.settings.worker_count)
        self.life.heard.append(events.StageLaunched(launch))

    def _fork(self, choose: Choose) -> None:
        assert self.stage is not None
        number = self.stage.workers.index(None)
        self.stage.workers[number] = self._cluster.fork(self.stage.launch, number)

    def _notice_exit(self, choose: Choose) -> None:
        assert self.stage is not None
        number, worker = next((n, w) for n, w in enumerate(self.stage.workers) if w is not None and not w.is_alive)
        if worker.has_quit:
            self.fail_stage(f"worker {number} quit")
        else:
            self.stage.workers[number] = None  # its barrier task forks it again

    def fail_stage(self, reason: str) -> None:
        """A barrier task is gone; the survivors linger until they are told to quit."""
        assert self.stage is not None
        self.stage.is_failed = True
        if self.life is not None:
            self.life.heard.append(events.StageEnded(self.stage.launch, reason))

    def connect(self, worker: ClusterWorker) -> Connection | None:
        """A control connection to the present life, if there is one."""
        if self.life is None:
            return None
        old = self.life.connections.get(worker.number)
        if old is not None:
            old.is_open = False
        connection = Connection()
        self.life.connections[worker.number] = connection
        return connection
