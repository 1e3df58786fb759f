"""Choose the segments of a list that compaction merges.

Owns the choice, by sizes alone. Must not know rows, pieces, nor who merges. A list grows by a segment a capture::

    base | delta delta delta ... delta
    oldest                      newest

Merging into the base bounds what a restore reads. Merging the newest deltas bounds the number of segments, for little
writing: each such merge makes a segment as large as all that it merges, so a row is merged once each time that the
history becomes some hundred times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Bytes of deltas, in multiples of the base, from which they are merged into the base. A restore reads at most one
#: more. A smaller factor writes more: 1 % a capture is written 1.5 times with 2, and 2 times with 1.
FACTOR: Final = 2.0

#: Most segments of a list. Fewer are merged more often: with 32 the same captures are written 2.1 times.
SEGMENTS_MAX: Final = 256

#: Part of the most segments that a merge of the newest takes at least, so that such a merge is not made each capture.
_NEWEST_PART: Final = 8


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """A segment of a list."""

    #: generations in the segment
    first: int
    last: int
    #: bytes of all its pieces, and of the pieces that the manifest itself holds
    bytes: int
    inline_bytes: int


def choose_compaction(
    segments: Sequence[SegmentSize],
    *,
    reaches_start: bool,
    inline_bytes_max: int,
    factor: float = FACTOR,
    segments_max: int = SEGMENTS_MAX,
) -> tuple[int, int] | None:
    """Return [first, end) of the segments to merge into a stored one, or None if the list is well as it is.

    Parameters
    ----------
    segments : sequence of SegmentSize
        Oldest first.
    reaches_start : bool
        Whether no row is older than those of the first segment, which is then the base.
    inline_bytes_max : int
        Most bytes of the list's pieces that a manifest holds itself, because each manifest repeats these.
    factor : float
        See `FACTOR`.
    segments_max : int
        See `SEGMENTS_MAX`. At least 2.
    """
    if reaches_start and sum(each.bytes for each in segments[1:]) > factor * sum(each.bytes for each in segments[:1]):
        return 0, len(segments)
    if sum(each.inline_bytes for each in segments) > inline_bytes_max:
        return _largest_inline_run(segments)
    if len(segments) > segments_max:
        return _newest_run(segments, max(2, segments_max // _NEWEST_PART)), len(segments)
    return None


def _largest_inline_run(segments: Sequence[SegmentSize]) -> tuple[int, int]:
    """Return the neighbours with inline pieces that hold most inline bytes. It may be one, which no merge shrinks."""
    best = run = (0, 0)
    best_bytes = run_bytes = 0
    for index, each in enumerate(segments):
        if each.inline_bytes:
            run, run_bytes = (run[0], index + 1), run_bytes + each.inline_bytes
        else:
            run, run_bytes = (index + 1, index + 1), 0
        if run_bytes >= best_bytes:
            best, best_bytes = run, run_bytes
    return best


def _newest_run(segments: Sequence[SegmentSize], count_min: int) -> int:
    """Return the first of the newest segments that are worth a merge, at least `count_min` of them.

    A segment is worth its writing where it is at most half of all newer ones together. So what such a merge has made
    is left alone by the next merges, though fewer bytes are left where many rows were written again.
    """
    first, run_bytes = len(segments), 0
    while first > 0:
        size = segments[first - 1].bytes
        if len(segments) - first >= count_min and size > run_bytes / 2:
            break
        run_bytes += size
        first -= 1
    return first
