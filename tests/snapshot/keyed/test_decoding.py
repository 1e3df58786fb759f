"""Reading the rows of one state back by the column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import ROW_SCHEMA, Segment, row_batch
from cutline.snapshot.plan.topology import KEY_GROUPS
from tests.snapshot.keyed.histories import encoded

TOTAL, LAST = StateSpec("total", StateKind.REDUCING), StateSpec("last", StateKind.VALUE, ttl=5.0)
ITEMS = StateSpec("items", StateKind.LIST)


def segment() -> Segment:
    total: dict[Any, Any] = {index: index * 10 for index in range(10)}
    last = DirtyTable(LAST, {"a": b"\xc4\x01x", "b": None}, {"a": 12.0})
    items = DirtyTable(ITEMS, {"k": {None: 2, 0: "first", 1: "second"}})
    return encoded(CapturedRows(9.0, range(KEY_GROUPS), (DirtyTable(TOTAL, total), last, items)))


def test_a_state_is_read_in_chunks() -> None:
    """Each chunk has so many rows of that state, and only the last one fewer."""
    chunks = list(rows_of(segment(), "total", chunk_rows=4))
    assert [len(found) for found, _, _, _ in chunks] == [4, 4, 2]
    assert {key: value for found, _, values, _ in chunks for key, value in zip(found, values, strict=True)} == {
        index: index * 10 for index in range(10)
    }
    assert all(subs is None and expires is None for _, subs, _, expires in chunks)


def test_sub_keys_and_expiries_are_read() -> None:
    """A list has its indexes and its length, a row its expiry, and a tombstone neither value nor expiry."""
    ((found, subs, values, expires),) = rows_of(segment(), "items")
    assert (found, set(zip(subs or [], values, strict=True)), expires) == (
        ["k"] * 3,
        {(None, 2), (0, "first"), (1, "second")},
        None,
    )
    ((found, subs, values, expires),) = rows_of(segment(), "last")
    assert subs is None
    assert dict(zip(found, zip(values, expires or [], strict=True), strict=True)) == {
        "a": (b"\xc4\x01x", 12.0),
        "b": (None, None),
    }


def test_an_unknown_state_has_no_rows() -> None:
    """A state that the program has added since is empty."""
    assert list(rows_of(segment(), "new")) == []


@pytest.mark.parametrize(("key", "value"), [(b"\xc1", b"\x01"), (b"\xa1a", b"\xa5a")])
def test_a_row_that_cannot_be_decoded_is_named(key: bytes, value: bytes) -> None:
    """A key or an atom that is no MessagePack names its state."""
    columns = [[0], [0], [key], [None], [value], [None]]
    rows = row_batch([pa.array(each, field.type) for each, field in zip(columns, ROW_SCHEMA, strict=True)])
    with pytest.raises(SnapshotCorrupt, match="state 'total': a row cannot be decoded"):
        list(rows_of(Segment((TOTAL,), 0.0, rows), "total"))
