"""Histories are bounded and counted: the newest entries are kept, and the count is that of all entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.coordinator import bounded_history, control, events
from cutline.snapshot.coordinator.bounded_history import HISTORY_MAX, BoundedHistory
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.ids import Subtask
from tests.snapshot.led import SETTINGS, Led, of_kind, order

#: Text of each reason; a history without a bound is seen by its size.
_REASON = "the disk is full, for the attempt number "


def history(entries: Sequence[int]) -> BoundedHistory[int]:
    """Add entries one by one."""
    found: BoundedHistory[int] = BoundedHistory()
    for entry in entries:
        found = found.add(entry)
    return found


@given(st.integers(0, 3 * HISTORY_MAX), st.integers(0, 3 * HISTORY_MAX), st.integers(-1, 7 * HISTORY_MAX))
def test_a_history_keeps_the_newest_and_counts_all(before: int, after: int, seen: int) -> None:
    """However entries come, one by one or as a second history, and however many of them a reader has seen."""
    entries = list(range(before + after))
    found = history(entries[:before]).then(history(entries[before:]))
    kept = min(len(entries), HISTORY_MAX, before + min(after, HISTORY_MAX))
    assert found == BoundedHistory(len(entries), tuple(entries[len(entries) - kept :]))
    assert found.since(seen) == tuple(entry for entry in found.newest if entry >= seen)


def test_a_coordinator_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts and aborted snapshots without end: the newest are there, all are counted, the memory stays."""
    monkeypatch.setattr(bounded_history, "HISTORY_MAX", 10)
    policy = replace(SETTINGS.policy, tolerable_failures=1_000)
    led = Led(replace(SETTINGS, policy=policy, restart_policy=RestartPolicy(maxRestarts=None, maxDelay=0.0)))
    led.run()
    sizes = [_fail(led, first, 50) for first in (0, 50, 100)]
    restarts, aborted = led.coordinator.restarts, led.coordinator.aborted
    assert (restarts.count, aborted.count) == (150, 300), "a request that a rollback delays is aborted once more"
    assert [restart.reason for restart in restarts.newest] == [f"{_REASON}{n}" for n in range(140, 150)]
    assert [reason for _, reason in aborted.newest[1::2]] == [f"rolled back: {_REASON}{n}" for n in range(145, 150)]
    # A claim's number is kept for each rollback, as in the store; a history would keep 50 reasons and ids.
    assert abs(sizes[2] - sizes[1]) < 50 * 10, sizes


def _fail(led: Led, first: int, count: int) -> int:
    """Abort snapshots and roll back `count` times. Return the size of the coordinator."""
    for number in range(first, first + count):
        reason = f"{_REASON}{number}"
        led.step(events.SnapshotRequested(order(2 * number)))
        (snapshot_id,) = led.coordinator.pending
        incarnation = led.coordinator.incarnation
        led.feed(0, control.SnapshotDeclined(incarnation, snapshot_id, Subtask("P", 0), reason))
        led.step(events.SnapshotRequested(order(2 * number + 1)))
        led.fail(reason=reason)
        led.restored()
        led.connected()
        (snapshot_id,) = led.coordinator.pending
        for removal in of_kind(led.acknowledge(snapshot_id), events.DeleteSnapshots):
            led.step(events.SnapshotsDeleted(removal.snapshot_ids))
        led.effects.clear()
    return len(cloudpickle.dumps(led.coordinator))
