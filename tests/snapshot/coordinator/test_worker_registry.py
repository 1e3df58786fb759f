"""The list of workers."""

from __future__ import annotations

from cutline.snapshot.coordinator.control import WorkerRegistered
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry


def registry(*running: int) -> WorkerRegistry:
    """All of a stage, processing the given incarnations."""
    found = WorkerRegistry(len(running), "stage")
    for worker, incarnation in enumerate(running):
        found.register(WorkerRegistered(worker, "stage", incarnation, b"%d" % worker, 0))
    return found


def test_who_is_there_and_who_is_missing() -> None:
    """By number, ascending; a new stage begins with nobody."""
    found = registry(0, 0, 0)
    found.remove(1)
    assert (found.numbers(), found.missing(), found.all_there) == ([0, 2], [1], False)
    found.new_stage("next")
    assert (found.numbers(), found.launch) == ([], "next")


def test_incarnations_that_run_are_listed_once() -> None:
    """One of them means that it can be adopted; 0 stands for none."""
    assert registry(4, 4).running() == [4]
    assert registry(4, 0, 4, 3).running() == [0, 3, 4]


def test_progress_counts_in_the_present_incarnation_only() -> None:
    """Restored, connected or idle in an earlier one is nothing."""
    found = registry(0, 0)
    found.incarnation = 2
    found[0].restored = found[0].connected = 2
    found[1].restored = found[1].connected = 1
    found.note_idle(0, 2)
    found.note_idle(1, 1)
    assert (found.not_restored(), found.not_connected(), found.all_idle) == ([1], [1], False)
    found.note_idle(1, 2)
    assert found.all_idle
    found.note_idle(7, 2)  # it has left


def test_addresses_are_in_the_order_of_numbers() -> None:
    """`Connect` tells them by number."""
    assert registry(0, 0).addresses() == (b"0", b"1")
