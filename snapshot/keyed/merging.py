"""Merge segments: of equal rows the newest is kept, and what no reader needs is dropped.

Owns the order of application. Must not know where pieces are stored, nor when segments are merged.

Tombstones and expired rows hide older rows of the same key. They are dropped only where no older row can exist: where
the merged segments reach back to generation 0, or to a fresh start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.keyed.segment import PIECE_BYTES_MAX, Piece, Segment, clipped, concatenated, pieces_of, row_batch

#: Columns that say which row is meant.
_IDENTITY: Final = ("group", "state", "key", "sub")

#: Bytes of pieces that are merged at a time, and most bytes of pieces that are kept for the next ranges. More bytes at
#: a time need more memory, fewer let small pieces be read more often.
RANGE_BYTES_MAX: Final = 64 * 1024 * 1024
CACHE_BYTES_MAX: Final = 256 * 1024 * 1024


def merged(segments: Sequence[Segment], *, is_whole: bool) -> Segment:
    """Merge segments, oldest first, into one. The result does not depend on how segments are grouped by merges.

    Parameters
    ----------
    segments : sequence of Segment
        At least one.
    is_whole : bool
        True if no older row can exist. Tombstones, and rows expired at the newest `now`, are then dropped.

    Raises
    ------
    SnapshotCorrupt
        if segments contradict each other about a state, or about the columns that rows are grouped by.
    """
    states = _united_states(segments)
    now = max(segment.now for segment in segments)
    rows = newest_rows([_with_states(segment, states) for segment in reversed(segments)])
    if is_whole:
        rows = _live(rows, now)
    return Segment(states, now, row_batch(rows.columns), _common_grouping(segments))


def newest_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches, newest batch first, sorted, each row once. Batches need not be sorted."""
    rows = concatenated(batches)
    names = [name for name in _IDENTITY if rows.column(name).type != pa.null()]
    identities = rows.select(names)
    # The sort is stable, so of equal rows that of the newest batch comes first.
    ascending = pc.sort_indices(identities, sort_keys=[(name, "ascending") for name in names])
    identities = identities.take(ascending)
    if rows.num_rows > 1:
        is_first = pc.invert(_equals_previous(identities))
        ascending = pa.concat_arrays([ascending[:1], ascending[1:].filter(is_first)])
    return row_batch(rows.take(ascending).columns)


def _equals_previous(rows: pa.RecordBatch) -> pa.Array:
    """Return for each row but the first whether it is the row before it. The columns are those of `_IDENTITY`."""
    equal = [pc.equal(column[1:], column[:-1]) for column in rows.columns]
    if "sub" in rows.schema.names:  # rows of one state have all a sub-key, or none
        equal[-1] = pc.fill_null(equal[-1], True)
    result = equal[0]
    for each in equal[1:]:
        result = pc.and_(result, each)
    return result


def _live(rows: pa.RecordBatch, now: float) -> pa.RecordBatch:
    """Return the rows that are neither tombstones nor expired."""
    if rows.column("value").type == pa.null():
        return rows[:0]
    is_live = rows.column("value").is_valid()
    if rows.column("expires").type != pa.null():
        is_live = pc.and_(is_live, pc.fill_null(pc.greater(rows.column("expires"), now), True))
    return rows.filter(is_live)


def _united_states(segments: Sequence[Segment]) -> tuple[StateSpec, ...]:
    """Return all states, sorted by name. The newest segment's time-to-live counts.

    A list that has none any more gets 0 in its place, because its items have gaps where others expired. Readers of such
    a list must keep the items' numbers, also when no item is left that expires.
    """
    united: dict[str, StateSpec] = {}
    for segment in segments:
        for spec in segment.states:
            known = united.get(spec.name, spec)
            if (known.kind, known.version) != (spec.kind, spec.version):
                raise SnapshotCorrupt(
                    f"state {spec.name!r} is {known.kind.name} of version {known.version} in one segment, and "
                    f"{spec.kind.name} of version {spec.version} in a newer one, so their rows cannot be merged"
                )
            has_gaps = spec.form.leaves_gaps and spec.ttl is None and known.ttl is not None
            united[spec.name] = replace(spec, ttl=0.0) if has_gaps else spec
    return tuple(united[name] for name in sorted(united))


def _with_states(segment: Segment, states: tuple[StateSpec, ...]) -> pa.RecordBatch:
    """Return the rows of `segment`, whose states are indexes into `states`."""
    indexes = {spec.name: index for index, spec in enumerate(states)}
    new = [indexes[spec.name] for spec in segment.states]
    if new == list(range(len(new))):
        return segment.rows
    state = pc.take(pa.array(new, pa.uint16()), segment.rows.column("state"))
    group, _, *others = segment.rows.columns
    return row_batch([group, state, *others])


def _common_grouping(segments: Sequence[Segment]) -> tuple[str, ...]:
    groupings = {segment.grouped_by: None for segment in segments}
    if len(groupings) > 1:
        raise SnapshotCorrupt(f"segments of one list are grouped by different columns: {[*groupings]}")
    return segments[0].grouped_by


@dataclass(frozen=True, slots=True)
class PieceRef:
    """A stored piece and its clip."""

    #: a reader takes only rows of the key groups [lo, hi)
    lo: int
    hi: int
    #: bytes of the stored piece
    size: int
    #: what `read` finds the piece by
    place: object


def merging(
    sources: Sequence[Sequence[PieceRef]],
    read: Callable[[PieceRef], Segment],
    *,
    is_whole: bool,
    bytes_max: int = PIECE_BYTES_MAX,
    range_bytes_max: int = RANGE_BYTES_MAX,
    cache_bytes_max: int = CACHE_BYTES_MAX,
) -> Iterator[Piece]:
    """Merge stored segments into encoded pieces of at most `bytes_max` bytes. For the others see `merging_rows`."""
    for rows in merging_rows(
        sources, read, is_whole=is_whole, range_bytes_max=range_bytes_max, cache_bytes_max=cache_bytes_max
    ):
        yield from pieces_of(rows, bytes_max)


def merging_rows(
    sources: Sequence[Sequence[PieceRef]],
    read: Callable[[PieceRef], Segment],
    *,
    is_whole: bool,
    range_bytes_max: int = RANGE_BYTES_MAX,
    cache_bytes_max: int = CACHE_BYTES_MAX,
) -> Iterator[Segment]:
    """Merge segments, one range of key groups at a time. Yield the rows of each range.

    Parameters
    ----------
    sources : sequence of sequence of PieceRef
        The pieces of each segment, oldest segment first.
    read : callable
        Returns the segment of a piece, not clipped. A piece of several ranges may be read again.
    is_whole : bool
        As for `merged`. Rows are dropped as expired by the newest `now` among the pieces of their range.
    range_bytes_max, cache_bytes_max : int
        Bytes of pieces that are merged at a time, and that are kept for the next ranges.

    Raises
    ------
    SnapshotCorrupt
        as `merged`.
    """
    refs = [ref for source in sources for ref in source]
    cache: dict[int, Segment] = {}  # by the place in `refs`
    for lo, hi in merge_ranges(refs, range_bytes_max):
        segments: list[Segment] = []
        for index, ref in enumerate(refs):
            if ref.lo >= hi or ref.hi <= lo:
                continue
            segment = cache.pop(index, None) or read(ref)
            if ref.hi > hi and ref.size + sum(refs[each].size for each in cache) <= cache_bytes_max:
                cache[index] = segment
            segments.append(clipped(segment, max(lo, ref.lo), min(hi, ref.hi)))
        if segments:
            yield merged(segments, is_whole=is_whole)


def merge_ranges(refs: Sequence[PieceRef], bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield [lo, hi) of ranges that hold about `bytes_max` bytes of pieces each, at least one key group."""
    if not refs:
        return
    bytes_of_group = np.zeros(max(ref.hi for ref in refs) + 1)
    for ref in refs:
        bytes_of_group[ref.lo : ref.hi] += ref.size / (ref.hi - ref.lo)
    ends = np.concatenate([[0.0], np.cumsum(bytes_of_group)])
    lo, last = min(ref.lo for ref in refs), len(bytes_of_group) - 1
    while lo < last:
        hi = int(np.searchsorted(ends, ends[lo] + bytes_max, side="right")) - 1
        hi = min(max(hi, lo + 1), last)
        yield lo, hi
        lo = hi
