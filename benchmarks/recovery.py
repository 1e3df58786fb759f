"""From a fault to the first message that had not been processed before, tier by tier, and where the time goes.

The parts are told from what anybody can see, so that nothing is slowed down by being watched::

    fault ─detect─> the coordinator counts a restart ─decide─> its claim is written
          ─relaunch─> the youngest worker was forked ─restore─> a node acts ─replay─> the failure point is passed
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import ray

from barrier_runtime import Run
from benchmarks.effort import Effort
from benchmarks.result import Result, metric
from benchmarks.session import Place, scratch
from benchmarks.tripwire import Steady, Tripwire
from snapshot.errors import CutlineError
from state_backends import FileSystemBackend
from tests.system.live import (
    DEADLINE_S,
    Job,
    Live,
    assert_exact,
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

#: Subtasks of each node, and workers.
PARALLELISM = 2
#: Records of a second, of each source: little to do, so that catching up takes little.
RATE = 5_000.0


class State(NamedTuple):
    """How much there is to restore."""

    total_bytes: int
    #: seconds between snapshots
    interval: float
    #: faults of each kind in one run, for each that was asked for
    rounds: int


STATES = {"small": State(1_000, 0.1, 3), "1GB": State(1_000_000_000, 1.0, 1)}
STEPS = ("detect", "decide", "relaunch", "restore", "replay")


class Recovered(NamedTuple):
    """One recovery: its seconds, and those of each step."""

    seconds: float
    steps: dict[str, float]


def _raise(job: Job, run: Run) -> float:
    tripped = job.folder / "tripped"
    tripped.unlink(missing_ok=True)
    (job.folder / "wire").touch()
    return float(wait_for("the exception", lambda: tripped.exists() and tripped.read_text()))


def _kill_worker(job: Job, run: Run) -> float:
    return kill(run.status["workers"][0])


def _kill_task(job: Job, run: Run) -> float:
    return kill(parent_of(run.status["workers"][0]))


FAULTS: dict[str, Callable[[Job, Run], float]] = {
    "exception": _raise,
    "worker_kill": _kill_worker,
    "task_kill": _kill_task,
}


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for each fault and size of state; and one for the loss of a coordinator, which stops no data."""
    live = place()
    for name in effort.choose(tuple(STATES), ("small",)):
        rounds = effort.repeats * effort.choose(STATES[name].rounds, 1)
        found: dict[str, list[Recovered]] = {fault: [] for fault in FAULTS}
        pauses: list[float] = []
        with scratch(live) as folder:
            job, run = _start(live, folder, STATES[name])
            for _ in range(rounds):
                for fault, recoveries in found.items():
                    recoveries.append(_recover(job, run, FAULTS[fault]))
                pauses.append(_lose_coordinator(job, run))
            _finish(job, run, STATES[name])
        for fault, recoveries in found.items():
            yield _result(name, fault, recoveries, effort)
        configuration = {"fault": "coordinator_kill", "state": name, **effort.configuration()}
        yield Result("recovery", configuration, {"pause_ms": metric("ms", [pause * 1e3 for pause in pauses])})


def _start(live: Live, folder: Path, state: State) -> tuple[Job, Run]:
    middle = Tripwire(folder, state.total_bytes // 8 // PARALLELISM)
    source = Steady(folder / "done", RATE, time.time())
    job = pipeline(folder, PARALLELISM, name="recovery", source=source, middle=middle)
    run = live.run(
        job.graph,
        backend=FileSystemBackend(folder / "snapshots"),
        snapshotInterval=state.interval,
        minPause=state.interval / 2,
        maxConcurrentSnapshots=1,
        retainedSnapshots=1,
    )
    return job, run


def _recover(job: Job, run: Run, fault: Callable[[Job, Run], float]) -> Recovered:
    await_snapshots(run, 2)
    incarnation = run.status["incarnation"]
    fault_at = fault(job, run)
    seconds = recovery_seconds(job, fault_at, incarnation)
    wait_for("the new incarnation", lambda: run.status["incarnation"] > incarnation)
    reached = (
        _monotonic(run.status["restarts"][-1]["timestamp"]),
        _monotonic(_claimed_at(job.folder / "snapshots")),
        max(_forked_at(pid) for pid in run.status["workers"].values()),
        _acting_at(job, incarnation),
        fault_at + seconds,
    )
    steps, before = {}, fault_at
    for step, at in zip(STEPS, reached, strict=True):
        # Some go on side by side: a step ends no sooner than the one before it.
        steps[step], before = max(0.0, at - before), max(at, before)
    return Recovered(seconds, steps)


def _monotonic(epoch: float) -> float:
    return epoch - time.time() + time.monotonic()


def _claimed_at(root: Path) -> float:
    """When the newest claim got its name."""
    return max(path.stat().st_mtime for path in root.glob("*/claims/*"))


def _forked_at(pid: int) -> float:
    """When a process began, in seconds of the monotonic clock; the kernel counts hundredths since the boot."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return since_boot - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()


def _acting_at(job: Job, incarnation: int) -> float:
    """The first message in the middle after `incarnation`."""
    lines = (line.split() for line in (job.folder / "acting").read_text().splitlines())
    return min(float(at) for number, at in lines if int(number) > incarnation)


def _lose_coordinator(job: Job, run: Run) -> float:
    """The longest pause of data, 0 for none above the noise, until the next life has published a snapshot."""
    await_snapshots(run, 2)
    [coordinator] = coordinators()
    at = time.monotonic()
    ray.kill(run._client.actor, no_restart=False)
    wait_for("the death of the coordinator", lambda: is_gone(coordinator))
    await_snapshots(run, 1)
    return longest_gap(job, at)


def _finish(job: Job, run: Run, state: State) -> None:
    """Let the run end; every record must have come once and in order, and the arrays as they were."""
    job.finish()
    run.awaitTermination(DEADLINE_S)
    assert_exact(job, run)
    expected = np.arange(state.total_bytes // 8 // PARALLELISM)
    for _, array in run.snapshots()[-1].node("middle").states:
        if not np.array_equal(array, expected):
            raise CutlineError("recovery: an array came back changed")


def _result(state: str, fault: str, recoveries: list[Recovered], effort: Effort) -> Result:
    metrics = {"seconds": metric("s", [each.seconds for each in recoveries])}
    for step in STEPS:
        metrics[f"{step}_s"] = metric("s", [each.steps[step] for each in recoveries])
    configuration = {"fault": fault, "state": state, "parallelism": PARALLELISM, **effort.configuration()}
    return Result("recovery", configuration, metrics)
