"""HTML of a run for notebooks: status, graph, snapshots, and the reasons of restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cutline.snapshot.drawing.graph_picture import html_of_topology
from cutline.snapshot.drawing.html import card, link, table
from cutline.snapshot.drawing.labels import counted, duration_text, shortened, size_text
from cutline.snapshot.plan.topology import Topology

#: Limits of rows in a table, newest first, and of characters in a reason. `Run.status` has everything.
_ROWS_MAX, _REASON_CHARACTERS = 20, 500


def html_of_run(name: str, topology: Topology, status: Mapping[str, Any] | None, page: str | None) -> str:
    """Return the HTML of a run.

    Parameters
    ----------
    status : mapping or None
        The fields of `Run.status`, and of a progress report if there is one; None: no report yet.
    page : str or None
        Address of the live page; None: no page.
    """
    drawing = html_of_topology(topology)
    address = link(page, f"live page at {page}") if page else ""
    if status is None:
        return card(f"Run {name}", [("", "no report yet")], address, drawing)
    return card(f"Run {name}", _facts(status), address, drawing, _snapshots(status), _restarts(status))


def _facts(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "", status["outcome"] or status["phase"]
    if status["reason"]:
        yield "because", _line(status["reason"])
    yield "incarnation", str(status["incarnation"])
    yield "snapshots", str(len(status["snapshots"]))
    yield "aborted", str(status["abortedCount"])
    yield "restarts", str(status["restartCount"])
    done = status["progress"]
    yield "sent", f"{sum(done['sent'].values()):,}{_rate(status, 'sentMessagesPerSecond')}"
    yield "processed", f"{sum(done['processed'].values()):,}{_rate(status, 'processedMessagesPerSecond')}"
    for name, verdict in status.get("invariants", {}).items():
        holds = {None: "not judged yet", True: "holds", False: "does not hold"}[verdict["holds"]]
        violated = f", violated in {verdict['violationCount']} snapshots" if verdict["violations"] else ""
        yield f"invariant {name}", holds + violated


def _rate(status: Mapping[str, Any], field: str) -> str:
    return f" ({status[field]:,.0f}/s)" if field in status else ""


def _snapshots(status: Mapping[str, Any]) -> str:
    rows = [
        [
            str(report["id"]),
            report["state"] + (", pinned" if report["pinned"] else ""),
            _time(report["timestamp"]),
            duration_text(report["durationMs"] / 1000),
            size_text(report["bytes"]),
            str(report["channelMessages"]),
            _line(report["reason"]),
        ]
        for report in status["snapshotReports"][: -_ROWS_MAX - 1 : -1]
    ]
    if not rows:
        return ""
    heads = ["snapshot", "state", "taken", "in", "size", "in flight", "reason"]
    count = len(status["snapshotReports"])
    return table(f"newest {count} snapshots", heads, rows, left_out=count - len(rows), is_open=False)


def _restarts(status: Mapping[str, Any]) -> str:
    rows = [[_time(restart["timestamp"]), _line(restart["reason"])] for restart in reversed(status["restarts"])]
    count = status["restartCount"]
    return (
        table(counted(count, "restart"), ["at", "reason"], rows, left_out=count - len(rows), is_open=True)
        if rows
        else ""
    )


def _line(reason: str) -> str:
    return shortened(" ".join(reason.split()), _REASON_CHARACTERS)


def _time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%H:%M:%S UTC")
