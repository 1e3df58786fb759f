"""Runs whose totals are in PostgreSQL, live, with each clock: whatever is killed, each total is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.live import Live, await_snapshots, wait_for
from benchmarks.process_table import coordinators, is_gone, kill, parent_of
from benchmarks.servers import PostgreSQLServer
from cutline import Run
from tests.system.other_driver import other_driver
from tests.system.totals import FEW_KEYS, MODES, Job, noted_store

pytestmark = [pytest.mark.spark, pytest.mark.ray]

CLOCKS = ["epochs", "negotiated"]


def _kill_worker(run: Run) -> None:
    kill(run.status["workers"][0])


def _kill_task(run: Run) -> None:
    kill(parent_of(run.status["workers"][0]))


def _kill_coordinator(run: Run) -> None:
    for pid in coordinators():
        kill(pid)


FAULTS: dict[str, Callable[[Run], None]] = {
    "worker": _kill_worker,
    "task": _kill_task,
    "coordinator": _kill_coordinator,
}


def job_of(live: Live, url: str, mode: str) -> Job:
    """The job of a test."""
    return Job(live, noted_store(url, live.folder), FEW_KEYS, MODES[mode])


def _await_newer(run: Run, snapshot_id: int) -> None:
    wait_for("snapshots after the fault", lambda: any(each.id > snapshot_id for each in run.snapshots()))


@pytest.mark.parametrize("mode", CLOCKS)
def test_totals_are_exact(live: Live, postgresql: PostgreSQLServer, mode: str) -> None:
    """Worker, task and coordinator are killed, one after the other. Then the run is stopped, and submitted again."""
    job = job_of(live, postgresql.url, mode)
    run = job.submit()
    for fault in FAULTS.values():
        published = await_snapshots(run, 2)
        fault(run)
        _await_newer(run, published[-1])
    run.stop(withSnapshot=True)
    run = job.submit()
    await_snapshots(run, 1)
    print(f"{job.finish(run):,} messages")


_SUBMIT = """
from tests.system.test_totals_in_postgresql import job_of
run = job_of(live, "{url}", "{mode}").submit()
"""


@pytest.mark.parametrize("mode", CLOCKS)
def test_a_killed_driver_is_resumed(live: Live, postgresql: PostgreSQLServer, mode: str) -> None:
    """Its workers end by themselves, and write no total beside those of the run that goes on."""
    with other_driver(live, _SUBMIT.format(url=postgresql.url, mode=mode)) as driver:
        workers = [int(pid) for pid in driver.read_until("workers ").split()[1:]]
        kill(driver.pid)
        job = job_of(live, postgresql.url, mode)
        run = job.submit()
        await_snapshots(run, 2)
        assert wait_for("the end of the old workers", lambda: all(is_gone(pid) for pid in workers))
    print(f"{job.finish(run):,} messages")
