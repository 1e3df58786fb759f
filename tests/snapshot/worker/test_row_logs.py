"""Acknowledgements wait for what their snapshots need: here for the version of a local database."""

from __future__ import annotations

from dataclasses import replace

from cutline.snapshot.coordinator.control import SnapshotAcknowledged, SnapshotDeclined
from cutline.snapshot.keyed.versions import PendingVersion
from cutline.snapshot.stored.certificate import LocalVersion
from cutline.snapshot.stored.contribution import SnapshotTimings
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.subtask.reports import StepCaptured, VersionBegun
from cutline.snapshot.worker.generations import AwaitVersion, StoreRows
from cutline.snapshot.worker.row_logs import RowLogs
from cutline.snapshot.worker.row_tasks import RowsStored, RowWork, VersionFailed, VersionMade, failure_of
from tests.snapshot import sample

SUBTASK = sample.records()[0].subtask
VERSION = LocalVersion("disk", "run", SUBTASK, 20, 0)


def _logs() -> tuple[RowLogs, AwaitVersion, list[object]]:
    """A base whose step and state are stored, and whose version is not made. Returns what was sent so far."""
    logs = RowLogs(sample.INCARNATION, "run", (), 0)
    (task,) = logs.version_begun(VersionBegun(20, SUBTASK, range(0, 9), PendingVersion(20))).tasks
    step = StepCaptured(20, SUBTASK, OwnChange(True, (b"step",)), True, True, (), ())
    (store,) = logs.captured_step(step).tasks
    assert isinstance(task, AwaitVersion) and isinstance(store, StoreRows)
    logs.worked(RowsStored(store, ()))
    record = replace(sample.records()[0], rows=None, own=None, groups=None)
    message = SnapshotAcknowledged(sample.INCARNATION, 20, record, SnapshotTimings(0.0, 0.0, 0.0))
    return logs, task, list(logs.parts_stored([message]).messages)


def test_an_acknowledgement_waits_for_the_version() -> None:
    """And lists it, with the key groups of its rows."""
    logs, task, sent = _logs()
    assert sent == []
    (message,) = logs.worked(VersionMade(task, VERSION)).messages
    assert isinstance(message, SnapshotAcknowledged)
    assert message.record.version == VERSION and message.record.groups == (0, 9)
    assert message.record.base is not None and message.record.base.snapshot_id == 20


def test_a_version_that_fails_declines_its_snapshot() -> None:
    """With the reason. The acknowledgement never goes."""
    logs, task, _ = _logs()
    (message,) = logs.worked(VersionFailed(task, "no space")).messages
    assert message == SnapshotDeclined(sample.INCARNATION, 20, SUBTASK, f"{SUBTASK} has no version: no space")
    assert logs.worked(VersionMade(task, VERSION)).messages == []


def test_a_version_of_a_snapshot_that_is_over_is_of_no_use() -> None:
    """It is removed when versions are pruned."""
    logs, task, _ = _logs()
    logs.discard_below(21)
    assert logs.worked(VersionMade(task, VERSION)).messages == []
    assert logs.worked(VersionFailed(task, "no space")).messages == []


def test_who_waits_for_a_version_pauses_in_between() -> None:
    """Until the writer has made it, or has given up."""
    paused: list[float] = []
    pending = PendingVersion(20)

    def pause(seconds: float) -> None:
        paused.append(seconds)
        pending.is_made = len(paused) == 3

    work = RowWork("run", 1, sample.CODEC, lambda parts, inline: [], lambda handle: memoryview(b""), pause, disk="disk")
    assert work.perform(AwaitVersion(SUBTASK, pending)) == VersionMade(AwaitVersion(SUBTASK, pending), VERSION)
    assert len(paused) == 3 and all(paused)
    given_up = AwaitVersion(SUBTASK, PendingVersion(20, failure="closed"))
    assert work.perform(given_up) == failure_of(given_up, "closed") == VersionFailed(given_up, "closed")
