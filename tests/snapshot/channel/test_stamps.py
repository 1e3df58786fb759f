"""Stamps of a channel's messages: runs for frames, and counts for snapshots."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.stamps import OpenStamps, Stamp, StampCounts

STAMPS = st.lists(st.integers(0, 5), max_size=30)


@given(STAMPS, st.sets(st.integers(1, 30)), st.integers(0, 3))
def test_frames_have_the_stamps_of_their_messages(stamps: list[int], cuts: set[int], sent: int) -> None:
    """Each message once, in order, whatever frames are made. No frame has two runs of one stamp in a row."""
    open_stamps, found = OpenStamps(sent), list[Stamp]()
    for number, stamp in enumerate(stamps, 1):
        open_stamps.change(stamp, sent + number - 1)
        if number in cuts or number == len(stamps):
            runs = open_stamps.take(sent + number)
            assert all(count > 0 for _, count in runs)
            assert all(one[0] != other[0] for one, other in pairwise(runs))
            found += [stamp for stamp, count in runs for _ in range(count)]
    assert found == stamps
    for snapshot_id in range(7):
        assert open_stamps.counts.below(snapshot_id) == sent + sum(stamp < snapshot_id for stamp in stamps)


def test_an_open_message_is_counted_once_its_frame_is_made() -> None:
    """The marker of a snapshot goes behind all frames, so all messages ahead of it are counted."""
    stamps = OpenStamps(0)
    stamps.change(3, 0)
    assert stamps.counts.below(4) == 0
    stamps.change(5, 2)
    assert stamps.counts.below(4) == 2
    assert stamps.take(3) == ((3, 2), (5, 1))
    assert (stamps.counts.below(4), stamps.counts.below(6)) == (2, 3)
    assert stamps.take(3) == ()


@given(STAMPS, st.integers(0, 6), STAMPS)
def test_settled_counts_stay(before: list[int], settled: int, behind: list[int]) -> None:
    """What is forgotten by stamp is still counted, for each snapshot that may still be begun."""
    counts = StampCounts(7)
    for stamp in before:
        counts.add(stamp, 2)
    counts.settle(settled)
    for stamp in behind:
        counts.add(stamp, 1)
    for snapshot_id in range(settled, 8):
        below = sum(2 for stamp in before if stamp < snapshot_id) + sum(stamp < snapshot_id for stamp in behind)
        assert counts.below(snapshot_id) == 7 + below
