"""A run in a notebook."""

from __future__ import annotations

from typing import Any

from cutline.barrier_runtime.driver.run_html import html_of_run
from tests.snapshot import sample


def _report(snapshot_id: int, state: str, reason: str) -> dict[str, Any]:
    return {
        "id": snapshot_id,
        "state": state,
        "reason": reason,
        "pinned": state == "published",
        "timestamp": 3600.0,
        "durationMs": 12.4,
        "bytes": 2048,
        "channelMessages": 5,
    }


STATUS = {
    "phase": "running",
    "outcome": None,
    "reason": "",
    "incarnation": 2,
    "snapshots": [1_000_000],
    "aborted": [{"id": 1_000_001, "reason": "late"}],
    "abortedCount": 1,
    "restarts": [{"timestamp": 60.0, "reason": "a <worker>\nleft"}],
    "restartCount": 3,
    "progress": {"sent": {"P": 1000, "Q": 500}, "processed": {"P": 400, "Q": 900}},
    "sentMessagesPerSecond": 1234.5,
    "snapshotReports": [_report(1_000_000, "published", ""), _report(1_000_001, "aborted", "late")],
    "invariants": {
        "conserved": {
            "holds": True,
            "snapshot": 1_000_000,
            "violations": [7],
            "violationCount": 207,
            "unreadable": [],
            "unreadableCount": 0,
        }
    },
}


def test_a_run_shows_itself() -> None:
    """How it stands, its page, its graph, its snapshots, newest first, and restarts with their reasons."""
    html = html_of_run("bank", sample.TOPOLOGY, STATUS, "http://127.0.0.1:4640/runs/bank?a=1&b=2")
    for word in ("Run bank", "running", "1,500 (1,234/s)", "1,300<", "conserved", "holds, violated in 207 snapshots"):
        assert word in html
    assert 'href="http://127.0.0.1:4640/runs/bank?a=1&amp;b=2"' in html
    assert html.index("1000001") < html.index("1000000")
    assert "<td" in html
    for head in ("snapshot", "state", "taken", "in", "size", "in flight", "reason"):
        assert f">{head}</th>" in html
    assert "published, pinned" in html
    assert "2.0 KiB" in html
    assert "a &lt;worker&gt; left" in html
    assert "3 restarts" in html and "2 more" in html
    for name, count in {"incarnation": 2, "snapshots": 1, "aborted": 1, "restarts": 3}.items():
        assert f"{name}&nbsp;<b>{count}</b>" in html
    assert "00:01:00 UTC" in html
    assert "bank: 2 subtasks, 2 channels" in html


def test_an_ended_run_says_how_it_ended() -> None:
    """Its outcome and the reason in the place of the phase; no page any more."""
    ended = {**STATUS, "phase": "ended", "outcome": "failed", "reason": "all <b>lost</b>", "snapshotReports": []}
    html = html_of_run("bank", sample.TOPOLOGY, ended, None)
    assert "<b>failed</b>" in html
    assert "all &lt;b&gt;lost&lt;/b&gt;" in html
    assert "href" not in html


def test_a_run_of_which_nothing_is_known() -> None:
    """Before its first report there is its graph."""
    html = html_of_run("bank", sample.TOPOLOGY, None, None)
    assert "no report yet" in html
    assert "<svg" in html
