"""Stages, events, deadlines and effects of the worker's machine.

Events are in the past tense, effects in the imperative. All are small frozen records. Records about one incarnation
carry its number, because threads and peers may report about data that was dropped meanwhile.

Stages of a worker between two rollbacks::

    WAITING ──Deploy──> RESTORING ──PartsRead──> RESTORED ──Connect──> CONNECTING ──PeersConnected──> CONNECTED
       ^                                                                                                  │
       │                                                                                           StartProcessing
       │                                                                                                  v
       └──────────────────── Deploy of a later incarnation, from any stage ─────────────────────────── RUNNING

    any stage after WAITING ──user code raised, a peer was lost, a part was unreadable──> FAILED ──Deploy──> RESTORING
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from cutline.snapshot.coordinator.control import CoordinatorMessage, Deploy, WorkerMessage
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.worker.ledger import AnyTask
from cutline.snapshot.worker.restored_parts import RestoredParts
from cutline.snapshot.worker.upload_batcher import PendingUpload


class Stage(Enum):
    """Stage of a worker. The module's docstring has the diagram."""

    WAITING = "waiting"
    RESTORING = "restoring"
    RESTORED = "restored"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RUNNING = "running"
    FAILED = "failed"


# ---- deadlines


@dataclass(frozen=True, slots=True)
class AlignmentDeadline:
    """The alignment timeout of a snapshot at a subtask (PROTOCOL 4.3, timeout)."""

    snapshot_id: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class RequestDeadline:
    """The longest wait of a subtask for the answer to `requestSnapshot` (PROTOCOL 3.1, ids)."""

    subtask: Subtask


@dataclass(frozen=True, slots=True)
class UploadDeadline:
    """The longest wait of a snapshot's parts for the parts of other subtasks."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class RepeatDeadline:
    """The time after which acknowledgements of aggregates are sent again."""


@dataclass(frozen=True, slots=True)
class IdleDeadline:
    """The quiet time after which the worker counts as idle."""


@dataclass(frozen=True, slots=True)
class FailureReportDeadline:
    """The time at which the delayed report of a lost peer is sent."""


@dataclass(frozen=True, slots=True)
class RecordDeadline:
    """The time at which a subtask records itself alone."""

    subtask: Subtask


Deadline = (
    AlignmentDeadline
    | RequestDeadline
    | UploadDeadline
    | RepeatDeadline
    | IdleDeadline
    | FailureReportDeadline
    | RecordDeadline
)

# ---- events


@dataclass(frozen=True, slots=True)
class CoordinatorConnected:
    """A control connection was made. The registration must be its first message."""


@dataclass(frozen=True, slots=True)
class CoordinatorMessageReceived:
    """The coordinator sent a message."""

    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class PartsRead:
    """Every part of a deployment was read and checked."""

    parts: RestoredParts


@dataclass(frozen=True, slots=True)
class PartsUnreadable:
    """A part of a deployment could not be read."""

    incarnation: int
    error: Exception


@dataclass(frozen=True, slots=True)
class PartsStored:
    """An upload was stored, or failed. `messages` report the result to the coordinator."""

    messages: tuple[WorkerMessage, ...]


@dataclass(frozen=True, slots=True)
class Performed:
    """A task has ended."""

    incarnation: int
    task: AnyTask
    #: what the task gives, or `TaskFailed`, or `TaskRefused`
    result: object


@dataclass(frozen=True, slots=True)
class PeersConnected:
    """Data connections to all peers were made."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The heartbeats of a peer have stopped."""

    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class DataFailed:
    """A turn, a read from a peer, or a connection attempt has failed."""

    error: CutlineError


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turns of all subtasks have ended."""

    #: whether nothing was handled, and nothing will happen until a message arrives
    is_idle: bool


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """A deadline of `WorkerMachine.deadlines` has passed."""

    deadline: Deadline


Event = (
    CoordinatorConnected
    | CoordinatorMessageReceived
    | PartsRead
    | PartsUnreadable
    | PartsStored
    | Performed
    | PeersConnected
    | PeerLost
    | DataFailed
    | TurnEnded
    | DeadlinePassed
)

# ---- effects


@dataclass(frozen=True, slots=True)
class Register:
    """Send the registration, with this worker's address and process."""

    #: incarnation of the data that runs at this worker, or 0 for none
    incarnation: int
    #: whether a subtask of that data has restored steps to repeat
    is_replaying: bool = False
    #: `Deploy.worker_of_place` of that data
    worker_of_place: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SendToCoordinator:
    """Send messages together. Without a connection, drop the messages."""

    messages: tuple[WorkerMessage, ...]


@dataclass(frozen=True, slots=True)
class DisconnectCoordinator:
    """Close the control connection, and search for the coordinator again."""

    reason: str


@dataclass(frozen=True, slots=True)
class AdmitPeers:
    """Admit only peers of this incarnation, each peer once."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Read every part of the whole deployment. The answer is `PartsRead` or `PartsUnreadable`."""

    deploy: Deploy


@dataclass(frozen=True, slots=True)
class OpenDataPlane:
    """Make the links of these subtasks, which are all restored."""

    incarnation: int
    subtasks: Mapping[Subtask, SubtaskMachine]
    #: `Deploy.worker_of_place`
    worker_of_place: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DialPeers:
    """Connect to the peers. The answer is `PeersConnected` or `DataFailed`."""

    incarnation: int
    #: address of each worker, in the order of worker numbers
    addresses: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ReadPeers:
    """Begin to read the data connections. Early data of peers has waited in the connections (PROTOCOL 5.4, start)."""


@dataclass(frozen=True, slots=True)
class FlushLinks:
    """Send waiting markers now. Messages of hooks are sent with the next turn."""


@dataclass(frozen=True, slots=True)
class StoreParts:
    """Upload these contributions together. The answer is `PartsStored`."""

    incarnation: int
    uploads: tuple[PendingUpload, ...]


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform a task in its lane. The answer is `Performed`."""

    incarnation: int
    task: AnyTask


@dataclass(frozen=True, slots=True)
class RemoveVersions:
    """Remove the local versions of the run that are older than the newest of `kept` and not among `kept`."""

    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportProgress:
    """Send a progress report immediately, because a subtask has ended."""


@dataclass(frozen=True, slots=True)
class DropConnections:
    """Close all data connections, because the peers must detect the failure at once."""


@dataclass(frozen=True, slots=True)
class CloseSubtasks:
    """Close and drop these machines. Errors of `close` have no effect on the worker."""

    subtasks: tuple[SubtaskMachine, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the worker's log."""

    level: Literal["debug", "info", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class Leave:
    """End this process."""

    #: whether the run has ended; otherwise the stage fails, and is submitted again
    is_finished: bool


Effect = (
    Register
    | SendToCoordinator
    | DisconnectCoordinator
    | AdmitPeers
    | ReadParts
    | OpenDataPlane
    | DialPeers
    | ReadPeers
    | FlushLinks
    | StoreParts
    | Perform
    | RemoveVersions
    | ReportProgress
    | DropConnections
    | CloseSubtasks
    | Log
    | Leave
)
