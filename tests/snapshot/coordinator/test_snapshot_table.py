"""The book of snapshots: ids, room, orders, deadlines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline.snapshot.coordinator.pending_snapshot import Initiator
from cutline.snapshot.coordinator.snapshot_table import SnapshotTable
from cutline.snapshot.ids import Subtask
from tests.snapshot.led import BUSY, POLICY, order, record
from tests.snapshot.sample import TIMINGS, TOPOLOGY, P, Q

REQUEST = Initiator.REQUEST


def table(**changes: object) -> SnapshotTable:
    """A book with the block of claim 3."""
    found = SnapshotTable(replace(POLICY, **changes), len(TOPOLOGY.subtasks), 0.0)  # type: ignore[arg-type]
    found.take_block(3, (), 10.0)
    return found


def test_ids_ascend_within_a_block_and_over_blocks() -> None:
    """No id is given twice, whatever becomes of it (PROTOCOL 3.2, blocks of ids)."""
    found = table()
    ids = [found.open(10.0, (), REQUEST).snapshot_id for _ in range(2)]
    found.close_failed(ids[1], "why", 11.0)
    ids.append(found.open(11.0, (), REQUEST).snapshot_id)
    found.give_up_all("why", 12.0)
    found.take_block(4, (), 12.0)
    ids.append(found.open(12.0, (), REQUEST).snapshot_id)
    assert ids == [3_000_000, 3_000_001, 3_000_002, 4_000_000]


def test_rounds_without_a_clock_count_when_they_have_taken_as_long_as_a_snapshot() -> None:
    """One worker may be slow for some seconds; one that hangs is replaced in the end (PROTOCOL 13.19)."""
    found = table(timeout=10.0)
    failures = []
    for now in (20.0, 24.0, 31.0, 35.0, 46.0):
        snapshot = found.open(now, (), REQUEST)
        snapshot.start_until = now + 2.0
        found.close_failed(snapshot.snapshot_id, "no clock", now + 2.0)
        failures.append(found.failures_in_a_row)
    assert failures == [0, 0, 1, 1, 2]
    found.close_published(found.open(60.0, (), REQUEST).snapshot_id, 61.0)
    assert found.failures_in_a_row == 0


def test_a_snapshot_with_state_stays_in_its_block() -> None:
    """It skips ids up to its own. So a block is used up where that may lie behind its end."""
    found = SnapshotTable(POLICY, len(TOPOLOGY.subtasks), 0.0, 3_000)
    found.take_block(3, (), 10.0)
    for _ in range(333):
        assert not found.ids.is_used_up
        found.open(10.0, (), REQUEST)
        found.close_failed(found.collecting()[-1].snapshot_id, "why", 10.0)
        found.needs_state = True
    last = found.open(10.0, (), REQUEST).snapshot_id
    assert last % 3_000 == 0 and last < 4_000_000 and found.ids.is_used_up


def test_a_block_that_is_used_up_gives_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next id would be the next claim's: no snapshot is due, or may be asked for, until that claim is taken."""
    monkeypatch.setattr("cutline.snapshot.ids.SNAPSHOT_IDS_PER_CLAIM", 1)
    found = table(interval=2.0)
    found.open(12.0, (), REQUEST)
    found.close_published(3, 13.0)
    assert (found.ids.is_used_up, found.trigger_at(), found.may_ask(99.0)) == (True, None, False)
    found.take_block(4, (), 14.0)
    assert (found.ids.is_used_up, found.open(16.0, (), REQUEST).snapshot_id) == (False, 4)


def test_the_floor_is_the_lowest_that_runs() -> None:
    """With nothing pending it is the next id: all before it is settled (PROTOCOL 3.4, minimum id)."""
    found = table()
    assert found.min_snapshot_id == 3_000_000
    found.open(10.0, (), REQUEST)
    found.open(10.0, (), REQUEST)
    assert (found.min_snapshot_id, found.running_below(3_000_001)) == (3_000_000, (3_000_000,))
    found.close_failed(3_000_000, "why", 11.0)
    assert found.min_snapshot_id == 3_000_001
    found.close_published(3_000_001, 11.0)
    assert found.min_snapshot_id == 3_000_002


def test_when_one_is_due() -> None:
    """An interval after the last began, a pause after the last ended, and only where there is room."""
    found = table(interval=2.0, min_pause=5.0, max_concurrent=1)
    assert found.trigger_at() == 12.0
    found.open(12.0, (), REQUEST)
    assert (found.trigger_at(), found.may_ask(100.0)) == (None, False)
    found.close_published(3_000_000, 13.0)
    assert (found.trigger_at(), found.may_ask(17.9), found.may_ask(18.0)) == (18.0, False, True)
    assert table().trigger_at() is None


@pytest.mark.parametrize(("multiple", "second"), [(1, True), (4, False)])
def test_nothing_starts_beside_a_base(multiple: int, second: bool) -> None:
    """Because a snapshot without state would be whole first each time (PROTOCOL 12.12, a base is not overtaken)."""
    found = SnapshotTable(replace(POLICY, interval=2.0, max_concurrent=2), len(TOPOLOGY.subtasks), 0.0, multiple)
    found.take_block(3, (), 10.0)
    base = found.open(12.0, (), REQUEST)
    assert found.has_room is second and (found.trigger_at() is not None) is second
    base.is_publishing = True
    assert found.has_room and found.trigger_at() is not None
    found.close_published(base.snapshot_id, 13.0)
    step = found.open(14.0, (), Initiator.INTERVAL)
    assert step.snapshot_id % 4 == 1 and found.has_room


def test_orders_without_initiators_share_a_snapshot() -> None:
    """One that names its initiators has a snapshot of its own."""
    found = table()
    found.requests.waiting += [order(1), order(2, initiators=(P,)), order(3, pinned=True)]
    first = found.open(10.0, found.requests.waiting[:1], REQUEST)
    assert ([o.request_id for o in first.requests], first.pinned) == ([1, 3], True)
    assert [o.request_id for o in found.open(10.0, found.requests.waiting[:1], REQUEST).requests] == [2]


def test_orders_go_back_to_the_queue_when_the_run_rolls_back() -> None:
    """Those that were pending first; and failures in a row are forgotten, for the rollback answers them."""
    found = table()
    found.requests.waiting.append(order(1))
    found.close_failed(found.open(10.0, (), REQUEST).snapshot_id, "why", 10.0)
    found.requests.waiting.append(order(2))
    found.open(10.0, (), REQUEST)
    found.requests.waiting.append(order(3))
    found.give_up_all("why", 12.0)
    assert ([o.request_id for o in found.requests.waiting], found.failures_in_a_row, found.pending) == ([2, 3], 0, {})


def test_whole_is_when_everybody_has_acknowledged() -> None:
    """Once; what is being published takes no more records and has no deadline."""
    found = table()
    snapshot_id = found.open(10.0, (), REQUEST).snapshot_id
    records = [record(TOPOLOGY, subtask, 3, snapshot_id, BUSY) for subtask in (P, Q)]
    assert found.acknowledge(snapshot_id, records[0], TIMINGS, 11.0) is None
    assert found.pending[snapshot_id].missing(TOPOLOGY.subtasks) == [Q]
    whole = found.acknowledge(snapshot_id, records[1], TIMINGS, 12.0)
    assert whole is not None
    assert found.next_deadline() == 20.0
    whole.is_publishing = True
    assert found.acknowledge(snapshot_id, records[1], TIMINGS, 12.0) is None
    assert (found.next_deadline(), found.overdue(99.0)) == (None, [])


# ---------------------------------------------------------------- aggregates with a store (PROTOCOL 13.5)


def with_aggregates(*aggregates: Subtask) -> SnapshotTable:
    """A table of a run with aggregates."""
    found = SnapshotTable(POLICY, len(TOPOLOGY.subtasks), 0.0, aggregates=aggregates)
    found.take_block(3, (), 10.0)
    return found


def test_with_an_aggregate_one_snapshot_is_pending_at_a_time() -> None:
    """Whatever the policy allows, because a difference waits until the last snapshot is decided."""
    found = with_aggregates(Q)
    found.open(10.0, (), REQUEST)
    assert not found.has_room and table().has_room
    found.close_failed(3_000_000, "why", 11.0)
    assert found.has_room


def test_a_snapshot_has_no_timeout_while_only_aggregates_are_missing() -> None:
    """Their store may be away for any time. A part that is missing beside them ends the snapshot as ever."""
    found = with_aggregates(Q)
    found.open(10.0, (), REQUEST)
    late = 10.0 + POLICY.timeout
    assert found.next_deadline() == late and [each.snapshot_id for each in found.overdue(late)] == [3_000_000]
    found.acknowledge(3_000_000, record(TOPOLOGY, P, 3, 3_000_000, BUSY), TIMINGS, 11.0)
    assert found.next_deadline() is None and found.overdue(1e9) == []


def test_an_acknowledgement_of_the_aggregate_alone_stops_no_timeout() -> None:
    """It is the other part that is missing."""
    found = with_aggregates(Q)
    found.open(10.0, (), REQUEST)
    found.acknowledge(3_000_000, record(TOPOLOGY, Q, 3, 3_000_000, BUSY), TIMINGS, 11.0)
    late = 10.0 + POLICY.timeout
    assert found.next_deadline() == late and len(found.overdue(late)) == 1


def test_a_snapshot_that_subtasks_have_started_beside_keeps_the_timeout() -> None:
    """Else a store that is away would hold up a snapshot that may be whole."""
    found = with_aggregates(Q)
    found.open(10.0, (), REQUEST)
    found.open_given(3_000_001, 10.0)
    found.acknowledge(3_000_000, record(TOPOLOGY, P, 3, 3_000_000, BUSY), TIMINGS, 11.0)
    assert [each.snapshot_id for each in found.overdue(10.0 + POLICY.timeout)] == [3_000_000, 3_000_001]
