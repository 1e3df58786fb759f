"""Track the newest record of each subtask, and pass the numbers of records between neighbours (PROTOCOL 14).

The records are those of one incarnation. Which parts a cut of them needs is decided in
`snapshot.modes.records.composed_cut`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cutline.snapshot.coordinator.control import NeighbourRecorded, PermitRecords, RecordNow
from cutline.snapshot.coordinator.outbox import Outbox
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.records.recovery_report import checkpoints
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.layout import record_path
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint, SourceProgress, first_record_number
from cutline.snapshot.stored.manifest import Manifest

#: (channel, number) pairs
Numbers = tuple[tuple[ChannelId, int], ...]


class LocalCheckpointTracker:
    """The records that one coordinator instance knows.

    Parameters
    ----------
    topology : Topology
    placement : mapping of Subtask to int
        Number of the worker of each subtask.
    registry : WorkerRegistry
    outbox : Outbox
    """

    def __init__(
        self, topology: Topology, placement: Mapping[Subtask, int], registry: WorkerRegistry, outbox: Outbox
    ) -> None:
        #: {subtask: its newest record in the present incarnation}
        self.newest: dict[Subtask, LocalCheckpoint] = {}
        #: newest snapshot with the report of a recovery that was read or published, or None
        self.recovery: Manifest | None = None
        #: {subtask: monotonic seconds at which its newest record was announced}
        self.announced: dict[Subtask, float] = {}
        #: {subtask: seconds from the capture of its newest record to its announcement}
        self.seconds: dict[Subtask, float] = {}
        #: {subtask: its records that failed since the last one that did not}
        self.failures: dict[Subtask, int] = {}
        #: {subtask: senders whose records its captured record awaits}
        self.awaits: dict[Subtask, tuple[Subtask, ...]] = {}
        self._topology = topology
        self._placement = placement
        self._registry = registry
        self._outbox = outbox
        #: monotonic seconds at which the incarnation began, or 0.0
        self.begun_at = 0.0
        #: whether this incarnation has a snapshot, so that output may be committed (PROTOCOL 14.4)
        self._has_snapshot = False
        #: whether some subtask has had no record in this incarnation
        self._is_first_round = True
        #: records of this incarnation that newer ones have replaced
        self._replaced: list[LocalCheckpoint] = []

    @property
    def subtasks(self) -> tuple[Subtask, ...]:
        """All subtasks of the run."""
        return self._topology.subtasks

    def begin(self, *, has_snapshot: bool) -> None:
        """Forget all records, because another incarnation begins, or is adopted."""
        self._has_snapshot = has_snapshot
        self.begun_at = self._outbox.now
        self._is_first_round = True
        self.newest.clear()
        self.failures.clear()
        self._replaced.clear()
        self.announced.clear()
        self.seconds.clear()
        self.awaits.clear()

    def note_awaiting(self, subtask: Subtask, senders: tuple[Subtask, ...], *, is_requested: bool) -> None:
        """Note whose records a captured record awaits. Ask for them while a snapshot is requested."""
        self.awaits[subtask] = senders
        for sender in senders if is_requested else ():
            self._outbox.send(self._placement[sender], RecordNow(self._registry.incarnation, (sender,)))

    def note_recovery(self, manifest: Manifest) -> None:
        """Note a snapshot that was read or published, if it has the report of a recovery."""
        self.recovery = self.recovery if manifest.recovery is None else manifest

    def permit(self, claim: int) -> None:
        """Permit the workers to act on records under a claim that continues their incarnation (PROTOCOL 14.3)."""
        self._outbox.broadcast(PermitRecords(self._registry.incarnation, claim, self._has_snapshot))

    def complete(self, claim: int) -> None:
        """Permit the workers to commit output, because a snapshot of this incarnation is published."""
        if not self._has_snapshot:
            self._has_snapshot = True
            self.permit(claim)

    def fail(self, subtask: Subtask) -> int:
        """Count a record that failed. Return how many have failed in a row."""
        self.failures[subtask] = self.failures.get(subtask, 0) + 1
        return self.failures[subtask]

    def take(self, record: LocalCheckpoint, seconds: float) -> None:
        """Take an announced record, which took `seconds` from its capture."""
        before = self.newest.get(record.subtask)
        if before is None or before.number < record.number:
            self._replaced += [] if before is None else [before]
            self.newest[record.subtask] = record
            self.announced[record.subtask] = self._outbox.now
            self.seconds[record.subtask] = seconds
            self.awaits.pop(record.subtask, None)
            self.failures.pop(record.subtask, None)
        numbers = tuple(record.sent.items()), tuple(record.processed.items())
        self._pass_on(record.subtask, *numbers, record.checkpoint)

    def on_its_way(self, subtask: Subtask) -> int:
        """Return the number of the record that follows the announced ones. It may have been captured."""
        newest = self.newest.get(subtask)
        return first_record_number(self._registry.incarnation) if newest is None else newest.number + 1

    def announce_restored(self, restored: Manifest) -> None:
        """Pass the numbers of the restored snapshot on, which stands for the first record of each subtask."""
        known = checkpoints(restored, ())
        for each in restored.records if restored.recovery is not None else ():
            sent = tuple((entry.channel, entry.sent) for entry in each.sent)
            processed = tuple((entry.channel, entry.processed) for entry in each.received)
            self._pass_on(each.subtask, sent, processed, known.get(each.subtask, ()))

    def take_unneeded(self) -> tuple[str, ...]:
        """Return the paths of replaced records, and of the parts that only they list. Manifests may list some parts.

        A cut that is being made may need them, so the caller waits for its end.
        """
        replaced, self._replaced = self._replaced, []
        paths: dict[str, None] = {}
        for each in replaced:
            needed = {handle.path for handle in self.newest[each.subtask].all_handles}
            own = [handle.path for handle in each.all_handles if handle.path is not None and handle.run == each.run]
            paths |= dict.fromkeys([record_path(each.record.state), *(path for path in own if path not in needed)])
        return tuple(paths)

    def covers(self, snapshot_id: int) -> bool:
        """Return whether each subtask has recorded since a snapshot was requested, or has ended."""
        return self._has_all and all(
            each.requested >= snapshot_id or each.record.status.ended for each in self.newest.values()
        )

    def take_first_round(self) -> bool:
        """Return True once in each incarnation, when it has a snapshot, and each subtask has a record. Else False.

        Before its first snapshot nothing is shown yet, because the records may make no cut.
        """
        if not (self._is_first_round and self._has_snapshot and self._has_all):
            return False
        self._is_first_round = False
        return True

    @property
    def are_first(self) -> bool:
        """Whether each subtask has a record, and no snapshot shows it yet."""
        return self._has_all and not self._has_snapshot

    @property
    def is_over(self) -> bool:
        """Whether all subtasks have ended, and have processed all messages."""
        if not self._has_all or not all(each.record.status.ended for each in self.newest.values()):
            return False
        sent = {channel: number for each in self.newest.values() for channel, number in each.sent.items()}
        return all(
            sent[channel] == number for each in self.newest.values() for channel, number in each.processed.items()
        )

    @property
    def _has_all(self) -> bool:
        return len(self.newest) == len(self._topology.subtasks)

    def _pass_on(self, subtask: Subtask, sent: Numbers, processed: Numbers, checkpoint: SourceProgress) -> None:
        message = NeighbourRecorded(self._registry.incarnation, sent, processed, checkpoint)
        ends = [end for channel, _ in (*sent, *processed) for end in channel if end != subtask]
        for worker in dict.fromkeys(self._placement[end] for end in ends):
            self._outbox.send(worker, message)
