"""Every event into the coordinator and every effect out of it, besides the workers' and the fence's."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.coordinator.control import CoordinatorMessage, WorkerMessage
from snapshot.coordinator.fence_events import Answer, CheckForClaim, ClaimSeen, StoreEffect
from snapshot.coordinator.pending_snapshot import SnapshotRequest
from snapshot.stored.manifest import Manifest

# ---- events


@dataclass(frozen=True, slots=True)
class Begin:
    """First event of a life."""


@dataclass(frozen=True, slots=True)
class WorkerMessageReceived:
    """A control message came from the worker with this number."""

    worker: int
    message: WorkerMessage


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The control connection of a worker ended, or its heartbeats stopped.

    Not said of a connection after a newer one of the same worker has brought its registration.
    """

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class StageLaunched:
    """The barrier stage is about to be submitted: its workers, and no others, register with this token.

    Said before any of them can register, and again to each new life of the coordinator.
    """

    launch: str


@dataclass(frozen=True, slots=True)
class StageEnded:
    """The barrier stage is gone; some of its workers may linger."""

    launch: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreAnswered:
    """The store did what the fence had asked."""

    answer: Answer
    #: what came of `AskStore.check`; None: nothing was checked
    check: ClaimSeen | None = None


@dataclass(frozen=True, slots=True)
class ManifestRead:
    """The manifest to restore from, verified."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class ManifestUnreadable:
    """The snapshot to restore from is damaged or missing, or the store gave up."""

    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotsDeleted:
    """Answer to `DeleteSnapshots`: these are removed; what it named besides is pinned, or the store failed."""

    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """The driver wants one."""

    request: SnapshotRequest


@dataclass(frozen=True, slots=True)
class SnapshotInitiated:
    """Subtasks have started this one themselves: simulations may, anywhere (PROTOCOL 3.1). The id is a free one."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The driver wants the run to end, after the snapshot that `request` asks for if there is one.

    If that snapshot fails, the run goes on. A new life of the coordinator has to be told again.
    """

    request: SnapshotRequest | None


@dataclass(frozen=True, slots=True)
class RunGivenUp:
    """The driver cannot or must not submit the stage again: it was cancelled on Spark's side, or Spark is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Look at the clock."""


Event = (
    Begin
    | WorkerMessageReceived
    | WorkerLost
    | StageLaunched
    | StageEnded
    | StoreAnswered
    | ManifestRead
    | ManifestUnreadable
    | SnapshotsDeleted
    | SnapshotRequested
    | SnapshotInitiated
    | StopRequested
    | RunGivenUp
    | TimePassed
)

# ---- effects


@dataclass(frozen=True, slots=True)
class SendToWorker:
    """Send a control message. If the worker is gone, `WorkerLost` will say so."""

    worker: int
    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class AskStore:
    """Perform a store effect of the fence."""

    effect: StoreEffect
    #: what is to be written, for `WriteManifest` only
    manifest: Manifest | None
    #: may be performed behind a manifest that was written, because the fence asks for it next (PROTOCOL 7.2)
    check: CheckForClaim | None = None


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Read and verify; answered by `ManifestRead` or `ManifestUnreadable`."""

    run: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class DeleteSnapshots:
    """Remove these, but not the pinned ones; answered by `SnapshotsDeleted`."""

    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CancelStage:
    """End the stage: workers of it do not come, or do not do what they are told. A new one is to be launched."""

    launch: str
    reason: str


@dataclass(frozen=True, slots=True)
class CollectOrphans:
    """Remove, after a grace time, parts that lower incarnations left and no snapshot refers to."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """Answer one that waits in the driver: with a snapshot, or with the reason why there is none."""

    request_id: int
    snapshot_id: int | None
    reason: str


Effect = SendToWorker | AskStore | ReadManifest | DeleteSnapshots | CollectOrphans | CancelStage | CloseRequest
