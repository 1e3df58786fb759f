"""Expired rows leave the store of a cold tier, with their index rows, a few at a time and without tombstones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.keyed.cold_expiry import SWEPT_MAX
from cutline.snapshot.keyed.cold_restore import ingested_rows
from cutline.snapshot.keyed.cold_values import EXPIRY_STEPS, index_times
from cutline.snapshot.keyed.row_keys import (
    EXPIRIES_START,
    expiry_heads_of,
    expiry_row,
    timer_heads_of,
    timer_row,
)
from cutline.snapshot.keyed.segment import Segment
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask

_TTL = 16.0  # steps of a second


class _Timed:
    """A subtask with one state whose rows expire, over a cold tier."""

    def __init__(self, segments: tuple[Segment, ...] = (), now: float = 100.0) -> None:
        self.tier = LateTier()
        self.subtask = KeyedSubtask(lambda: self.tier, segments, now)
        self.state = self.subtask.value("v", _TTL)
        self.subtask.states.opened()

    def update(self, keys: list[Any], now: float) -> None:
        self.subtask.context.now = now
        self.state.updateAll(keys, keys)

    def sweep(self, now: float, *, turns: int = 20) -> None:
        """Apply all memtables, then remove what has expired at `now`."""
        self.subtask.context.now = now
        for _ in range(turns):
            self.tier.writer.finish()
            self.tier.turn()

    def rows(self) -> int:
        return sum(row < EXPIRIES_START for row in self.tier.rows.rows)

    def index_rows(self) -> int:
        return len(self.tier.rows.rows) - self.rows()


def test_expired_rows_leave_the_store() -> None:
    """Nothing of an expired row stays, and a row that has not expired stays. The snapshot gets no tombstone of it."""
    timed = _Timed()
    timed.update(["a", "b"], 100.0)
    timed.update(["c"], 110.0)
    timed.subtask.capture_segment()
    timed.sweep(116.0)
    assert (timed.rows(), timed.index_rows()) == (1, 1)
    assert timed.state.getAll(["a", "b", "c"]) == [None, None, "c"]
    assert timed.subtask.capture() is None
    timed.sweep(126.0)
    assert not timed.tier.rows.rows


def test_a_rewritten_row_stays_until_its_last_end() -> None:
    """The index row of an earlier write removes nothing, and goes itself."""
    timed = _Timed()
    for now in (100.0, 100.5, 108.0):
        timed.update(["a"], now)
        timed.tier.seal()
    timed.sweep(120.0)
    assert (timed.rows(), timed.index_rows()) == (1, 1)
    assert timed.state.getAll(["a"]) == ["a"]
    timed.sweep(124.0)
    assert not timed.tier.rows.rows


def test_a_row_written_between_search_and_removal_stays() -> None:
    """A memtable that is applied behind a removal counts, because both are jobs of one writer."""
    timed = _Timed()
    timed.update(["a"], 100.0)
    timed.tier.seal()
    timed.tier.writer.finish()
    timed.subtask.context.now = 120.0
    timed.tier.turn()
    timed.tier.writer.step()  # in the middle of the removal
    timed.update(["a"], 120.0)
    timed.tier.seal()
    timed.sweep(121.0)
    assert timed.state.getAll(["a"]) == ["a"]
    assert timed.rows() == 1


def test_a_late_memtable_is_swept() -> None:
    """Rows that are applied after others, which expire later, were removed are removed too."""
    timed = _Timed()
    timed.update(["a"], 104.0)
    timed.tier.seal()
    timed.sweep(121.0)
    assert not timed.tier.rows.rows
    timed.subtask.context.now = 102.0  # as if these rows had been sealed late
    timed.state.updateAll(["b"], ["b"])
    timed.tier.seal()
    timed.sweep(121.0)
    assert not timed.tier.rows.rows


def test_a_turn_removes_a_few_rows() -> None:
    """One job reads and removes a bounded number of rows, and the search begins behind those that are removed."""
    timed, scans = _Timed(), []
    timed.update(list(range(3 * SWEPT_MAX)), 100.0)
    timed.tier.seal()
    timed.tier.writer.finish()
    scan = timed.tier.rows.scan
    timed.tier.rows.scan = lambda start, end: scans.append(start) or scan(start, end)  # type: ignore[method-assign,func-returns-value]
    timed.subtask.context.now = 120.0
    for left in (2 * SWEPT_MAX, SWEPT_MAX, 0):
        timed.tier.turn()
        timed.tier.turn()
        timed.tier.writer.finish()
        assert (timed.rows(), timed.index_rows()) == (left, left)
    assert scans == sorted(set(scans))
    assert len(scans) == 3


def test_restored_rows_are_swept() -> None:
    """Rows that expire after the restore are removed when their time comes; others are not stored at all."""
    timed = _Timed()
    timed.update(["a"], 100.0)
    timed.update(["b", "c"], 110.0)
    segment = timed.subtask.capture_segment()
    assert segment is not None
    restored = _Timed((segment,), 117.0)
    assert (restored.rows(), restored.index_rows()) == (2, 2)
    assert restored.state.getAll(["a", "b", "c"]) == [None, "b", "c"]
    restored.sweep(126.0)
    assert not restored.tier.rows.rows


def test_an_expired_row_hides_older_ones_in_a_restore() -> None:
    """A row that has expired removes the row of an older segment, which may have had a longer time-to-live."""
    older, newer = _Timed(), _Timed()
    older.update(["a"], 110.0)
    newer.update(["a"], 100.0)
    segments = older.subtask.capture_segment(), newer.subtask.capture_segment()
    assert segments[0] is not None and segments[1] is not None
    rows = ingested_rows(segments[1], [0], 117.0)
    assert [value for part in rows.parts for _, value in part] == [None]
    assert rows.first_index_row is None
    restored = _Timed((segments[0], segments[1]), 117.0)
    assert restored.state.getAll(["a"]) == [None]


times = st.floats(-1e10, 1e10)


@given(st.lists(st.tuples(times, st.one_of(st.none(), st.floats(1e-3, 1e7))), min_size=1))
def test_columns_of_times_are_the_times(rows: list[tuple[float, float | None]]) -> None:
    """What is computed by the column is what is computed row by row. No row is listed before it expires."""

    def index_time(expires: float, ttl: float | None) -> float:
        step = ttl / EXPIRY_STEPS if ttl else 60.0
        return max(expires, -(-expires // step) * step)

    expires = np.array([end for end, _ in rows])
    listed = index_times(expires, np.array([ttl or 0.0 for _, ttl in rows]))
    assert listed.tolist() == [index_time(end, ttl) for end, ttl in rows]
    assert (listed >= expires).all()
    assert [head.tobytes() for head in expiry_heads_of(listed)] == [expiry_row(at, b"") for at in listed.tolist()]
    assert [head.tobytes() for head in timer_heads_of(expires)] == [timer_row(at, b"") for at in expires.tolist()]
