"""The snapshots of a run for the page: reports of all coordinator instances that the driver has polled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: newest reports that are kept, for a table that a person can read and a chart with as many points
REPORTS_MAX = 100

_PENDING = "pending"


class SnapshotTable:
    """Keep the newest report of each snapshot, and the counts of published and aborted snapshots."""

    def __init__(self) -> None:
        self.published = 0
        self.aborted = 0
        #: report of the newest published snapshot, or None before the first
        self.newest: Mapping[str, Any] | None = None
        #: (version of the last change, report) by snapshot id, in the order in which the ids first appeared
        self._reports: dict[int, tuple[int, Mapping[str, Any]]] = {}

    def see(self, version: int, reports: Iterable[Mapping[str, Any]], kept: Iterable[int]) -> None:
        """Take the reports of the present coordinator instance, and the ids of its kept published snapshots."""
        current = {report["id"]: report for report in reports}
        for snapshot_id, (_, known) in list(self._reports.items()):
            if known["state"] == _PENDING and snapshot_id not in current:
                current[snapshot_id] = _orphaned(known, snapshot_id in set(kept))
        for snapshot_id, report in current.items():
            self._take(version, snapshot_id, report)
        for snapshot_id in list(self._reports)[:-REPORTS_MAX]:
            del self._reports[snapshot_id]

    def since(self, version: int) -> list[Mapping[str, Any]]:
        """Return the reports that have changed after `version`, oldest first."""
        return [report for changed, report in self._reports.values() if changed > version]

    def _take(self, version: int, snapshot_id: int, report: Mapping[str, Any]) -> None:
        _, known = self._reports.get(snapshot_id, (0, None))
        if report == known:
            return
        if known is None and self._reports and snapshot_id < min(self._reports):
            return  # the report was dropped here already, while the coordinator still keeps its own
        was_pending = known is None or known["state"] == _PENDING
        self._reports[snapshot_id] = (version, report)
        if not was_pending or report["state"] == _PENDING:
            return
        if report["state"] == "published":
            self.published += 1
            self.newest = report
        else:
            self.aborted += 1


def _orphaned(report: Mapping[str, Any], is_kept: bool) -> Mapping[str, Any]:
    """Return the outcome of a snapshot that was pending when its coordinator was replaced."""
    if is_kept:
        return {**report, "state": "published"}
    return {**report, "state": "aborted", "reason": "the coordinator was replaced while it was pending"}
