"""Acknowledgements wait for what their snapshots list, and publications for what they begin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutline.snapshot.coordinator.control import PublicationDone, SnapshotAcknowledged, SnapshotDeclined
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.versions import PendingVersion
from cutline.snapshot.modes.steps.ledger import StepLedger
from cutline.snapshot.modes.totals.ledger import TotalsLedger
from cutline.snapshot.modes.versions.ledger import AwaitVersion, VersionLedger
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.stored.certificate import LocalVersion
from cutline.snapshot.stored.contribution import SnapshotTimings
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.subtask.reports import PublicationHandled
from cutline.snapshot.subtask.strand import ChangeCaptured, DifferenceCaptured, StepCaptured, Strand, VersionBegun
from cutline.snapshot.worker.acknowledgements import Acknowledgements
from cutline.snapshot.worker.generations import StoreRows
from cutline.snapshot.worker.ledger import Ledger, Task, TaskFailed
from cutline.snapshot.worker.list_ledgers import RestoredList
from cutline.snapshot.worker.storage_tasks import StorageWork
from tests.snapshot import sample

SUBTASK = sample.records()[0].subtask
VERSION = LocalVersion("disk", "run", SUBTASK, 20, 0)


def _acknowledged(snapshot_id: int, subtask: Subtask = SUBTASK) -> SnapshotAcknowledged:
    record = replace(sample.records()[0], subtask=subtask, rows=None, own=None, groups=None)
    return SnapshotAcknowledged(sample.INCARNATION, snapshot_id, record, SnapshotTimings(0.0, 0.0, 0.0))


# ---------------------------------------------------------------- a version, and a step


def _logs() -> tuple[Acknowledgements, AwaitVersion, list[object]]:
    """A base whose step and state are stored, and whose version is not made. Returns what was sent so far."""
    restored = RestoredList(SUBTASK, "run", (), 0, 0, needs_base=False)
    ledgers: dict[tuple[Subtask, Strand], Ledger] = {
        (SUBTASK, Strand.VERSIONS): VersionLedger(SUBTASK),
        (SUBTASK, Strand.STEPS): StepLedger(restored, sample.INCARNATION),
    }
    held = Acknowledgements(sample.INCARNATION, ledgers)
    begun = VersionBegun(range(0, 9), PendingVersion(20))
    (task,) = held.captured(ChangeCaptured(SUBTASK, Strand.VERSIONS, 20, begun)).tasks
    step = StepCaptured(OwnChange(True, (b"step",)), True, (), ())
    (store,) = held.captured(ChangeCaptured(SUBTASK, Strand.STEPS, 20, step)).tasks
    assert isinstance(task, AwaitVersion) and isinstance(store, StoreRows)
    held.done(store, ())
    return held, task, list(held.parts_stored([_acknowledged(20)]).messages)


def test_an_acknowledgement_waits_for_the_version() -> None:
    """And lists it, with the key groups of its rows."""
    held, task, sent = _logs()
    assert sent == []
    (message,) = held.done(task, VERSION).messages
    assert isinstance(message, SnapshotAcknowledged)
    assert message.record.version == VERSION and message.record.groups == (0, 9)
    assert message.record.base is not None and message.record.base.snapshot_id == 20


def test_a_version_that_fails_declines_its_snapshot() -> None:
    """With the reason. The acknowledgement never goes."""
    held, task, _ = _logs()
    (message,) = held.done(task, TaskFailed("no space")).messages
    assert message == SnapshotDeclined(sample.INCARNATION, 20, SUBTASK, f"{SUBTASK} has no version: no space")
    assert held.done(task, VERSION).messages == []


def test_a_version_of_a_snapshot_that_is_over_is_of_no_use() -> None:
    """It is removed when versions are pruned."""
    held, task, _ = _logs()
    held.settled(0, 21)
    assert held.done(task, VERSION).messages == []
    assert held.done(task, TaskFailed("no space")).messages == []


def test_a_snapshot_that_failed_elsewhere_is_not_acknowledged() -> None:
    """Its upload was declined, so that the version of its cut is of no use, and declines nothing again."""
    held, task, _ = _logs()
    declined = SnapshotDeclined(sample.INCARNATION, 20, SUBTASK, "no space")
    assert held.parts_stored([declined]).messages == [declined]
    assert held.done(task, VERSION).messages == []
    assert held.parts_stored([_acknowledged(20)]).messages == []


def test_who_waits_for_a_version_pauses_in_between() -> None:
    """Until the writer has made it, or has given up."""
    paused: list[float] = []
    pending = PendingVersion(20)

    def pause(seconds: float) -> None:
        paused.append(seconds)
        pending.is_made = len(paused) == 3

    work = StorageWork(
        "run", 1, sample.CODEC, lambda parts, inline: [], lambda handle: memoryview(b""), pause, disk="disk"
    )
    assert work.perform(AwaitVersion(SUBTASK, pending)) == VERSION
    assert len(paused) == 3 and all(paused)
    given_up = AwaitVersion(SUBTASK, PendingVersion(20, failure="closed"))
    assert work.perform(given_up) == TaskFailed("closed")


# ---------------------------------------------------------------- totals


ME = Subtask("sums")


def _totals() -> Acknowledgements:
    ledger = TotalsLedger(ME, Count(), lambda held: None)
    return Acknowledgements(sample.INCARNATION, {(ME, Strand.TOTALS): ledger})


def _captured(held: Acknowledgements, snapshot_id: int, states: dict[Any, Any]) -> list[Task]:
    return held.captured(ChangeCaptured(ME, Strand.TOTALS, snapshot_id, DifferenceCaptured(states, 10))).tasks


def test_an_acknowledgement_waits_for_the_store() -> None:
    """Whichever comes first (PROTOCOL 13.2, written before the acknowledgement)."""
    early, late, message = _totals(), _totals(), _acknowledged(1, ME)
    (task,) = _captured(early, 1, {"a": 1})
    assert early.done(task, None).messages == [] and early.parts_stored([message]).messages == [message]
    (task,) = _captured(late, 1, {"a": 1})
    assert late.parts_stored([message]).messages == [] and late.done(task, None).messages == [message]


def test_the_acknowledgement_of_an_aborted_snapshot_is_dropped() -> None:
    """Its write may end long after, and its upload too."""
    held = _totals()
    (task,) = _captured(held, 1, {"a": 1})
    assert held.parts_stored([_acknowledged(1, ME)]).messages == []
    held.settled(0, 2)
    assert held.done(task, None).messages == [] and not held.repeated
    assert held.parts_stored([_acknowledged(1, ME)]).messages == []


def test_an_acknowledgement_is_kept_until_its_snapshot_is_settled() -> None:
    """It may have been lost with a connection, and the snapshot has no timeout (PROTOCOL 13.5, one at a time)."""
    held, message = _totals(), _acknowledged(1, ME)
    (task,) = _captured(held, 1, {"a": 1})
    held.parts_stored([message])
    kept = [[*held.repeated.values()]]
    held.done(task, None)
    kept.append([*held.repeated.values()])
    for settled in ((1, 0), (0, 2)):
        held.settled(*settled)
        kept.append([*held.repeated.values()])
    assert kept == [[], [message], [message], []]


def test_a_commit_is_reported_when_the_store_has_it() -> None:
    """And later announcements of it at once (PROTOCOL 13.6, manifest, check, commit)."""
    held, handled = _totals(), PublicationHandled(1, ME)
    (write,) = _captured(held, 1, {"a": 1})
    held.done(write, None)
    (commit,) = held.settled(1, 0).tasks
    assert not held.may_report(handled)
    assert held.done(commit, None).messages == [PublicationDone(sample.INCARNATION, 1, (ME,))]
    assert held.settled(1, 0).tasks == [] and held.may_report(handled)


def test_a_commit_that_is_done_first_is_reported_by_the_machine() -> None:
    """The store may answer before the subtask has handled the publication."""
    held = _totals()
    (write,) = _captured(held, 1, {"a": 1})
    held.done(write, None)
    (commit,) = held.settled(1, 0).tasks
    assert held.done(commit, None).messages == []
    assert held.may_report(PublicationHandled(1, ME))


def test_a_subtask_without_changes_is_acknowledged_at_once() -> None:
    """Nothing that it needs waits."""
    message = _acknowledged(1)
    assert _totals().parts_stored([message]).messages == [message]
