"""Live runs whose store of totals is paused, stopped or killed: input goes on, and each total is exact."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest

from barrier_runtime import Run
from benchmarks.live import Live, await_snapshots, wait_for
from benchmarks.process_table import kill
from benchmarks.servers import PostgreSQLServer, Server
from snapshot import MonoidClocks
from snapshot.plan.modes import ModeWish
from tests.system.totals import FEW_KEYS, MANY_KEYS, MODES, Job, added, noted_store, offsets_of

pytestmark = [pytest.mark.spark, pytest.mark.ray]

#: {how a server is away: (what ends its work, what begins it again)}
_FAILURES: dict[str, tuple[Callable[[Server], None], Callable[[Server], None]]] = {
    "paused": (Server.pause, Server.resume),
    "stopped": (Server.stop, Server.start),
}


def _job(live: Live, server: Server, mode: ModeWish, keys: int = FEW_KEYS) -> Job:
    return Job(live, noted_store(server.url, live.folder), keys, mode)


def _await_added(run: Run, count: int) -> None:
    due = added(run) + count
    wait_for(f"{count} more messages", lambda: added(run) >= due)


@pytest.mark.parametrize(
    ("server", "mode", "failure"),
    [
        ("postgresql", "markers", "paused"),
        ("postgresql", "epochs", "paused"),
        ("postgresql", "negotiated", "stopped"),
        ("redis_server", "epochs", "stopped"),
        ("redis_server", "negotiated", "paused"),
    ],
    indirect=["server"],
)
def test_input_goes_on(live: Live, server: Server, mode: str, failure: str) -> None:
    """No snapshot is aborted while the store is away. Then one write of each key has all that was added meanwhile."""
    away, back = _FAILURES[failure]
    job = _job(live, server, MODES[mode])
    run = job.submit()
    await_snapshots(run, 2)
    away(server)
    try:
        before = set(run.status["snapshots"])
        _await_added(run, 20 * FEW_KEYS)
        due, meanwhile = added(run), set(run.status["snapshots"])
    finally:
        back(server)
    assert len(meanwhile - before) <= 1, "nothing is published without the store"
    newer = await_snapshots(run, 3)[:3]
    assert run.status["abortedCount"] == run.status["restartCount"] == 0, run.status
    offsets = {each.id: sum(offsets_of(each).values()) for each in run.snapshots()}
    # The snapshot that the store was away in, and the next one.
    assert offsets[newer[1]] >= due
    print(f"{due:,} of {job.finish(run):,} messages were there when the store came back")


@pytest.mark.parametrize(
    ("server", "mode"), [("postgresql", "epochs"), ("redis_server", "negotiated")], indirect=["server"]
)
def test_a_store_is_killed_in_the_middle_of_a_snapshot(live: Live, server: Server, mode: str) -> None:
    """The rest of the cells is written when the store is back, in the same snapshot."""
    job = _job(live, server, MODES[mode], MANY_KEYS)
    run = job.submit()
    await_snapshots(run, 1)
    job.hold()
    server.kill()
    job.let_go()
    _await_added(run, MANY_KEYS)
    server.start()
    await_snapshots(run, 2)
    assert run.status["abortedCount"] == run.status["restartCount"] == 0, run.status
    print(f"{job.finish(run):,} messages")


@pytest.mark.parametrize(
    ("server", "mode"),
    [("postgresql", "negotiated"), ("postgresql", "markers"), ("redis_server", "epochs")],
    indirect=["server"],
)
def test_a_store_and_a_worker_are_killed_in_the_middle_of_a_snapshot(live: Live, server: Server, mode: str) -> None:
    """What was half-written is rolled back: the sources end where the restore begins, so nothing is written over it."""
    job = _job(live, server, MODES[mode], MANY_KEYS)
    run = job.submit()
    await_snapshots(run, 1)
    job.hold()
    (live.folder / "enough").touch()
    server.kill()
    kill(run.status["workers"][0])
    server.start()
    wait_for("a new incarnation", lambda: run.status["incarnation"] > 1)
    job.let_go()
    half = {snapshot_id for (_, snapshot_id), _ in job.writes()} - {each.id for each in run.snapshots()}
    print(f"{job.finish(run):,} messages; cells of {len(half)} snapshots were rolled back")


def test_a_store_that_is_away_at_a_restore(live: Live, postgresql: PostgreSQLServer) -> None:
    """The run restarts until the store is back, and its reasons have node and store."""
    job = _job(live, postgresql, MODES["epochs"])
    run = job.submit()
    await_snapshots(run, 1)
    postgresql.kill()
    kill(run.status["workers"][0])
    reasons = wait_for("a restore that failed", lambda: found if len(found := run.status["restarts"]) > 1 else None)
    postgresql.start()
    print(reasons)
    await_snapshots(run, 1)
    print(f"{job.finish(run):,} messages")


@pytest.mark.parametrize("clock", ["epochs", "negotiated"])
def test_memory_is_bounded(live: Live, postgresql: PostgreSQLServer, clock: Literal["epochs", "negotiated"]) -> None:
    """With the store away, sources are held where the differences have their bytes. They go on when it is back."""
    job = _job(live, postgresql, MonoidClocks(memory=100_000, clock=clock), MANY_KEYS)
    run = job.submit()
    await_snapshots(run, 1)
    postgresql.pause()
    try:
        wait_for("sources that are held", partial(_are_held, run))
        print([each["progress"] for each in run.recentProgress[-3:]])
    finally:
        postgresql.resume()
    _await_added(run, MANY_KEYS)
    assert run.status["restartCount"] == 0
    print(f"{job.finish(run):,} messages")


def _are_held(run: Run) -> bool:
    """Return whether no edge had room lately."""
    return all(edge["backPressure"] > 0.9 for edge in run.status["edges"])
