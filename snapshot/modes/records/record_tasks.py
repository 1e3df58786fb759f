"""Tasks on a record of a subtask alone: the write, then the check of the next claim (PROTOCOL 14.3, the next claim).

The check is a task of its own, because other processes may reach the store between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.worker.ledger import CollectorTask


@dataclass(frozen=True, slots=True)
class RecordTask(CollectorTask):
    """Work on a record."""

    record: LocalCheckpoint
    #: number of the claim that is checked after the write
    next_claim: int

    @property
    def number(self) -> int:
        """Return the number of the record."""
        return self.record.number

    @property
    def subtask(self) -> Subtask:
        """Return the subtask that has recorded itself."""
        return self.record.subtask


class WriteRecord(RecordTask):
    """Store a record. `CheckNextClaim` follows."""

    __slots__ = ()

    def run(self, store: RunStore) -> CheckNextClaim:
        """Store the record, and return the check that follows."""
        LocalCheckpointFiles(store).write(self.record)
        return CheckNextClaim(self.record, self.next_claim)


class CheckNextClaim(RecordTask):
    """Read the next claim."""

    __slots__ = ()

    only_reads: ClassVar[bool] = True

    def run(self, store: RunStore) -> Claim | None:
        """Return the claim, or None if there is none."""
        return store.read_claim(self.next_claim)
