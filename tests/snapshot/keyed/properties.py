"""What must hold for every history of keyed state. The tests assert it, and mutants of the code must break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cutline.snapshot.channel.key_hash import hash_keys, stable_hash
from cutline.snapshot.channel.partitioning import groups_of, key_group, subtask_of_group
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.keyed import merging
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable
from cutline.snapshot.keyed.rows_codec import decode_key, encode_key, encode_keys
from cutline.snapshot.keyed.segment import Piece, Segment, decode_piece, pieces_of
from cutline.snapshot.plan.topology import KEY_GROUPS
from tests.snapshot.keyed.histories import SPECS, Capture, encoded, histories, keys, model_of, rows_in

#: One failure is enough, and it is not shrunk: a mutant's failure is shown to nobody.
QUICK = settings(max_examples=2_000, derandomize=True, database=None, deadline=None, phases=[Phase.generate])

Refs = list[merging.PieceRef]


@dataclass(frozen=True)
class Property:
    """What must hold for all values that are drawn. `given` is applied at each use, because it has one use only."""

    check: Callable[..., None]
    drawn: tuple[st.SearchStrategy[Any], ...]

    def holds(self, how: settings | None = None) -> None:
        """Raise AssertionError unless it holds for all values that Hypothesis draws."""
        test = given(*self.drawn)(self.check)
        (how(test) if how else test)()


def for_all(*drawn: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Property]:
    """Make a property of a function."""
    return lambda check: Property(check, drawn)


@for_all(histories())
def a_list_is_the_model(history: list[Capture]) -> None:
    """What a restore reads is what the dicts held at the last capture."""
    segments = [encoded(capture.captured()) for capture in history]
    assert rows_in([merging.merged(segments, is_whole=True)]) == model_of(history)


@for_all(histories(), st.data())
def compactions_change_nothing(history: list[Capture], data: st.DataObject) -> None:
    """Merging neighbours first, in any grouping, ends in the same segment, byte by byte."""
    segments = [encoded(capture.captured()) for capture in history]
    expected = merging.merged(segments, is_whole=True)
    while len(segments) > 1:
        first = data.draw(st.integers(0, len(segments) - 2))
        end = data.draw(st.integers(first + 2, len(segments)))
        segments[first:end] = [merging.merged(segments[first:end], is_whole=first == 0)]
    assert merging.merged(segments, is_whole=True) == expected


@for_all(histories(pool=("a", "b", "c"), specs_of=SPECS[1:2]))
def expired_rows_hide_older_rows(history: list[Capture]) -> None:
    """Merging the newest captures first changes nothing, though the newest row of a key may have expired first."""
    base, *newer = [encoded(capture.captured()) for capture in history]
    deltas = [merging.merged(newer, is_whole=False)] if newer else []
    assert rows_in([merging.merged([base, *deltas], is_whole=True)]) == model_of(history)


@for_all(histories(), st.integers(2_500, 4_000), st.integers(1_000, 6_000), st.integers(0, 6_000), st.data())
def merging_pieces_is_merging_segments(
    history: list[Capture], bytes_max: int, range_max: int, cache_max: int, data: st.DataObject
) -> None:
    """Pieces merged by ranges hold the same rows as the segments, whatever the sizes of pieces, ranges and cache."""
    segments = [encoded(capture.captured()) for capture in history]
    stored = [pieces_of(segment, bytes_max) for segment in segments]
    first = data.draw(st.integers(0, len(segments) - 1))
    made = _merged_pieces(stored[first:], bytes_max, range_max, cache_max, is_whole=first == 0)
    assert all(lo.hi <= hi.lo or lo.hi == hi.lo + 1 for lo, hi in pairwise(made))
    decoded = [decode_piece(piece.body, "made") for piece in made]
    older = [merging.merged(segments[:first], is_whole=True)] if first else []
    newer = [merging.merged(decoded, is_whole=False)] if decoded else []
    rows = rows_in([merging.merged(older + newer, is_whole=True)]) if older + newer else {}
    # The last capture may have written nothing. Then nobody has its time, and what has just expired is still there.
    now = history[-1].now
    assert {w: row for w, row in rows.items() if row[2] is None or row[2] > now} == model_of(history)


def _merged_pieces(
    stored: list[list[Piece]], bytes_max: int, range_max: int, cache_max: int, *, is_whole: bool
) -> list[Piece]:
    places = {(s, p): piece for s, pieces in enumerate(stored) for p, piece in enumerate(pieces)}
    sources: list[Refs] = [
        [merging.PieceRef(piece.lo, piece.hi, len(piece.body), (s, p)) for p, piece in enumerate(pieces)]
        for s, pieces in enumerate(stored)
    ]

    def read(ref: merging.PieceRef) -> Segment:
        return decode_piece(places[ref.place].body, "stored")  # type: ignore[index]  # put there above

    limits = {"bytes_max": bytes_max, "range_bytes_max": range_max, "cache_bytes_max": cache_max}
    return list(merging.merging(sources, read, is_whole=is_whole, **limits))


@for_all(histories(), st.integers(1, 5), st.integers(1, 5))
def donors_give_each_row_to_one_heir(history: list[Capture], donor_count: int, heir_count: int) -> None:
    """Subtasks capture their own groups; others, of another parallelism, read the same pieces, each its own groups."""
    stored: list[tuple[Capture, Piece]] = []
    for capture in history:
        for donor in range(donor_count):
            own = _only(capture, groups_of(donor, donor_count))
            stored += [(capture, piece) for piece in pieces_of(encoded(own.captured(groups_of(donor, donor_count))))]
    found = []
    for heir in range(heir_count):
        groups = groups_of(heir, heir_count)
        refs = [
            merging.PieceRef(groups.start, groups.stop, len(piece.body), place)
            for place, (_, piece) in enumerate(stored)
        ]
        read = [decode_piece(piece.body, "stored") for _, piece in stored]
        made = merging.merging([[ref] for ref in refs], lambda ref, read=read: read[ref.place], is_whole=True)  # type: ignore[misc]
        found += [decode_piece(piece.body, "made") for piece in made]
    now = history[-1].now
    rows = {where: row for where, row in rows_in(found).items() if row[2] is None or row[2] > now}
    assert rows == model_of(history)


def _only(capture: Capture, groups: range) -> Capture:
    return Capture(capture.now, tuple(tuple(w for w in part if key_group(w.key) in groups) for part in capture.writes))


@for_all(keys, st.integers(2, 9))
def a_key_of_another_subtask_is_refused(key: Any, parallelism: int) -> None:
    """A subtask encodes a key of the groups that it owns, and refuses all others."""
    for index in range(parallelism):
        is_taken = True
        try:
            encoded(CapturedRows(0.0, groups_of(index, parallelism), (DirtyTable(SPECS[0], {key: 1}),)))
        except SnapshotAborted:
            is_taken = False
        assert is_taken == (subtask_of_group(key_group(key), parallelism) == index)


@for_all(st.lists(keys, max_size=6))
def keys_are_canonical(found: list[Any]) -> None:
    """Two keys have equal bytes exactly where they are equal, alone and by the column, and come back equal."""
    alone = [encode_key(key) for key in found]
    assert encode_keys(found) == alone
    assert [decode_key(data) for data in alone] == found
    for key, data in zip(found, alone, strict=True):
        assert [key == other for other in found] == [data == other for other in alone]
    assert hash_keys(found).tolist() == [stable_hash(key) for key in found]


@for_all(st.integers(1, 40_000), st.data())
def ranges_are_those_of_subtasks(parallelism: int, data: st.DataObject) -> None:
    """A subtask owns the groups that `subtask_of_group` gives it, and none else."""
    index = data.draw(st.integers(0, parallelism - 1))
    groups = groups_of(index, parallelism)
    around = range(max(0, groups.start - 2), min(KEY_GROUPS, groups.stop + 2))
    assert [group for group in around if subtask_of_group(group, parallelism) == index] == list(groups)


PROPERTIES = (
    a_list_is_the_model,
    compactions_change_nothing,
    expired_rows_hide_older_rows,
    merging_pieces_is_merging_segments,
    donors_give_each_row_to_one_heir,
    a_key_of_another_subtask_is_refused,
    keys_are_canonical,
    ranges_are_those_of_subtasks,
)
