"""Progress reports of a run, as `Run.lastProgress` returns a report: the status, derived values, and rates.

A report is a dictionary, as in pyspark's `StreamingQueryProgress`. Only ``name`` and ``timestamp`` have pyspark's
names, because pyspark counts rows of a micro-batch, which do not exist here.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple


class Polled(NamedTuple):
    """The status of a run, and the monotonic time in seconds when the status was received."""

    at: float
    status: dict[str, Any]


def progress_report(name: str, polled: Polled, before: Polled | None) -> dict[str, Any]:
    """Make the report from `polled`, with rates since `before`."""
    status = polled.status
    done = status["progress"]
    report: dict[str, Any] = {"name": name, "timestamp": time.time(), **status}
    report["snapshot"] = next((r for r in reversed(status["snapshotReports"]) if r["state"] == "published"), None)
    report["numMessagesSent"] = sum(done["sent"].values())
    report["numMessagesProcessed"] = sum(done["processed"].values())
    seconds = polled.at - before.at if before else 0.0
    same = before is not None and before.status["incarnation"] == status["incarnation"]
    for field, rate in (("sent", "sentMessagesPerSecond"), ("processed", "processedMessagesPerSecond")):
        earlier = sum(before.status["progress"][field].values()) if before and same else 0
        report[rate] = (sum(done[field].values()) - earlier) / seconds if seconds and same else 0.0
    return report


def share_reports(status: dict[str, Any], before: Polled | None) -> None:
    """Replace the snapshot reports in `status` by the equal objects of `before`.

    Objects are shared, because a hundred progress reports are kept, each with the reports of a hundred snapshots.
    """
    known = {report["id"]: report for report in before.status["snapshotReports"]} if before else {}
    reports = status["snapshotReports"]
    status["snapshotReports"] = [known[r["id"]] if known.get(r["id"]) == r else r for r in reports]
