"""What a worker's reports become: commits of the last snapshot are told of together."""

from __future__ import annotations

import logging
from typing import Any, cast

from barrier_runtime.control_link import ControlLink
from barrier_runtime.deadlines import Deadlines
from barrier_runtime.report_desk import ReportDesk
from barrier_runtime.uploads import Storage
from snapshot.coordinator import control
from snapshot.ids import Subtask
from snapshot.subtask.reports import PublicationHandled, SnapshotFailed

P, Q, R = Subtask("P"), Subtask("Q"), Subtask("R")


class Line:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, message: Any) -> None:
        """Say it."""
        self.said.append(message)


def test_commits_of_the_last_snapshot_are_told_of_together() -> None:
    """One message, behind what else there is, and nothing is left for the next time; of others nobody need hear."""
    line = Line()
    logger = logging.LoggerAdapter(logging.getLogger("test"), {})
    desk = ReportDesk(cast("Storage", None), cast("ControlLink", line), cast("Deadlines", None), logger)
    desk.pass_on([PublicationHandled(3, P), PublicationHandled(3, Q)], 2)
    assert line.said == []
    desk.last_snapshot = 4
    last, other = PublicationHandled(4, P), PublicationHandled(3, P)
    desk.pass_on([last, other, SnapshotFailed(5, Q, "why"), PublicationHandled(4, Q)], 2)
    desk.pass_on([PublicationHandled(4, R)], 2)
    assert line.said == [
        control.SnapshotDeclined(2, 5, Q, "why"),
        control.PublicationDone(2, 4, (P, Q)),
        control.PublicationDone(2, 4, (R,)),
    ]
