"""What the coordinator and the workers say to each other: every control message, on one screen.

Plain frozen records; how they are encoded and sent is the runtime's business. Workers tell in the past
tense, the coordinator commands. All that belongs to one life of the data carries its incarnation, and what
comes from another is dropped by whoever receives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.ids import ChannelId, Subtask
from snapshot.stored.certificate import SubtaskRecord
from snapshot.stored.contribution import SnapshotTimings
from snapshot.stored.part import Handle

# ---- from a worker


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """First message on a control connection, also after the coordinator was lost."""

    worker: int
    #: token of the stage submission that the worker belongs to; only the newest counts (PROTOCOL 6.4)
    launch: str
    #: of the data that the worker holds and processes; 0: none, it waits to be deployed
    incarnation: int
    #: where peers reach it; opaque to the coordinator
    address: bytes
    pid: int


@dataclass(frozen=True, slots=True)
class DeployTaken:
    """An instalment of a deployment is here; the next one may come."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerRestored:
    """State and channel state are in place; nothing runs yet."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerConnected:
    """There is a data connection to every peer."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerIdle:
    """Nothing will happen at this worker without a message from elsewhere; said at each change."""

    worker: int
    incarnation: int
    idle: bool


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """User code raised, a peer was lost, or state could not be restored. Nothing runs at this worker any more."""

    worker: int
    incarnation: int
    reason: str
    #: trying again cannot help: the stored state is damaged or does not fit
    is_permanent: bool


@dataclass(frozen=True, slots=True)
class SnapshotAcknowledged:
    """One subtask's part of a snapshot is durable."""

    incarnation: int
    snapshot_id: int
    record: SubtaskRecord
    timings: SnapshotTimings


@dataclass(frozen=True, slots=True)
class SnapshotDeclined:
    """One subtask could not take its part; the snapshot is to be aborted."""

    incarnation: int
    snapshot_id: int
    subtask: Subtask
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotAskedFor:
    """A node called `requestSnapshot` and waits for the answer."""

    incarnation: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class PublicationDone:
    """Subtasks of one worker have committed what they prepared up to the last snapshot of the run."""

    incarnation: int
    snapshot_id: int
    subtasks: tuple[Subtask, ...]


WorkerMessage = (
    WorkerRegistered
    | DeployTaken
    | WorkerRestored
    | WorkerConnected
    | WorkerIdle
    | WorkerFailed
    | SnapshotAcknowledged
    | SnapshotDeclined
    | SnapshotAskedFor
    | PublicationDone
)

# ---- from the coordinator


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to a registration. A worker obeys only the highest claim that it has seen."""

    claim: int
    worker_count: int


@dataclass(frozen=True, slots=True)
class RestoredSubtask:
    """What one subtask starts from: all of it out of one snapshot."""

    subtask: Subtask
    #: None: a fresh node
    state: Handle | None
    #: (input channel, p)
    processed: tuple[tuple[ChannelId, int], ...]
    #: (output channel, S)
    sent: tuple[tuple[ChannelId, int], ...]
    #: parts of the input channels' state, receiver's part before sender's part
    channel_parts: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class Deploy:
    """Drop everything, make these subtasks anew under `incarnation`, and say when they are restored.

    What is more than a message holds comes in several, put together by `snapshot.coordinator.deploy_chunks`.
    """

    incarnation: int
    subtasks: tuple[RestoredSubtask, ...]
    #: another one follows this one's `DeployTaken`; nothing is made before the last
    has_more: bool


@dataclass(frozen=True, slots=True)
class Connect:
    """All workers are restored: make data connections. `addresses` by worker number."""

    incarnation: int
    addresses: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class StartProcessing:
    """All are connected: act and send."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class TriggerSnapshot:
    """Have these subtasks start the snapshot; every id of `running` that they have not recorded comes first."""

    incarnation: int
    snapshot_id: int
    subtasks: tuple[Subtask, ...]
    running: tuple[int, ...]
    min_snapshot_id: int


@dataclass(frozen=True, slots=True)
class AnswerSnapshotRequest:
    """The request of this subtask was refused, or will be met by a snapshot that others start; events go on."""

    incarnation: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class DiscardSnapshotsBelow:
    """Every snapshot below `min_snapshot_id` is published or aborted (PROTOCOL 3.4)."""

    incarnation: int
    min_snapshot_id: int


@dataclass(frozen=True, slots=True)
class AnnouncePublished:
    """Commit what was prepared up to this snapshot."""

    incarnation: int
    snapshot_id: int
    min_snapshot_id: int
    #: the run ends with it: say `PublicationDone`, which is waited for
    is_last: bool


@dataclass(frozen=True, slots=True)
class EndComponent:
    """The cycle through these nodes is over: passive, empty, and its outer inputs have ended."""

    incarnation: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over: close the nodes and leave, successfully."""

    reason: str


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave at once, so that the stage fails and can be submitted again."""

    reason: str


CoordinatorMessage = (
    Welcome
    | Deploy
    | Connect
    | StartProcessing
    | TriggerSnapshot
    | AnswerSnapshotRequest
    | DiscardSnapshotsBelow
    | AnnouncePublished
    | EndComponent
    | Finish
    | Quit
)
