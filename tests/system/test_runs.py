"""The `Run` handle, live: status, progress, invariants, ends of every kind, and what submit refuses."""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Live, assert_exact, await_snapshots, pipeline, wait_for
from benchmarks.numbered_nodes import Relay
from benchmarks.process_table import coordinators, kill
from cutline import BarrierRuntime, Context, FileSystemBackend, Graph, MemoryBackend, Node, RestartPolicy, Run
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.stored.snapshot import Snapshot
from tests.slots import SLOTS
from tests.system.faults import DimDisk

pytestmark = [pytest.mark.spark, pytest.mark.ray]


def test_status_and_progress(live: Live) -> None:
    """A run tells how it stands, how fast it is, where its messages are, and where the time of its snapshots went."""
    job = pipeline(live.folder)
    run = live.run(job.graph)
    await_snapshots(run, 1)
    progress = wait_for("progress with rates", lambda: _moving(run))
    assert run.isActive and run.exception() is None and run.awaitTermination(0.0) is False
    assert progress["name"] == "job" and progress["phase"] == "running"
    assert progress["snapshot"]["state"] == "published" and progress["snapshot"]["initiator"] == "interval"
    assert run.recentProgress[-1]["timestamp"] >= progress["timestamp"]
    status = run.status
    assert sorted(status["workers"]) == [0, 1] and status["incarnation"] == 1 and status["outcome"] is None
    job.finish()
    assert run.awaitTermination() is None
    status = run.status
    assert (status["outcome"], status["restarts"], run.isActive) == ("finished", [], False)
    assert run.stop() is None
    count = assert_exact(job, run)
    _assert_all_passed(status, count)
    _assert_report(status["snapshotReports"][-1], run.snapshots()[-1])
    assert all(run.snapshots()[-1].channel(c.source, c.target).messages == [] for c in run.snapshots()[-1].channels)
    print(f"{count} records; {progress['processedMessagesPerSecond']:.0f} messages a second")


def _assert_all_passed(status: dict[str, Any], count: int) -> None:
    """The numbers of a run that ended by itself are whole: each record once on each edge, and the ends of channels."""
    ends = 4  # of two subtasks to two
    for edge, ways in zip(status["edges"], (("numbers", "middle"), ("middle", "ledger")), strict=True):
        assert (edge["source"], edge["target"]) == ways
        assert (edge["sent"], edge["processed"], edge["queued"]) == (count + ends, count + ends, 0)
        assert edge["bytes"] > 8 * count and 0.0 <= edge["backPressure"] <= 1.0
    assert {name: (node["parallelism"], node["ended"]) for name, node in status["nodes"].items()} == {
        "numbers": (2, 2), "middle": (2, 2), "ledger": (2, 2),
    }  # fmt: skip
    assert all(0.0 <= node["busy"] <= 1.0 for node in status["nodes"].values())


def _assert_report(report: dict[str, Any], snapshot: Snapshot) -> None:
    assert (report["id"], report["state"], report["bytes"]) == (snapshot.id, "published", snapshot.size)
    assert (report["channelBytes"], report["channelMessages"]) == (0, 0), "nothing is left when all has ended"
    assert (report["acknowledged"], report["subtasks"]) == (6, 6)
    assert report["slowest"] in [f"{node}[{index}]" for node in ("numbers", "middle", "ledger") for index in (0, 1)]
    phases = {phase: report[f"{phase}Ms"] for phase in ("trigger", "align", "capture", "upload", "publish")}
    assert sum(phases.values()) == pytest.approx(report["durationMs"], abs=0.01) and min(phases.values()) >= 0.0
    assert report["captureMs"] > 0.0 and report["uploadMs"] > 0.0 and report["publishMs"] > 0.0
    print(f"final snapshot: {report['durationMs']} ms, {phases}")


def _moving(run: Run) -> dict[str, Any] | None:
    progress = run.lastProgress
    return progress if progress and progress["processedMessagesPerSecond"] > 0 else None


def test_live_name_is_refused(live: Live) -> None:
    """The same driver cannot submit a name that is live, by any runtime, but may run another one beside it."""
    job = pipeline(live.folder, 1)
    runtime = live.runtime()
    run = live.submit(runtime, job.graph)
    for again in (runtime, live.runtime(backend=FileSystemBackend(live.backend.root))):
        with pytest.raises(RunFailed, match="is live in this driver"):
            live.submit(again, job.graph)
    other = live.submit(runtime, pipeline(live.folder / "other", 1).graph, name="other")
    await_snapshots(other, 1)
    await_snapshots(run, 1)
    assert runtime.runs() == ["job", "other"]
    assert run.status["incarnation"] == 1, "nobody took the run"


def test_finished_run_is_returned_as_finished(live: Live) -> None:
    """Submitting a finished run again repeats its commits and nothing else: no record is processed twice."""
    job = pipeline(live.folder)
    job.finish()
    runtime = live.runtime()
    run = live.submit(runtime, job.graph)
    assert run.awaitTermination(DEADLINE_S)
    ids = [snapshot.id for snapshot in run.snapshots()]
    again = live.submit(runtime, job.graph)
    assert again.awaitTermination(DEADLINE_S)
    assert again.status["outcome"] == "finished"
    assert [snapshot.id for snapshot in again.snapshots()] == ids
    assert_exact(job, again)


def test_coordinator_is_no_batch_job(live: Live) -> None:
    """It has the driver's niceness, not that of Ray's workers: a nice one waits for the workers' turns at each step."""
    run = live.run(pipeline(live.folder).graph)
    await_snapshots(run, 1)
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in coordinators()} == {os.getpriority(os.PRIO_PROCESS, 0)}


def test_too_few_slots(live: Live) -> None:
    """A stage that Spark could never start is refused at once, with the numbers."""
    with pytest.raises(RunFailed, match=rf"{SLOTS + 1} workers .* has {SLOTS}"):
        live.run(pipeline(live.folder).graph, workers=SLOTS + 1)


def test_one_name_submitted_twice_at_one_time(live: Live) -> None:
    """Two runtimes of one driver, on one place: the second finds the first one's run live, however close they are."""
    graph = Graph("ticking").add("ticking", _Ticking(10_000))
    together = threading.Barrier(2)

    def submit(runtime: BarrierRuntime) -> Run | RunFailed:
        together.wait(DEADLINE_S)
        try:
            return live.submit(runtime, graph)
        except RunFailed as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(submit, (live.runtime(), live.runtime()), timeout=DEADLINE_S))
    assert sum(isinstance(outcome, Run) for outcome in outcomes) == 1
    assert any("is live in this driver" in str(outcome) for outcome in outcomes)


def test_invariants_are_judged(live: Live) -> None:
    """Every published snapshot is judged; what does not hold, or raises, is named with the snapshot."""
    job = pipeline(live.folder)
    job.graph.addInvariant("verifies", _verifies)
    job.graph.addInvariant("never", lambda snapshot: False)
    job.graph.addInvariant("broken", lambda snapshot: snapshot.node("nobody") is not None)
    run = live.run(job.graph)
    await_snapshots(run, 2)
    job.finish()
    assert run.awaitTermination(DEADLINE_S)
    verdicts = run.status["invariants"]
    newest = run.status["snapshots"][-1]
    sound = {"holds": True, "snapshot": newest, "reason": "", "violations": [], "unreadable": []}
    sound |= {"violationCount": 0, "unreadableCount": 0}
    assert verdicts["verifies"] == sound
    assert "no node 'nobody'" in verdicts["broken"]["reason"]
    assert verdicts["never"]["violations"][-1] == verdicts["broken"]["violations"][-1] == newest


def _verifies(snapshot: Snapshot) -> bool:
    snapshot.verify()
    return True


def test_an_invariant_that_hangs_stops_no_reports(live: Live) -> None:
    """The run's monitor goes on, further snapshots are published, and the end comes when it returns."""
    release = threading.Event()
    job = pipeline(live.folder)
    job.graph.addInvariant("hangs", lambda snapshot: release.wait(DEADLINE_S))
    run = live.run(job.graph)
    try:
        await_snapshots(run, 2)
        _await_progress(run)
        assert run.status["invariants"]["hangs"]["holds"] is None
    finally:
        release.set()
    job.finish()
    assert run.awaitTermination(DEADLINE_S)
    assert run.status["invariants"]["hangs"]["snapshot"] == run.status["snapshots"][-1]


def test_monitor_survives_unreadable_snapshots(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    """What it cannot read now is judged later, what is damaged is named, and the end is seen whatever is there."""
    disk, judged = DimDisk(), dict[int, bool]()
    job = pipeline(live.folder)
    job.graph.addInvariant("read", lambda snapshot: judged.setdefault(snapshot.id, True))
    run = live.run(job.graph, backend=FileSystemBackend(live.folder / "snapshots", disk=disk), retainedSnapshots=1000)
    await_snapshots(run, 1)
    disk.fault = "error"
    unread = wait_for("the error", lambda: _said(caplog, "is not judged yet: .*Input/output error"))
    _await_progress(run)
    disk.fault = ""
    wait_for("its verdict", lambda: unread in judged)
    disk.fault = "damage"
    damaged = wait_for("the damage", lambda: _said(caplog, "cannot be judged: .*offset"))
    disk.fault = ""
    wait_for("a later verdict", lambda: max(judged) > damaged)
    job.finish()
    assert run.awaitTermination(DEADLINE_S)
    assert run.status["outcome"] == "finished" and damaged not in judged
    verdict = run.status["invariants"]["read"]  # which shows the newest ones
    assert damaged in verdict["unreadable"] or verdict["unreadableCount"] > len(verdict["unreadable"])
    assert_exact(job, run)


def _await_progress(run: Run) -> None:
    """Wait for a report of the run's monitor that is not there now."""
    seen = run.recentProgress[-1]["timestamp"] if run.recentProgress else 0.0
    wait_for("further progress", lambda: run.recentProgress and run.recentProgress[-1]["timestamp"] > seen)


def _said(caplog: pytest.LogCaptureFixture, what: str) -> int:
    """The first snapshot of which the monitor said so; 0: it has not."""
    said = re.findall(rf"run job: snapshot (\d+) {what}", caplog.text)
    return int(said[0]) if said else 0


class _Doomed(Relay):
    """Fails at every life, before any snapshot could help."""

    def onMessage(self, message: Any, context: Context) -> None:
        raise RuntimeError(f"doomed in incarnation {context.incarnation}")


def test_restarts_are_exhausted(live: Live) -> None:
    """After so many restarts in a row the run fails with the last reason, and every reason is kept."""
    job = pipeline(live.folder, middle=_Doomed())
    policy = RestartPolicy(maxRestarts=2, delay=0.05, poisonAfter=None)
    run = live.run(job.graph, snapshotInterval=None, restartPolicy=policy)
    with pytest.raises(RunFailed, match=r"doomed in incarnation 3(.|\n)*maxRestarts is 2"):
        run.awaitTermination(DEADLINE_S)
    assert isinstance(run.exception(), RunFailed)
    assert [f"incarnation {n}" in each["reason"] for n, each in enumerate(run.status["restarts"], 1)] == [True, True]


def test_memory_backend_recovers_and_resumes(live: Live) -> None:
    """Snapshots in the coordinator's memory survive a worker; stopped, the same driver goes on from them."""
    job = pipeline(live.folder)
    runtime = live.runtime(backend=MemoryBackend())
    run = live.submit(runtime, job.graph)
    await_snapshots(run, 2)
    kill(run.status["workers"][0])
    wait_for("the restart", lambda: run.status["restarts"])
    await_snapshots(run, 1)
    last = run.stop(withSnapshot=True, timeout=DEADLINE_S)
    assert last is not None
    assert run.snapshots()[-1].id == last.id == runtime.snapshots("job")[-1].id
    job.finish()
    again = live.submit(runtime, job.graph)
    assert again.awaitTermination(DEADLINE_S)
    count = assert_exact(job, again)
    assert sum(again.snapshots()[-1].node("middle").states) == count


def test_memory_backend_is_lost_with_the_coordinator(live: Live) -> None:
    """Nothing is made up: the run fails, says why and what would have survived."""
    run = live.run(pipeline(live.folder).graph, backend=MemoryBackend())
    await_snapshots(run, 1)
    run._client.actor.kill(restart=True)
    with pytest.raises(RunFailed, match="FileSystemBackend"):
        run.awaitTermination(DEADLINE_S)


class _Ticking(Node):
    """Counts its timers, each of which registers the next one, up to `last`."""

    def __init__(self, last: int) -> None:
        self.last, self.fired = last, 0

    def onStart(self, context: Context) -> None:
        context.registerTimer(context.now + 0.01)

    def onTimer(self, at: float, context: Context) -> None:
        assert context.now >= at
        self.fired += 1
        if self.fired < self.last:
            context.registerTimer(at + 0.01)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.fired

    def restoreState(self, state: Any) -> None:
        self.fired = state


def test_timers_survive_a_kill(live: Live) -> None:
    """A timer is part of the state: after a kill it fires, once, and the node ends when none is left."""
    graph = Graph("ticking").add("ticking", _Ticking(100))
    run = live.run(graph, snapshotInterval=0.05)
    await_snapshots(run, 2)
    kill(run.status["workers"][0])
    assert run.awaitTermination(DEADLINE_S), run.status
    assert len(run.status["restarts"]) == 1
    assert run.snapshots()[-1].node("ticking").state == 100


class _Countdown(Node):
    """Sends a number round a cycle, one less each time, until it is 0."""

    def __init__(self, start: int) -> None:
        self.start, self.seen = start, 0

    def onStart(self, context: Context) -> None:
        if self.start:
            context.send(self.start)

    def onMessage(self, message: int, context: Context) -> None:
        self.seen += 1
        if message:
            context.send(message - 1)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.seen

    def restoreState(self, state: Any) -> None:
        self.seen = state


def test_cycle_ends_by_idleness(live: Live) -> None:
    """Without an interval, a cycle that has run dry is noticed, shown by a snapshot, and the run ends."""
    graph = Graph("countdown").add("a", _Countdown(999)).add("b", _Countdown(0))
    graph.connect("a", "b").connect("b", "a")
    run = live.run(graph, workers=2, snapshotInterval=None)
    assert run.awaitTermination(DEADLINE_S), run.status
    final = run.snapshots()[-1]
    assert final.node("a").state + final.node("b").state == 1000
    assert final.channel("a", "b").sent == final.channel("a", "b").processed
