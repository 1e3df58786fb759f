"""What a run in progress shows, on a terminal and elsewhere, against a run that is only described."""

from __future__ import annotations

import io
import time
import types
from collections.abc import Mapping
from typing import Any, cast

import pytest
from rich.console import Console

from cutline import END, Context, Graph, Sink, Source
from cutline.barrier_runtime.cli import progress as progress_module
from cutline.barrier_runtime.cli.progress import POLL_SECONDS, REASON_CHARACTERS_MAX, watch
from cutline.barrier_runtime.driver import run as run_module
from cutline.barrier_runtime.driver.run import Run
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored.snapshot import Snapshot
from tests.snapshot.testing.scribe import sample_snapshot


class Letters(Source):
    def poll(self, context: Context) -> Any:
        return END


class Bin(Sink):
    def onMessage(self, message: Any, context: Context) -> None:
        """Nothing."""


GRAPH = Graph("g").add("letters", Letters()).add("bin", Bin()).connect("letters", "bin")


def report(second: float, **other: Any) -> dict[str, Any]:
    """A progress report; 1,000 rows enter in a second, and 500 leave."""
    sent, processed = {"letters": round(1_000 * second)}, {"bin": round(500 * second)}
    return {
        "timestamp": second,
        "incarnation": 2,
        "phase": "running",
        "workers": [{}, {}, {}],
        "snapshots": [],
        "progress": {"sent": sent, "processed": processed},
        "restarts": [],
        "restartCount": 0,
        "aborted": [],
        "abortedCount": 0,
        **other,
    }


class DescribedRun:
    """A run that reports one document after the other, and then ends."""

    name = "counting"

    def __init__(self, *reports: Mapping[str, Any], snapshots: tuple[Snapshot, ...] | Exception = ()) -> None:
        self._reports = reports
        self._shown = 0
        self._snapshots = snapshots
        self.status: Mapping[str, Any] = {}

    @property
    def isActive(self) -> bool:
        self._shown += 1
        return self._shown <= len(self._reports)

    @property
    def recentProgress(self) -> list[Mapping[str, Any]]:
        return list(self._reports[: self._shown])

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:
        return self._reports[min(self._shown, len(self._reports)) - 1] if self._reports else None

    def snapshots(self) -> tuple[Snapshot, ...]:
        if isinstance(self._snapshots, Exception):
            raise self._snapshots
        return self._snapshots


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(progress_module, "PLAIN_SECONDS", 0.0)


def shown(run: DescribedRun, *, is_terminal: bool = False, width: int = 100) -> list[str]:
    """All lines that are written while the run is watched."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=width, color_system=None)
    for _ in watch(cast(Run, run), GRAPH, console):
        pass
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_a_line_says_how_the_run_stands() -> None:
    """Elsewhere than on a terminal: time, phase, rates, the newest snapshot and restarts."""
    run = DescribedRun(*(report(float(second), restartCount=second) for second in range(4)))
    assert shown(run) == [
        "00:00 running: in 0/s, out 0/s, snapshot none yet, restarts 0",
        "00:00 running: in 0/s, out 0/s, snapshot none yet, restarts 1",
        "00:00 running: in 1,000/s, out 500/s, snapshot none yet, restarts 2",
        "00:00 running: in 1,000/s, out 500/s, snapshot none yet, restarts 3",
    ]


def test_a_display_is_redrawn_on_a_terminal() -> None:
    """The last screen has the rates, all rows and the newest snapshot."""
    taken = sample_snapshot()
    reports = [report(float(second), snapshots=[taken.id] if second else []) for second in range(4)]
    lines = shown(DescribedRun(*reports, snapshots=(taken,)), is_terminal=True)
    text = "\n".join(lines)
    for row in (
        "counting  running  00:00  incarnation 2  workers 3",
        "  rows in           1,000/s           3,000 in all",
        "  rows out            500/s           1,500 in all",
        "  snapshot   none yet",
        f"  snapshot   {taken.id} (",
        "  restarts   0",
    ):
        assert row in text, row


def test_a_narrow_display_cuts_its_lines() -> None:
    """A line stays one line, because the display is redrawn over its own height."""
    text = "\n".join(shown(DescribedRun(report(0.0), report(1.0)), is_terminal=True, width=30))
    assert "  rows in               0/s  …\n" in text


def test_events_stay_on_the_screen() -> None:
    """Each restart and each rolled-back snapshot is printed once, with its number and one line of its reason."""
    restarts = [{"timestamp": 0.0, "reason": f"worker {n} [left]\nwith a trace"} for n in range(7)]
    aborted = [{"id": 5, "reason": "rolled back: by [itself]"}, {"id": 6, "reason": "no room on the disk"}]
    lines = shown(
        DescribedRun(
            report(0.0, restarts=restarts[:1], restartCount=1, aborted=aborted, abortedCount=2),
            report(1.0, restarts=restarts[:1], restartCount=1, aborted=aborted, abortedCount=2),
            report(2.0, restarts=restarts[5:], restartCount=7, aborted=aborted, abortedCount=2),
        )
    )
    assert [line for line in lines if "running" not in line] == [
        "restart 1: worker 0 [left] with a trace",
        "snapshot 5 aborted: rolled back: by [itself]",
        "restart 6: worker 5 [left] with a trace",
        "restart 7: worker 6 [left] with a trace",
    ]


def test_a_long_reason_is_cut() -> None:
    """A reason from Spark is a stack trace of many pages."""
    reason = {"timestamp": 0.0, "reason": "word " * 1_000}
    lines = shown(DescribedRun(report(0.0, restarts=[reason], restartCount=1)))
    assert len(lines[0]) <= len("restart 1: ") + REASON_CHARACTERS_MAX
    assert lines[0].endswith("word [...]")


def test_what_came_with_the_end_is_printed() -> None:
    """The last restart is known by the status only."""
    run = DescribedRun(report(0.0))
    run.status = {"restarts": [{"timestamp": 0.0, "reason": "gave up"}], "restartCount": 1}
    assert shown(run)[-1] == "restart 1: gave up"


def test_a_snapshot_that_cannot_be_read_is_named() -> None:
    """The run goes on, and so does its display."""
    run = DescribedRun(report(0.0, snapshots=[4, 7]), report(1.0, snapshots=[4, 7]), snapshots=SnapshotCorrupt("[bad]"))
    assert shown(run) == [
        "snapshot 7 cannot be read: [bad]",
        "00:00 running: in 0/s, out 0/s, snapshot none yet, restarts 0",
        "00:00 running: in 0/s, out 0/s, snapshot none yet, restarts 0",
    ]


def test_a_run_without_a_report_shows_nothing() -> None:
    """The run may end before its first report."""
    assert shown(DescribedRun()) == []


def test_a_run_is_polled_as_often_as_it_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """More often there is nothing new to show, and less often reports would be skipped."""
    waits: list[float] = []
    monkeypatch.setattr(progress_module, "POLL_SECONDS", POLL_SECONDS)
    clock = types.SimpleNamespace(sleep=waits.append, monotonic=time.monotonic)
    monkeypatch.setattr(progress_module, "time", clock)
    assert len(shown(DescribedRun(report(0.0), report(0.25)))) == 2
    assert waits == [run_module._MONITOR_SECONDS] * 2
