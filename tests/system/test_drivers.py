"""Drivers that die, and two drivers under one name: the second goes on where the first was, and fences it."""

from __future__ import annotations

import pytest

from benchmarks.live import DEADLINE_S, Live, assert_exact, pipeline, recovery_seconds, wait_for
from benchmarks.process_table import is_gone, kill
from tests.programs import Script
from tests.source_files import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.ray]

#: A driver of its own: submits the job of the test's folder, says so, and awaits its end.
_DRIVER = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from snapshot.errors import CutlineError
from benchmarks.session import SPARK_SETTINGS
from benchmarks.live import Live, await_snapshots, pipeline

builder = SparkSession.builder.master("local[2]")
for key, value in SPARK_SETTINGS.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
live = Live(spark, Path({folder!r}))
run = live.run(pipeline(live.folder).graph)
await_snapshots(run, 2)
print("workers", *run.status["workers"].values())
try:
    run.awaitTermination()
except CutlineError as error:
    print(f"ended by {{type(error).__name__}}: {{error}}")
spark.stop()
"""


def _driver(live: Live) -> Script:
    source = _DRIVER.format(folder=str(live.folder))
    return Script(source, timeout_s=DEADLINE_S, environment={"PYTHONPATH": str(ROOT)})


def test_killed_driver_is_resumed(live: Live) -> None:
    """SIGKILL of the driver: its workers end by themselves; submitting again goes on from the newest snapshot."""
    with _driver(live) as driver:
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
    with _driver(live) as driver:
        driver.read_until("workers ")
        job = pipeline(live.folder)
        run = live.run(job.graph)
        assert "Fenced" in driver.read_until("ended by ")
        assert driver.wait() == 0
    job.finish()
    assert run.awaitTermination(DEADLINE_S), run.status
    print(f"second driver took over: {assert_exact(job, run)} records exact")
