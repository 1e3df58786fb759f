"""One instance of a simulated coordinator: the real machine, its inbox, and its open store requests."""

from __future__ import annotations

from collections import deque
from typing import Protocol, assert_never

from cutline.snapshot.coordinator import control, events
from cutline.snapshot.coordinator.fence_answers import perform
from cutline.snapshot.coordinator.fence_events import (
    CheckForClaim,
    ClaimLost,
    ClaimSeen,
    DecideManifest,
    ManifestUndecided,
    ManifestWritten,
    StoreEffect,
    WriteManifest,
)
from cutline.snapshot.coordinator.machine import CoordinatorMachine, Outcome, Phase
from cutline.snapshot.coordinator.run_state import DEPLOYED
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored.cut_plan import CutPlan
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.simulation.connection import Connection, WorkerEnd
from cutline.snapshot.testing.simulation.world import World
from cutline.snapshot.testing.simulation.world_store import StoreRequest
from cutline.snapshot.testing.steps import Answer, Listen, Think, Wake
from cutline.snapshot.trace_events import Kind


class Submission(Protocol):
    """The driver of a coordinator: `snapshot.testing.simulation.driver.Driver`."""

    #: what happens to the next manifest, whose answer is lost: see `snapshot.testing.steps.Doubt`
    doubt: str | None

    @property
    def launch(self) -> str | None:
        """Return the launch of the newest stage, or None before the first."""

    def announced(self, simulated: SimulatedCoordinator, launch: str) -> None:
        """Note that the coordinator knows of a stage."""

    def stepped(self, simulated: SimulatedCoordinator) -> None:
        """Note that the coordinator has taken an event."""

    def answered(self, simulated: SimulatedCoordinator, request: int, snapshot_id: int | None) -> None:
        """Note that a request is answered."""

    def cancelled(self, simulated: SimulatedCoordinator, launch: str) -> None:
        """Note that the coordinator gives a stage up."""


class SimulatedCoordinator:
    """One coordinator instance.

    Parameters
    ----------
    world : World
    driver : Submission
        The driver that started this instance.
    number : int
        Number of this instance, counted over all drivers.
    """

    def __init__(self, world: World, driver: Submission, coordinator: CoordinatorMachine, number: int) -> None:
        self.coordinator = coordinator
        self.number = number
        self.driver = driver
        #: {worker: the connection of its newest registration}
        self.connections: dict[int, Connection] = {}
        #: {process: its connection}, registered or not
        self._lines: dict[int, Connection] = {}
        #: {number of the request: request} for all open store requests
        self.requests: dict[int, StoreRequest] = {}
        self.group = world.scheduler.group()
        self._world = world
        self._store = world.store.open(None)
        self._inbox: deque[events.Event] = deque()
        self._think = self.group.enabled_step(Think(number), self._on_think)
        self._wake = self.group.enabled_step(Wake(number), lambda: self._on_deadline())
        self._deadline: float | None = None
        self._asked = 0
        self._aborted_seen = 0

    # ---------------------------------------------------------------- events

    def receive(self, event: events.Event) -> None:
        """Queue an event for the machine."""
        self._inbox.append(event)
        self._think.set(True)

    def _on_think(self) -> None:
        event = self._inbox.popleft()
        self._think.set(bool(self._inbox))
        self.step(event)

    def _on_deadline(self) -> None:
        self._wake.set(False)
        self.step(events.TimePassed())

    def connect(self, worker: WorkerEnd) -> Connection:
        """Connect a process. The worker's number comes with its registration."""
        former = self._lines.get(worker.process)
        if former is not None:
            former.disconnect()
        enabled_step = self.group.enabled_step(
            Listen(worker.process, self.number), lambda: self._listen(worker.number, connection)
        )
        connection = self._lines[worker.process] = Connection(worker, enabled_step)
        return connection

    def _listen(self, number: int, connection: Connection) -> None:
        message = connection.take()
        if message is None:
            if self.connections.get(number) is connection:
                del self.connections[number]
                self.step(events.WorkerLost(number, "its connection ended"))
            return
        if isinstance(message, control.WorkerRegistered):
            self._take_in(number, connection, message.launch)
        if self.connections.get(number) is connection:
            self._take(number, message)

    def _take_in(self, number: int, connection: Connection, launch: str) -> None:
        """Register a worker and drop an older connection of its number. Dismiss a worker of an ended stage."""
        if launch != self.driver.launch:
            # PROTOCOL 6.4: a worker of an older stage must not replace the newer stage's worker of the same number.
            connection.send_to_worker(control.Quit("its stage is over"))
            return
        former = self.connections.get(number)
        self.connections[number] = connection
        if former is not None and former is not connection:
            former.disconnect()
            self.step(events.WorkerLost(number, "it connected anew"))

    def _take(self, number: int, message: control.WorkerMessage) -> None:
        self._note(message)
        before, incarnation = self.coordinator.phase, self.coordinator.incarnation
        is_stale = before in DEPLOYED and message.incarnation != incarnation
        came_back = isinstance(message, control.WorkerRegistered)
        if is_stale and not came_back:
            self._world.refuse(message.incarnation, f"{type(message).__name__} at incarnation {incarnation}")
        self.step(events.WorkerMessageReceived(number, message))
        if is_stale and not came_back and self.coordinator.phase is not before:
            raise CheckFailed("fencing", f"{message} of another incarnation ended {before.value}")

    def _note(self, message: control.WorkerMessage) -> None:
        """Count the situations that must happen in some run."""
        coordinator, see = self.coordinator, self._world.see
        incarnation = coordinator.incarnation
        match message:
            case control.SnapshotAcknowledged(other) if other != incarnation and incarnation:
                see("an acknowledgement of another incarnation")
            case control.WorkerFailed(_, failed) if failed == incarnation:
                if coordinator.phase is Phase.RESTORING:
                    see("a failure during restore")
                if coordinator.phase is Phase.FINISHING:
                    see("a failure while finishing")
            case _:
                pass

    # ---------------------------------------------------------------- effects

    def step(self, event: events.Event) -> None:
        """Pass an event to the machine, and perform its effects."""
        coordinator = self.coordinator
        before = coordinator.phase
        effects = coordinator.step(event, self._world.now)
        if isinstance(event, events.StageLaunched):
            self.driver.announced(self, event.launch)
        self._world.coordinators.check_triggers(self.number, effects)
        self._world.note_deployment(effects, coordinator.newest)
        for effect in effects:
            self._perform(effect)
        self._watch(before)
        self.driver.stepped(self)
        self._set_deadline()

    def _set_deadline(self) -> None:
        deadline = self.coordinator.next_deadline()
        if deadline == self._deadline:
            return
        self._deadline = deadline
        if deadline is not None:
            self._world.scheduler.at(deadline, lambda: self._ring(deadline))

    def _ring(self, deadline: float) -> None:
        if self._deadline == deadline:
            self._deadline = None
            self._wake.set(True)

    def collects_from(self, worker: WorkerEnd) -> bool:
        """Return whether this instance collects snapshots of the subtasks of a worker."""
        coordinator = self.coordinator
        return coordinator.phase is Phase.RUNNING and coordinator.incarnation == worker.incarnation

    def _watch(self, before: Phase) -> None:
        coordinator = self.coordinator
        self._world.check_published(coordinator.history)
        if before in (Phase.CLAIMING, Phase.GATHERING) and coordinator.phase in (Phase.REPLAYING, Phase.RUNNING):
            self._world.see("a run was adopted")
        if before is Phase.REPLAYING and coordinator.phase is Phase.RUNNING:
            self._world.see("steps were repeated")
        if before is Phase.REPLAYING and coordinator.phase is Phase.CLAIMING:
            self._world.see("a rollback during a replay")
        for snapshot_id, reason in coordinator.aborted.since(self._aborted_seen):
            self._world.history_log.note(Kind.ABORTED, coordinator.incarnation, snapshot_id=snapshot_id, text=reason)
            if "cut is not consistent" in reason:
                raise CheckFailed("certificate", f"snapshot {snapshot_id}: {reason}")
            if "was whole first" in reason:
                self._world.see("a snapshot overtook another")
            if "not whole after" in reason:
                self._world.see("a snapshot was aborted by its deadline")
        self._aborted_seen = coordinator.aborted.count
        if len(coordinator.pending) > 1:
            self._world.see("two snapshots at a time")

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.SendToWorker(worker, message):
                connection = self.connections.get(worker)
                if connection is not None:
                    connection.send_to_worker(message)
            case events.CloseRequest(request, snapshot_id):
                self.driver.answered(self, request, snapshot_id)
            case events.CancelStage(launch):
                self._world.see("a stage was given up")
                self.driver.cancelled(self, launch)
            case (
                events.AskStore()
                | events.ReadManifest()
                | events.ListRecords()
                | events.StoreCut()
                | events.RemoveRecords()
                | events.DeleteSnapshots()
                | events.CollectOrphans()
            ):
                self._request(effect)
            case _:
                assert_never(effect)

    # ---------------------------------------------------------------- the store

    def _request(self, request: StoreRequest, written: ManifestWritten | None = None) -> None:
        number = self._asked
        self._asked += 1
        self.requests[number] = request
        self.group.once(Answer(number, self.number), lambda: self._answer(number, written))

    def _answer(self, number: int, written: ManifestWritten | None) -> None:
        """Perform a request. `written` is the manifest that was written before, if the request checks for a claim."""
        request = self.requests.pop(number)
        answer = self._ask(request)
        match request, answer:
            case events.AskStore(check=CheckForClaim() as check), events.StoreAnswered(ManifestWritten() as done):
                # Other processes may reach the store between the two.
                self._request(events.AskStore(check, None), done)
            case _, events.StoreAnswered(ClaimSeen() as seen) if written is not None:
                self.receive(events.StoreAnswered(written, seen))
            case _, None:
                pass
            case _:
                self.receive(answer)

    def _ask(self, request: StoreRequest) -> events.Event | None:
        match request:
            case events.AskStore(effect, manifest):
                return self._ask_store(effect, manifest)
            case events.ReadManifest(run, snapshot_id):
                try:
                    return events.ManifestRead(self._world.read_manifest(run, snapshot_id))
                except (SnapshotCorrupt, FileNotFoundError) as error:
                    return events.RecordsUnusable(str(error))
            case events.ListRecords(claim, incarnation):
                return events.RecordsListed(claim, LocalCheckpointFiles(self._store).newest(incarnation))
            case events.StoreCut(snapshot_id, incarnation, plan):
                return self._store_cut(snapshot_id, incarnation, plan)
            case events.RemoveRecords(paths):
                self._store.remove_records(paths)
                return events.RecordsRemoved()
            case events.DeleteSnapshots(snapshot_ids):
                removed = self._delete(snapshot_ids)
                return events.SnapshotsDeleted(removed, self._versions(removed))
            case events.CollectOrphans(incarnation):
                self._collect_orphans(incarnation)
                return None
            case _:
                assert_never(request)

    def _store_cut(self, snapshot_id: int, incarnation: int, plan: CutPlan) -> events.Event:
        if any(state.is_cut_inside for state in plan.channels):
            self._world.see("a log cut inside an entry")
        try:
            return events.CutStored(
                snapshot_id, LocalCheckpointFiles(self._store).store_cut(plan, snapshot_id, incarnation)
            )
        except SnapshotCorrupt as error:
            return events.CutNotStored(snapshot_id, str(error))

    def _ask_store(self, effect: StoreEffect, manifest: Manifest | None) -> events.Event:
        doubt = self.driver.doubt
        if isinstance(effect, WriteManifest | DecideManifest) and doubt is not None:
            self.driver.doubt = None
            self._world.see("a manifest was undecided")
            if doubt == "late":
                self._world.store.leave_behind([events.AskStore(effect, manifest)])
            elif doubt == "done":
                perform(self._store, effect, manifest)
            return events.StoreAnswered(ManifestUndecided(effect))
        answer = perform(self._store, effect, manifest)
        if isinstance(answer, ClaimLost):
            self._world.see("two claims raced")
        return events.StoreAnswered(answer)

    def _delete(self, snapshot_ids: tuple[int, ...]) -> tuple[int, ...]:
        removed: list[int] = []
        for snapshot_id in snapshot_ids:
            kept = [s for s in self.coordinator.history if s not in (*removed, snapshot_id)]
            if snapshot_id not in self._store.manifests():
                self._world.see("another coordinator had removed a snapshot")
            try:
                if self._store.delete_snapshot(snapshot_id, kept, self.coordinator.incarnation):
                    removed.append(snapshot_id)
            except FileNotFoundError:
                continue  # a snapshot to be kept is gone, because another coordinator has taken the run
        return tuple(removed)

    def _versions(self, removed: tuple[int, ...]) -> tuple[int, ...]:
        """Return the snapshots whose local versions those of the history list."""
        stored = [each for each in self._store.manifests() if each not in removed]
        manifests = [self._store.read_manifest(each) for each in stored]
        records = [record for each in manifests if isinstance(each, Manifest) for record in each.records]
        return tuple(sorted({record.version.snapshot_id for record in records if record.version is not None}))

    def _collect_orphans(self, incarnation: int) -> None:
        try:
            self._store.collect_orphans(self.coordinator.history, incarnation, 0.0, self._world.now)
        except FileNotFoundError:
            self._world.see("another coordinator had removed a snapshot")

    # ---------------------------------------------------------------- the end

    @property
    def is_publishing(self) -> bool:
        """Whether the last part of a snapshot is stored, and its manifest is not."""
        asked = (request for request in self.requests.values() if isinstance(request, events.AskStore))
        return any(isinstance(request.effect, WriteManifest) for request in asked)

    @property
    def is_over(self) -> bool:
        """Whether the coordinator has ended."""
        return self.coordinator.phase is Phase.ENDED

    @property
    def outcome(self) -> Outcome:
        """The outcome with which the coordinator ended."""
        assert self.coordinator.outcome is not None
        return self.coordinator.outcome

    @property
    def has_published_unseen(self) -> bool:
        """Whether a manifest is written, and the coordinator has not taken the answer yet."""
        answers = (event.answer for event in self._inbox if isinstance(event, events.StoreAnswered))
        asked = (request.effect for request in self.requests.values() if isinstance(request, events.AskStore))
        is_checking = self.coordinator.phase is Phase.RUNNING and any(isinstance(each, CheckForClaim) for each in asked)
        return is_checking or any(isinstance(answer, ManifestWritten) for answer in answers)

    def end(self) -> None:
        """End the process. Its open store requests may still happen."""
        self.group.end()
        self._world.store.leave_behind(list(self.requests.values()))
        self.requests.clear()

    def disconnect(self) -> None:
        """Break all connections of this instance."""
        for connection in self._lines.values():
            connection.close()
