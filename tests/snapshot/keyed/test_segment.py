"""Segments and their pieces: sizes, ranges of groups, and damage that is named."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.record_batches import encode_batch
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import Segment, clipped, concatenated, decode_piece, no_rows, pieces_of, row_batch
from cutline.snapshot.plan.topology import KEY_GROUPS
from tests.snapshot.keyed.histories import encoded, histories

TOTAL = StateSpec("total", StateKind.REDUCING)


def segment_of(rows: dict[Any, Any]) -> Segment:
    return encoded(CapturedRows(7.0, range(KEY_GROUPS), (DirtyTable(TOTAL, rows),)))


def bodies(batch: pa.RecordBatch, **header: Any) -> bytes:
    """A piece of any columns and any header."""
    fields = {"states": [["total", 3, None, 1]], "grouped_by": [], "now": 1.0, "rows": batch.num_rows} | header
    packed: bytes = msgpack.packb(fields)
    return struct.pack(">I", len(packed)) + packed + bytes(encode_batch(batch))


def columns(keys: list[bytes | None], **others: pa.Array) -> pa.RecordBatch:
    count = len(keys)
    groups, states = pa.array([0] * count, pa.uint16()), pa.array([0] * count, pa.uint16())
    named = {"group": groups, "state": states, "key": pa.array(keys, pa.binary())}
    return pa.RecordBatch.from_pydict(named | others)


@given(histories(captures_max=1), st.integers(2_500, 20_000))
def test_pieces_hold_the_segment(history: Any, bytes_max: int) -> None:
    """Pieces abut in the order of rows, hold all rows and what the header says, and keep their sizes."""
    segment = encoded(history[0].captured())
    pieces = pieces_of(segment, bytes_max)
    decoded = [decode_piece(piece.body, "piece") for piece in pieces]
    assert concatenated([each.rows for each in decoded] or [segment.rows[:0]]) == segment.rows
    for piece, each in zip(pieces, decoded, strict=True):
        assert (each.states, each.now, each.grouped_by) == (segment.states, segment.now, segment.grouped_by)
        groups = each.rows.column("group").to_pylist()
        assert (piece.lo, piece.hi) == (groups[0], groups[-1] + 1)
        assert len(piece.body) <= bytes_max


def test_pieces_end_where_groups_end() -> None:
    """A group lies in one piece, unless the group alone exceeds a piece."""
    segment = segment_of({index: b"x" * 100 for index in range(2_000)})
    pieces = pieces_of(segment, 16_000)
    assert len(pieces) > 10
    assert all(len(piece.body) <= 16_000 for piece in pieces)
    assert all(before.hi <= after.lo for before, after in pairwise(pieces))
    assert min(len(piece.body) for piece in pieces[:-1]) > 14_000


def test_pieces_of_rows_that_expire_are_full() -> None:
    """A time of expiry is counted with its eight bytes, which are a third of a small row."""
    timed = StateSpec("last", StateKind.VALUE, 60.0)
    rows = {index: 1 for index in range(5_000)}
    table = DirtyTable(timed, rows, dict.fromkeys(rows, 67.0))
    pieces = pieces_of(encoded(CapturedRows(7.0, range(KEY_GROUPS), (table,))), 32_000)
    sizes = [len(piece.body) for piece in pieces[:-1]]
    assert len(sizes) == 4 and 29_000 < min(sizes) <= max(sizes) <= 32_000


def test_a_large_group_takes_several_pieces() -> None:
    """Rows of one group beyond a piece are parted, and a row beyond a piece has its own."""
    by_user = StateSpec("by user", StateKind.MAP)
    subs = {index: os.urandom(1_000) for index in range(50)} | {99: os.urandom(30_000)}
    segment = encoded(CapturedRows(7.0, range(KEY_GROUPS), (DirtyTable(by_user, {"key": subs}),)))
    pieces = pieces_of(segment, 10_000)
    assert len({(piece.lo, piece.hi) for piece in pieces}) == 1
    sizes = [len(piece.body) for piece in pieces]
    assert [size > 10_000 for size in sizes].count(True) == 1
    assert len(pieces) == 8 + 1
    assert concatenated([decode_piece(piece.body, "piece").rows for piece in pieces]) == segment.rows


def test_a_row_takes_few_bytes() -> None:
    """Rows of 13 + 100 bytes take at most 126 bytes each: 1.12 times what they hold."""
    rows = {f"user-{index:08d}": os.urandom(100) for index in range(20_000)}
    count = len(rows)
    assert sum(len(piece.body) for piece in pieces_of(segment_of(rows))) <= 126.1 * count


def test_a_segment_without_rows_has_no_piece() -> None:
    """Nothing is stored where nothing is left."""
    assert pieces_of(Segment((), 0.0, no_rows())) == []


def test_equal_rows_are_equal_bytes() -> None:
    """The bytes of a segment do not depend on the sequence of writes."""
    rows = {f"key {index}": index for index in range(1_000)}
    (piece,) = pieces_of(segment_of(rows.copy()))
    (other,) = pieces_of(segment_of(dict(reversed(rows.items()))))
    assert bytes(piece.body) == bytes(other.body)


def test_a_clip_has_the_rows_of_its_groups() -> None:
    """The first group belongs to a clip, and the end does not."""
    segment = segment_of({index: index for index in range(5_000)})
    groups = segment.rows.column("group").to_pylist()
    lo, hi = groups[1_000], groups[2_000]
    found = clipped(segment, lo, hi).rows.column("group").to_pylist()
    assert found == [group for group in groups if lo <= group < hi]
    assert found[0] == lo
    assert clipped(segment, 0, KEY_GROUPS).rows == segment.rows
    assert clipped(segment, 5, 5).rows.num_rows == 0


@given(st.data())
def test_damage_is_named(data: st.DataObject) -> None:
    """A changed body is refused by name, or is still a sorted table of rows; a torn body is always refused."""
    (piece,) = pieces_of(segment_of({"a": 1, "b": None, "c": b"\xc4\x01x", "d": 2.5}))
    body = bytearray(piece.body)
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(SnapshotCorrupt, match="piece 7: "):
        decode_piece(bytes(body[:end]), "piece 7")
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(SnapshotCorrupt):
        decode_piece(bytes(body), "piece 7").rows.validate(full=True)


ABC = columns([b"a", b"b"])


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"\0\0", "inside the header"),
        (bodies(ABC, states=[["total", 99, None, 1]]), "header of a piece of rows cannot be read"),
        (bodies(ABC, states=[[b"total", 3, None, 1]]), "is no str"),
        (bodies(ABC, now="late"), "is no float"),
        (bodies(ABC, rows=3), "2 rows, but its header says 3"),
        (bodies(ABC)[:-8], "without the end of its Arrow stream"),
        (bodies(ABC)[:-32] + bodies(ABC)[-8:], "Arrow stream of a piece of rows cannot be read"),
        (bodies(ABC.drop_columns("state")), r"missing \['state'\]"),
        (bodies(ABC.append_column("more", ABC["state"])), r"of wrong type \['more uint16'\]"),
        (bodies(columns([b"a"], value=pa.array([1]))), r"of wrong type \['value int64'\]"),
        (bodies(columns([b"a", None])), "a row without group, state or key"),
        (bodies(columns([b"a"], group=pa.array([KEY_GROUPS], pa.uint16()))), "a key group beyond 32,767"),
        (bodies(columns([b"a"], state=pa.array([1], pa.uint16()))), "a row of state 1, but its header has 1 states"),
        (bodies(columns([b""])), "an empty key"),
        (bodies(columns([b"a"], value=pa.array([b""]))), "an empty value"),
        (bodies(columns([b"b", b"a"])), "not sorted"),
        (bodies(columns([b"a", b"a"])), "each once"),
        (bodies(columns([b"a", b"a"], sub=pa.array([b"y", b"x"]))), "not sorted"),
        (bodies(columns([b"a", b"a"], sub=pa.array([b"x", b"x"]))), "each once"),
        (bodies(columns([b"a", b"b"], group=pa.array([2, 1], pa.uint16()))), "not sorted"),
    ],
)
def test_each_fault_has_a_name(body: bytes, fault: str) -> None:
    """What a piece must be is checked field by field, and a fault says what is wrong and in which piece."""
    with pytest.raises(SnapshotCorrupt, match=f"^piece 7: .*{fault}"):
        decode_piece(body, "piece 7")


def test_whole_seconds_may_be_stored_as_integers() -> None:
    """The time of a cut, and a time-to-live."""
    segment = decode_piece(bodies(ABC, states=[["total", 3, 60, 1]], now=7), "piece")
    assert (segment.now, type(segment.now), segment.states[0].ttl) == (7.0, float, 60)


def test_a_piece_may_lie_anywhere() -> None:
    """A piece inside a part begins at any address."""
    (piece,) = pieces_of(segment_of({"a": 1}))
    for shift in range(8):
        assert decode_piece(memoryview(b"." * shift + piece.body)[shift:], "piece").rows.num_rows == 1


def test_columns_without_values_take_no_memory() -> None:
    """A column that no row uses has the type null, also where a slice uses it no more."""
    rows = row_batch(segment_of({"a": None, "b": None}).rows.columns)
    assert [rows.column(name).type for name in ("sub", "value", "expires")] == [pa.null()] * 3
