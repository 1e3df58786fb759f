"""Decide what becomes of the changes of one subtask: encoded, merged, stored, listed, compacted.

Owns the list of segments that a snapshot of the subtask needs. The changes are rows of keyed state, or deltas of a
node's own state, which are neither encoded here nor compacted. The log is pure: a host performs its tasks on threads
beside processing, and passes the results back. Must not know how rows are encoded, nor where pieces are stored.

::

    capture ──EncodeRows──> WAITING ──StoreRows──> STORED ──CompactRows──> adopted at the next capture
                            ^  ^           │
           MergeRows with ──┘  └──failed───┘
           those after it

Rules, each with its reason:

1. A snapshot lists every generation up to its cut, and is acknowledged when all of them are stored.
2. A generation is stored once, whatever becomes of its snapshot, because the next snapshot lists it.
3. Generations that no snapshot needs alone are merged before they are stored, so that the size of the state bounds
   what waits for a store that hangs or fails. Rows that are sealed between two cuts are stored after the next cut.
4. A compaction is adopted at the next capture, because what a list has dropped must be in no later list.
5. The parts of another run are merged into a part of this run before the first snapshot, because the retention of the
   other run knows nothing of this run. So are parts of a node whose name the graph no longer has, because the
   certificate does not admit them.
6. Rows that were migrated at the restore are a base of their own, because rows of two versions cannot be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, ClassVar, Final

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.compaction import SegmentSize, choose_compaction
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.row_spool import KeptRows
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.stored.part import PartKind
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.ledger import Declined, Lane, TaskFailed

# ---------------------------------------------------------------- tasks for the host


@dataclass(frozen=True, slots=True)
class EncodeRows:
    """Encode the rows of one capture, or keep rows that are encoded already. The result is `KeptRows`."""

    subtask: Subtask
    generation: int
    rows: CapturedRows | MigratedRows

    lane: ClassVar[Lane] = Lane.ENCODE
    strand: ClassVar[Strand] = Strand.ROWS
    publishes: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class MergeRows:
    """Merge encoded generations that wait into one segment that waits. The result is `KeptRows`."""

    subtask: Subtask
    first: int
    last: int
    #: oldest first; at least two
    segments: tuple[KeptRows, ...]

    lane: ClassVar[Lane] = Lane.STORE
    strand: ClassVar[Strand] = Strand.ROWS
    publishes: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class StoreRows:
    """Store changes that wait as one segment. The result is a tuple of ListEntry."""

    subtask: Subtask
    #: ROWS, OWN for changes of own state, or STEPS for steps of a log
    kind: PartKind
    first: int
    last: int
    #: snapshot of the newest capture; names the parts
    snapshot_id: int
    #: encoded rows, or changes of own state, or steps of a log, oldest first
    content: KeptRows | tuple[OwnChange, ...]
    #: bytes up to which the segment may go inside the manifest
    inline_bytes_max: int

    lane: ClassVar[Lane] = Lane.STORE
    publishes: ClassVar[int] = 0

    @property
    def strand(self) -> Strand:
        """Return the strand of the changes."""
        return _STRANDS[self.kind]


@dataclass(frozen=True, slots=True)
class CompactRows:
    """Merge stored segments, and store what comes of it. The result is a tuple of ListEntry."""

    subtask: Subtask
    first: int
    last: int
    #: snapshot of the newest capture; names the parts
    snapshot_id: int
    #: entries of each segment, oldest first
    sources: tuple[tuple[ListEntry, ...], ...]
    #: whether the segments reach back to the start of the list, so that tombstones and expired rows may go
    is_whole: bool
    #: bytes up to which the segment may go inside the manifest
    inline_bytes_max: int
    #: ROWS, or STEPS for steps of a log
    kind: PartKind = PartKind.ROWS

    lane: ClassVar[Lane] = Lane.COMPACT
    publishes: ClassVar[int] = 0

    @property
    def strand(self) -> Strand:
        """Return the strand of the changes."""
        return _STRANDS[self.kind]


StorageTask = EncodeRows | MergeRows | StoreRows | CompactRows

_STRANDS: Final = {PartKind.ROWS: Strand.ROWS, PartKind.OWN: Strand.OWN, PartKind.STEPS: Strand.STEPS}

# ---------------------------------------------------------------- the log


class _Status(Enum):
    ENCODING = "encoding"
    REFUSED = "refused"  # a key that is not the subtask's; each snapshot of this incarnation is declined
    WAITING = "waiting"
    MERGING = "merging"
    STORING = "storing"
    STORED = "stored"


@dataclass(slots=True, eq=False)
class _Segment:
    """Generations `first` to `last`, in one place of the list."""

    first: int
    last: int
    snapshot_id: int
    status: _Status
    #: encoded rows, or changes of own state, while they wait, oldest first
    waiting: tuple[Any, ...] = ()
    #: stored pieces
    entries: tuple[ListEntry, ...] = ()
    #: stored segments that are merged into this one, oldest first, or none
    sources: tuple[tuple[ListEntry, ...], ...] = ()
    #: whether another subtask instance has stored the segment, which was restored
    is_restored: bool = False
    #: False for rows that were sealed since the last cut, which wait for the next cut
    is_cut: bool = True
    reason: str = ""

    @property
    def size(self) -> SegmentSize:
        handles = [entry.handle for entry in self.entries]
        inline = sum(len(handle.inline or b"") for handle in handles)
        return SegmentSize(self.first, self.last, sum(handle.size for handle in handles), inline)


@dataclass(slots=True)
class _Compaction:
    """A compaction that runs, or waits for the next capture."""

    replaced: tuple[_Segment, ...]
    result: _Segment
    is_done: bool = False


#: Chooses segments to merge, as `choose_compaction` does: (first, end) places, or None for none.
Choice = Callable[[Sequence[SegmentSize], int], tuple[int, int] | None]


def _usual_choice(sizes: Sequence[SegmentSize], inline_bytes_max: int) -> tuple[int, int] | None:
    # Three quarters, so that the next generations find room in the manifest.
    return choose_compaction(sizes, reaches_start=True, inline_bytes_max=inline_bytes_max * 3 // 4)


#: Most parts of a log that a snapshot lists before the newest of them become one.
_STEP_PARTS_MAX = 64

#: bytes, more than any list has
_NO_LIMIT = 1 << 62


def _choice_of_steps(sizes: Sequence[SegmentSize], inline_bytes_max: int) -> tuple[int, int] | None:
    """Choose the newest parts of a log. What is merged is never merged into the oldest, because no step goes away."""
    return choose_compaction(
        sizes, reaches_start=False, inline_bytes_max=inline_bytes_max * 3 // 4, segments_max=_STEP_PARTS_MAX
    )


@dataclass(slots=True)
class GenerationLog:
    """The generations of one subtask in one incarnation.

    Parameters
    ----------
    subtask : Subtask
    run : str
        Name of the run.
    restored : tuple of ListEntry
        The list of the restored snapshot, in the order of application.
    inline_bytes_max : int
        Bytes of all segments together that may go inside the manifest.
    snapshot_id : int
        Restored snapshot, or 0.
    """

    subtask: Subtask
    run: str
    restored: tuple[ListEntry, ...]
    inline_bytes_max: int
    snapshot_id: int = 0
    #: ROWS, OWN for changes of own state, or STEPS for steps of a log
    kind: PartKind = PartKind.ROWS
    #: chooses what a compaction merges; None: as the kind needs
    choose: Choice | None = None
    #: whether the restored list is merged into a part of this subtask before the first snapshot
    needs_base: bool = False
    #: the list as of now, in the order of application
    _segments: list[_Segment] = field(default_factory=list)
    #: {snapshot_id: the list at its cut}, of snapshots that are not acknowledged
    _cuts: dict[int, tuple[_Segment, ...]] = field(default_factory=dict)
    #: number of the newest generation
    _newest: int = 0
    #: whether storing has failed since the last capture; tried again at the next capture
    _has_failed: bool = False
    _compaction: _Compaction | None = None

    def __post_init__(self) -> None:
        groups: list[list[ListEntry]] = []
        for entry in self.restored:
            if groups and _segment_of(groups[-1][-1]) == _segment_of(entry):
                groups[-1].append(entry)
            else:
                groups.append([entry])
        if any(self.needs_base or entry.handle.run != self.run for entry in self.restored):
            if self.kind is PartKind.OWN:
                return  # the first capture is the whole state then
            sources = tuple(map(tuple, groups))
            self._segments.append(_Segment(0, 0, self.snapshot_id, _Status.WAITING, sources=sources))
            return
        for group in groups:
            handle = group[0].handle
            found = _Segment(
                handle.first, handle.last, handle.snapshot_id, _Status.STORED, entries=tuple(group), is_restored=True
            )
            self._segments.append(found)

    # ---------------------------------------------------------------- cuts

    def migrated(self, rows: MigratedRows) -> list[StorageTask | Declined]:
        """Begin with a base of all rows. Called at most once, before all else, for a log without a restored list."""
        self._segments = [_Segment(0, 0, self.snapshot_id, _Status.ENCODING)]
        return [EncodeRows(self.subtask, 0, rows)]

    def captured(self, snapshot_id: int, rows: CapturedRows | None) -> list[StorageTask | Declined]:
        """Add the rows that the cut of a snapshot has captured. None: no row has changed since the last capture."""
        self._adopt()
        self._has_failed = False
        decisions: list[StorageTask | Declined] = [] if rows is None else self.sealed(rows)
        return [*decisions, *self._cut(snapshot_id)]

    def sealed(self, rows: CapturedRows) -> list[StorageTask | Declined]:
        """Add rows that leave memory before the next cut. They are stored after that cut, with all up to the cut."""
        self._newest += 1
        self._segments.append(_Segment(self._newest, self._newest, 0, _Status.ENCODING, is_cut=False))
        return [EncodeRows(self.subtask, self._newest, rows)]

    def captured_change(self, snapshot_id: int, change: OwnChange | None) -> list[StorageTask | Declined]:
        """Add the change of own state that a cut has captured, or the step of a log that a cut has ended.

        None: nothing has changed since the last capture.
        """
        self._adopt()
        self._has_failed = False
        if change is not None:
            self._newest += 1
            first = 0 if change.is_whole else self._newest
            segment = _Segment(first, self._newest, snapshot_id, _Status.WAITING, (change,))
            self._segments = [segment] if change.is_whole else [*self._segments, segment]
        return self._cut(snapshot_id)

    def _cut(self, snapshot_id: int) -> list[StorageTask | Declined]:
        self._cuts[snapshot_id] = tuple(self._segments)
        for segment in self._segments:
            if not segment.is_cut:
                segment.is_cut, segment.snapshot_id = True, snapshot_id
        for segment in self._segments:
            if segment.status is _Status.REFUSED:
                return [*self._decline(segment, segment.reason)]
        return [*self._store_next()]

    @property
    def newest(self) -> int:
        """Number of the newest generation."""
        return self._newest

    def drop_through(self, generation: int) -> None:
        """Drop the parts of a log that no later snapshot needs, because a published one has the state after them.

        A part that is being stored or merged stays, because its result must find it. A replay leaves its steps out.
        """
        in_work = () if self._compaction is None else (*self._compaction.replaced, self._compaction.result)
        while self._segments and (self._segments[0].is_restored or self._segments[0].last <= generation):
            if self._segments[0].status not in (_Status.STORED, _Status.WAITING) or self._segments[0] in in_work:
                return
            del self._segments[0]

    def list_of(self, snapshot_id: int) -> tuple[ListEntry, ...] | None:
        """Return the list of a snapshot, or None while one of its generations is not stored.

        Raises
        ------
        KeyError
            if the snapshot was declined, is over, or was never cut.
        """
        segments = self._cuts[snapshot_id]
        if any(segment.status is not _Status.STORED for segment in segments):
            return None
        return tuple(entry for segment in segments for entry in segment.entries)

    def has_cut(self, snapshot_id: int) -> bool:
        """Return whether a snapshot was cut here, and was neither acknowledged, declined nor discarded since."""
        return snapshot_id in self._cuts

    def forget(self, snapshot_id: int) -> None:
        """Forget a cut that was acknowledged or declined."""
        self._cuts.pop(snapshot_id, None)

    def discard_below(self, snapshot_id: int) -> None:
        """Forget cuts below `snapshot_id`, because their snapshots are over. Their generations stay."""
        for each in [each for each in self._cuts if each < snapshot_id]:
            del self._cuts[each]

    # ---------------------------------------------------------------- results of tasks

    def done(self, task: StorageTask, result: Any) -> list[StorageTask | Declined]:
        """Take the result of a task. What could not be stored is kept, and tried again at the next capture."""
        match task, result:
            case EncodeRows(), TaskFailed(reason):
                return self._refused(task, reason)
            case MergeRows() | StoreRows() | CompactRows(), TaskFailed(reason):
                return self._failed(task, f"{self.subtask} could not be stored: {reason}")
            case EncodeRows(generation=newest) | MergeRows(last=newest), kept:
                return self._wait_to_store(self._with_newest(newest), kept)
            case StoreRows() | CompactRows(), entries:
                return self._stored(task, entries)
        raise AssertionError(task)

    def _wait_to_store(self, segment: _Segment, rows: KeptRows) -> list[StorageTask | Declined]:
        segment.status, segment.waiting = _Status.WAITING, (rows,)
        return [*self._store_next()]

    def _refused(self, task: EncodeRows, reason: str) -> list[StorageTask | Declined]:
        """Decline every snapshot that needs rows which cannot be stored, because a key is not of this subtask."""
        segment = self._with_newest(task.generation)
        segment.status, segment.reason = _Status.REFUSED, reason
        return [*self._decline(segment, reason)]

    def _stored(self, task: StoreRows | CompactRows, entries: tuple[ListEntry, ...]) -> list[StorageTask | Declined]:
        """Take the stored pieces of a segment."""
        compaction = self._compaction
        if compaction is not None and isinstance(task, CompactRows) and compaction.result.last == task.last:
            compaction.result.entries, compaction.result.status = entries, _Status.STORED
            compaction.is_done = True
            return []
        if (segment := self._find(task.last)) is not None:
            segment.status, segment.entries, segment.waiting, segment.sources = _Status.STORED, entries, (), ()
        return [*self._store_next(), *self._compact()]

    def _failed(self, task: MergeRows | StoreRows | CompactRows, reason: str) -> list[StorageTask | Declined]:
        """Keep what could not be stored, and try again at the next capture. Decline the snapshots that need it."""
        self._has_failed = True
        compaction = self._compaction
        if compaction is not None and isinstance(task, CompactRows) and compaction.result.last == task.last:
            self._compaction = None  # its segments are stored as they were, so no snapshot fails
            return []
        if (segment := self._find(task.last)) is None:
            return []
        segment.status = _Status.WAITING
        return [*self._decline(segment, reason)]

    # ---------------------------------------------------------------- helpers

    @property
    def waiting(self) -> int:
        """Number of segments that are not stored."""
        return sum(segment.status is not _Status.STORED for segment in self._segments)

    def _with_newest(self, generation: int) -> _Segment:
        found = self._find(generation)
        assert found is not None, f"{self.subtask} has no segment with generation {generation}"
        return found

    def _find(self, generation: int) -> _Segment | None:
        """Return the segment with this newest generation.

        None: a whole state has replaced it while it was stored, and no snapshot needs it any more.
        """
        found = chain(self._segments, *self._cuts.values())
        return next((each for each in found if each.last == generation and not each.is_restored), None)

    def _decline(self, segment: _Segment, reason: str) -> list[Declined]:
        declined = [snapshot_id for snapshot_id, cut in self._cuts.items() if segment in cut]
        for snapshot_id in declined:
            del self._cuts[snapshot_id]
        return [Declined(snapshot_id, reason) for snapshot_id in declined]

    def _store_next(self) -> list[StorageTask]:
        """Begin to store the oldest segment that waits, merged with those after it that no snapshot needs alone."""
        # A cut may need segments that a whole state has replaced in the list since.
        needed = [*dict.fromkeys([*chain.from_iterable(self._cuts.values()), *self._segments])]
        if self._has_failed or any(segment.status in (_Status.MERGING, _Status.STORING) for segment in needed):
            return []
        oldest = next((segment for segment in needed if segment.status is not _Status.STORED), None)
        if oldest is None or oldest.status is not _Status.WAITING or not oldest.is_cut:
            return []
        if oldest.sources:
            return [self._store_sources(oldest)]
        if oldest not in self._segments:
            return [self._store(oldest)]
        ends = {cut[-1] for cut in self._cuts.values() if cut}
        begin = self._segments.index(oldest)
        end = begin + 1
        while end < len(self._segments) and self._segments[end - 1] not in ends and self._segments[end].is_cut:
            if self._segments[end].status is _Status.ENCODING:
                return []  # it is merged with the others when it is encoded
            if self._segments[end].status is not _Status.WAITING:
                break
            end += 1
        return [self._store(self._merged(begin, end))]

    def _store(self, segment: _Segment) -> MergeRows | StoreRows:
        if self.kind is PartKind.ROWS and len(segment.waiting) > 1:
            segment.status = _Status.MERGING
            return MergeRows(self.subtask, segment.first, segment.last, segment.waiting)
        segment.status = _Status.STORING
        at = (self.subtask, self.kind, segment.first, segment.last, segment.snapshot_id)
        content = segment.waiting[0] if self.kind is PartKind.ROWS else segment.waiting
        return StoreRows(*at, content, self._inline_room())

    def _store_sources(self, base: _Segment) -> CompactRows:
        base.status = _Status.STORING
        at = (self.subtask, base.first, base.last, base.snapshot_id)
        return CompactRows(*at, base.sources, is_whole=True, inline_bytes_max=self._inline_room(), kind=self.kind)

    def _merged(self, begin: int, end: int) -> _Segment:
        """Replace waiting segments by one, in the list and in each cut that holds all of them."""
        parts = self._segments[begin:end]
        if len(parts) == 1:
            return parts[0]
        waiting = tuple(change for part in parts for change in part.waiting)
        whole = _Segment(parts[0].first, parts[-1].last, parts[-1].snapshot_id, _Status.WAITING, waiting)
        self._segments[begin:end] = [whole]
        for snapshot_id, cut in self._cuts.items():
            if parts[0] in cut:  # then it holds all, because no cut ends between them
                place = cut.index(parts[0])
                self._cuts[snapshot_id] = (*cut[:place], whole, *cut[place + len(parts) :])
        return whole

    def _inline_room(self) -> int:
        return max(0, self.inline_bytes_max - sum(each.size.inline_bytes for each in self._segments))

    def _chosen(self, stored: Sequence[_Segment], inline_bytes_max: int) -> tuple[int, int] | None:
        """Return the range of stored segments to merge, or None where there is no range of two at least."""
        choose = self.choose or (_choice_of_steps if self.kind is PartKind.STEPS else _usual_choice)
        chosen = choose([each.size for each in stored], inline_bytes_max)
        if chosen is None:
            return None
        begin, end = chosen
        # Segments that were restored are merged all together or not at all, or they would become two lineages.
        restored = sum(each.is_restored for each in stored)
        if not begin:
            end = max(end, restored)
        elif restored:  # by their own number, else the few own ones would be merged anew each time, the large ones too
            chosen = choose([each.size for each in stored[restored:]], inline_bytes_max)
            begin, end = (restored, restored) if chosen is None else (restored + chosen[0], restored + chosen[1])
        return None if end - begin < 2 else (begin, end)

    def _compact(self) -> list[CompactRows]:
        """Begin a compaction of the stored segments at the start of the list, if one is due."""
        if self._compaction is not None or self.kind is PartKind.OWN:
            return []
        stored = self._stored_prefix()
        if len(stored) < 2:
            return []
        # Where one segment has most of the inline bytes, no merge makes room, and other reasons to merge count.
        chosen = self._chosen(stored, self.inline_bytes_max) or self._chosen(stored, _NO_LIMIT)
        if chosen is None:
            return []
        begin, end = chosen
        parts = tuple(stored[begin:end])
        # A base begins with 0, so that a list with a base needs no restored part.
        first = 0 if begin == 0 else parts[0].first
        last = 0 if parts[-1].is_restored else parts[-1].last
        result = _Segment(first, last, parts[-1].snapshot_id, _Status.STORING)
        self._compaction = _Compaction(parts, result)
        sources = tuple(each.entries for each in parts)
        inline = sum(each.size.inline_bytes for each in parts)
        # A merged segment takes the room of its parts, but not where inline segments are merged to make room.
        room = 0 if inline > self.inline_bytes_max // 2 else self._inline_room() + inline
        at = (self.subtask, first, last, result.snapshot_id)
        return [CompactRows(*at, sources, is_whole=begin == 0, inline_bytes_max=room, kind=self.kind)]

    def _stored_prefix(self) -> list[_Segment]:
        end = next((n for n, each in enumerate(self._segments) if each.status is not _Status.STORED), None)
        return self._segments[:end]

    def _adopt(self) -> None:
        """Replace the segments that a compaction has merged."""
        if self._compaction is None or not self._compaction.is_done:
            return
        place = self._segments.index(self._compaction.replaced[0])
        self._segments[place : place + len(self._compaction.replaced)] = [self._compaction.result]
        self._compaction = None


def _segment_of(entry: ListEntry) -> tuple[object, ...]:
    """Return what the pieces of one segment have in common: lineage and generations."""
    handle = entry.handle
    return (handle.run, handle.incarnation, handle.subtask, handle.first, handle.last)
