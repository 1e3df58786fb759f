"""Every stage, event, deadline and effect of the worker's machine.

Events are in the past tense, effects in the imperative. All are small frozen records. Whatever belongs to one
incarnation carries its number, because threads and peers may report about data that was dropped meanwhile.

Stages of a worker between two rollbacks::

    WAITING ──Deploy──> RESTORING ──PartsRead──> RESTORED ──Connect──> CONNECTING ──PeersConnected──> CONNECTED
       ^                                                                                                  │
       │                                                                                           StartProcessing
       │                                                                                                  v
       └──────────────────── Deploy of a later incarnation, from any stage ─────────────────────────── RUNNING

    any stage behind WAITING ──user code raised, a peer was lost, a part was unreadable──> FAILED ──Deploy──> RESTORING
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from snapshot.coordinator.control import CoordinatorMessage, Deploy, WorkerMessage
from snapshot.errors import CutlineError
from snapshot.ids import Subtask
from snapshot.subtask.machine import SubtaskMachine
from snapshot.worker.restored_parts import RestoredParts
from snapshot.worker.upload_batcher import PendingUpload


class Stage(Enum):
    """Stage of a worker; the diagram is the module's."""

    WAITING = "waiting"
    RESTORING = "restoring"
    RESTORED = "restored"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RUNNING = "running"
    FAILED = "failed"


# ---- deadlines: what time alone brings


@dataclass(frozen=True, slots=True)
class AlignmentDeadline:
    """The alignment of a snapshot at a subtask has taken as long as it may (PROTOCOL 4.3)."""

    snapshot_id: int
    subtask: Subtask


@dataclass(frozen=True, slots=True)
class RequestDeadline:
    """A subtask has waited long enough for the answer to `requestSnapshot` (PROTOCOL 3.1)."""

    subtask: Subtask


@dataclass(frozen=True, slots=True)
class UploadDeadline:
    """Parts of a snapshot have waited long enough for those of other subtasks."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class IdleDeadline:
    """The worker has been quiet for long enough to count as idle."""


@dataclass(frozen=True, slots=True)
class FailureReportDeadline:
    """The delayed report of a lost peer is due."""


Deadline = AlignmentDeadline | RequestDeadline | UploadDeadline | IdleDeadline | FailureReportDeadline

# ---- events


@dataclass(frozen=True, slots=True)
class CoordinatorConnected:
    """A control connection was made; the registration has to be its first message."""


@dataclass(frozen=True, slots=True)
class CoordinatorMessageReceived:
    """The coordinator sent a message."""

    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class PartsRead:
    """Every part of a deployment was read and proved."""

    parts: RestoredParts


@dataclass(frozen=True, slots=True)
class PartsUnreadable:
    """A part of a deployment could not be read."""

    incarnation: int
    error: Exception


@dataclass(frozen=True, slots=True)
class PartsStored:
    """An upload was stored, or failed: the coordinator's messages about it."""

    messages: tuple[WorkerMessage, ...]


@dataclass(frozen=True, slots=True)
class PeersConnected:
    """There is a data connection to every peer."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The heartbeats of a peer have stopped."""

    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class DataFailed:
    """A turn, a read from a peer, or a dial has failed."""

    error: CutlineError


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The subtasks had their turns."""

    #: nothing was handled, and nothing will happen here without a message from elsewhere
    is_idle: bool


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """One of `WorkerMachine.deadlines` has passed."""

    deadline: Deadline


Event = (
    CoordinatorConnected
    | CoordinatorMessageReceived
    | PartsRead
    | PartsUnreadable
    | PartsStored
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

    #: incarnation of the data that runs here; 0: none
    incarnation: int


@dataclass(frozen=True, slots=True)
class SendToCoordinator:
    """Send messages, together; drop them where there is no connection."""

    messages: tuple[WorkerMessage, ...]


@dataclass(frozen=True, slots=True)
class DisconnectCoordinator:
    """Close the control connection and look for the coordinator again."""

    reason: str


@dataclass(frozen=True, slots=True)
class AdmitPeers:
    """Admit only peers of this incarnation from now on, each once."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Read every part of the whole deployment; answer with `PartsRead` or `PartsUnreadable`."""

    deploy: Deploy


@dataclass(frozen=True, slots=True)
class OpenDataPlane:
    """Make the links of these subtasks; all of them are restored."""

    incarnation: int
    subtasks: Mapping[Subtask, SubtaskMachine]


@dataclass(frozen=True, slots=True)
class DialPeers:
    """Connect to the peers; answer with `PeersConnected` or `DataFailed`."""

    incarnation: int
    #: by worker number
    addresses: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ReadPeers:
    """Begin to read the data connections: what peers sent early has waited in them (PROTOCOL 5.4)."""


@dataclass(frozen=True, slots=True)
class FlushLinks:
    """Let markers leave now, and what hooks have sent with the next turn."""


@dataclass(frozen=True, slots=True)
class StoreParts:
    """Upload these contributions together; answer with `PartsStored`."""

    incarnation: int
    uploads: tuple[PendingUpload, ...]


@dataclass(frozen=True, slots=True)
class ReportProgress:
    """Send a progress report without waiting for its time, because a subtask has ended."""


@dataclass(frozen=True, slots=True)
class DropConnections:
    """Close all data connections, so that the peers notice at once."""


@dataclass(frozen=True, slots=True)
class CloseSubtasks:
    """Close these machines and forget them; best effort."""

    subtasks: tuple[SubtaskMachine, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the worker's log."""

    level: Literal["debug", "info", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class Leave:
    """End this process."""

    #: the run is over; else the stage is to fail, so that it can be submitted again
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
    | ReportProgress
    | DropConnections
    | CloseSubtasks
    | Log
    | Leave
)
