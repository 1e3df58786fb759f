"""Holds back a worker's report that it lost a peer, so that the coordinator hears the peer's own reason first.

A worker whose node raises hangs up on its peers. Whose report comes first is chance; only the first is the reason
that is counted, shown and, when the restarts are used up, what the run fails with.
"""

from __future__ import annotations

from snapshot.coordinator.control import WorkerFailed

#: Seconds. A peer that failed reports in milliseconds, and the coordinator itself sees that one has died; so this
#: delays recovery only when two workers that both live have lost each other.
HELD_SECONDS = 0.5


class HeldReport:
    """At most one report and when it is due, in seconds of whatever clock the caller uses throughout."""

    def __init__(self) -> None:
        self._report: WorkerFailed | None = None
        self._due_at = 0.0

    def hold(self, report: WorkerFailed, now: float) -> None:
        """Keep it until its time has come."""
        self._report, self._due_at = report, now + HELD_SECONDS

    def drop(self) -> None:
        """What it says is known, or over."""
        self._report = None

    def due_at(self) -> float | None:
        """When to `take` it; None: there is none."""
        return None if self._report is None else self._due_at

    def take(self, now: float) -> WorkerFailed | None:
        """The report, once, if it is due."""
        if self._report is None or now < self._due_at:
            return None
        report, self._report = self._report, None
        return report
