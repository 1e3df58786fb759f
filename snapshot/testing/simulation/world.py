"""State that all processes of a simulated run share: time, the store, the history, and the checks of a whole run.

Checks, as the run goes on, that ids are used once, that published snapshots are exact, and that nothing of an aborted
snapshot stays behind. Knows no process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import LoggerAdapter
from typing import Any

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator import control, events
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.machine import CoordinatorMachine, RunSettings
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import PartKind, decode_frames
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.renaming import renames
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import topology_of_record
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.observer import Observer
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import pack
from cutline.snapshot.testing.simulation.disks import SimulatedDisk, disk_name
from cutline.snapshot.testing.simulation.history_log import FOREIGN, HistoryLog, SubtaskHistory
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals
from cutline.snapshot.testing.simulation.scheduler import Scheduler
from cutline.snapshot.testing.simulation.totals import SimulatedStore, StoreConnection
from cutline.snapshot.testing.simulation.world_store import WorldStore
from cutline.snapshot.trace_events import Kind
from cutline.snapshot.worker.ledger import CollectorTask
from cutline.snapshot.worker.machine import WorkerMachine

#: How the reason begins for which a pending snapshot is aborted at the end of the run.
_RUN_OVER = "the run has ended"

#: events of machines between two validations of their invariants, because a validation costs as much as the events
_VALIDATE_EVERY = 8


@dataclass(frozen=True)
class Mutation:
    """The classes of which a run consists. Mutants of these classes show that the checkers find mistakes."""

    coordinator: type[CoordinatorMachine] = CoordinatorMachine
    fence: type[Fence] = Fence
    machine: Callable[[SubtaskComponents], SubtaskMachine] = SubtaskMachine
    #: makes a second observer of each subtask, beside the history; returns None for no such observer
    observer: Callable[[Subtask, int, Codec], Observer | None] = lambda subtask, incarnation, codec: None
    #: class of workers; None: `snapshot.testing.simulation.worker.Worker`
    worker: Callable[..., Any] | None = None
    worker_machine: type[WorkerMachine] = WorkerMachine
    store_connection: Callable[[SimulatedStore], KeptTotals] = StoreConnection


class ValidationTimes:
    """When machines assert their invariants. Not each event is needed, because a broken invariant stays broken."""

    def __init__(self, *, is_ever: bool) -> None:
        self._is_ever = is_ever
        self._events = 0

    def is_now(self) -> bool:
        """Count an event, and return whether to validate after it."""
        self._events += 1
        return self._is_ever and not self._events % _VALIDATE_EVERY


class CoordinatorNumbers:
    """The coordinator instances of all drivers, by number, and the snapshots that they have triggered."""

    def __init__(self) -> None:
        self._count = 0
        #: {snapshot_id: the coordinator that triggered the snapshot}
        self._triggered: dict[int, str] = {}

    def next(self) -> int:
        """Return the number of a new coordinator instance."""
        self._count += 1
        return self._count - 1

    def check_triggers(self, number: int, effects: Sequence[events.Effect]) -> None:
        """Check that ids are never used twice (PROTOCOL 3.2, blocks of ids)."""
        triggered = [effect.message for effect in effects if isinstance(effect, events.SendToWorker)]
        ids = dict.fromkeys(
            message.snapshot_id for message in triggered if isinstance(message, control.TriggerSnapshot)
        )
        who = f"coordinator {number}"
        for snapshot_id in ids:
            if snapshot_id in self._triggered:
                raise CheckFailed("ids", f"{snapshot_id} is used twice: by {self._triggered[snapshot_id]} and {who}")
            self._triggered[snapshot_id] = who


class World:
    """Time, store, history and checks of one simulated run.

    Parameters
    ----------
    compiled : CompiledGraph
    settings : RunSettings
    seed : int
        Seed of the nodes' chance.
    seals_each : bool
        Whether every message goes in a frame of its own.
    validates : bool
        Whether machines assert their invariants now and then: see `ValidationTimes`.
    files : dict
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
        files: dict[str, bytes],
        mutation: Mutation,
    ) -> None:
        self.compiled = compiled
        self.run = settings.run
        self.seed = seed
        self.mutation = mutation
        self.scheduler = Scheduler()
        self.codec = Codec(names=compiled.program_names())
        self.logger: LoggerAdapter[Any] = _Silent()
        aggregates = [node.name for node in compiled.topology.nodes if node.is_aggregate]
        history = History(compiled.topology, self.codec, stores={name: SimulatedStore() for name in aggregates})
        self.history_log = HistoryLog(history, self.scheduler, self.codec, seals_each=seals_each)
        self.placement = compiled.topology.place(settings.worker_count)
        #: {subtask: hook of its next instance that is made to raise}
        self.hook_failures: dict[Subtask, str] = {}
        self.validation = ValidationTimes(is_ever=validates)
        self.coordinators = CoordinatorNumbers()
        self.store = WorldStore(self.run, files, self.scheduler.group(), self.see)
        self._checked: dict[int, None] = {}
        #: {deployed incarnation: (incarnation, snapshot_id) of its snapshot, or None}
        self._deployed: dict[int, tuple[tuple[int, int] | None, int]] = {}
        self._adopt_stored(settings.forked_from)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.scheduler.now

    @property
    def history(self) -> History:
        """What has happened in the run."""
        return self.history_log.history

    def see(self, what: str) -> None:
        """Count a situation that must happen in some run."""
        self.history.seen[what] += 1

    def pack(self, message: object) -> bytes:
        """Encode a message as the history stores it."""
        return pack(message, self.codec)

    # ---------------------------------------------------------------- the store

    @property
    def stores(self) -> dict[str, SimulatedStore]:
        """Stores of the aggregates, which outlive all processes."""
        return {name: store for name, store in self.history.stores.items() if isinstance(store, SimulatedStore)}

    def disk_of(self, worker: int, launch: str) -> SimulatedDisk:
        """Return the disk that a worker of a stage sees."""
        return self.store.disk(disk_name(worker, launch, max(self.placement.values()) + 1))

    # ---------------------------------------------------------------- history and checks

    def committed(self, node: str, visible: Sequence[tuple[str, list[Any]]]) -> None:
        """Note rows that a `ListSink` has made visible."""
        for token, rows in visible:
            self.history.committed[node].setdefault(token, [self.pack(row) for row in rows])

    def refuse(self, incarnation: int, what: str) -> None:
        """Note a message of another incarnation that was dropped."""
        self.history.seen["refused"] += 1
        self.history_log.note(Kind.REFUSED, incarnation, text=what)

    def note_record(self, record: CollectorTask, *, is_taken: bool) -> None:
        """Note that a record is stored. With `is_taken`, another claim was found after it."""
        if is_taken:
            self.see("a record behind another claim")
        else:
            self.history.records[record.subtask, record.number] = None

    def note_deployment(self, effects: Sequence[events.Effect], restored: Manifest | None) -> None:
        """Note that a coordinator deploys an incarnation. Perhaps no worker receives the deployment.

        Nodes that are new in a changed graph restore nothing. Their incarnation begins at the snapshot, too.
        `restored` is the snapshot that the coordinator has read or published last.
        """
        sent = [effect.message for effect in effects if isinstance(effect, events.SendToWorker)]
        deployed = [message for message in sent if isinstance(message, control.Deploy)]
        if deployed and deployed[0].incarnation not in self._deployed:
            incarnation = deployed[0].incarnation
            subtasks = [each for message in deployed for each in message.subtasks]
            states = [part for each in subtasks for part in (each.state, *each.donor_parts) if part is not None]
            steps = [part for each in subtasks for part in each.steps]
            is_foreign = any(part.run != self.run for part in (*states, *steps))
            origin = (FOREIGN if is_foreign else states[0].incarnation, states[0].snapshot_id) if states else None
            begins = origin
            if steps:  # a replay counts all messages again from where it begins
                bases = [each.base for each in subtasks if each.base is not None]
                begins = (FOREIGN if is_foreign else bases[0].incarnation, bases[0].snapshot_id) if bases else None
            # The last step is of the restored snapshot, and the state may be of an older one.
            last = [each.steps[-1].snapshot_id for each in subtasks if each.steps]
            newest = max([*last, origin[1] if origin else 0])
            if is_foreign:
                newest = 0  # no snapshot of this run
            if states and self.compiled.topology.row.is_alone:
                assert restored is not None
                begins = (FOREIGN if is_foreign else restored.incarnation, restored.snapshot_id)
                newest = 0 if is_foreign else restored.snapshot_id
            self._deployed[incarnation] = (begins, newest)
            self.history_log.note(Kind.DEPLOYED, incarnation, snapshot_id=newest)

    def watch(self, subtask: Subtask, incarnation: int, restored: RestoredChannels) -> SubtaskHistory:
        """Observe a subtask of a deployed incarnation for the history."""
        origin, snapshot_id = self._deployed[incarnation]
        return self.history_log.watch(subtask, incarnation, origin, snapshot_id, restored)

    def check_published(self, history: Iterable[int]) -> None:
        """Keep every snapshot that a coordinator counts as published. Kept snapshots stay readable when removed."""
        for snapshot_id in history:
            if snapshot_id not in self._checked:
                self._checked[snapshot_id] = None
                self._keep(snapshot_id)

    def read_manifest(self, run: str, snapshot_id: int) -> Manifest:
        """Read the manifest to restore. That of another run is held first, as the actor of a coordinator does.

        Raises
        ------
        FileNotFoundError
            if the snapshot is gone, or is being removed.
        SnapshotCorrupt
            if it is damaged.
        """
        store = RunStore(self.store.faultless.backend, run)
        if run != self.run and not store.hold(snapshot_id, PinKind.FORK, self.run):
            raise FileNotFoundError(f"snapshot {snapshot_id} of run {run!r} is being removed")
        found = store.read_manifest(snapshot_id)
        assert isinstance(found, Manifest)
        return found

    def _adopt_stored(self, forked_from: tuple[str, int] | None) -> None:
        """Start the history log from the snapshots that earlier runs left in the store."""
        manifests = [snapshot.manifest for snapshot in self.store.faultless.read_snapshots(self.codec)]
        if forked_from is not None and not manifests:
            manifests.append(self.read_manifest(*forked_from))
        for manifest in manifests:
            self._adopt(manifest)

    def _adopt(self, manifest: Manifest) -> None:
        names = renames(self.history_log.history.topology, topology_of_record(manifest.topology))
        self.history_log.adopt(
            manifest,
            names,
            lambda handle: decode_frames(handle, self.store.faultless.read_part(handle)),
            is_foreign=manifest.run != self.run,
        )

    def _keep(self, snapshot_id: int) -> None:
        try:
            manifest = self.store.faultless.read_snapshot(snapshot_id, self.codec).manifest
            for record in manifest.records:
                for handle in record.all_handles:
                    if handle.path is not None:
                        self.store.keep(handle)
        except SnapshotCorrupt as error:
            raise CheckFailed("integrity", f"snapshot {snapshot_id}: {error}") from error
        if self.compiled.topology.row.is_alone and not self.history_log.compose(manifest):
            self._adopt(manifest)
            self.history_log.begin_composed(manifest)
        snapshot = Snapshot(manifest, self.store.published_parts.__getitem__, self.codec)
        self.history.snapshots.append(snapshot)
        kinds = [handle.kind for record in manifest.records for handle in record.handles]
        if PartKind.RECEIVED in kinds or PartKind.SENT in kinds:
            self.see("a snapshot with messages in flight")
        if PartKind.SENT in kinds:
            self.see("a sender's part")
        self.history_log.note(Kind.PUBLISHED, snapshot.manifest.incarnation, snapshot_id=snapshot_id)

    def check_settled(self, machines: Iterable[SubtaskMachine], coordinator: CoordinatorMachine) -> None:
        """Check at the end of the run that no subtask records one of the newest aborted snapshots (PROTOCOL 3.4)."""
        pending = [snapshot_id for snapshot_id, reason in coordinator.aborted.newest if reason.startswith(_RUN_OVER)]
        below = min(pending, default=1 << 63)
        aborted = [snapshot_id for snapshot_id, _ in coordinator.aborted.newest if snapshot_id < below]
        for machine in machines:
            recorder = machine.snapshotter.recorder
            left = [snapshot_id for snapshot_id in aborted if recorder.phase(snapshot_id) is not None]
            if left:
                raise CheckFailed("no leak", f"{machine.subtask} still holds {left}, aborted long ago")


class _Silent(LoggerAdapter[Any]):
    """Drops the log lines of nodes, because a simulation stores no logs."""

    def __init__(self) -> None:
        super().__init__(None, {})

    def isEnabledFor(self, level: int) -> bool:  # the name is logging's
        return False

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        pass
