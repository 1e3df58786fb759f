"""Perform the tasks of a generation log: encode rows, merge them, store them, merge what is stored.

Owns the way from rows to stored parts. Has no thread and no file: the host passes the store's calls, and a pause that
is called between chunks of work. The worker's storage threads and the simulator perform tasks with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never, runtime_checkable

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.keyed.encoding import emptying, encoding
from cutline.snapshot.keyed.merging import RANGE_BYTES_MAX, PieceRef, merged, merging, merging_rows
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.row_spool import KeptRows, MemorySpool, RowSpool
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.keyed.segment import (
    PIECE_BYTES_MAX,
    Piece,
    Segment,
    clipped,
    decode_piece,
    empty_piece,
    pieces_of,
)
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.own_changes import OwnChange, decode_changes, encode_changes
from cutline.snapshot.stored.part import Handle, Part, PartKind, own_part, rows_part, steps_part
from cutline.snapshot.worker.generations import CompactRows, EncodeRows, MergeRows, StoreRows
from cutline.snapshot.worker.ledger import AnyTask, TaskFailed

#: Bytes of rows of a spool that are merged at a time: nearly a piece, so that a merge makes few pieces.
_SPOOLED_RANGE_BYTES_MAX: Final = PIECE_BYTES_MAX * 15 // 16

#: Key groups from which on a stored piece is read once for all ranges of a compaction.
_WIDE_GROUPS_MIN: Final = KEY_GROUPS // 16


@runtime_checkable
class TaskOfMode(Protocol):
    """A task that knows how it is performed."""

    def perform(self, work: StorageWork) -> object:
        """Perform the task, and return its result."""


def _no_pause(seconds: float) -> None:
    pass


@dataclass(frozen=True, slots=True)
class StorageWork:
    """Functions of a host, and the origin of the parts that it stores."""

    run: str
    incarnation: int
    codec: Codec
    #: stores parts, each in a file or all inline, and returns their handles; durable on return
    put: Callable[[Sequence[Part], bool], list[Handle]]
    #: returns the checked body of a part
    read: Callable[[Handle], memoryview]
    #: called with seconds between chunks of work, so that another thread may run; 0 lets a thread run that waits
    pause: Callable[[float], None] = _no_pause
    #: keeps encoded rows until they are stored
    spool: RowSpool = field(default_factory=MemorySpool)
    #: id of the disk with local versions, or "" without such a disk
    disk: str = ""

    def perform(self, task: AnyTask) -> object:
        """Perform a task of a ledger of the lanes `ENCODE`, `STORE` and `COMPACT`, and return its result.

        Raises
        ------
        OSError, SnapshotCorrupt
            if the store fails.
        """
        match task:
            case EncodeRows():
                return self.encode(task)
            case MergeRows():
                return self._merge(task)
            case StoreRows() | CompactRows():
                return self.store(task)
            case TaskOfMode():
                return task.perform(self)
        raise TypeError(f"{task} is no work on rows")

    def store(self, task: StoreRows | CompactRows) -> tuple[ListEntry, ...]:
        """Store changes, and return the entries that list them. Raises as `perform`."""
        match task:
            case StoreRows(kind=PartKind.OWN | PartKind.STEPS):
                changes = [change for change in task.content if isinstance(change, OwnChange)]
                return self._put_changes(task, changes)
            case StoreRows():
                return self._store(task)
            case CompactRows(kind=PartKind.STEPS):
                return self._put_changes(task, self._steps_of_log(task))
            case CompactRows():
                return self._put(task, self._compacted(task))
            case _:
                assert_never(task)

    def encode(self, task: EncodeRows) -> KeptRows | TaskFailed:
        """Encode the rows of a capture. The result is `TaskFailed` where a key is not of the subtask."""
        if isinstance(task.rows, MigratedRows):
            return self._kept(task.rows)
        return self._encode(task, task.rows)

    def _kept(self, rows: MigratedRows) -> KeptRows:
        if rows.segment.rows.num_rows:
            return self.spool.keep(rows.segment)
        return (PieceRef(rows.groups.start, rows.groups.stop, 0, rows.segment),)

    def _encode(self, task: EncodeRows, captured: CapturedRows) -> KeptRows | TaskFailed:
        steps = encoding(captured, self.codec)
        try:
            while True:
                self.pause(next(steps) or 0)
        except StopIteration as end:
            return self.spool.keep(end.value)
        except SnapshotAborted as error:
            self._give_up(captured)
            return TaskFailed(f"{task.subtask}: {error}")

    def _give_up(self, captured: CapturedRows) -> None:
        """Free rows that cannot be stored, because a tier with a bounded memory waits until they are gone."""
        for table in captured.tables:
            if table.release():
                for _ in emptying(table):
                    self.pause(0)

    def _merge(self, task: MergeRows) -> KeptRows:
        kept: list[PieceRef] = []
        ranges = merging_rows(task.segments, self.spool.read, is_whole=False, range_bytes_max=self._range_bytes_max)
        try:
            for rows in ranges:
                kept += self.spool.keep(rows)
                self.pause(0)
        except OSError:
            self.spool.discard(tuple(kept))  # because the next try keeps them again
            raise
        for each in task.segments:
            self.spool.discard(each)
        return tuple(kept)

    def _store(self, task: StoreRows) -> tuple[ListEntry, ...]:
        rows = tuple(ref for ref in task.content if isinstance(ref, PieceRef))
        if len(rows) == 1:
            segment = self.spool.read(rows[0])
            # A base without rows is a piece too, because it replaces a restored list with rows.
            pieces = iter(pieces_of(segment) or [empty_piece(segment, rows[0].lo, rows[0].hi)])
        else:
            pieces = merging([rows], self.spool.read, is_whole=False, range_bytes_max=self._range_bytes_max)
        stored = self._put(task, pieces)
        self.spool.discard(rows)
        return stored

    @property
    def _range_bytes_max(self) -> int:
        return _SPOOLED_RANGE_BYTES_MAX if self.spool.is_outside_memory else RANGE_BYTES_MAX

    def _compacted(self, task: CompactRows) -> Iterator[Piece]:
        sources = [
            [PieceRef(entry.lo, entry.hi, entry.handle.size, entry.handle) for entry in source]
            for source in task.sources
        ]
        copies: list[PieceRef] = []
        try:
            near = [[each for ref in source for each in self._near(ref, copies)] for source in sources]
            yield from self._merged(near, is_whole=task.is_whole)
        finally:
            self.spool.discard(tuple(copies))

    def _merged(self, sources: list[list[PieceRef]], *, is_whole: bool) -> Iterator[Piece]:
        is_empty = True
        for piece in merging(sources, self._read_piece, is_whole=is_whole, range_bytes_max=self._range_bytes_max):
            yield piece
            is_empty = False
            self.pause(0)
        if is_empty:
            refs = [ref for source in sources for ref in source]
            segments = [self._read_piece(ref) for ref in refs]
            left = merged([clipped(segment, 0, 0) for segment in segments], is_whole=True)
            yield empty_piece(left, min(ref.lo for ref in refs), max(ref.hi for ref in refs))

    def _near(self, ref: PieceRef, copies: list[PieceRef]) -> KeptRows:
        """Return a stored piece, or copies in the spool where the piece would be read again for many ranges."""
        if not self.spool.is_outside_memory or ref.hi - ref.lo < _WIDE_GROUPS_MIN:
            return (ref,)
        kept = self.spool.keep(clipped(self._read_piece(ref), ref.lo, ref.hi))
        copies += kept
        self.pause(0)
        return kept

    def _read_piece(self, ref: PieceRef) -> Segment:
        if not isinstance(ref.place, Handle):
            return self.spool.read(ref)
        return decode_piece(self.read(ref.place), ref.place.name)

    def _steps_of_log(self, task: CompactRows) -> list[OwnChange]:
        handles = [entry.handle for source in task.sources for entry in source]
        steps = [step for handle in handles for step in decode_changes(self.read(handle), handle.name)]
        return [OwnChange(is_whole, (body,)) for is_whole, body in steps]

    def _put_changes(self, task: StoreRows | CompactRows, changes: Sequence[OwnChange]) -> tuple[ListEntry, ...]:
        make_part = own_part if task.kind is PartKind.OWN else steps_part
        part = make_part(
            self.run, self.incarnation, task.snapshot_id, task.subtask, (task.first, task.last), encode_changes(changes)
        )
        handles = self.put([part], part.handle.size <= task.inline_bytes_max)
        return tuple(ListEntry(handle, 0, KEY_GROUPS) for handle in handles)

    def _put(self, task: StoreRows | CompactRows, pieces: Iterator[Piece]) -> tuple[ListEntry, ...]:
        """Store pieces as they are made, so that a large segment is never in memory as a whole."""
        entries: list[ListEntry] = []
        waiting: list[Part] = []  # parts that may still go inline together
        size = 0
        for piece in pieces:
            part = rows_part(
                self.run, self.incarnation, task.snapshot_id, task.subtask,
                (task.first, task.last), (piece.lo, piece.hi), [piece.body], piece.rows,
            )  # fmt: skip
            waiting.append(part)
            size += part.handle.size
            if size > task.inline_bytes_max:
                entries += self._entries(waiting, inline=False)
                waiting = []
        return tuple(entries + self._entries(waiting, inline=size <= task.inline_bytes_max))

    def _entries(self, parts: list[Part], *, inline: bool) -> list[ListEntry]:
        entries = []
        for handle in self.put(parts, inline) if parts else []:
            assert handle.groups is not None
            entries.append(ListEntry(handle, *handle.groups))
        return entries
