"""Events and effects of the coordinator, except the control messages and the fence's events and effects."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.coordinator.control import CoordinatorMessage, WorkerMessage
from cutline.snapshot.coordinator.fence_events import Answer, CheckForClaim, ClaimSeen, StoreEffect
from cutline.snapshot.coordinator.pending_snapshot import SnapshotRequest
from cutline.snapshot.coordinator.retention import RemovalRequest
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.cut_plan import CutPlan
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.manifest import Manifest

# ---- events


@dataclass(frozen=True, slots=True)
class Begin:
    """First event of a coordinator instance."""


@dataclass(frozen=True, slots=True)
class WorkerMessageReceived:
    """A control message of the worker with this number was received."""

    worker: int
    message: WorkerMessage


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The control connection of a worker ended, or its heartbeats stopped.

    No such event follows for an old connection once the same worker has registered on a newer connection.
    """

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class StageLaunched:
    """The barrier stage is about to be submitted. Only its workers register with this token.

    The event comes before any of these workers can register, and again to each new coordinator instance.
    """

    launch: str


@dataclass(frozen=True, slots=True)
class StageEnded:
    """The barrier stage has ended. Some of its workers may linger."""

    launch: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreAnswered:
    """The store performed the fence's effect."""

    answer: Answer
    #: answer to `AskStore.check`, or None when nothing was checked
    check: ClaimSeen | None = None


@dataclass(frozen=True, slots=True)
class ManifestRead:
    """The manifest to restore from was read and checked."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class RecordsUnusable:
    """Stored records that the run needs are damaged or missing, or the store failed. The run ends with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class RecordsListed:
    """Answer to `ListRecords`: the newest records of the subtasks."""

    claim: int
    records: tuple[LocalCheckpoint, ...]


@dataclass(frozen=True, slots=True)
class CutStored:
    """Answer to `StoreCut`: the records of the cut, all of whose parts are stored."""

    snapshot_id: int
    records: tuple[SubtaskRecord, ...]


@dataclass(frozen=True, slots=True)
class RecordsRemoved:
    """Answer to `RemoveRecords`."""


@dataclass(frozen=True, slots=True)
class CutNotStored:
    """Answer to `StoreCut`: a part is damaged, or the store failed."""

    snapshot_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotsDeleted:
    """Answer to `DeleteSnapshots`: the removed snapshots. The rest is pinned, or the store failed."""

    snapshot_ids: tuple[int, ...]
    #: snapshots whose local versions the stored snapshots list, ascending; empty where none does, or it is unknown
    versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """The driver requested a snapshot."""

    request: SnapshotRequest


@dataclass(frozen=True, slots=True)
class RemovalRequested:
    """The driver asked to remove a snapshot. The answer is `CloseRequest`, with the snapshot's id if it is gone."""

    request: RemovalRequest


@dataclass(frozen=True, slots=True)
class PinChanged:
    """A published snapshot was pinned or unpinned. Retention may remove a snapshot that is not pinned any more."""

    snapshot_id: int
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class SnapshotInitiated:
    """Subtasks have started a snapshot themselves, under a free id. Simulations may do so (PROTOCOL 3.1, ids)."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The driver asked the run to end. With a `request`, the run ends after the requested snapshot.

    If the snapshot fails, the run continues. The driver must repeat the event to a new coordinator instance.
    """

    request: SnapshotRequest | None


@dataclass(frozen=True, slots=True)
class RunGivenUp:
    """The driver cannot submit the stage again, because Spark cancelled the stage or Spark has ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed, so the coordinator must check its deadlines."""


RecordsAnswer = RecordsListed | CutStored | CutNotStored | RecordsRemoved

Event = (
    Begin
    | WorkerMessageReceived
    | WorkerLost
    | StageLaunched
    | StageEnded
    | StoreAnswered
    | ManifestRead
    | RecordsUnusable
    | RecordsAnswer
    | SnapshotsDeleted
    | SnapshotRequested
    | RemovalRequested
    | PinChanged
    | SnapshotInitiated
    | StopRequested
    | RunGivenUp
    | TimePassed
)

# ---- effects


@dataclass(frozen=True, slots=True)
class SendToWorker:
    """Send a control message. If the worker is gone, `WorkerLost` follows."""

    worker: int
    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class AskStore:
    """Perform a store effect of the fence."""

    effect: StoreEffect
    #: the manifest to write, for `WriteManifest` only
    manifest: Manifest | None
    #: check to perform after the manifest is written, because the fence asks for it next (PROTOCOL 7.2, next claim)
    check: CheckForClaim | None = None
    #: whether one attempt is enough, because the run goes on while its store is away, and the fence asks again
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Read and check a manifest. The answer is `ManifestRead` or `RecordsUnusable`."""

    run: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class ListRecords:
    """List the newest records of the subtasks. The answer is `RecordsListed` or `RecordsUnusable`."""

    claim: int
    #: incarnation of the records
    incarnation: int


@dataclass(frozen=True, slots=True)
class StoreCut:
    """Store the messages between the records of a cut. The answer is `CutStored` or `CutNotStored`."""

    snapshot_id: int
    incarnation: int
    plan: CutPlan


@dataclass(frozen=True, slots=True)
class RemoveRecords:
    """Remove files of replaced records, except parts that a stored snapshot lists. The answer is `RecordsRemoved`."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteSnapshots:
    """Remove these snapshots, except pinned snapshots. The answer is `SnapshotsDeleted`."""

    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CancelStage:
    """Cancel the stage, because its workers do not register or do not respond. The driver then launches a new stage."""

    launch: str
    reason: str


@dataclass(frozen=True, slots=True)
class CollectOrphans:
    """Remove, after a grace time, parts of lower incarnations that no snapshot refers to."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """Answer a waiting request of the driver, with a snapshot id or with the reason of its absence."""

    request_id: int
    snapshot_id: int | None
    reason: str


Effect = (
    SendToWorker
    | AskStore
    | ReadManifest
    | ListRecords
    | StoreCut
    | RemoveRecords
    | DeleteSnapshots
    | CollectOrphans
    | CancelStage
    | CloseRequest
)
