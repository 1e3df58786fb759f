"""The choice of what compaction merges: how much is written, how much a restore reads, how many segments there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.keyed.compaction import SEGMENTS_MAX, SegmentSize, choose_compaction

#: Bytes of the state in the models.
STATE = 1_000_000
NO_LIMIT = 1 << 60


def uniform(part: float) -> Callable[[int], int]:
    """Bytes of so many captures merged, each of that part of the keys, drawn anew each time."""
    return lambda captures: round(STATE * (1 - (1 - part) ** captures))


def in_turn(part: float) -> Callable[[int], int]:
    """Bytes of so many captures merged, where a key is written again only after all others."""
    return lambda captures: round(STATE * min(1, part * captures))


def stored(first: int, last: int, bytes_of: Callable[[int], int]) -> SegmentSize:
    return SegmentSize(first, last, STATE if first == 0 else bytes_of(last - first + 1), 0)


@pytest.mark.parametrize("bytes_of", [uniform, in_turn])
@pytest.mark.parametrize(("part", "bar"), [(0.1, 1.55), (0.01, 1.55), (0.001, 2.05)])
def test_little_is_written(bytes_of: Callable[[float], Callable[[int], int]], part: float, bar: float) -> None:
    """2,000 snapshots write at most 1.55 times the change, small ones 2.05 times; a restore reads 3.1 states."""
    size, segments = bytes_of(part), [SegmentSize(0, 0, STATE, 0)]
    changed = written = most_read = 0
    for generation in range(1, 2_001):
        segments.append(stored(generation, generation, size))
        changed += size(1)
        written += size(1)
        chosen = choose_compaction(segments, reaches_start=True, inline_bytes_max=NO_LIMIT)
        # What was chosen is adopted at the next capture, so until then the list has one segment more.
        most_read = max(most_read, sum(each.bytes for each in segments))
        assert len(segments) <= SEGMENTS_MAX + 1
        if chosen:
            first, end = chosen
            segments[first:end] = [stored(segments[first].first, segments[end - 1].last, size)]
            written += segments[first].bytes
    assert most_read <= 3.1 * STATE
    assert written <= bar * changed
    print(f"{part}: wrote {written / changed:.2f} x the change, read at most {most_read / STATE:.2f} x the state")


def test_a_state_from_nothing_is_cheap() -> None:
    """A state that begins empty and grows is written a few times at most, though the first base is small."""
    segments: list[SegmentSize] = []
    written = 0
    for generation in range(1, 2_001):
        segments.append(SegmentSize(generation, generation, 1_000, 0))
        written += 1_000
        if chosen := choose_compaction(segments, reaches_start=True, inline_bytes_max=NO_LIMIT):
            size = sum(each.bytes for each in segments[chosen[0] : chosen[1]])
            segments[chosen[0] : chosen[1]] = [SegmentSize(0, generation, size, 0)]
            written += size
    assert written <= 2.5 * 2_000 * 1_000


sizes = st.builds(SegmentSize, st.just(1), st.just(1), st.integers(1, 1_000), st.integers(0, 50))


@given(st.lists(sizes, max_size=40), st.booleans(), st.integers(0, 300), st.integers(2, 20))
def test_a_choice_helps(segments: list[SegmentSize], reaches_start: bool, inline_max: int, segments_max: int) -> None:
    """What is chosen is neighbours of the list, and helps against the limit that is broken."""
    chosen = choose_compaction(
        segments, reaches_start=reaches_start, inline_bytes_max=inline_max, segments_max=segments_max
    )
    inline = sum(each.inline_bytes for each in segments)
    deltas = sum(each.bytes for each in segments[1:])
    if chosen is None:
        assert len(segments) <= segments_max
        assert inline <= inline_max
        assert not reaches_start or not segments or deltas <= 2 * segments[0].bytes
        return
    first, end = chosen
    assert 0 <= first < end <= len(segments)
    merged = segments[first:end]
    if reaches_start and deltas > 2 * segments[0].bytes:
        assert chosen == (0, len(segments))
    elif inline > inline_max:
        assert all(each.inline_bytes for each in merged)
    else:
        assert end == len(segments)
        assert len(merged) >= 2


def test_inline_runs_are_merged() -> None:
    """The neighbours with most inline bytes are stored, and only they, because others are stored already."""
    segments = [SegmentSize(0, 0, 900, 0), *(SegmentSize(n, n, 10, 10) for n in (1, 2, 3)), SegmentSize(4, 4, 500, 0)]
    segments.append(SegmentSize(5, 5, 9, 9))
    assert choose_compaction(segments, reaches_start=True, inline_bytes_max=39) is None
    assert choose_compaction(segments, reaches_start=True, inline_bytes_max=38) == (1, 4)


def test_without_a_base_nothing_is_merged_into_it() -> None:
    """Where older rows exist, the first segment is no base, however small."""
    segments = [SegmentSize(1, 1, 1, 0), SegmentSize(2, 2, 100, 0)]
    assert choose_compaction(segments, reaches_start=False, inline_bytes_max=0) is None
    assert choose_compaction(segments, reaches_start=True, inline_bytes_max=0) == (0, 2)
