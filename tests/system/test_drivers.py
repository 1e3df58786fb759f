"""Drivers that die, and two drivers under one name: the second goes on where the first was, and fences it."""

from __future__ import annotations

import pytest

from benchmarks.live import DEADLINE_S, Live, assert_exact, pipeline, recovery_seconds, wait_for
from benchmarks.process_table import is_gone, kill
from tests.system.other_driver import other_driver

pytestmark = [pytest.mark.spark, pytest.mark.ray]

_SUBMIT = """
from benchmarks.live import pipeline
runs = [live.run(pipeline(live.folder).graph)]
"""


def test_killed_driver_is_resumed(live: Live) -> None:
    """SIGKILL of the driver: its workers end by themselves; submitting again goes on from the newest snapshot."""
    with other_driver(live, _SUBMIT) as driver:
        workers = [int(pid) for pid in driver.read_until("workers ").split()[1:]]
        at = kill(driver.pid)
        job = pipeline(live.folder)
        run = live.run(job.graph)
        seconds = recovery_seconds(job, at, incarnation=1)
        assert wait_for("the end of the old workers", lambda: all(is_gone(pid) for pid in workers))
    job.finish()
    assert run.awaitTermination(DEADLINE_S), run.status
    print(f"driver killed: {seconds:.3f} s to the first new message, {assert_exact(job, run)} records exact")


def test_second_driver_fences_the_first(live: Live) -> None:
    """Submitting a live name from another driver takes the run: the first one gets Fenced, and the result is exact."""
    with other_driver(live, _SUBMIT) as driver:
        driver.read_until("workers ")
        job = pipeline(live.folder)
        run = live.run(job.graph)
        assert "Fenced" in driver.read_until("ended by ")
        assert driver.wait() == 0
    job.finish()
    assert run.awaitTermination(DEADLINE_S), run.status
    print(f"second driver took over: {assert_exact(job, run)} records exact")
