"""Tasks on rows that a simulated worker has to perform: those of one kind and one subtask in order, as by threads.

So two steps of one name are interchangeable, and a schedule by names repeats a history.
"""

from __future__ import annotations

from collections import deque

from snapshot.testing.step_types.control import WorkRows
from snapshot.worker.generations import AwaitVersion, RowTask

#: a task, and the incarnation that it is of
_Work = tuple[RowTask, int]


class RowQueue:
    """The tasks of one worker."""

    def __init__(self) -> None:
        self._ready: dict[WorkRows, deque[_Work]] = {}
        #: versions that the writers of databases have not made yet
        self._awaited: list[tuple[AwaitVersion, int]] = []

    def add(self, task: RowTask, incarnation: int) -> WorkRows | None:
        """Add a task. Return the step that performs it, or None while its version is made."""
        if isinstance(task, AwaitVersion) and not task.version.is_over:
            self._awaited.append((task, incarnation))
            return None
        name = WorkRows(task.subtask, type(task).__name__)
        self._ready.setdefault(name, deque()).append((task, incarnation))
        return name

    def take(self, name: WorkRows) -> _Work:
        """Return the oldest task that a step performs."""
        return self._ready[name].popleft()

    def take_made(self) -> list[tuple[AwaitVersion, int]]:
        """Return the tasks whose versions are made now."""
        made = [each for each in self._awaited if each[0].version.is_over]
        self._awaited = [each for each in self._awaited if not each[0].version.is_over]
        return made
