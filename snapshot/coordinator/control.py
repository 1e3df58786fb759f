"""Control messages between the coordinator and the workers.

All are plain frozen records. The runtime encodes and sends them. Messages of workers are in the past tense, messages
of the coordinator in the imperative. Messages about one incarnation carry its number. The receiver drops a message of
another incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.channel.rerouting import ReroutedCount, ReshapedEdge, Waves
from cutline.snapshot.channel.stamps import Clock, Numbers
from cutline.snapshot.failed_event import FailedEvent, Suspect, Suspects
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.certificate import ListEntry, LocalVersion, StepBase, SubtaskRecord
from cutline.snapshot.stored.contribution import SnapshotTimings
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint, SourceProgress
from cutline.snapshot.stored.part import Handle

# ---- from a worker


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """First message on a control connection, also on a connection after the coordinator was lost."""

    worker: int
    #: token of the worker's stage submission; only the newest submission counts (PROTOCOL 6.4, launch token)
    launch: str
    #: incarnation of the data that the worker processes, or 0 for a worker that waits to be deployed
    incarnation: int
    #: address for the peers; opaque to the coordinator
    address: bytes
    pid: int
    #: whether a subtask of that data has restored steps to repeat
    is_replaying: bool = False
    #: ids of the disks with local versions that the worker sees
    disks: tuple[str, ...] = ()
    #: `Deploy.worker_of_place` of that data
    worker_of_place: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeployTaken:
    """A worker received a deploy chunk. The coordinator may send the next chunk."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerRestored:
    """State and channel state are restored. No subtask runs yet."""

    worker: int
    incarnation: int
    #: messages of reshaped edges, as the worker's subtasks have read and taken them
    rerouted: tuple[ReroutedCount, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerConnected:
    """Data connections to all peers were made."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerReplayed:
    """All subtasks of the worker have repeated their restored steps."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerIdle:
    """The worker became idle or busy. An idle worker does nothing until a message arrives."""

    worker: int
    incarnation: int
    idle: bool


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """User code raised, a peer was lost, or state could not be restored. No subtask runs at this worker any more."""

    worker: int
    incarnation: int
    reason: str
    #: whether a retry is useless, because the stored state is damaged or does not fit
    is_permanent: bool
    #: message, rows or timer whose hook raised, or None for another failure
    failed_event: FailedEvent | None = None


@dataclass(frozen=True, slots=True)
class SuspectHandled:
    """A message or a timer that failed in an earlier incarnation was handled."""

    incarnation: int
    suspect: Suspect


@dataclass(frozen=True, slots=True)
class SnapshotAcknowledged:
    """The part of one subtask is durable."""

    incarnation: int
    snapshot_id: int
    record: SubtaskRecord
    timings: SnapshotTimings


@dataclass(frozen=True, slots=True)
class SnapshotDeclined:
    """A subtask could not take its part of a snapshot. The snapshot must be aborted."""

    incarnation: int
    snapshot_id: int
    subtask: Subtask
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotAskedFor:
    """A node called `requestSnapshot`. The subtask waits for the answer."""

    incarnation: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class ClockAnswered:
    """An aggregate has seen the slices below these numbers, and no others."""

    incarnation: int
    snapshot_id: int
    subtask: Subtask
    seen: Numbers
    #: whether its inputs have ended
    has_ended: bool


@dataclass(frozen=True, slots=True)
class PublicationDone:
    """Subtasks of one worker have committed the output prepared up to the run's last snapshot."""

    incarnation: int
    snapshot_id: int
    subtasks: tuple[Subtask, ...]


@dataclass(frozen=True, slots=True)
class RecordAnnounced:
    """A record of one subtask alone is stored, and its worker has found no newer claim after the write."""

    incarnation: int
    record: LocalCheckpoint
    #: seconds from its capture to its announcement, by the clock of its worker
    seconds: float


@dataclass(frozen=True, slots=True)
class RecordFailed:
    """A record could not be captured or stored. What it held is in the next one."""

    incarnation: int
    subtask: Subtask
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecordFenced:
    """After a record its worker has found a claim that it does not know to continue the incarnation."""

    incarnation: int
    claim: Claim


@dataclass(frozen=True, slots=True)
class RecordAwaits:
    """A captured record waits until the records of these senders hold all that it has processed (PROTOCOL 14.2)."""

    incarnation: int
    subtask: Subtask
    senders: tuple[Subtask, ...]


#: Messages about what a subtask stores by itself.
RecordMessage = RecordAnnounced | RecordFailed | RecordFenced | RecordAwaits

WorkerMessage = (
    WorkerRegistered
    | DeployTaken
    | WorkerRestored
    | WorkerConnected
    | WorkerReplayed
    | WorkerIdle
    | WorkerFailed
    | SuspectHandled
    | SnapshotAcknowledged
    | SnapshotDeclined
    | SnapshotAskedFor
    | ClockAnswered
    | PublicationDone
    | RecordMessage
)

# ---- from the coordinator


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to a registration. A worker accepts only the highest claim received so far."""

    claim: int
    worker_count: int


@dataclass(frozen=True, slots=True)
class Inheritance:
    """How a subtask unites the states of its donors, because its node has another parallelism than in the snapshot."""

    #: indexes of the donors whose heir the subtask is: it takes what belongs to no key
    heir_of: tuple[int, ...]
    #: whether all subtasks of the node had sent the end of their streams
    is_ended: bool
    #: whether all subtasks of the node had returned END, or are no source
    is_exhausted: bool
    #: seed of the subtask's chance
    seed: str


@dataclass(frozen=True, slots=True)
class RestoredSubtask:
    """Restored state of one subtask, all from one snapshot."""

    subtask: Subtask
    #: handle of the state part, or None for a fresh node
    state: Handle | None
    #: (input channel, p) pairs
    processed: tuple[tuple[ChannelId, int], ...]
    #: (output channel, S) pairs
    sent: tuple[tuple[ChannelId, int], ...]
    #: parts of the input channels' state, receiver's part before sender's part; of a reshaped edge those of the old
    #: channels
    channel_parts: tuple[Handle, ...]
    #: names of the partitions that the subtask reads, or None for a node without partitions
    partitions: tuple[str, ...] | None = None
    #: what failed before
    suspects: Suspects = Suspects()  # noqa: RUF009  # it is frozen
    #: output channels whose end is sent at the restore: the subtask has ended, and the snapshot's graph sent no end
    missing_ends: tuple[ChannelId, ...] = ()
    #: key groups [lo, hi) of the subtask in the snapshot, or None without keyed state
    groups: tuple[int, int] | None = None
    #: list of the keyed state, in the order of application
    rows: tuple[ListEntry, ...] = ()
    #: list of own state in deltas, in the order of application
    own: tuple[Handle, ...] = ()
    #: what the subtask takes over from several, or None where it restores its own state
    inheritance: Inheritance | None = None
    #: state part of each donor, each with its list of own state after it
    donor_parts: tuple[Handle, ...] = ()
    #: input edges whose messages are put on other channels
    reshaped: tuple[ReshapedEdge, ...] = ()
    #: targets of output edges whose channels are others now, so that their partitioners start afresh
    fresh_outputs: tuple[str, ...] = ()
    #: (input channel, waves of its restored messages) of channels that are as they were
    waves: tuple[tuple[ChannelId, Waves], ...] = ()
    #: `Node.stateVersion` of the node in the snapshot
    state_version: int = 1
    #: `Node.messageVersion` of the node in the snapshot, where messages in flight are to be migrated; None: nowhere
    message_version: int | None = None
    #: (name in the snapshot, name now) of all renamed nodes: handles and state parts hold the names in the snapshot
    renames: tuple[tuple[str, str], ...] = ()
    #: whether the first snapshot lists only new parts, because the graph no longer has the name of some restored parts
    needs_base: bool = False
    #: log of the steps that the subtask repeats, in the order of the steps
    steps: tuple[Handle, ...] = ()
    #: snapshot that has the state, after which the steps go on; None: the run begins, or is not logged
    base: StepBase | None = None
    #: version of the local database that is opened in place of reading `rows`; None: no such
    version: LocalVersion | None = None

    @property
    def origin(self) -> Handle | None:
        """Handle of a state part that the subtask restores, or None for a fresh node."""
        return self.state or next(iter(self.donor_parts), None)

    @property
    def is_known(self) -> bool:
        """True if the snapshot has the node."""
        return self.state is not None or self.inheritance is not None or bool(self.steps)


@dataclass(frozen=True, slots=True)
class Deploy:
    """Drop all data, make these subtasks under `incarnation`, and report when the subtasks are restored.

    A deployment that exceeds one message is sent in deploy chunks. `snapshot.coordinator.deploy_chunks` assembles them.
    """

    incarnation: int
    subtasks: tuple[RestoredSubtask, ...]
    #: whether another chunk follows after `DeployTaken`; subtasks are made after the last chunk
    has_more: bool
    #: worker of each place of `Topology.place`; empty where each place is at the worker of its number
    worker_of_place: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """Make data connections, because all workers are restored. `addresses` is in the order of worker numbers."""

    incarnation: int
    addresses: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class StartProcessing:
    """Start the subtasks, because all workers are connected."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class TriggerSnapshot:
    """Start the snapshot at these subtasks. Each subtask records its unrecorded ids of `running` first."""

    incarnation: int
    snapshot_id: int
    subtasks: tuple[Subtask, ...]
    running: tuple[int, ...]
    min_snapshot_id: int


@dataclass(frozen=True, slots=True)
class AskClock:
    """Ask the aggregates for the clock that they have not reached. They wait for `AnnounceClock`."""

    incarnation: int
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class AnnounceClock:
    """Divide by this clock. The snapshot is triggered next."""

    incarnation: int
    snapshot_id: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class AnswerSnapshotRequest:
    """Resume the subtask's events: its request was refused, or other subtasks start the snapshot."""

    incarnation: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class DiscardSnapshotsBelow:
    """Discard snapshots below `min_snapshot_id`, because they are published or aborted (PROTOCOL 3.4, minimum id)."""

    incarnation: int
    min_snapshot_id: int


@dataclass(frozen=True, slots=True)
class AnnouncePublished:
    """Commit the output prepared up to this snapshot."""

    incarnation: int
    snapshot_id: int
    min_snapshot_id: int
    #: whether the run ends with this snapshot; the coordinator then waits for `PublicationDone`
    is_last: bool


@dataclass(frozen=True, slots=True)
class PruneVersions:
    """Remove local versions of the run that no stored snapshot lists. Those later than the newest of `kept` stay."""

    incarnation: int
    #: ids of the snapshots whose versions are listed, ascending; at least one
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NeighbourRecorded:
    """Note the numbers of a subtask's record: its receivers may write records, its senders may trim their logs."""

    incarnation: int
    #: (output of the subtask, number of the last message sent) pairs
    sent: tuple[tuple[ChannelId, int], ...]
    #: (input of the subtask, number of the last message processed) pairs
    processed: tuple[tuple[ChannelId, int], ...]
    checkpoint: SourceProgress


@dataclass(frozen=True, slots=True)
class RecordNow:
    """Record these subtasks early, because a requested snapshot waits for their records."""

    incarnation: int
    subtasks: tuple[Subtask, ...]


@dataclass(frozen=True, slots=True)
class PermitRecords:
    """Act on records under this claim, because it continues the incarnation (PROTOCOL 14.3). Announce them again."""

    incarnation: int
    claim: int
    #: whether the incarnation has a snapshot of this run, so that output may be committed (PROTOCOL 14.4)
    is_complete: bool


@dataclass(frozen=True, slots=True)
class EndComponent:
    """End the cycle through these nodes, because the cycle is passive and empty, and its outer inputs have ended."""

    incarnation: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Close the nodes and exit successfully, because the run has ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Quit:
    """Exit at once, because only a failed stage can be submitted again."""

    reason: str


CoordinatorMessage = (
    Welcome
    | Deploy
    | Connect
    | StartProcessing
    | TriggerSnapshot
    | AskClock
    | AnnounceClock
    | AnswerSnapshotRequest
    | DiscardSnapshotsBelow
    | AnnouncePublished
    | PruneVersions
    | NeighbourRecorded
    | RecordNow
    | PermitRecords
    | EndComponent
    | Finish
    | Quit
)
