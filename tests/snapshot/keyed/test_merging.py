"""Merging: contradictions that are refused, and how much is read and held at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.merging import PieceRef, merged, merging
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import Piece, Segment, decode_piece, no_rows, pieces_of
from cutline.snapshot.plan.topology import KEY_GROUPS
from tests.snapshot.keyed.histories import encoded, rows_in
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask

TOTAL = StateSpec("total", StateKind.REDUCING)


def segment_of(keys: range, value: int) -> Segment:
    return encoded(CapturedRows(0.0, range(KEY_GROUPS), (DirtyTable(TOTAL, dict.fromkeys(keys, value)),)))


def refs_of(*stored: list[Piece]) -> list[list[PieceRef]]:
    return [[PieceRef(each.lo, each.hi, len(each.body), each) for each in pieces] for pieces in stored]


class Reader:
    """Decodes pieces, and counts."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def __call__(self, ref: PieceRef) -> Segment:
        assert isinstance(ref.place, Piece)
        self.bytes_read += ref.size
        return decode_piece(ref.place.body, "piece")


BASE, DELTA = segment_of(range(5_000), 1), segment_of(range(0, 5_000, 10), 2)
STORED = [pieces_of(BASE, 10_000), pieces_of(DELTA)]
SIZE = sum(len(piece.body) for pieces in STORED for piece in pieces)


def test_pieces_are_read_once_where_the_cache_holds_them() -> None:
    """A small piece that overlaps all ranges is kept between them."""
    read = Reader()
    made = list(merging(refs_of(*STORED), read, is_whole=True, bytes_max=10_000, range_bytes_max=10_000))
    assert read.bytes_read == SIZE
    assert len(made) > 5
    assert rows_in([decode_piece(piece.body, "made") for piece in made]) == rows_in(
        [merged([BASE, DELTA], is_whole=True)]
    )


def test_without_a_cache_pieces_are_read_again() -> None:
    """What the cache does not hold is read for each range, and the result is the same."""
    read, read_again = Reader(), Reader()
    limits = {"bytes_max": 10_000, "range_bytes_max": 10_000}
    made = list(merging(refs_of(*STORED), read, is_whole=True, **limits))
    again = list(merging(refs_of(*STORED), read_again, is_whole=True, cache_bytes_max=0, **limits))
    assert [bytes(piece.body) for piece in made] == [bytes(piece.body) for piece in again]
    assert read_again.bytes_read > read.bytes_read


def test_pieces_are_read_when_their_range_is_due() -> None:
    """The first piece is made before the last is read."""
    read = Reader()
    next(merging(refs_of(STORED[0]), read, is_whole=True, bytes_max=10_000, range_bytes_max=10_000))
    assert read.bytes_read < SIZE / 2


def test_nothing_is_made_of_nothing() -> None:
    """No pieces, or pieces of tombstones that go, make no piece."""
    gone = encoded(CapturedRows(0.0, range(KEY_GROUPS), (DirtyTable(TOTAL, {"a": None}),)))
    assert list(merging([], Reader(), is_whole=True)) == []
    assert list(merging(refs_of(pieces_of(gone)), Reader(), is_whole=True)) == []
    assert len(list(merging(refs_of(pieces_of(gone)), Reader(), is_whole=False))) == 1


@pytest.mark.parametrize("changed", [replace(TOTAL, kind=StateKind.MAP), replace(TOTAL, version=2)])
def test_contradicting_states_are_refused(changed: StateSpec) -> None:
    """A state of two kinds, or of two versions of its values, is not merged, because nobody could read its rows."""
    other = Segment((changed,), 0.0, no_rows())
    with pytest.raises(SnapshotCorrupt, match="state 'total' is REDUCING of version 1 in one segment"):
        merged([BASE, other], is_whole=True)


def test_contradicting_groupings_are_refused() -> None:
    """Rows that lie by other columns of the key are not merged."""
    with pytest.raises(SnapshotCorrupt, match="grouped by different columns"):
        merged([BASE, replace(BASE, grouped_by=("user",))], is_whole=True)
    assert merged([replace(BASE, grouped_by=("user",))], is_whole=True).grouped_by == ("user",)


def test_the_newest_time_to_live_counts() -> None:
    """The header has the specification of the newest segment."""
    newer = Segment((replace(TOTAL, ttl=5.0),), 3.0, no_rows())
    found = merged([BASE, newer], is_whole=True)
    assert (found.states, found.now) == (newer.states, 3.0)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_list_without_its_time_to_live_keeps_its_numbers(is_whole: bool) -> None:
    """A later program asks for no time-to-live. Items stand behind gaps, and no item is left that could expire."""
    first = KeyedSubtask()
    with first.key("k"):
        first.list(ttl=10.0).appendList(["old", "older"])
    segments = [first.capture_segment()]
    for now, items in ((5.0, ["a"]), (300.0, ["b", "c"]), (310.0, [])):
        stored = [each for each in segments if each is not None]
        subtask = KeyedSubtask(segments=stored, now=now)
        state = subtask.list()
        with subtask.key("k"):
            before = list(state.get())
            state.appendList(items)
            assert list(state.get()) == [*before, *items]
            if now == 5.0:
                subtask.context.now = 200.0
        segments = [merged([*stored, *filter(None, [subtask.capture_segment()])], is_whole=is_whole)]
    assert before == ["a", "b", "c"]
    assert {spec.ttl for each in segments if each is not None for spec in each.states} == {0.0}
    last = KeyedSubtask(segments=[each for each in segments if each is not None], now=320.0)
    with last.key("k"):
        last.list().clear()
    empty = KeyedSubtask(segments=[*filter(None, [*segments, last.capture_segment()])], now=330.0)
    with empty.key("k"):
        assert list(empty.list().get()) == []
