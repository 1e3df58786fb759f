"""SIGKILL of each kind of process while a numbered-record job runs: every one recovers, and the result is exact."""

from __future__ import annotations

import time

import pytest

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
from benchmarks.process_table import coordinators, is_gone, kill, parent_of, ray_processes
from cutline import Run
from tests.system.faults import HeldBackend

pytestmark = [pytest.mark.spark, pytest.mark.ray]


def _finish(job: Job, run: Run) -> int:
    await_snapshots(run, 1)
    job.finish()
    assert run.awaitTermination(DEADLINE_S), run.status
    return assert_exact(job, run)


def test_worker_process_killed(live: Live) -> None:
    """A killed worker is forked anew under its task, the other rolls back in place, the stage does not fail."""
    job = pipeline(live.folder)
    run = live.run(job.graph)
    for victim in (0, 1):
        await_snapshots(run, 2)
        before = run.status
        at = kill(before["workers"][victim])
        seconds = recovery_seconds(job, at, before["incarnation"])
        after = run.status
        assert after["workers"][1 - victim] == before["workers"][1 - victim]
        assert after["incarnation"] == before["incarnation"] + 1
        assert run._supervisor.stage_failures == []
        print(f"worker process killed: {seconds:.3f} s to the first new message")
    print(f"{_finish(job, run)} records exact")


def test_barrier_task_killed(live: Live) -> None:
    """Spark's Python worker dies with the worker under it: the stage is submitted again and restored."""
    job = pipeline(live.folder)
    run = live.run(job.graph)
    await_snapshots(run, 2)
    before = run.status
    worker = before["workers"][0]
    at = kill(parent_of(worker))
    seconds = recovery_seconds(job, at, before["incarnation"])
    assert len(run._supervisor.stage_failures) == 1
    assert wait_for("the death of the worker", lambda: is_gone(worker))
    print(f"barrier task killed: {seconds:.3f} s to the first new message, {_finish(job, run)} records exact")


def test_killed_again_while_it_recovers(live: Live) -> None:
    """A second worker dies as soon as the first failure is known: one more rollback, still exact."""
    job = pipeline(live.folder)
    run = live.run(job.graph)
    await_snapshots(run, 2)
    workers = run.status["workers"]
    kill(workers[0])
    wait_for("the first rollback", lambda: run.status["restarts"])
    kill(workers[1])
    wait_for("new processes", lambda: _all_new(run, workers))
    print(f"two workers killed: {_finish(job, run)} records exact, {len(run.status['restarts'])} restarts")


def _all_new(run: Run, before: dict[int, int]) -> bool:
    now = run.status["workers"]
    return all(now.get(number, pid) != pid for number, pid in before.items())


#: (the sign that holds a write, the write): before a part, before the manifest, after the manifest, at any time
_PHASES = [("hold-before", "/parts/"), ("hold-before", "manifest"), ("hold-after", "manifest"), ("", "")]


def test_coordinator_killed(live: Live) -> None:
    """Data keeps flowing whatever the phase of the snapshot; it is published whole or not at all; no id comes twice."""
    signs = live.folder / "signs"
    signs.mkdir()
    job = pipeline(live.folder)
    run = live.run(job.graph, backend=HeldBackend(live.folder / "snapshots", signs), retainedSnapshots=1000)
    for sign, what in _PHASES:
        print(
            f"coordinator killed {sign} {what}: longest pause of data {_kill_coordinator(job, run, sign, what):.3f} s"
        )
    print(f"{_finish(job, run)} records exact")


def _kill_coordinator(job: Job, run: Run, sign: str, what: str) -> float:
    """Kill the coordinator in a phase of a snapshot. Return the longest pause of data."""
    signs = job.folder / "signs"
    await_snapshots(run, 2)
    (signs / "held").unlink(missing_ok=True)  # a writer of the phase before may have come back to it
    before = run.status
    manifests = {snapshot.id: snapshot.manifest for snapshot in run.snapshots()}
    if sign:
        (signs / sign).write_text(what)
        wait_for("a write that is held", (signs / "held").exists)
    [coordinator] = coordinators()
    at = time.monotonic()
    run._client.actor.kill(restart=True)
    wait_for("the death of the coordinator", lambda: is_gone(coordinator))
    for path in signs.iterdir():
        path.unlink()
    await_snapshots(run, 2)
    after = run.status
    assert after["incarnation"] == before["incarnation"], "data was rolled back"
    assert after["restarts"] == [] and after["workers"] == before["workers"]
    # The reports are those of the new instance.
    assert {report["id"] for report in after["snapshotReports"]}.isdisjoint(before["snapshots"]), "an id was used twice"
    for snapshot in run.snapshots():
        snapshot.verify()
        assert snapshot.manifest == manifests.get(snapshot.id, snapshot.manifest), "an id was used twice"
    return longest_gap(job, at)


def test_histories_outlive_the_coordinator(live: Live) -> None:
    """SIGKILL of the coordinator's process, twice: restarts and aborted snapshots of all instances stay, each once."""
    job = pipeline(live.folder)
    run = live.run(job.graph)
    reasons = [_kill_worker_and_coordinator(run, restarts) for restarts in (1, 2)]
    assert [each["reason"] for each in run.status["restarts"]] == reasons
    print(f"coordinator killed twice: {reasons}, {_finish(job, run)} records exact")


def _kill_worker_and_coordinator(run: Run, restarts: int) -> str:
    """Kill a worker, and after the restart the coordinator. Return the reason of the restart."""
    await_snapshots(run, 1)
    workers = run.status["workers"]
    kill(workers[0])
    wait_for("the restart", lambda: run.status["restartCount"] == restarts)
    wait_for("new processes", lambda: _all_new(run, {0: workers[0]}))
    before = run.status
    [coordinator] = coordinators()
    kill(coordinator)
    wait_for("the death of the coordinator", lambda: is_gone(coordinator))
    await_snapshots(run, 1)
    after = run.status
    assert after["coordinator_start"] > before["coordinator_start"]
    assert after["restarts"] == before["restarts"] and after["restartCount"] == restarts
    assert after["aborted"][: len(before["aborted"])] == before["aborted"]
    assert after["abortedCount"] == len(after["aborted"]) >= len(before["aborted"])
    reason: str = after["restarts"][-1]["reason"]
    return reason


_RAY = ("gcs_server", "raylet/raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent")


@pytest.mark.timeout(240)
def test_embedded_ray_killed(live_of_another_ray: Live) -> None:
    """Ray is started again in the driver, which lives on. Data keeps flowing, and no worker leaves."""
    live = live_of_another_ray
    job = pipeline(live.folder)
    run = live.run(job.graph)
    for victim in _RAY:
        seconds, gap = _kill_ray(job, run, victim)
        print(f"{victim} killed: {seconds:.1f} s to snapshots, longest pause of data {gap:.3f} s")
    print(f"{_finish(job, run)} records exact")


def _kill_ray(job: Job, run: Run, victim: str) -> tuple[float, float]:
    """Kill a process of the embedded Ray. Return seconds to the second snapshot, and the longest pause of data."""
    await_snapshots(run, 2)
    before = run.status
    [coordinator] = coordinators()
    [pid] = wait_for(f"a {victim}", lambda: ray_processes(victim))
    at = kill(pid)
    wait_for(f"the death of the coordinator without {victim}", lambda: is_gone(coordinator))
    fresh = await_snapshots(run, 2)
    seconds, gap = time.monotonic() - at, longest_gap(job, at)
    after = run.status
    assert after["incarnation"] == before["incarnation"], "data was rolled back"
    assert after["restarts"] == [] and after["workers"] == before["workers"]
    assert set(fresh).isdisjoint(before["snapshots"]), "an id was used twice"
    return seconds, gap


def test_coordinator_and_worker_killed(live: Live) -> None:
    """Nobody is there to be told of the worker's death; the next life of the coordinator finds out and rolls back."""
    job = pipeline(live.folder)
    run = live.run(job.graph)
    await_snapshots(run, 2)
    before = run.status
    at = kill(before["workers"][0])
    kill(coordinators()[0])
    seconds = recovery_seconds(job, at, before["incarnation"])
    print(f"coordinator and worker killed: {seconds:.3f} s, {_finish(job, run)} records exact")
