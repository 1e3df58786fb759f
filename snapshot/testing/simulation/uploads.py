"""Perform what the threads of a simulated worker do for storage.

Tasks of one kind and one subtask are performed in order. So two steps of one name are
interchangeable, and a schedule by names repeats a history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cutline.snapshot.keyed.versions import PendingVersion
from cutline.snapshot.testing.simulation.scheduler import Group, Scheduler
from cutline.snapshot.testing.simulation.totals import StoreThreads
from cutline.snapshot.testing.steps import CheckClaim, PutRecord, Step, WorkRows
from cutline.snapshot.worker.ledger import AnyTask, CollectorTask

#: a task, and the incarnation that it is of
_Work = tuple[AnyTask, int]


class Uploads(Group):
    """What the threads of one worker do for storage. Goes on over a rollback.

    Parameters
    ----------
    scheduler : Scheduler
    totals : StoreThreads
    """

    __slots__ = ("_awaited", "_ready", "totals")

    def __init__(self, scheduler: Scheduler, totals: StoreThreads) -> None:
        super().__init__(scheduler)
        self.totals = totals
        self._ready: dict[Step, deque[_Work]] = {}
        #: versions that the writers of databases have not made yet
        self._awaited: list[_Work] = []

    def work(self, task: AnyTask, incarnation: int, perform: Callable[[AnyTask, int], None]) -> None:
        """Perform a task in a step. A task that awaits a version waits for `versions_made`."""
        version = getattr(task, "version", None)
        if isinstance(version, PendingVersion) and not version.is_over:
            self._awaited.append((task, incarnation))
            return
        step = _step_of(task)
        ready = self._ready.setdefault(step, deque())
        ready.append((task, incarnation))
        self.once(step, lambda: perform(*ready.popleft()))

    def versions_made(self, perform: Callable[[AnyTask, int], None]) -> None:
        """Go on with the tasks whose versions are made by now."""
        awaited, self._awaited = self._awaited, []
        for task, incarnation in awaited:
            self.work(task, incarnation, perform)


def _step_of(task: AnyTask) -> Step:
    if not isinstance(task, CollectorTask):
        return WorkRows(task.subtask, type(task).__name__)
    return CheckClaim(task.subtask, task.number) if task.only_reads else PutRecord(task.subtask, task.number)
