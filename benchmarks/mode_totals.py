"""Measure jobs whose totals are in PostgreSQL, in the modes that keep totals in a store."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.live import DEADLINE_S, Live, await_snapshots
from benchmarks.process_table import coordinators, kill, peak_bytes, written_bytes
from benchmarks.replayed_nodes import PARTITIONS
from benchmarks.servers import PostgreSQLServer
from benchmarks.totalled_nodes import Handled, records_and_sum, totals_graph
from cutline import FileSystemBackend, PostgreSQLStore, Run
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.plan.modes import ModeWish

_POLL_S = 0.002


def measure_totals(
    live: Live, folder: Path, job: str, mode: ModeWish, *, run_s: float, interval_s: float, parallelism: int
) -> dict[str, Any]:
    """Run a job, kill a worker, let the job end, and compare its totals. Return the figures of `modes.Measured`."""
    with PostgreSQLServer() as server:
        store = PostgreSQLStore(server.url, table="totals")
        backend = FileSystemBackend(folder / "snapshots")
        runtime = live.runtime(backend=backend, snapshotInterval=interval_s, workers=parallelism)
        run = live.submit(runtime, totals_graph(job, folder, store, parallelism), mode=mode)
        figures = _measure(run, job, Handled(folder / "handled"), run_s)
        finish_totals(run, job, folder, server)
    return figures


def _measure(run: Run, job: str, handled: Handled, run_s: float) -> dict[str, Any]:
    await_snapshots(run, 2)
    incarnation = run.status["incarnation"]
    writers = [*run.status["workers"].values(), *coordinators()]
    written, operations = sum(map(written_bytes, writers)), _operations(run)
    records, began = handled.in_incarnation(incarnation), time.monotonic()
    threading.Event().wait(run_s)
    ran = time.monotonic() - began
    rate = (handled.in_incarnation(incarnation) - records) / ran
    written = sum(map(written_bytes, writers)) - written
    operations = _operations(run) - operations
    status = run.status
    reports = [each for each in status["snapshotReports"] if each["state"] == "published"]
    seconds = reports[-1]["timestamp"] - reports[0]["timestamp"]
    memory = sum(map(peak_bytes, status["workers"].values()))
    resumed = _kill(run, job, handled, incarnation)
    return {
        "records_per_s": rate,
        "bytes_per_s": written / ran,
        "steps_per_s": (len(reports) - 1) / seconds,
        "commit_ms": [each["durationMs"] for each in reports],
        "memory_bytes": max(memory, sum(map(peak_bytes, run.status["workers"].values()))),
        "resume_s": resumed,
        "replayed_records_per_s": None,
        "store_operations_per_s": operations / ran,
    }


def _operations(run: Run) -> int:
    return sum(store["operations"] for store in run.status["mode"]["stores"].values())


def _kill(run: Run, job: str, handled: Handled, incarnation: int) -> float:
    """Kill a worker. Return seconds until a record was handled that had not been handled before."""
    at = kill(run.status["workers"][0])
    had = handled.in_incarnation(incarnation)
    while (now := run.status["incarnation"]) == incarnation:
        _check_time(run, at)
    # The first incarnation has handled all that the snapshot has, so the second has to handle the difference again.
    again = had - records_and_sum(job, _offsets(run))[0]
    while handled.in_incarnation(now) <= again:
        _check_time(run, at)
    return time.monotonic() - at


def _check_time(run: Run, since: float) -> None:
    if time.monotonic() > since + DEADLINE_S:
        raise CutlineError(f"modes: run {run.name} did not resume in {DEADLINE_S:g} s: {run.status}")
    time.sleep(_POLL_S)


def _offsets(run: Run) -> dict[str, int]:
    """Return the offsets of the newest snapshot."""
    states = [state for state in run.snapshots()[-1].node("records").states if state]
    return {partition: offset for state in states for partition, offset in state.items()}


def finish_totals(run: Run, job: str, folder: Path, server: PostgreSQLServer) -> None:
    """Let the run end. Check that the totals are the sums of all that was sent."""
    (folder / "enough").touch()
    if not run.awaitTermination(DEADLINE_S) or run.status["outcome"] != "finished":
        raise CutlineError(f"modes: run {run.name} did not end: {run.status}")
    offsets = _offsets(run)
    assert set(offsets) == set(PARTITIONS)
    due = records_and_sum(job, offsets)[1]
    with psycopg.connect(server.url) as connection:
        [[found]] = connection.execute("select sum(value::numeric) from totals_totals").fetchall()
    if int(found) != due:
        raise CutlineError(f"modes: the totals of {run.name} are {found}, but {due} was sent")
