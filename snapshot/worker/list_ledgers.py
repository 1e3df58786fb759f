"""Ledgers over the lists of a subtask: rows of keyed state, and changes of own state.

A list is in `snapshot.worker.generations`. A ledger here knows what its strand reports, and which fields of a record
have the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, assert_never

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.subtask.strand import RowChange, RowsCaptured
from cutline.snapshot.worker.generations import GenerationLog, StorageTask
from cutline.snapshot.worker.ledger import Declined, Listed


@dataclass(frozen=True, slots=True)
class RestoredList:
    """A list as a deployment gives it, and where its parts are stored."""

    subtask: Subtask
    run: str
    entries: tuple[ListEntry, ...]
    #: bytes of the subtask's changes that may go inside the manifest
    inline_bytes_max: int
    #: restored snapshot, or 0
    snapshot_id: int
    needs_base: bool

    def log(self, kind: PartKind) -> GenerationLog:
        """Return a log that goes on with the list."""
        at = (self.subtask, self.run, self.entries, self.inline_bytes_max, self.snapshot_id, kind)
        return GenerationLog(*at, needs_base=self.needs_base)


def entries_of(handles: Iterable[Handle]) -> Iterator[ListEntry]:
    """Yield the entries of a list that is whole for all key groups."""
    return (ListEntry(handle, 0, KEY_GROUPS) for handle in handles)


class ListLedger:
    """A ledger over one list.

    Parameters
    ----------
    log : GenerationLog
    """

    is_repeated: ClassVar[bool] = False

    def __init__(self, log: GenerationLog) -> None:
        self._log = log

    def done(self, task: StorageTask, result: Any) -> list[StorageTask | Declined]:
        """Take the result of a task."""
        return self._log.done(task, result)

    def left(self, cut: int) -> None:
        """Forget a cut."""
        self._log.forget(cut)

    def settled(self, published: int, below: int) -> list[StorageTask]:
        """Forget the cuts of snapshots that are over. Their changes stay."""
        self._log.discard_below(below)
        return []


class RowLedger(ListLedger):
    """The rows of a subtask.

    Parameters
    ----------
    restored : RestoredList
    """

    def __init__(self, restored: RestoredList) -> None:
        super().__init__(restored.log(PartKind.ROWS))
        self._restored = restored
        #: first and end of the subtask's key groups; None before the first cut
        self._groups: tuple[int, int] | None = None

    def captured(self, cut: int | None, change: RowChange) -> list[StorageTask | Declined]:
        """Add the rows of a cut, or rows that leave memory between two cuts, or put migrated rows in place of all."""
        match change:
            case RowsCaptured(groups, rows):
                assert cut is not None
                self._groups = (groups.start, groups.stop)
                return self._log.captured(cut, rows)
            case CapturedRows():
                return self._log.sealed(change)
            case MigratedRows():
                at = self._restored
                self._log = GenerationLog(at.subtask, at.run, (), at.inline_bytes_max, at.snapshot_id)
                return self._log.migrated(change)
            case _:
                assert_never(change)

    def ready(self, cut: int) -> Listed | None:
        """Return the list of rows of a cut."""
        entries = self._log.list_of(cut)
        return None if entries is None else {"groups": self._groups, "rows": entries or None}


class OwnStateLedger(ListLedger):
    """The changes of own state of a subtask.

    Parameters
    ----------
    restored : RestoredList
    """

    def __init__(self, restored: RestoredList) -> None:
        super().__init__(restored.log(PartKind.OWN))

    def captured(self, cut: int | None, change: OwnChange | None) -> list[StorageTask | Declined]:
        """Add the change of a cut."""
        assert cut is not None
        return self._log.captured_change(cut, change)

    def ready(self, cut: int) -> Listed | None:
        """Return the changes of a cut."""
        entries = self._log.list_of(cut)
        return None if entries is None else {"own": handles_of(entries)}


def handles_of(entries: Sequence[ListEntry]) -> tuple[Handle, ...] | None:
    """Return the parts of a list whose entries are read whole, or None without any."""
    return tuple(entry.handle for entry in entries) or None
