"""Encoding a generation: in chunks, without losing rows, and with the row named."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from cutline.snapshot.channel.partitioning import key_group
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.keyed.encoding import CHUNK_ROWS, encoding
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.plan.topology import KEY_GROUPS
from tests.snapshot.keyed.histories import CODEC, SPECS, Rows, encoded, rows_in

ALL = range(KEY_GROUPS)
TOTAL, BY_USER = StateSpec("total", StateKind.REDUCING), StateSpec("by user", StateKind.MAP)


def test_rows_are_read_in_chunks_and_freed_in_chunks() -> None:
    """The thread of the subtask runs every few hundred rows, while rows are read and while they are freed."""
    rows: dict[Any, Any] = {index: index for index in range(10 * CHUNK_ROWS)}
    left = []
    for _ in encoding(CapturedRows(0.0, ALL, (DirtyTable(TOTAL, rows),)), CODEC):
        left.append(len(rows))
    assert left[:10] == [len(range(10 * CHUNK_ROWS))] * 10
    assert left[-1] == 0
    assert all(before - after <= 2_000 for before, after in pairwise(left))


def test_a_large_map_is_freed_in_chunks() -> None:
    """A key with very many sub-keys is read and freed in chunks too."""
    inner: dict[Any, Any] = dict.fromkeys(range(9_000), 1)
    rows: dict[Any, Any] = {"key": inner, **{index: {0: 1} for index in range(3_000)}}
    left = []
    for _ in encoding(CapturedRows(0.0, ALL, (DirtyTable(BY_USER, rows),)), CODEC):
        left.append(len(inner) + len(rows))
    assert rows == {}
    assert inner == {}
    assert all(before - after <= 4_000 for before, after in pairwise(left))


def test_large_rows_make_short_chunks() -> None:
    """Chunks of large rows hold few of them, because Python copies them with the GIL held."""
    rows: dict[Any, Any] = {index: b"\xc6" + bytes(200_000) for index in range(2 * CHUNK_ROWS)}
    pauses = sum(1 for _ in encoding(CapturedRows(0.0, ALL, (DirtyTable(TOTAL, rows),)), CODEC))
    assert pauses >= CHUNK_ROWS // 3


def test_a_key_outside_the_range_is_named() -> None:
    """The error names state, key, its group, the range and both causes; no row is lost."""
    rows: dict[Any, Any] = {"alice": 1, "bob": 2}
    group = key_group("bob")
    captured = CapturedRows(0.0, range(group + 1, KEY_GROUPS), (DirtyTable(TOTAL, rows, None),))
    if key_group("alice") <= group:
        captured = CapturedRows(0.0, range(group), (DirtyTable(TOTAL, rows, None),))
    with pytest.raises(SnapshotAborted) as caught:
        encoded(captured)
    for text in ("'total'", "'bob'", f"{group:,}", f"[{captured.groups.start:,}, {captured.groups.stop:,})"):
        assert text in str(caught.value)
    assert "no function of the message" in str(caught.value)
    assert "not the keys of the edge" in str(caught.value)
    assert rows == {"alice": 1, "bob": 2}


def test_a_row_expired_at_its_capture_is_a_tombstone() -> None:
    """What has expired hides an older row, and what expires later keeps value and expiry."""
    spec = StateSpec("last", StateKind.VALUE, ttl=3.0)
    table = DirtyTable(spec, {"a": 1, "b": 2, "c": 3, "d": None}, {"a": 9.0, "b": 10.0, "c": 10.5})
    rows = encoded(CapturedRows(10.0, ALL, (table,))).rows
    found = {row["key"]: (row["value"], row["expires"]) for row in rows.to_pylist()}
    assert found == {b"\xa1a": (None, None), b"\xa1b": (None, None), b"\xa1c": (b"\x03", 10.5), b"\xa1d": (None, None)}


def test_many_chunks_of_all_kinds_come_back() -> None:
    """Rows of several chunks, some joined before the others, are one sorted segment."""
    count = 70 * CHUNK_ROWS
    flat: dict[Any, Any] = {f"key {index}": index / 2 for index in range(count)}
    nested: dict[Any, Any] = {index: {sub: f"{sub}" for sub in range(3)} for index in range(CHUNK_ROWS)}
    wanted: Rows = {("total", key, None): (float, repr(value), None) for key, value in flat.items()}
    wanted |= {("by user", key, s): (str, repr(v), None) for key, inner in nested.items() for s, v in inner.items()}
    segment = encoded(CapturedRows(0.0, ALL, (DirtyTable(BY_USER, nested), DirtyTable(TOTAL, flat))))
    assert rows_in([segment]) == wanted
    assert [spec.name for spec in segment.states] == ["by user", "total"]
    segment.rows.validate(full=True)


def test_a_capture_of_empty_tables_is_an_empty_segment() -> None:
    """Dicts without rows make no row."""
    segment = encoded(CapturedRows(3.0, ALL, tuple(DirtyTable(spec, {}) for spec in SPECS)))
    assert (segment.rows.num_rows, segment.now) == (0, 3.0)
    assert segment.rows.schema.field("value").type == pa.null()
