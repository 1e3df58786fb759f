"""Compose snapshots of the records that subtasks store by themselves (PROTOCOL 14)."""

from __future__ import annotations

from typing import Any, assert_never

from cutline.snapshot.coordinator.completion import (
    ClaimFound,
    CompletionParts,
    CompletionResult,
    NotWhole,
    StoredAlone,
    Unusable,
    Whole,
)
from cutline.snapshot.coordinator.control import (
    RecordAnnounced,
    RecordAwaits,
    RecordFailed,
    RecordFenced,
    RecordMessage,
    SnapshotAcknowledged,
)
from cutline.snapshot.coordinator.deployment import IncarnationFailed
from cutline.snapshot.coordinator.events import (
    CutNotStored,
    CutStored,
    ListRecords,
    RecordsAnswer,
    RecordsListed,
    RecordsRemoved,
    RemoveRecords,
    StoreCut,
)
from cutline.snapshot.coordinator.pending_snapshot import Initiator
from cutline.snapshot.coordinator.run_state import Phase
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.records.composed_cut import plan_cut
from cutline.snapshot.modes.records.record_tracker import LocalCheckpointTracker
from cutline.snapshot.modes.records.records_status import records_status
from cutline.snapshot.modes.records.recovery_report import report_of
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.manifest import Manifest


class Composition:
    """Complete each snapshot by a cut of records.

    Parameters
    ----------
    parts : CompletionParts
    """

    def __init__(self, parts: CompletionParts) -> None:
        self._settings = parts.settings
        self._outbox = parts.outbox
        self._restarts = parts.restarts
        self._tracker = parts.tracker
        self._table = parts.tracker.table
        self._deployment = parts.deployment
        self._fence = parts.fence
        self._registry = parts.registry
        self._records = LocalCheckpointTracker(parts.settings.topology, parts.workers, parts.registry, parts.outbox)
        #: id of the snapshot whose cut was made last of records, or 0
        self._composed_id = 0
        #: whether replaced records are being removed
        self._is_removing = False

    # ---------------------------------------------------------------- incarnations

    def begun(self, *, is_adopted: bool) -> None:
        """Forget all records. Their subtasks announce those of adopted workers again."""
        self._records.begin(has_snapshot=self._deployment.has_own_snapshot)
        if is_adopted:
            self._records.permit(self._fence.claim)
        elif self._deployment.known is not None:
            self._records.announce_restored(self._deployment.known)

    def rolled_back(self) -> None:
        """Forget all records, because the next incarnation has others."""
        self._records.begin(has_snapshot=False)

    def read(self, manifest: Manifest) -> None:
        """Note the report of a recovery."""
        self._records.note_recovery(manifest)

    # ---------------------------------------------------------------- contributions

    def acknowledged(self, message: SnapshotAcknowledged) -> CompletionResult | None:
        """Drop the part, because subtasks announce records."""
        return None

    def received(self, message: RecordMessage) -> CompletionResult | None:
        """Take a message about a record."""
        match message:
            case RecordAnnounced(_, record, seconds):
                self._records.take(record, seconds)
                self._restarts.note_stored(record.number, record.record)
                return StoredAlone(self._records.take_first_round())
            case RecordFailed(_, subtask, number, reason):
                return self._on_failed(subtask, number, reason)
            case RecordAwaits(_, subtask, senders):
                self._records.note_awaiting(subtask, senders, is_requested=bool(self._table.collecting()))
                return None
            case RecordFenced(_, claim):
                return self._on_fenced(claim)
            case _:
                assert_never(message)

    def _on_failed(self, subtask: Subtask, number: int, reason: str) -> IncarnationFailed | None:
        """Roll back when a subtask cannot record itself. Else those after it would wait for ever (PROTOCOL 14.2)."""
        reason = f"record of {subtask}: {reason}"
        self._tracker.aborted = self._tracker.aborted.add((number, reason))
        times = self._records.fail(subtask)
        if times <= self._table.policy.tolerable_failures:
            return None
        return IncarnationFailed(f"{times} records of {subtask} in a row failed, the last because {reason}")

    def _on_fenced(self, claim: Claim) -> ClaimFound | None:
        """Stop if a newer claim took the run. Nothing else may show the claim, because records need no manifest."""
        if claim.number > self._fence.claim:
            return ClaimFound(claim)
        self._records.permit(self._fence.claim)
        return None

    # ---------------------------------------------------------------- cuts

    def compose_restored(self) -> CompletionResult | None:
        """Compose the newest records, which may be newer than the snapshot that was read."""
        base = self._deployment.known
        assert base is not None
        if base.incarnation < self._fence.lowest_incarnation:
            return self._compose((), Initiator.RESTORE)
        self._outbox.put(ListRecords(self._fence.claim, base.incarnation))
        return None

    def compose_due(self) -> CompletionResult | None:
        """Make a snapshot of the first records, of those since a request, and of the last (PROTOCOL 14.4)."""
        if self._is_composing:  # its snapshot is the next base, and the files of the present one may go with it
            return None
        newest = next(reversed(self._table.collecting()), None)
        if newest is not None and self._records.covers(newest.snapshot_id):
            return self._compose(tuple(self._records.newest.values()), None)
        if not self._table.pending and (self._records.is_over or self._records.are_first):
            return self._compose(tuple(self._records.newest.values()), Initiator.RECORDS)
        return None

    @property
    def _is_composing(self) -> bool:
        """Whether a cut is being made of records."""
        return self._composed_id in self._table.pending

    def _compose(self, records: tuple[LocalCheckpoint, ...], initiator: Initiator | None) -> Unusable | None:
        """Let the cut of records be stored. `initiator` is None for the newest snapshot that is pending."""
        base = self._deployment.base_of_incarnation
        try:
            plan = plan_cut(self._settings.run, self._settings.topology, base, records)
        except RestoreRefused as error:
            return Unusable(str(error))
        table = self._table
        snapshot = table.collecting()[-1] if initiator is None else table.open(self._outbox.now, (), initiator)
        self._composed_id = snapshot.snapshot_id
        if initiator is Initiator.RESTORE:
            snapshot.recovery = report_of(plan, base, records)
        self._outbox.put(StoreCut(snapshot.snapshot_id, self._registry.incarnation, plan))
        return None

    def answered(self, answer: RecordsAnswer) -> CompletionResult | None:
        """Take an answer about records, or about a cut of them."""
        match answer:
            case RecordsListed(claim, records):
                is_awaited = claim == self._fence.claim and self._deployment.phase is Phase.READING
                return self._compose(records, Initiator.RESTORE) if is_awaited else None
            case CutStored(snapshot_id, records_of_cut):
                return self._on_cut_stored(snapshot_id, records_of_cut)
            case CutNotStored(snapshot_id, reason):
                return NotWhole(snapshot_id, reason)
            case RecordsRemoved():
                self._is_removing = False
                self.remove_unneeded()
                return None
            case _:
                assert_never(answer)

    def _on_cut_stored(self, snapshot_id: int, records: tuple[SubtaskRecord, ...]) -> Whole | None:
        snapshot = self._table.pending.get(snapshot_id)
        if snapshot is None:
            return None
        snapshot.records.update((record.subtask, record) for record in records)
        return Whole(snapshot)

    def published(self, manifest: Manifest) -> None:
        """Let workers commit, before they receive the announcement. Keep the report of a recovery."""
        if manifest.recovery is None:
            self._records.complete(self._fence.claim)
        else:
            self._records.note_recovery(manifest)

    def remove_unneeded(self) -> None:
        """Remove replaced records, unless a cut is made of them, or others are being removed (PROTOCOL 14.8)."""
        if self._is_removing or self._is_composing:
            return
        if paths := self._records.take_unneeded():
            self._is_removing = True
            self._outbox.put(RemoveRecords(paths))

    # ---------------------------------------------------------------- status

    def on_its_way(self, subtask: Subtask) -> int:
        """Return the number of the record that follows the announced ones."""
        return self._records.on_its_way(subtask)

    def status(self, now: float) -> dict[str, Any]:
        """Return the records by node."""
        return records_status(self._records, self._records.recovery, now)
