"""What user code may do wrong, live: each hook that raises, and what cannot be serialised. Named, and never a hang."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from benchmarks.live import DEADLINE_S, Job, Live, assert_exact, await_snapshots, pipeline, wait_for
from benchmarks.numbered_nodes import Lane, Ledger, Numbers, Relay
from cutline import Context, Node, RestartPolicy
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.node import End
from tests.system.faults import Faults, Shaky

pytestmark = [pytest.mark.spark, pytest.mark.ray]


class _ShakyNumbers(Numbers):
    """Its `poll` raises once it has seen a snapshot published, when that fault is due."""

    def __init__(self, faults: Faults, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.faults, self.published = faults, False

    def onPublished(self, snapshotId: int) -> None:
        self.published = True

    def poll(self, context: Context) -> float | End:
        if self.published and self.faults.fire("poll"):
            raise RuntimeError("scheduled: poll")
        return super().poll(context)


class _ShakyLedger(Ledger):
    """Its two-phase hooks raise, when that fault is due: at the worst moment, when half the work is done."""

    def __init__(self, faults: Faults, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.faults = faults

    def prepareCommit(self, snapshotId: int) -> Any:
        prepared = super().prepareCommit(snapshotId)
        if prepared is not None and self.faults.fire("prepareCommit"):
            raise RuntimeError("scheduled: prepareCommit")
        return prepared

    def commit(self, snapshotId: int, prepared: Any) -> None:
        if self.faults.fire("commit"):
            raise RuntimeError("scheduled: commit")
        super().commit(snapshotId, prepared)
        if self.faults.fire("commit, late"):
            raise RuntimeError("scheduled: commit, late")

    def discardUncommitted(self, context: Context) -> None:
        if self.faults.fire("discardUncommitted"):
            raise RuntimeError("scheduled: discardUncommitted")
        super().discardUncommitted(context)


_SCHEDULE = ("poll", "prepareCommit", "discardUncommitted", "commit", "commit, late")


def _shaky(folder: Path) -> tuple[Job, Faults]:
    faults = Faults(folder / "done", _SCHEDULE)
    job = pipeline(
        folder,
        source=_ShakyNumbers(faults, folder / "done", len(_SCHEDULE)),
        sink=_ShakyLedger(faults, folder, 2),
    )
    return job, faults


def test_source_and_sink_hooks_that_raise_once(live: Live) -> None:
    """Every one rolls the run back, nothing is lost or doubled, and the reason names hook and subtask."""
    job, faults = _shaky(live.folder)
    run = live.run(job.graph)
    assert run.awaitTermination(DEADLINE_S), f"not over; fired: {faults.fired()}; {run.status}"
    assert faults.fired() == list(_SCHEDULE)
    assert_exact(job, run)
    reasons = [each["reason"] for each in run.status["restarts"]]
    raised = [reason.rstrip().rpartition("scheduled: ")[2] for reason in reasons]
    # Two subtasks may raise at one time, each in its turn; what fails at one time is one failure (PROTOCOL 6.1).
    assert len(set(raised)) == len(raised) >= (len(_SCHEDULE) + 1) // 2 and set(raised) <= set(_SCHEDULE), raised
    assert all("numbers[" in reason or "ledger[" in reason for reason in reasons)


_ALIVE: WeakSet[Node] = WeakSet()


class _Counted(Shaky):
    """Notes at each start how many instances its process holds."""

    def __init__(self, faults: Faults, notes: Path) -> None:
        super().__init__(faults)
        self.notes = notes

    def open(self, context: Context) -> None:
        super().open(context)
        _ALIVE.add(self)
        with self.notes.open("a") as file:
            file.write(f"{os.getpid()} {len(_ALIVE)}\n")


def test_what_is_rolled_back_is_given_back(live: Live) -> None:
    """A process that lives on holds the node's state once, not also that of the incarnation before."""
    notes = live.folder / "alive"
    job = pipeline(live.folder, middle=_Counted(Faults(live.folder / "done", ("onMessage",)), notes))
    run = live.run(job.graph)
    assert run.awaitTermination(DEADLINE_S), run.status
    assert_exact(job, run)
    pids, counts = zip(*map(str.split, notes.read_text().splitlines()), strict=True)
    assert len(pids) > len(set(pids)), "no process lived on"
    assert set(counts) == {"1"}


class _BadState(Relay):
    """Its state cannot be captured, or not be serialised."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        if self.kind == "raises":
            raise RuntimeError("no state today")
        return threading.Lock()


@pytest.mark.parametrize(
    ("kind", "text"), [("raises", "no state today"), ("a lock", "lock")], ids=["raises", "unserialisable"]
)
def test_snapshots_that_always_fail(live: Live, kind: str, text: str) -> None:
    """A failing snapshot is noted by name and the run goes on; more in a row than is tolerable end it."""
    job = pipeline(live.folder, middle=_BadState(kind))
    policy = RestartPolicy(maxRestarts=1, delay=0.05)
    run = live.run(job.graph, snapshotInterval=0.02, tolerableFailedSnapshots=2, restartPolicy=policy)
    with pytest.raises(RunFailed) as failed:
        run.awaitTermination(DEADLINE_S)
    assert text in str(failed.value) and "middle[" in str(failed.value) and "snapshotState" in str(failed.value)
    status = run.status
    assert status["snapshots"] == [] and len(status["restarts"]) == 1
    assert len(status["aborted"]) >= 6, "three in a row, twice"
    assert text in status["aborted"][0]["reason"]
    reports = [(report["id"], report["reason"]) for report in status["snapshotReports"] if report["state"] == "aborted"]
    assert reports == [(each["id"], each["reason"]) for each in status["aborted"]]


def test_failing_snapshots_are_tolerated(live: Live) -> None:
    """As many failures in a row as are tolerable roll nothing back."""
    faults = Faults(live.folder / "done", ("snapshotState",))
    job = pipeline(live.folder, middle=Shaky(faults))
    run = live.run(job.graph, tolerableFailedSnapshots=1)
    assert run.awaitTermination(DEADLINE_S), run.status
    assert faults.fired() == ["snapshotState"]
    assert (run.status["restarts"], len(run.status["aborted"])) == ([], 1)
    assert_exact(job, run)


class _BadMessage(Relay):
    """Sends what cannot be serialised, or has no key, instead of its first message."""

    def __init__(self, message: Any) -> None:
        super().__init__()
        self.make = message

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(self.make())


def _unpicklable() -> Any:
    return (0, threading.Lock())


def _keyless() -> Any:
    return ("text",)


@pytest.mark.parametrize(
    ("make", "text"), [(_unpicklable, "lock"), (_keyless, "TypeError")], ids=["unserialisable", "no-key"]
)
def test_message_that_cannot_be_sent(live: Live, make: Any, text: str) -> None:
    """The error names the sender, the way and the type; peers do not hang."""
    job = pipeline(live.folder, middle=_BadMessage(make))
    run = live.run(job.graph, snapshotInterval=None, restartPolicy=RestartPolicy(maxRestarts=0))
    with pytest.raises(RunFailed) as failed:
        run.awaitTermination(DEADLINE_S)
    assert text in str(failed.value) and "middle[" in str(failed.value) and "ledger" in str(failed.value)


def test_safe_run_refuses_pickle(live: Live) -> None:
    """With safe=True a message that needs pickle is an error at send, by name."""
    job = pipeline(live.folder, middle=_BadMessage(_needs_pickle))
    run = live.run(job.graph, safe=True, snapshotInterval=None, restartPolicy=RestartPolicy(maxRestarts=0))
    with pytest.raises(RunFailed, match="pickle"):
        run.awaitTermination(DEADLINE_S)


def _needs_pickle() -> Any:
    return (0, Lane(2))


class _CannotRestore(Relay):
    """Refuses its own state, always."""

    def restoreState(self, state: Any) -> None:
        raise RuntimeError("not mine")


def test_restore_that_always_fails(live: Live) -> None:
    """It never starts empty instead: the run fails with the hook's own error, and the snapshots stay."""
    job = pipeline(live.folder, middle=_CannotRestore())
    runtime = live.runtime(restartPolicy=RestartPolicy(maxRestarts=2, delay=0.05))
    run = live.submit(runtime, job.graph)
    await_snapshots(run, 1)
    run.stop()
    count = len(run.snapshots())
    again = live.submit(runtime, job.graph)
    with pytest.raises(RunFailed, match="not mine"):
        again.awaitTermination(DEADLINE_S)
    assert len(runtime.snapshots("job")) == count
    assert len(wait_for("restarts", lambda: again.status["restarts"])) == 2
