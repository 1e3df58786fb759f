"""In which order the threads of a simulated worker perform tasks."""

from __future__ import annotations

from typing import Any, cast

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.versions import PendingVersion
from cutline.snapshot.modes.versions.ledger import AwaitVersion
from cutline.snapshot.testing.simulation.scheduler import Scheduler
from cutline.snapshot.testing.simulation.uploads import Uploads
from cutline.snapshot.worker.ledger import AnyTask


def test_a_task_waits_for_its_version() -> None:
    """The task is no step before the version is made, or is known to fail. A version that is over needs no wait."""
    scheduler = Scheduler()
    uploads = Uploads(scheduler, cast("Any", None))
    performed: list[tuple[AnyTask, int]] = []

    def perform(task: AnyTask, incarnation: int) -> None:
        performed.append((task, incarnation))

    made, waiting, failed = tasks = [AwaitVersion(Subtask("node"), PendingVersion(number)) for number in (1, 2, 3)]
    made.version.is_made = True
    for incarnation, task in enumerate(tasks):
        uploads.work(task, incarnation, perform)
    assert len(scheduler.enabled_steps) == 1
    failed.version.failure = "the disk is full"
    uploads.versions_made(perform)
    while scheduler.enabled_steps:
        scheduler.enabled_steps[0].act()
    assert performed == [(made, 0), (failed, 2)]
    waiting.version.is_made = True
    uploads.versions_made(perform)
    scheduler.enabled_steps[0].act()
    assert performed == [(made, 0), (failed, 2), (waiting, 1)]
