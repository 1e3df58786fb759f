"""The reports of snapshots: where the time went, what was stored, and what became of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutline.snapshot.coordinator import control, events
from cutline.snapshot.coordinator.pending_snapshot import Initiator, PendingSnapshot
from cutline.snapshot.coordinator.snapshot_stats import REPORTS_MAX, SnapshotStats
from cutline.snapshot.ids import first_snapshot_id
from cutline.snapshot.stored.contribution import SnapshotTimings
from tests.snapshot import sample
from tests.snapshot.led import POLICY, SETTINGS, Led, order
from tests.snapshot.sample import P, Q

FIRST = first_snapshot_id(1)
PHASES = ("triggerMs", "alignMs", "captureMs", "uploadMs", "publishMs")


def reports(led: Led) -> list[dict[str, Any]]:
    """What is told now."""
    return led.coordinator.table.reports(led.now)


def test_the_split_is_that_of_the_slowest_and_adds_up() -> None:
    """Whoever acknowledges last was slowest; what it did not spend itself until then is the trigger's way to it."""
    led = Led().run()
    led.now, led.holds_store = 200.0, True
    led.step(events.SnapshotRequested(order(1, pinned=True)))
    led.now, led.timings = 201.0, SnapshotTimings(align=0.9, capture=0.05, upload=0.05)
    led.acknowledge_one(P, FIRST)
    led.now, led.timings = 202.0, SnapshotTimings(align=0.5, capture=0.25, upload=0.75)
    led.acknowledge_one(Q, FIRST)
    (pending,) = reports(led)
    assert [pending[phase] for phase in PHASES] == [500.0, 500.0, 250.0, 750.0, None]
    led.now, led.holds_store = 202.125, False
    led.perform_held()
    (report,) = reports(led)
    assert (report["state"], report["slowest"], report["reason"]) == ("published", "Q[0]", "")
    assert [report[phase] for phase in PHASES] == [500.0, 500.0, 250.0, 750.0, 125.0]
    assert report["durationMs"] == sum(report[phase] for phase in PHASES) == 2125.0
    assert (report["id"], report["timestamp"], report["pinned"]) == (FIRST, 1200.0, True)
    assert (report["initiator"], report["acknowledged"], report["subtasks"]) == ("request", 2, 2)
    led.now += 99.0
    assert reports(led) == [report], "it ages no more"


def test_what_is_not_known_is_none() -> None:
    """Before the last acknowledgement nobody is the slowest; the time that passed is told all the same."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge_one(P, FIRST)
    led.now += 3.0
    (report,) = reports(led)
    assert (report["state"], report["durationMs"], report["acknowledged"]) == ("pending", 3000.0, 1)
    assert [report[name] for name in ("slowest", *PHASES)] == [None] * 6
    led.pass_time(7.0)
    (report,) = reports(led)
    assert (report["state"], report["durationMs"]) == ("aborted", 10_000.0)
    assert report["reason"] == "not whole after 10 s; 1 of 2 are missing: Q[0]"


def test_bytes_and_messages_of_parts_are_added_up() -> None:
    """All parts, and of them what was on channels: 2 received and 1 sent, of 3, 3 and 1 messages."""
    snapshot = PendingSnapshot(sample.SNAPSHOT_ID, 0.0, [], Initiator.NODE)
    snapshot.records = {record.subtask: record for record in sample.records()}
    (report,) = SnapshotStats(2, 0.0).reports([snapshot], 1.0)
    parts = [part.handle for part in sample.parts()]
    assert report["bytes"] == sum(part.size for part in parts)
    assert report["channelBytes"] == sum(part.size for part in parts if part.channel is not None)
    assert report["channelMessages"] == 3 + 3 + 1
    assert report["initiator"] == "node"


def test_why_each_was_started() -> None:
    """By time, by the driver, by a node, and because all is idle."""
    led = Led(replace(SETTINGS, policy=replace(POLICY, interval=2.0, max_concurrent=9))).run()
    led.pass_time(2.0)
    led.step(events.SnapshotRequested(order(1)))
    led.feed(0, control.SnapshotAskedFor(led.coordinator.incarnation, P))
    led.acknowledge(FIRST + 2)
    led.idle()
    assert [report["initiator"] for report in reports(led)] == ["interval", "request", "node", "idle"]
    assert [report["state"] for report in reports(led)] == ["aborted", "aborted", "published", "pending"]


@pytest.mark.parametrize("is_written", [True, False])
def test_what_a_rollback_leaves_undecided_the_next_claim_tells(is_written: bool) -> None:
    """PROTOCOL 7.6: while nobody knows whether the manifest was written, it is pending; what records is aborted."""
    led = Led().run()
    for request in (1, 2):
        led.step(events.SnapshotRequested(order(request)))
    led.holds_store = True
    led.acknowledge(FIRST)
    assert len(led.held) == 1
    manifest = led.held.pop()
    led.fail()
    assert [report["state"] for report in reports(led)] == ["pending", "aborted"]
    if is_written:
        led.held.insert(0, manifest)
    led.holds_store = False
    led.perform_held()
    first, second = reports(led)
    assert (first["state"], first["reason"]) == (
        ("published", "") if is_written else ("aborted", "rolled back: it raised")
    )
    assert (first["id"] in led.coordinator.history) is is_written
    assert (second["state"], second["reason"]) == ("aborted", "rolled back: it raised")


def test_only_the_newest_are_kept() -> None:
    """However many there were; a run of months asks for no more memory than one of a minute."""
    log = SnapshotStats(2, 0.0)
    for number in range(REPORTS_MAX + 5):
        log.aborted(PendingSnapshot(number, 0.0, [], Initiator.INTERVAL), "too late", 1.0)
    ids = [report["id"] for report in log.reports([PendingSnapshot(999, 0.0, [], Initiator.REQUEST)], 2.0)]
    assert ids == [*range(6, REPORTS_MAX + 5), 999]


def test_the_end_of_a_run_leaves_nothing_pending() -> None:
    """What was being taken, or written, when the run ended counts as aborted, and its time stands still."""
    led = Led().run()
    for request in (1, 2):
        led.step(events.SnapshotRequested(order(request)))
    led.holds_store = True
    led.acknowledge(FIRST)
    led.step(events.StopRequested(None))
    led.now += 5.0
    assert [(report["state"], report["durationMs"]) for report in reports(led)] == [("aborted", 0.0)] * 2
