"""What becomes of the reports of a worker's subtasks: uploads, messages to the coordinator, deadlines. No data."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, assert_never

from barrier_runtime import clock
from barrier_runtime.control_link import ControlLink
from barrier_runtime.deadlines import Deadlines
from barrier_runtime.uploads import Storage
from snapshot.coordinator import control
from snapshot.ids import Subtask
from snapshot.subtask import reports


class ReportDesk:
    """Passes reports on.

    Parameters
    ----------
    storage : Storage
        Takes what is to be stored, and acknowledges it itself.
    link : ControlLink
    deadlines : Deadlines
    logger : LoggerAdapter
    """

    def __init__(
        self, storage: Storage, link: ControlLink, deadlines: Deadlines, logger: logging.LoggerAdapter[Any]
    ) -> None:
        self._storage = storage
        self._link = link
        self._deadlines = deadlines
        self._logger = logger
        #: whose commits the coordinator waits for; of others it need not hear
        self.last_snapshot: int | None = None

    def pass_on(self, all_reports: Iterable[reports.Report], incarnation: int) -> None:
        """Have each report of that incarnation acted upon, in order. Does not block."""
        committed: list[Subtask] = []  # all subtasks do it in one turn, and are told of together
        for report in all_reports:
            self._pass_on(report, incarnation, committed)
        if committed:
            assert self.last_snapshot is not None
            self._link.send(control.PublicationDone(incarnation, self.last_snapshot, tuple(committed)))

    def _pass_on(self, report: reports.Report, incarnation: int, committed: list[Subtask]) -> None:
        match report:
            case reports.SnapshotTaken():
                self._storage.upload(report, incarnation)
            case reports.SnapshotFailed(snapshot_id, subtask, reason):
                self._link.send(control.SnapshotDeclined(incarnation, snapshot_id, subtask, reason))
            case reports.SnapshotAsked(subtask):
                self._deadlines.ask(subtask, clock.now())
                self._link.send(control.SnapshotAskedFor(incarnation, subtask))
            case reports.PublicationHandled(snapshot_id, subtask):
                if snapshot_id == self.last_snapshot:
                    committed.append(subtask)
            case reports.AlignmentStarted(snapshot_id, subtask, timeout):
                self._deadlines.align(snapshot_id, subtask, clock.now() + timeout)
            case reports.SubtaskEnded(subtask):
                self._logger.info("%s has ended", subtask)
            case _:
                assert_never(report)
