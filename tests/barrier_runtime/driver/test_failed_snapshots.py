"""What the console says of failed snapshots: each cause once, then counts; nothing of a rollback."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cutline.barrier_runtime.driver.failed_snapshots import CAUSES_MAX, QUIET_SECONDS, FailedSnapshots, is_failure
from cutline.snapshot.coordinator import control, events
from cutline.snapshot.error_text import describe
from cutline.snapshot.ids import Subtask
from tests.snapshot.led import Led, order

_FULL = "failing[0]: snapshotState raised OSError: the disk is full"


def status(*aborted: tuple[int, str]) -> dict[str, Any]:
    """Return a status with these aborted snapshots as the newest. Ids count the aborted snapshots from 1."""
    entries = [{"id": snapshot_id, "reason": reason} for snapshot_id, reason in aborted]
    return {"aborted": entries, "abortedCount": aborted[-1][0]}


def lines(failed: FailedSnapshots, *aborted: tuple[int, str]) -> list[str]:
    """Return what is printed of a status."""
    return list(failed.lines(status(*aborted)))


def test_a_cause_is_said_once_and_then_counted() -> None:
    """The first failure is said at once, then the 10th, the 100th; other subtasks and numbers are no other cause."""
    failed = FailedSnapshots()
    aborted = [(n, f"failing[{n % 3}]: snapshotState raised OSError: {n} left") for n in range(1, 251)]
    said = [line for n in range(len(aborted)) for line in lines(failed, *aborted[: n + 1])]
    assert said == [
        "snapshot 1 failed: failing[1]: snapshotState raised OSError: 1 left",
        "10 snapshots failed for this reason, the last is 10: failing[1]: snapshotState raised OSError: 10 left",
        "100 snapshots failed for this reason, the last is 100: failing[1]: snapshotState raised OSError: 100 left",
    ]


def test_a_line_has_no_traceback() -> None:
    """A traceback is for the status: in one line of the console it hides the rest."""
    error = OSError("the disk\nis full")
    reason = f"snapshotState of failing[0]: {describe(error)}"
    assert "Traceback" in reason
    [line] = lines(FailedSnapshots(), (1, reason))
    assert line == "snapshot 1 failed: snapshotState of failing[0]: OSError: the disk is full"


def test_every_cause_is_said() -> None:
    """A second cause is not hidden behind the first; and a status that is polled twice counts once."""
    failed = FailedSnapshots()
    both = ((1, _FULL), (2, "not whole after 10 s; 1 of 2 are missing: P[0]"))
    assert [line.split()[1] for line in lines(failed, *both)] == ["1", "2"]
    assert lines(failed, *both) == []
    assert lines(failed, *both[1:], (3, _FULL)) == [], "the history of a status is bounded: its oldest leave"


def test_an_old_cause_is_said_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten minutes without it, a failure is news."""
    failed = FailedSnapshots()
    began = time.monotonic()
    assert len(lines(failed, (1, _FULL))) == 1
    monkeypatch.setattr(time, "monotonic", lambda: began + QUIET_SECONDS / 2)
    assert lines(failed, (2, _FULL)) == []
    monkeypatch.setattr(time, "monotonic", lambda: began + 2 * QUIET_SECONDS)
    assert lines(failed, (3, _FULL)) == [f"snapshot 3 failed: {_FULL}"]


def test_causes_are_bounded() -> None:
    """User code may make each text another one: the least recent are forgotten, and the memory stays."""
    failed = FailedSnapshots()
    letters = "abcdefghijklmnopqrstuvwxyz"
    aborted = [(n, f"{letters[n % 26]}{letters[n // 26]}") for n in range(1, 4 * CAUSES_MAX + 1)]
    assert len(lines(failed, *aborted)) == len(aborted)
    assert len(failed._causes) == CAUSES_MAX


def test_a_reason_cannot_steer_the_terminal() -> None:
    """A long text of user code with line breaks and control characters becomes one short line."""
    (line,) = lines(FailedSnapshots(), (1, "raised:\n\n  \x1b[31mred " + "x" * 10_000))
    assert line.startswith("snapshot 1 failed: raised: \ufffd[31mred xxx") and len(line) < 600 and line.isprintable()


def test_what_is_no_failure() -> None:
    """Of the coordinator's own aborts, only a failure and a deadline are failures of the snapshot."""

    def reasons(led: Led) -> list[str]:
        return [reason for _, reason in led.coordinator.aborted.newest]

    declined, rolled_back, ended, overtaken, late = (Led().run() for _ in range(5))
    for led in (declined, rolled_back, ended, overtaken, late):
        led.step(events.SnapshotRequested(order(1)))
    incarnation, first = declined.coordinator.incarnation, declined.coordinator.pending[0]
    declined.feed(0, control.SnapshotDeclined(incarnation, first, Subtask("P", 0), _FULL))
    rolled_back.fail()
    ended.step(events.StopRequested(None))
    overtaken.step(events.SnapshotRequested(order(2)))
    overtaken.acknowledge(first + 1)
    late.pass_time(late.settings.policy.timeout)
    found = {name: [is_failure(reason) for reason in reasons(led)] for name, led in (
        ("declined", declined), ("rolled back", rolled_back), ("ended", ended),
        ("overtaken", overtaken), ("late", late),
    )}  # fmt: skip
    assert found == {
        "declined": [True],
        "rolled back": [False],
        "ended": [False],
        "overtaken": [False],
        "late": [True],
    }


def test_a_store_that_is_away_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds, because short silences are frequent; and once more when it answers again."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    failed = FailedSnapshots()

    def said(at: float, error: str | None) -> list[str]:
        now[0] = at
        return list(failed.lines({**status((1, "rolled back: lost")), "storeError": error}))

    assert said(0.0, "disk\nfull") == said(1.0, None) == said(2.0, "disk full") == said(6.9, "disk full") == []
    assert said(7.0, "disk\nfull") == ["snapshots wait for the store, and the run goes on: disk full"]
    assert said(99.0, "disk full") == []
    assert said(100.0, None) == ["the store answers again"] and said(101.0, None) == []
