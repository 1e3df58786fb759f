"""A coordinator in hand: tests say what happens, a store in memory answers the fence at once unless it is held."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cutline.snapshot.assembly import completion_of, cut_start_of
from cutline.snapshot.coordinator import control, events
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_answers import perform
from cutline.snapshot.coordinator.fence_events import RestoreFrom
from cutline.snapshot.coordinator.machine import CoordinatorMachine, RunSettings
from cutline.snapshot.coordinator.pending_snapshot import SnapshotPolicy, SnapshotRequest
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord, SubtaskStatus
from cutline.snapshot.stored.contribution import SnapshotTimings
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import state_part
from cutline.snapshot.stored.run_store import RunStore
from cutline.state_backends.memory import MemoryBackend
from tests.snapshot import sample

RUN = "bank"
POLICY = SnapshotPolicy(interval=None, timeout=10.0, min_pause=0.0, max_concurrent=2, tolerable_failures=3)
SETTINGS = RunSettings(
    run=RUN,
    topology=sample.TOPOLOGY,  # a cycle of P, on worker 0, and Q, on worker 1
    partitions={},
    worker_count=2,
    policy=POLICY,
    restart_policy=RestartPolicy(maxRestarts=3),
    retained=2,
    allow=(),
    forked_from=None,
    gathering_timeout=5.0,
    regathering_timeout=4.0,
)
BUSY = SubtaskStatus(ended=False, passive=True, has_timers=True, outer_inputs_ended=True, uncommitted=())
OVER = replace(BUSY, has_timers=False)
ENDED = replace(OVER, ended=True)

Message = TypeVar("Message")


def order(request: int, **changes: Any) -> SnapshotRequest:
    """An order of the driver."""
    return replace(SnapshotRequest(request, pinned=False, initiators=None, deadline=None), **changes)


def record(
    topology: Topology, subtask: Subtask, incarnation: int, snapshot_id: int, status: SubtaskStatus, in_flight: int = 0
) -> SubtaskRecord:
    """What a subtask contributes that has sent `in_flight` messages which are missing, and processed none."""

    def sent(channel: ChannelId) -> SentEntry:
        return SentEntry(channel, in_flight, in_flight, 0, 0)

    return SubtaskRecord(
        subtask,
        incarnation,
        (state_part(RUN, incarnation, snapshot_id, subtask, [b"state"]).inline(),),
        tuple(sent(channel) for channel in topology.outputs_of(subtask)),
        tuple(ReceivedEntry(channel, 0, 0, 0, 0) for channel in topology.inputs_of(subtask)),
        status,
    )


@dataclass
class Led:
    """One life of a coordinator, its store, and all that it has had performed."""

    settings: RunSettings = SETTINGS
    store: RunStore = field(default_factory=lambda: RunStore(MemoryBackend(), RUN))
    owner: str = "A"
    instance: str = "A1"
    restore_from: RestoreFrom = "latest"
    launch: str = "stage"
    now: float = 100.0
    #: store requests wait in `held` instead of being performed
    holds_store: bool = False
    #: what each subtask says that it spent on a snapshot
    timings: SnapshotTimings = sample.TIMINGS

    def __post_init__(self) -> None:
        fence = Fence(self.owner, self.instance, self.restore_from)
        self.coordinator = CoordinatorMachine(
            self.settings, fence, cut_start_of, completion_of, launch=self.launch, epoch_offset=1000.0
        )
        self.effects: list[events.Effect] = []
        self.held: list[events.AskStore] = []
        self.step(events.Begin())

    # ---------------------------------------------------------------- what happens

    def step(self, event: events.Event) -> list[events.Effect]:
        """Take an event, and all answers of the store that follow; returns what was to be performed besides."""
        effects: list[events.Effect] = []
        waiting = [event]
        while waiting:
            for effect in self.coordinator.step(waiting.pop(0), self.now):
                match effect:
                    case events.AskStore(asked, manifest) if not self.holds_store:
                        waiting.append(events.StoreAnswered(perform(self.store, asked, manifest)))
                    case events.AskStore():
                        self.held.append(effect)
                    case events.ReadManifest(_, snapshot_id):
                        found = self.store.read_manifest(snapshot_id)
                        assert isinstance(found, Manifest)
                        waiting.append(events.ManifestRead(found))
                    case _:
                        effects.append(effect)
        self.effects += effects
        return effects

    def perform_held(self) -> list[events.Effect]:
        """Let the store do what it was asked for."""
        effects: list[events.Effect] = []
        while self.held:
            request = self.held.pop(0)
            effects += self.step(events.StoreAnswered(perform(self.store, request.effect, request.manifest)))
        return effects

    def feed(self, worker: int, message: control.WorkerMessage) -> list[events.Effect]:
        """A worker says something."""
        return self.step(events.WorkerMessageReceived(worker, message))

    def pass_time(self, seconds: float) -> list[events.Effect]:
        """Time passes."""
        self.now += seconds
        return self.step(events.TimePassed())

    # ---------------------------------------------------------------- a life, in larger steps

    def register(self, *workers: int, running: int = 0, launch: str | None = None) -> list[events.Effect]:
        """Workers register."""
        token = self.launch if launch is None else launch
        messages = [control.WorkerRegistered(worker, token, running, b"%d" % worker, 0) for worker in workers]
        return [effect for message in messages for effect in self.feed(message.worker, message)]

    def restored(self) -> list[events.Effect]:
        """All workers say that they are restored."""
        incarnation = self.coordinator.incarnation
        return [e for worker in (0, 1) for e in self.feed(worker, control.WorkerRestored(worker, incarnation))]

    def connected(self) -> list[events.Effect]:
        """All workers say that they are connected."""
        incarnation = self.coordinator.incarnation
        return [e for worker in (0, 1) for e in self.feed(worker, control.WorkerConnected(worker, incarnation))]

    def run(self) -> Led:
        """From nothing to running."""
        self.register(0, 1)
        self.restored()
        self.connected()
        return self

    def idle(self, incarnation: int | None = None) -> list[events.Effect]:
        """All workers say that they have nothing to do."""
        number = self.coordinator.incarnation if incarnation is None else incarnation
        return [e for worker in (0, 1) for e in self.feed(worker, control.WorkerIdle(worker, number, True))]

    def acknowledge(self, snapshot_id: int, status: SubtaskStatus = BUSY, in_flight: int = 0) -> list[events.Effect]:
        """All subtasks acknowledge."""
        return [
            e for s in self.settings.topology.subtasks for e in self.acknowledge_one(s, snapshot_id, status, in_flight)
        ]

    def acknowledge_one(
        self, subtask: Subtask, snapshot_id: int, status: SubtaskStatus = BUSY, in_flight: int = 0
    ) -> list[events.Effect]:
        """One subtask acknowledges."""
        incarnation = self.coordinator.incarnation
        contribution = record(self.settings.topology, subtask, incarnation, snapshot_id, status, in_flight)
        return self.feed(0, control.SnapshotAcknowledged(incarnation, snapshot_id, contribution, self.timings))

    def committed(self, snapshot_id: int) -> list[events.Effect]:
        """All subtasks have committed."""
        incarnation = self.coordinator.incarnation
        done = [control.PublicationDone(incarnation, snapshot_id, (s,)) for s in self.settings.topology.subtasks]
        return [effect for message in done for effect in self.feed(0, message)]

    def fail(self, worker: int = 0, reason: str = "it raised", *, is_permanent: bool = False) -> list[events.Effect]:
        """A worker says that nothing runs there any more."""
        message = control.WorkerFailed(worker, self.coordinator.incarnation, reason, is_permanent)
        return self.feed(worker, message)

    # ---------------------------------------------------------------- looking

    def sent(self, effects: list[events.Effect], kind: type[Message]) -> list[Message]:
        """The messages of one kind among effects, each worker's."""
        messages: list[Any] = [effect.message for effect in effects if isinstance(effect, events.SendToWorker)]
        return [message for message in messages if isinstance(message, kind)]

    def triggered(self, effects: list[events.Effect]) -> list[int]:
        """Ids that are to be started, each once."""
        return list(dict.fromkeys(message.snapshot_id for message in self.sent(effects, control.TriggerSnapshot)))

    def closed(self) -> dict[int, int | str]:
        """What came of each order: an id, or the reason why there is none."""
        closed = [effect for effect in self.effects if isinstance(effect, events.CloseRequest)]
        return {effect.request_id: effect.snapshot_id or effect.reason for effect in closed}


def of_kind(effects: list[events.Effect], kind: type[Message]) -> list[Message]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]
