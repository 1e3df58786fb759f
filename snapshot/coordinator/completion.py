"""The contract of a completion: how a pending snapshot becomes whole.

All subtasks acknowledge a snapshot, or a snapshot is composed of what the subtasks have stored by themselves. Both end
in `Whole`. A completion changes no phase of the run: each method returns a result for the coordinator, or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cutline.snapshot.coordinator.control import RecordMessage, SnapshotAcknowledged
from cutline.snapshot.coordinator.deployment import Deployment, IncarnationFailed
from cutline.snapshot.coordinator.events import RecordsAnswer
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.outbox import Outbox
from cutline.snapshot.coordinator.pending_snapshot import PendingSnapshot
from cutline.snapshot.coordinator.restart_policy import Restarts
from cutline.snapshot.coordinator.run_state import RunSettings
from cutline.snapshot.coordinator.snapshot_tracker import SnapshotTracker
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Whole:
    """All parts of a snapshot are stored. The certificate judges the snapshot next."""

    snapshot: PendingSnapshot


@dataclass(frozen=True, slots=True)
class NotWhole:
    """A snapshot cannot become whole."""

    snapshot_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """Records from which no snapshot can be made."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoredAlone:
    """A subtask has stored something by itself, so that a snapshot may become whole."""

    #: whether each subtask has done so for the first time in the incarnation, because then its restore has worked
    is_first_round: bool


@dataclass(frozen=True, slots=True)
class ClaimFound:
    """A worker has found a newer claim than that of this coordinator."""

    claim: Claim


CompletionResult = Whole | NotWhole | Unusable | StoredAlone | ClaimFound | IncarnationFailed


@dataclass(frozen=True, slots=True)
class CompletionParts:
    """Collaborators of a completion, given by its coordinator."""

    settings: RunSettings
    #: {subtask: number of its worker}
    workers: Mapping[Subtask, int]
    registry: WorkerRegistry
    outbox: Outbox
    restarts: Restarts
    tracker: SnapshotTracker
    deployment: Deployment
    fence: Fence


class Completion(Protocol):
    """How the pending snapshots of a run become whole."""

    def begun(self, *, is_adopted: bool) -> None:
        """Begin with an incarnation that runs from now on, or whose running workers were adopted."""

    def rolled_back(self) -> None:
        """Forget the incarnation."""

    def read(self, manifest: Manifest) -> None:
        """Note a snapshot that was read to be restored."""

    def compose_restored(self) -> CompletionResult | None:
        """Compose the snapshot that is restored next, after `CompositionNeeded`."""

    def compose_due(self) -> CompletionResult | None:
        """Compose the snapshot that is due, while snapshots may start."""

    def acknowledged(self, message: SnapshotAcknowledged) -> CompletionResult | None:
        """Take the part of one subtask."""

    def received(self, message: RecordMessage) -> CompletionResult | None:
        """Take a message about what a subtask stores by itself."""

    def answered(self, answer: RecordsAnswer) -> CompletionResult | None:
        """Take an answer of the store."""

    def published(self, manifest: Manifest) -> None:
        """Take a published snapshot, before workers receive the announcement."""

    def remove_unneeded(self) -> None:
        """Remove what no snapshot and no restore needs any more."""

    def on_its_way(self, subtask: Subtask) -> int:
        """Return the highest number under which the state of a subtask may be on its way to the store."""

    def status(self, now: float) -> dict[str, Any]:
        """Return what the status of the run shows, at `now` monotonic seconds. Any thread may call this method."""


class Acknowledged:
    """Complete each snapshot by the acknowledgements of all subtasks.

    Parameters
    ----------
    parts : CompletionParts
    """

    def __init__(self, parts: CompletionParts) -> None:
        self._tracker = parts.tracker

    def begun(self, *, is_adopted: bool) -> None:
        """Do nothing."""

    def rolled_back(self) -> None:
        """Do nothing, because the tracker forgets all parts."""

    def read(self, manifest: Manifest) -> None:
        """Do nothing."""

    def compose_restored(self) -> CompletionResult | None:
        """Return None, because a published snapshot is restored."""
        return None

    def compose_due(self) -> CompletionResult | None:
        """Return None, because nothing is composed."""
        return None

    def acknowledged(self, message: SnapshotAcknowledged) -> CompletionResult | None:
        """Take the part of one subtask. Return the snapshot after the last part."""
        snapshot = self._tracker.acknowledge(message)
        return None if snapshot is None else Whole(snapshot)

    def received(self, message: RecordMessage) -> CompletionResult | None:
        """Drop the message, because no subtask stores anything by itself."""
        return None

    def answered(self, answer: RecordsAnswer) -> CompletionResult | None:
        """Drop the answer, because nothing was asked."""
        return None

    def published(self, manifest: Manifest) -> None:
        """Do nothing."""

    def remove_unneeded(self) -> None:
        """Do nothing, because retention removes snapshots."""

    def on_its_way(self, subtask: Subtask) -> int:
        """Return the highest id of a pending snapshot, or the id before the first of the claim."""
        table = self._tracker.table
        return max(table.pending, default=table.ids.first_id - 1)

    def status(self, now: float) -> dict[str, Any]:
        """Return nothing."""
        return {}
