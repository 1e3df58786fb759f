"""The mode of a run as its status shows it: what the newest snapshot lists, and what is left to repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline.barrier_runtime.cli.top_view import recovery_lines
from cutline.barrier_runtime.coordinator.mode_status import mode_status
from cutline.barrier_runtime.progress import ModeProgress, StoreProgress
from cutline.snapshot.coordinator.outbox import Outbox
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.records.record_tracker import LocalCheckpointTracker
from cutline.snapshot.modes.records.records_status import records_status
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.modes import ChannelLogs, InputLogging, Mode, MonoidClocks, PersistentState
from cutline.snapshot.stored.certificate import LocalVersion, StepBase, SubtaskRecord, SubtaskStatus
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint, first_record_number
from cutline.snapshot.stored.part import PartKind
from cutline.snapshot.stored.recovery_report import RecoveryReport, Relation, ReplayedLog, SubtaskRecovery
from tests.snapshot.listed import own, rows, whole
from tests.snapshot.sample import INCARNATION, manifest, records
from tests.snapshot.testing.recorded import recorded

SUBTASK = records()[0].subtask


def test_markers_have_a_name() -> None:
    """And nothing else."""
    assert mode_status(None, manifest(), 7, ModeProgress()) == {"name": "markers"}


def test_a_run_without_a_snapshot_has_stored_nothing() -> None:
    """All numbers are there."""
    shown = mode_status(InputLogging(), None, 7, ModeProgress())
    assert shown.pop("name") == "inputLogging" and shown.pop("disks") == []
    assert {shown.pop("step"), shown.pop("state")} == {None}
    assert set(shown.values()) == {0}


def test_what_the_newest_snapshot_lists_is_counted() -> None:
    """Log, whole states, changes, and versions with their disks."""
    base, delta, step = (own(SUBTASK, each) for each in ((0, 0), (1, 1), (2, 2)))
    piece = rows(SUBTASK, (3, 3), (0, 9))
    record = replace(
        records()[0], rows=(whole(piece),), own=(base, delta), steps=(step,), base=StepBase(7, 1, 1, (), ()),
        version=LocalVersion("disk", "run", SUBTASK, 7, 1000),
    )  # fmt: skip
    shown = mode_status(PersistentState("/disk"), manifest((record,)), 7, ModeProgress(3))
    assert shown == {
        "name": "persistentState", "step": manifest().snapshot_id, "state": 7, "logBytes": step.size, "logParts": 1,
        "stateBytes": base.size, "deltaBytes": delta.size + piece.size, "stepsLeft": 3, "versions": 1,
        "versionBytes": 1000, "disks": ["disk"],
    }  # fmt: skip


#: Q of the sample is an aggregate. Its snapshot has 2 messages of Q.
_ADDED = ModeProgress(0, {"Q": StoreProgress(1, 10, 2, 20, 3, 4, "away")}, added=9, added_before=5)


@pytest.mark.parametrize(
    ("mode", "incarnation", "clock", "behind"),
    [
        (None, INCARNATION, None, 7),
        (MonoidClocks(), INCARNATION, "epochs", 7),
        (MonoidClocks(), INCARNATION + 1, "epochs", 4),
        (MonoidClocks(clock="negotiated"), INCARNATION, "negotiated", None),
    ],
    ids=["markers", "epochs", "restored", "negotiated"],
)
def test_totals_are_behind_their_snapshot(mode: Mode | None, incarnation: int, clock: str, behind: int | None) -> None:
    """By the certificate, behind a restore by this incarnation's messages. A negotiated clock counts no messages."""
    shown = mode_status(mode, manifest(), incarnation, _ADDED)
    assert shown["stores"] == {
        "Q": {
            "openKeys": 1, "openBytes": 10, "cutKeys": 2, "cutBytes": 20, "cellsLeft": 3, "operations": 4,
            "error": "away",
        }
    }  # fmt: skip
    assert (shown["clock"], shown["snapshot"], shown["itemsBehind"]) == (clock, manifest().snapshot_id, behind)


def test_a_snapshot_that_is_newer_than_the_reports() -> None:
    """Is not behind itself."""
    shown = mode_status(None, manifest(), INCARNATION, _ADDED._replace(added=1, added_before=0))
    assert shown["itemsBehind"] == 0
    assert mode_status(None, None, INCARNATION, _ADDED)["itemsBehind"] == 4


#: what is shown of a node without a record, but for its age
NOTHING = {"records": 0, "recordMs": 0.0, "logBytes": 0, "waitsFor": [], "failed": 0}


class _NoWorkers(Outbox):
    """Sends nothing."""

    def send(self, worker: int, message: object) -> None:
        pass


def test_records_are_shown_by_node() -> None:
    """The oldest newest record of a node, its log, and whom it waits for."""
    topology = build(recorded(0, 1), "unaligned", ChannelLogs()).topology
    registry = WorkerRegistry(1, "")
    outbox = _NoWorkers(registry, 0.0)
    tracker = LocalCheckpointTracker(topology, dict.fromkeys(topology.subtasks, 0), registry, outbox)
    link = Subtask("link")
    state = replace(own(link, (0, 0)), kind=PartKind.STATE)
    log = replace(own(link, (1, 4)), size=30)
    status = SubtaskStatus(False, True, False, False, ())
    number = first_record_number(1) + 2
    outbox.now = 4.0
    tracker.begin(has_snapshot=False)
    outbox.now = 7.0
    record = SubtaskRecord(link, 1, (state,), (), (), status)
    tracker.take(LocalCheckpoint("run", number, record, (log,), (), 0), 0.25)
    assert [tracker.fail(link), tracker.fail(link)] == [1, 2]
    tracker.note_awaiting(link, (Subtask("numbers"),), is_requested=False)
    assert records_status(tracker, None, 9.5) == {
        "recovery": None,
        "nodes": {
            "numbers": {**NOTHING, "recordAge": 5.5},
            "link": {
                "records": 3, "recordAge": 5.5, "recordMs": 250.0, "logBytes": 30, "waitsFor": ["numbers"], "failed": 2,
            },
            "out": {**NOTHING, "recordAge": 5.5},
        },
    }  # fmt: skip
    report = RecoveryReport((SubtaskRecovery(link, 7, (), (ReplayedLog(Subtask("a"), Relation.BEHIND, 3, 4),)),))
    shown = records_status(tracker, replace(manifest(), recovery=report), 9.5)
    assert recovery_lines(shown) == ["recovered link[0]: behind a[0], 2 messages again"]
