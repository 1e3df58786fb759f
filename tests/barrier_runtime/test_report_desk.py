"""What a worker's reports become: commits of one snapshot are told of together."""

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

P, Q = Subtask("P"), Subtask("Q")


class Line:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, message: Any) -> None:
        """Say it."""
        self.said.append(message)


def test_commits_of_a_snapshot_are_told_of_together() -> None:
    """One message for each snapshot, behind what else there is, and nothing is left for the next time."""
    line = Line()
    logger = logging.LoggerAdapter(logging.getLogger("test"), {})
    desk = ReportDesk(cast("Storage", None), cast("ControlLink", line), cast("Deadlines", None), logger)
    first, other = PublicationHandled(3, P), PublicationHandled(4, P)
    desk.pass_on([first, other, SnapshotFailed(5, Q, "why"), PublicationHandled(3, Q)], 2)
    desk.pass_on([PublicationHandled(4, Q)], 2)
    assert line.said == [
        control.SnapshotDeclined(2, 5, Q, "why"),
        control.PublicationDone(2, 3, (P, Q)),
        control.PublicationDone(2, 4, (P,)),
        control.PublicationDone(2, 4, (Q,)),
    ]
