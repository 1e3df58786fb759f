"""The mode of a run as its status shows it: what the newest snapshot lists, and what is left to repeat."""

from __future__ import annotations

from dataclasses import replace

from barrier_runtime.coordinator.mode_status import mode_status
from snapshot.plan.modes import InputLogging, PersistentState
from snapshot.stored.certificate import LocalVersion, StepBase
from tests.snapshot.listed import own, rows, whole
from tests.snapshot.sample import manifest, records

SUBTASK = records()[0].subtask


def test_markers_have_a_name() -> None:
    """And nothing else."""
    assert mode_status(None, manifest(), 0) == {"name": "markers"}


def test_a_run_without_a_snapshot_has_stored_nothing() -> None:
    """All numbers are there."""
    shown = mode_status(InputLogging(), None, 0)
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
    shown = mode_status(PersistentState("/disk"), manifest((record,)), 3)
    assert shown == {
        "name": "persistentState", "step": manifest().snapshot_id, "state": 7, "logBytes": step.size, "logParts": 1,
        "stateBytes": base.size, "deltaBytes": delta.size + piece.size, "stepsLeft": 3, "versions": 1,
        "versionBytes": 1000, "disks": ["disk"],
    }  # fmt: skip
