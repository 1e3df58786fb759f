"""Measure the seconds from a fault to the first message that was not processed before, and the steps of that time.

Each step ends with an event that can be observed from outside, because an observed run must not be slower::

    fault ─detect─> the coordinator counts a restart ─decide─> its claim is written
          ─relaunch─> the youngest worker was forked ─restore─> a node acts ─replay─> the failure point is passed
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.failing_node import FailingNode, Steady
from benchmarks.live import (
    DEADLINE_S,
    Job,
    Live,
    assert_exact,
    await_snapshots,
    longest_gap,
    pipeline,
    recovery_seconds,
    wait_for,
)
from benchmarks.process_table import coordinators, forked_at, is_gone, kill, parent_of
from benchmarks.result import Result, metric
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place, scratch
from cutline import FileSystemBackend, Run
from cutline.snapshot.errors import CutlineError

#: Subtasks of each node, and workers.
PARALLELISM = 2
#: Records a second of each source, so few that catching up takes little time.
RATE = 5_000.0


class State(NamedTuple):
    """Size of the state to restore."""

    total_bytes: int
    #: seconds between snapshots
    interval: float
    #: faults of each kind in a run, for each round
    rounds: int


STATES = {"small": State(1_000, 0.1, 3), "1GB": State(1_000_000_000, 1.0, 1)}
STEPS = ("detect", "decide", "relaunch", "restore", "replay")


class Recovered(NamedTuple):
    """Seconds of a recovery, and of each of its steps."""

    seconds: float
    steps: dict[str, float]


def _raise(job: Job, run: Run) -> float:
    failed = job.folder / "failed"
    failed.unlink(missing_ok=True)
    (job.folder / "fail").touch()
    return float(wait_for("the exception", lambda: failed.exists() and failed.read_text()))


def _kill_worker(job: Job, run: Run) -> float:
    return kill(run.status["workers"][0])


def _kill_task(job: Job, run: Run) -> float:
    return kill(parent_of(run.status["workers"][0]))


FAULTS: dict[str, Callable[[Job, Run], float]] = {
    "exception": _raise,
    "worker_kill": _kill_worker,
    "task_kill": _kill_task,
}
COORDINATOR_KILL = "coordinator_kill"


class Case(NamedTuple):
    """A fault, and the name of the state that is restored after the fault."""

    fault: str
    state: str


def configurations(size: RunSize) -> Cases:
    """Return one case for each state and fault. The loss of a coordinator stops no data, so its pause is measured."""
    return {
        Case(fault, state): _configuration(fault, state, size)
        for state in size.choose(tuple(STATES), ("small",))
        for fault in (*FAULTS, COORDINATOR_KILL)
    }


def _configuration(fault: str, state: str, size: RunSize) -> Configuration:
    parallelism = {} if fault == COORDINATOR_KILL else {"parallelism": PARALLELISM}
    return {"fault": fault, "state": state, **parallelism, **size.configuration()}


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case. All faults of a state happen in turn in one run."""
    live = place()
    for name in dict.fromkeys(case.state for case in cases):
        chosen = {case: configuration for case, configuration in cases.items() if case.state == name}
        rounds = size.repeats * size.choose(STATES[name].rounds, 1)
        found: dict[Case, list[Recovered]] = {case: [] for case in chosen if case.fault in FAULTS}
        pauses: list[float] = []
        with scratch(live) as folder:
            job, run = _start(live, folder, STATES[name])
            for number in range(rounds):
                for case, configuration in chosen.items():
                    show_progress("recovery", configuration, number + 1, rounds)
                    if case.fault == COORDINATOR_KILL:
                        pauses.append(_lose_coordinator(job, run))
                    else:
                        found[case].append(_recover(job, run, FAULTS[case.fault]))
            _finish(job, run, STATES[name])
        for case, recoveries in found.items():
            yield _result(chosen[case], recoveries)
        if pauses:
            configuration = chosen[Case(COORDINATOR_KILL, name)]
            yield Result("recovery", configuration, {"pause_ms": metric("ms", [pause * 1e3 for pause in pauses])})


def _start(live: Live, folder: Path, state: State) -> tuple[Job, Run]:
    middle = FailingNode(folder, state.total_bytes // 8 // PARALLELISM)
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
        max(forked_at(pid) for pid in run.status["workers"].values()),
        _acting_at(job, incarnation),
        fault_at + seconds,
    )
    steps, before = {}, fault_at
    for step, at in zip(STEPS, reached, strict=True):
        # Some steps overlap. A step ends no sooner than the step before it.
        steps[step], before = max(0.0, at - before), max(at, before)
    return Recovered(seconds, steps)


def _monotonic(epoch: float) -> float:
    return epoch - time.time() + time.monotonic()


def _claimed_at(root: Path) -> float:
    """Return when the newest claim was written."""
    return max(path.stat().st_mtime for path in root.glob("*/claims/*"))


def _acting_at(job: Job, incarnation: int) -> float:
    """Return when the node in the middle received the first message after `incarnation`."""
    lines = (line.split() for line in (job.folder / "acting").read_text().splitlines())
    return min(float(at) for number, at in lines if int(number) > incarnation)


def _lose_coordinator(job: Job, run: Run) -> float:
    """Kill the coordinator. Return the longest pause of data until its successor has published, or 0 for none."""
    await_snapshots(run, 2)
    [coordinator] = coordinators()
    at = time.monotonic()
    run._client.actor.kill(restart=True)
    wait_for("the death of the coordinator", lambda: is_gone(coordinator))
    await_snapshots(run, 1)
    return longest_gap(job, at)


def _finish(job: Job, run: Run, state: State) -> None:
    """Let the run end. Check that every record arrived once and in order, and that the arrays are unchanged."""
    job.finish()
    run.awaitTermination(DEADLINE_S)
    assert_exact(job, run)
    expected = np.arange(state.total_bytes // 8 // PARALLELISM)
    for _, array in run.snapshots()[-1].node("middle").states:
        if not np.array_equal(array, expected):
            raise CutlineError("recovery: an array came back changed")


def _result(configuration: Configuration, recoveries: list[Recovered]) -> Result:
    metrics = {"seconds": metric("s", [each.seconds for each in recoveries])}
    for step in STEPS:
        metrics[f"{step}_s"] = metric("s", [each.steps[step] for each in recoveries])
    return Result("recovery", configuration, metrics)
