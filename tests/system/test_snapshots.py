"""Snapshots asked for, kept, stopped with, gone back to and forked from, live."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from benchmarks.live import DEADLINE_S, Live, assert_exact, await_snapshots, pipeline, wait_for
from benchmarks.process_table import kill
from cutline import END, Context, Graph, MemoryBackend, Node, Run, Source, Subtask
from cutline.channels.limits import CONTROL_BACKLOG_BYTES_MAX
from cutline.snapshot.errors import RestoreRefused, SnapshotAborted
from cutline.snapshot.node import End
from cutline.snapshot.worker.acknowledgements import ACKNOWLEDGED_BYTES_MAX
from tests.system.faults import HeldBackend

pytestmark = [pytest.mark.spark, pytest.mark.ray]


def test_pinned_snapshot_outlives_retention(live: Live) -> None:
    """A pinned snapshot is still there, whole, when newer ones have taken the place of all others."""
    job = pipeline(live.folder)
    run = live.run(job.graph, retainedSnapshots=1)
    pinned = run.takeSnapshot(pinned=True, timeout=DEADLINE_S)
    wait_for("three newer snapshots", lambda: run.status["snapshots"][-1] >= pinned.id + 3)
    wait_for("retention", lambda: len(run.snapshots()) == 2)
    kept = run.snapshots()[0]
    assert (kept.id, kept.pinned) == (pinned.id, True)
    kept.verify()
    run.stop()


_INITIATORS = [[Subtask("middle", 1)], [Subtask("ledger", 0), Subtask("numbers", 1)], [Subtask("numbers", 0)]]


def test_any_initiators(live: Live) -> None:
    """Whoever starts it, everybody takes part, and the cut is exact."""
    run = live.run(pipeline(live.folder).graph, snapshotInterval=None)
    for initiators in _INITIATORS:
        snapshot = run.takeSnapshot(initiators=initiators, timeout=DEADLINE_S)
        snapshot.verify()
        assert len(snapshot.node("middle").states) == 2, initiators
    run.stop()


def test_snapshot_not_taken_in_time(live: Live) -> None:
    """Whoever waits is told when his time is over; the run goes on, and the next one is taken."""
    signs = live.folder / "signs"
    signs.mkdir()
    job = pipeline(live.folder)
    run = live.run(job.graph, snapshotInterval=None, backend=HeldBackend(live.folder / "snapshots", signs))
    run.takeSnapshot(timeout=DEADLINE_S)
    (signs / "hold-before").write_text("manifest")
    with pytest.raises(SnapshotAborted, match=r"0\.5 s"):
        run.takeSnapshot(timeout=0.5)
    (signs / "hold-before").unlink()
    run.takeSnapshot(timeout=DEADLINE_S)
    job.finish()
    assert run.awaitTermination(DEADLINE_S)
    with pytest.raises(SnapshotAborted, match="has ended"):
        run.takeSnapshot()
    assert_exact(job, run)


def test_stop_with_snapshot_and_resume(live: Live) -> None:
    """Stopped with a snapshot, submitted again: it goes on behind the very last message, by graph and by name."""
    job = pipeline(live.folder)
    runtime = live.runtime(snapshotInterval=None)
    run = live.submit(runtime, job.graph)
    run.takeSnapshot(timeout=DEADLINE_S)
    last = run.stop(withSnapshot=True, timeout=DEADLINE_S)
    assert last is not None and not run.isActive and run.exception() is None
    assert run.status["outcome"] == "stopped"
    assert runtime.runs() == ["job"] and runtime.snapshots("job")[-1].id == last.id
    job.finish()
    again = live.submit(runtime, pipeline(live.folder).graph)
    assert again.awaitTermination(DEADLINE_S)
    count = assert_exact(job, again)
    assert sum(again.snapshots()[-1].node("middle").states) == count
    assert again.snapshots()[-1].id > last.id


class _Steps(Source):
    """Sends the next number whenever a snapshot is published, so that the n-th snapshot holds n; ends after `last`."""

    def __init__(self, last: int) -> None:
        self.last, self.sent, self.due = last, 0, True

    def onPublished(self, snapshotId: int) -> None:
        self.due = True

    def poll(self, context: Context) -> float | End:
        if self.sent >= self.last:
            return END
        if self.due:
            self.due = False
            self.sent += 1
            context.send(self.sent)
        return 0.005

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.sent

    def restoreState(self, state: Any) -> None:
        self.sent = state


class _Sum(Node):
    """Adds what it gets, beginning with what it was made with."""

    def __init__(self, start: int = 0) -> None:
        self.sum = start

    def onMessage(self, message: int, context: Context) -> None:
        self.sum += message

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.sum

    def restoreState(self, state: Any) -> None:
        self.sum = state


def _steps(last: int, start: int = 0, name: str = "steps") -> Graph:
    graph = Graph(name)
    graph.add("steps", _Steps(last)).add("sum", _Sum(start))
    return graph.connect("steps", "sum")


#: More steps than any test waits for.
_ENDLESS = 10**9


def _is_sum(run: Run, start: int = 0) -> int:
    """Check that the newest snapshot's state and channel make the sum of what was sent; returns how much that is."""
    newest = run.snapshots()[-1]
    sent = newest.node("steps").state
    assert newest.node("sum").state + sum(newest.channel("steps", "sum").messages) == start + sent * (sent + 1) // 2
    return int(sent)


def test_going_back_is_remembered(live: Live) -> None:
    """A run that went back to an older snapshot goes on from there for good, with ids above all that were used."""
    runtime = live.runtime(retainedSnapshots=100)
    run = live.submit(runtime, _steps(_ENDLESS))
    ids = await_snapshots(run, 4)
    run.stop()
    left = [snapshot.id for snapshot in run.snapshots()]
    back = live.submit(runtime, _steps(_ENDLESS), restoreFrom=ids[0])
    await_snapshots(back, 1)
    back.stop()
    kept = [snapshot.id for snapshot in back.snapshots()]
    assert kept[: kept.index(ids[0]) + 1] == left[: left.index(ids[0]) + 1]
    assert kept[kept.index(ids[0]) + 1] > left[-1]
    again = live.submit(runtime, _steps(_ENDLESS))
    await_snapshots(again, 1)
    assert [snapshot.id for snapshot in again.snapshots()][: len(kept)] == kept
    _is_sum(again)


def test_fresh_start_under_an_old_name(live: Live) -> None:
    """restoreFrom=None begins again, with the graph as submitted, and with new ids."""
    runtime = live.runtime()
    run = live.submit(runtime, _steps(_ENDLESS))
    newest = await_snapshots(run, 3)[-1]
    run.stop()
    fresh = live.submit(runtime, _steps(3, start=1000), restoreFrom=None)
    assert fresh.awaitTermination(DEADLINE_S)
    assert fresh.snapshots()[-1].id > newest
    assert _is_sum(fresh, 1000) == 3


def test_fork(live: Live) -> None:
    """A snapshot of another run starts a run of its own, which resumes as itself; the first one stays as it was."""
    runtime = live.runtime(retainedSnapshots=100)
    run = live.submit(runtime, _steps(_ENDLESS))
    await_snapshots(run, 2)
    origin = run.stop(withSnapshot=True, timeout=DEADLINE_S)
    assert origin is not None
    sent = origin.node("steps").state
    fork = live.submit(runtime, _steps(_ENDLESS), name="fork", restoreFrom=origin)
    await_snapshots(fork, 2)
    fork.stop()
    assert _is_sum(fork) >= sent
    fork = live.submit(runtime, _steps(sent + 50), name="fork")
    assert fork.awaitTermination(DEADLINE_S)
    assert _is_sum(fork) == sent + 50
    assert run.snapshots()[-1].id == origin.id
    assert runtime.runs() == ["fork", "steps"]


def test_changed_graph_is_refused(live: Live) -> None:
    """Another graph than the snapshot's is refused at submit, with every difference; allowed by name it runs."""
    runtime = live.runtime()
    run = live.submit(runtime, _steps(_ENDLESS))
    await_snapshots(run, 1)
    run.stop(withSnapshot=True, timeout=DEADLINE_S)
    sent = run.snapshots()[-1].node("steps").state
    changed = _steps(sent).add("other", _Sum()).connect("steps", "other")
    with pytest.raises(RestoreRefused, match="other"):
        live.submit(runtime, changed)
    allowed = live.submit(runtime, changed, allow={"changedGraph"})
    assert allowed.awaitTermination(DEADLINE_S)
    assert allowed.snapshots()[-1].node("other").state == 0


def test_repeated_output_is_refused(live: Live) -> None:
    """Going back behind what an exactly-once sink committed is refused, unless it is allowed by name."""
    job = pipeline(live.folder)
    runtime = live.runtime()
    run = live.submit(runtime, job.graph)
    oldest = await_snapshots(run, 3)[0]
    run.stop()
    for back in (oldest, None):
        with pytest.raises(RestoreRefused, match="repeatedOutput"):
            live.submit(runtime, job.graph, restoreFrom=back)
    again = live.submit(runtime, job.graph, restoreFrom=oldest, allow={"repeatedOutput"})
    await_snapshots(again, 1)
    again.stop()


def test_many_orders_at_one_time(live: Live) -> None:
    """Eight threads ask at once, while time asks too: each gets a whole snapshot that began after it asked."""
    run = live.run(pipeline(live.folder).graph, snapshotInterval=0.02)
    await_snapshots(run, 1)
    got: list[int] = []

    def ask() -> None:
        known = run.status["snapshots"][-1]
        snapshot = run.takeSnapshot(timeout=DEADLINE_S)
        snapshot.verify()
        assert snapshot.id > known
        got.append(snapshot.id)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(threads)
    run.stop()


#: Less than one control message may hold.
_FAT_BYTES = 30 * 1024 * 1024
#: So many of them are more than may wait on a control connection, let alone than one message holds.
_FAT_NODES = 10


class _Fat(Node):
    """Lives on by timers, and has a state of `_FAT_BYTES`."""

    def onStart(self, context: Context) -> None:
        context.registerTimer(context.now + 0.1)

    def onTimer(self, at: float, context: Context) -> None:
        context.registerTimer(context.now + 0.1)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return bytes(_FAT_BYTES)

    def restoreState(self, state: Any) -> None:
        assert len(state) == _FAT_BYTES


def test_what_was_acknowledged_can_be_restored(live: Live) -> None:
    """States that each may travel are taken from one worker, and come back to it, at the first attempt."""
    assert _FAT_BYTES < ACKNOWLEDGED_BYTES_MAX < CONTROL_BACKLOG_BYTES_MAX < _FAT_NODES * _FAT_BYTES
    graph = Graph("fat")
    for number in range(_FAT_NODES):
        graph.add(f"fat{number}", _Fat())
    run = live.run(graph, backend=MemoryBackend(), workers=1, snapshotInterval=None)
    run.takeSnapshot(timeout=DEADLINE_S)
    kill(run.status["workers"][0])
    wait_for("the restart", lambda: run.status["phase"] == "running" and run.status["incarnation"] > 1)
    assert len(run.status["restarts"]) == 1, run.status["restarts"]
