"""Live runs whose store of totals is paused, stopped or killed: input goes on, and each total is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.live import Live, await_snapshots, wait_for
from benchmarks.process_table import kill
from benchmarks.servers import PostgreSQLServer, RedisServer, Server
from cutline import MonoidClocks, Run
from cutline.snapshot.plan.modes import ModeWish
from tests.system.totals import FEW_KEYS, MANY_KEYS, MODES, Job, added, noted_store, offsets_of

pytestmark = [pytest.mark.spark, pytest.mark.ray]

#: {how a server is away: (what ends its work, what begins it again)}
_FAILURES: dict[str, tuple[Callable[[Server], None], Callable[[Server], None]]] = {
    "paused": (Server.pause, Server.resume),
    "stopped": (Server.stop, Server.start),
}


def _job(live: Live, server: Server, mode: ModeWish, keys: int = FEW_KEYS) -> Job:
    return Job(live, noted_store(server.url, live.folder), keys, mode)


def _store(run: Run) -> dict[str, Any]:
    """Return what the status shows of the store."""
    return dict(run.status["mode"]["stores"]["totals"])


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


def test_a_store_is_killed_in_the_middle_of_a_snapshot(live: Live, redis_server: RedisServer) -> None:
    """The rest of the cells is written when the store is back, in the same snapshot."""
    job = _job(live, redis_server, MODES["negotiated"], MANY_KEYS)
    run = job.submit()
    await_snapshots(run, 1)
    job.hold()
    redis_server.kill()
    job.let_go()
    assert "Redis keys totals" in wait_for("the error of the store", lambda: _store(run)["error"])
    _await_added(run, MANY_KEYS)
    redis_server.start()
    await_snapshots(run, 2)
    wait_for("a store without an error", lambda: not _store(run)["error"])
    assert run.status["abortedCount"] == run.status["restartCount"] == 0, run.status
    print(f"{job.finish(run):,} messages")


@pytest.mark.parametrize(
    ("server", "mode"),
    [("postgresql", "epochs"), ("redis_server", "markers")],
    indirect=["server"],
)
def test_a_store_and_a_worker_are_killed_in_the_middle_of_a_snapshot(live: Live, server: Server, mode: str) -> None:
    """What was half-written is rolled back: the sources end where the restore begins, so nothing is written over it."""
    job = _job(live, server, MODES[mode], MANY_KEYS)
    run = job.submit()
    await_snapshots(run, 2)
    job.hold()
    (live.folder / "enough").touch()
    server.kill()
    kill(run.status["workers"][0])
    server.start()
    wait_for("a new incarnation", lambda: run.status["incarnation"] > 1)
    job.let_go()
    count = job.finish(run)
    assert count > 0
    assert job.written() - {each.id for each in run.snapshots()}, "a snapshot was written, and never published"
    print(f"{count:,} messages")


def test_a_restore_waits_for_its_store(live: Live, postgresql: PostgreSQLServer) -> None:
    """A store that is away costs no restart while it comes back in time."""
    job = _job(live, postgresql, MODES["epochs"])
    run = job.submit()
    await_snapshots(run, 1)
    postgresql.kill()
    kill(run.status["workers"][0])
    wait_for("a restore without its store", (live.folder / "not-taken").exists)
    postgresql.start()
    await_snapshots(run, 1)
    assert run.status["restartCount"] == 1
    print(f"{job.finish(run):,} messages")


def test_memory_is_bounded(live: Live, postgresql: PostgreSQLServer) -> None:
    """With the store away, sources are held where the differences have their bytes. They go on when it is back."""
    job = _job(live, postgresql, MonoidClocks(memory=100_000, clock="negotiated"), MANY_KEYS)
    run = job.submit()
    await_snapshots(run, 1)
    postgresql.pause()
    try:
        wait_for("sources that are held", lambda: _are_held(run))
        shown = _store(run)
        assert shown["openBytes"] + shown["cutBytes"] > 100_000, shown
        print(f"held after {added(run):,} messages: {shown}")
    finally:
        postgresql.resume()
    _await_added(run, MANY_KEYS)
    assert run.status["restartCount"] == 0
    print(f"{job.finish(run):,} messages")


def _are_held(run: Run) -> bool:
    """Return whether nothing was sent or added lately, and all edges show why."""
    counts = [(report["progress"]["sent"], report["progress"]["processed"]) for report in run.recentProgress[-4:]]
    pressure = [edge["backPressure"] for edge in run.status["edges"]]
    return len(counts) == 4 and counts == counts[:1] * 4 and min(pressure) > 0.4
