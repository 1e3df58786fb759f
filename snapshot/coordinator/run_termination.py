"""Which snapshot is the run's last, who has committed it, and how the run ends once all have."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot.coordinator.pending_snapshot import SnapshotRequest
from snapshot.coordinator.run_state import Outcome
from snapshot.ids import Subtask


class RunTermination:
    """The end of one run, as far as this life of its coordinator knows of it.

    Parameters
    ----------
    subtasks : sequence of Subtask
        All of the run's.
    """

    def __init__(self, subtasks: Sequence[Subtask]) -> None:
        #: the driver's request for the snapshot after which the run is to stop
        self.stop_request: int | None = None
        #: that snapshot is published: the run ends as soon as everybody has committed it, whatever fails until then
        self.is_stopping = False
        #: when the commits of the last snapshot take too long; None: the last one is not published, or not deployed
        self.until: float | None = None
        self._subtasks = subtasks
        self._waiting: dict[Subtask, None] = {}

    def is_last(self, requests: Sequence[SnapshotRequest], *, is_final: bool) -> bool:
        """Whether the run ends with the snapshot that was just published and met `requests`."""
        self.is_stopping |= not is_final and any(request.request_id == self.stop_request for request in requests)
        return is_final or self.is_stopping

    def await_commits(self, until: float) -> None:
        """The last snapshot is published: everybody is to commit it."""
        self._waiting = dict.fromkeys(self._subtasks)
        self.until = until

    def committed(self, subtasks: Sequence[Subtask]) -> bool:
        """Note commits of the last snapshot; True once nobody is awaited."""
        for subtask in subtasks:
            self._waiting.pop(subtask, None)
        return not self._waiting

    def roll_back(self) -> None:
        """Commits are repeated by the restore; nobody is awaited until then."""
        self.until = None

    def who_is_late(self) -> str:
        """For people: those who have not committed."""
        return f"{', '.join(map(str, self._waiting))} have not committed the last snapshot in time"

    def result(self) -> tuple[Outcome, str]:
        """How the run has ended, and why."""
        if self.is_stopping:
            return Outcome.STOPPED, "stopped by the driver, after a snapshot"
        return Outcome.FINISHED, "all nodes have ended"
