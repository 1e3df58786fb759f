"""What the heartbeats decide: a stopped worker is given up, a busy one is not."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Live, assert_exact, await_snapshots, pipeline, recovery_seconds, wait_for
from benchmarks.numbered_nodes import Relay
from benchmarks.process_table import is_gone
from cutline import Context
from cutline.channels.limits import HEARTBEAT_DEADLINE_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.ray, pytest.mark.slow]


def test_stopped_worker_that_wakes_up(live: Live) -> None:
    """SIGSTOP, declared dead, SIGCONT: nothing of its old incarnation is taken, it is restored with the others."""
    job = pipeline(live.folder)
    run = live.run(job.graph)
    await_snapshots(run, 2)
    before = run.status
    stopped = before["workers"][0]
    os.kill(stopped, signal.SIGSTOP)
    wait_for("the worker to be declared dead", lambda: run.status["restarts"])
    assert "no sign of life" in run.status["restarts"][0]["reason"]
    at = time.monotonic()
    os.kill(stopped, signal.SIGCONT)
    seconds = recovery_seconds(job, at, before["incarnation"])
    job.finish()
    assert run.awaitTermination(DEADLINE_S), run.status
    print(f"stopped worker came back: {seconds:.3f} s after SIGCONT, {assert_exact(job, run)} records exact")


def test_stopped_worker_that_stays_stopped(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits for a stopped worker for as long as workers may take to register; then the stage is replaced.

    Spark ends the task of the old stage, and the kernel the worker under it, stopped as it is: nobody is left to wake.
    """
    monkeypatch.setattr("cutline.barrier_runtime.driver.submission.REGATHERING_SECONDS_MAX", 5.0)
    job = pipeline(live.folder)
    run = live.run(job.graph)
    await_snapshots(run, 2)
    before = run.status
    stopped = before["workers"][0]
    at = time.monotonic()
    os.kill(stopped, signal.SIGSTOP)
    seconds = recovery_seconds(job, at, before["incarnation"])
    assert len(run._supervisor.stage_failures) == 1
    assert wait_for("the end of the stopped worker", lambda: is_gone(stopped))
    job.finish()
    assert run.awaitTermination(DEADLINE_S), run.status
    print(f"stopped worker was replaced: {seconds:.3f} s after SIGSTOP, {assert_exact(job, run)} records exact")


class _Ponderous(Relay):
    """Takes longer for one record than the heartbeats' deadline."""

    def onMessage(self, message: Any, context: Context) -> None:
        if message[0] == 0:
            time.sleep(HEARTBEAT_DEADLINE_SECONDS + 1)
        super().onMessage(message, context)


def test_one_record_longer_than_the_deadline(live: Live) -> None:
    """Heartbeats go on beside user code: nobody is declared dead."""
    job = pipeline(live.folder, middle=_Ponderous())
    job.finish()
    run = live.run(job.graph)
    assert run.awaitTermination(DEADLINE_S), run.status
    assert (run.status["restarts"], run.status["incarnation"]) == ([], 1)
    assert_exact(job, run)
