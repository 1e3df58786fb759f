"""From a fault to the first message that had not been processed before, tier by tier of recovery."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ray

from barrier_runtime import Run
from benchmarks.result import Result, spread_of
from benchmarks.session import live
from benchmarks.tripwire import Tripwire
from tests.system.live import (
    Job,
    await_snapshots,
    coordinators,
    is_gone,
    kill,
    longest_gap,
    parent_of,
    pipeline,
    recovery_seconds,
    wait_for,
)

#: Faults of each tier, one after the other in one run.
REPEATS = 7


def _raise(job: Job, run: Run) -> float:
    tripped = job.folder / "tripped"
    tripped.unlink(missing_ok=True)
    (job.folder / "wire").touch()
    return float(wait_for("the exception", lambda: tripped.exists() and tripped.read_text()))


def _kill_worker(job: Job, run: Run) -> float:
    return kill(run.status["workers"][0])


def _kill_task(job: Job, run: Run) -> float:
    return kill(parent_of(run.status["workers"][0]))


_TIERS: dict[str, Callable[[Job, Run], float]] = {
    "exception": _raise,
    "worker process": _kill_worker,
    "barrier task": _kill_task,
}


def measure() -> Iterator[Result]:
    """One figure for each tier."""
    with live() as there:
        for number, (tier, fault) in enumerate(_TIERS.items()):
            job = _job(there.folder / str(number))
            run = there.run(job.graph)
            seconds = [_recover(job, run, fault) for _ in range(REPEATS)]
            run.stop()
            yield Result("recovery", {"fault": tier, "repeats": REPEATS}, spread_of("seconds", seconds))
        job = _job(there.folder / "coordinator")
        run = there.run(job.graph)
        pauses = [_lose_coordinator(job, run) for _ in range(REPEATS)]
        run.stop()
        yield Result("recovery", {"fault": "coordinator", "repeats": REPEATS}, spread_of("pause_seconds", pauses))


def _job(folder: Path) -> Job:
    return pipeline(folder, middle=Tripwire(folder / "wire", folder / "tripped"), name=f"recovery-{folder.name}")


def _recover(job: Job, run: Run, fault: Callable[[Job, Run], float]) -> float:
    await_snapshots(run, 2)
    incarnation = run.status["incarnation"]
    return recovery_seconds(job, fault(job, run), incarnation)


def _lose_coordinator(job: Job, run: Run) -> float:
    """The longest pause of data, 0 for none above the noise, until the next life has published a snapshot."""
    await_snapshots(run, 2)
    [coordinator] = coordinators()
    at = time.monotonic()
    ray.kill(run._client.actor, no_restart=False)
    wait_for("the death of the coordinator", lambda: is_gone(coordinator))
    await_snapshots(run, 1)
    return longest_gap(job, at)
