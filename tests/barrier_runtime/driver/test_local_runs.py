"""Whole runs without Spark and Ray: submit, snapshot, stop, go on, fork, fail, recover, look at."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cutline import END, BarrierRuntime, Context, FileSystemBackend, Graph, MemoryBackend, Node, Sink, Source
from cutline.barrier_runtime.driver import runtime as runtime_module
from cutline.barrier_runtime.driver.run import Run
from cutline.barrier_runtime.page.settings import Page
from cutline.snapshot.coordinator.events import CloseRequest, SnapshotRequested, StopRequested
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.errors import GraphError, RestoreRefused, RunFailed, SnapshotAborted, SnapshotInUse
from cutline.snapshot.node import End
from tests.barrier_runtime.local_cluster import LocalCluster, local_cluster
from tests.leaks import LeakCheck
from tests.page.asking import ask

#: A second is enough; a test that passes does not wait for this.
_DEADLINE_S = 30.0
_ENDLESS = 10**9
_KEYS = 5


class Numbers(Source):
    """0, 1, 2, … below `count`, a few at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.next = 0

    def poll(self, context: Context) -> float | End:
        for _ in range(10):
            if self.next >= self.count:
                return END
            context.send(self.next)
            self.next += 1
        return 0.001

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.next

    def restoreState(self, state: int) -> None:
        self.next = state


class Count(Node):
    """Counts messages by key. Fails once at `failAt`, while the file of that name is missing."""

    def __init__(self, failures: Path | None, fail_at: int) -> None:
        self.failures, self.fail_at = failures, fail_at
        self.counts: dict[int, int] = {}

    def onMessage(self, message: int, context: Context) -> None:
        if message == self.fail_at and self.failures is not None and not self.failures.exists():
            self.failures.touch()
            raise ValueError("this message is too much")
        self.counts[context.key] = self.counts.get(context.key, 0) + 1
        context.increment("counted")
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> dict[int, int]:
        return self.counts

    def restoreState(self, state: dict[int, int]) -> None:
        self.counts = state


class Total(Sink):
    """The sum of all messages."""

    def __init__(self) -> None:
        self.total = 0

    def onMessage(self, message: int, context: Context) -> None:
        self.total += message

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.total

    def restoreState(self, state: int) -> None:
        self.total = state


def counting(count: int, failures: Path | None = None, fail_at: int = -1) -> Graph:
    """Numbers → two counting subtasks → their sum, on two workers."""
    graph = Graph("counting")
    graph.add("numbers", Numbers(count))
    graph.add("count", Count(failures, fail_at), parallelism=2)
    graph.add("total", Total())
    graph.connect("numbers", "count", key=lambda number: number % _KEYS)
    graph.connect("count", "total")
    return graph


@pytest.fixture(scope="module")
def fonts() -> None:
    """Open the fonts of pictures, which stay open, before leaks are counted."""
    counting(1)._repr_html_()


@pytest.fixture
def cluster(fonts: None, leak_check: LeakCheck) -> Iterator[LocalCluster]:
    """A cluster in this process, of which nothing is left at the end."""
    with local_cluster() as made:
        yield made


def runtime(cluster: LocalCluster, tmp_path: Path, **changes: Any) -> BarrierRuntime:
    options: dict[str, Any] = {"backend": FileSystemBackend(str(tmp_path / "store")), "page": False}
    options |= {"snapshotInterval": None, "restartPolicy": RestartPolicy(maxRestarts=3)}
    return BarrierRuntime(cluster.spark, **{**options, **changes})


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        threading.Event().wait(0.005)  # the run needs the interpreter, which a busy loop takes from it


def total_of(run: Run) -> int:
    """The sum in the run's last snapshot."""
    total: int = run.snapshots()[-1].node("total").state
    return total


def test_a_run_ends_with_its_input(cluster: LocalCluster, tmp_path: Path) -> None:
    """All messages arrive, and the last snapshot is the result. The status, the report and the page's row agree."""
    run = runtime(cluster, tmp_path).submit(counting(400))
    assert run.awaitTermination(_DEADLINE_S)
    assert not run.isActive and run.exception() is None
    last = run.snapshots()[-1]
    assert last.node("total").state == sum(range(400))
    first, second = last.node("count").states
    assert first | second == dict.fromkeys(range(_KEYS), 80)
    status = run.status
    assert (status["outcome"], status["snapshots"][-1], status["restarts"]) == ("finished", last.id, [])
    assert status["progress"]["metrics"] == {"counted": 400}


def sent(run: Run) -> int:
    """Messages that the source has sent, as the workers have reported."""
    return int(run.status["progress"]["sent"].get("numbers", 0))


def test_a_run_is_stopped_and_goes_on(cluster: LocalCluster, tmp_path: Path) -> None:
    """A last snapshot holds each message once, as counted before it; the next run of the name continues there."""
    made = runtime(cluster, tmp_path)
    run = made.submit(counting(_ENDLESS))
    taken = run.takeSnapshot(timeout=_DEADLINE_S)
    pinned = run.takeSnapshot(pinned=True, timeout=_DEADLINE_S)
    assert (taken.pinned, pinned.pinned, pinned.id > taken.id) == (False, True, True)
    last = run.stop(withSnapshot=True, timeout=_DEADLINE_S)
    assert last is not None and last.id > pinned.id and not run.isActive
    assert [each.id for each in run.snapshots()][-3:] == [taken.id, pinned.id, last.id]
    assert run.stop() is None and run.exception() is None and run.awaitTermination(0) is True
    assert run.status["outcome"] == "stopped"
    upto = last.node("numbers").state
    in_flight = sum(sum(last.channel(channel.source, channel.target).messages) for channel in last.channels)
    assert last.node("total").state + in_flight == sum(range(upto)), "a message is counted twice or never"
    finished = made.submit(counting(upto + 50))
    assert finished.awaitTermination(_DEADLINE_S) and total_of(finished) == sum(range(upto + 50))
    assert finished.status["incarnation"] > run.status["incarnation"]
    assert made.runs() == ["counting"]
    assert [each.id for each in made.snapshots("counting")] == [each.id for each in finished.snapshots()]


def test_a_stop_reaches_a_coordinator_that_does_not_know_it(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot was published, and then another coordinator refuses the request as late. The run ends all the same."""
    run = runtime(cluster, tmp_path).submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)
    asked = run._client.request
    first: list[int] = []
    answered: list[CloseRequest] = []

    def other_coordinator(event: StopRequested) -> CloseRequest | None:
        assert event.request is not None
        first[:] = first or [event.request.request_id]
        if event.request.request_id != first[0]:
            assert event.request.deadline is None
            return asked(event)
        if answered:
            return CloseRequest(first[0], None, "its deadline has passed")
        found = asked(SnapshotRequested(event.request))
        answered.extend([found] if found is not None else [])
        return found

    monkeypatch.setattr(run._client, "request", other_coordinator)
    last = run.stop(withSnapshot=True, timeout=_DEADLINE_S)
    assert not run.isActive and run.status["outcome"] == "stopped" and answered[0].snapshot_id is not None
    assert last is not None and last.id == run.status["snapshots"][-1] > answered[0].snapshot_id


def test_ctrl_c_ends_the_waiting_and_not_the_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """pyspark's own handler of Ctrl-C would cancel the stage of the run. It is there again after the waiting."""

    def pysparks(number: int, frame: FrameType | None) -> None:
        raise AssertionError("all jobs are cancelled")

    pysparks.__module__ = "pyspark.core.context"
    before = signal.signal(signal.SIGINT, pysparks)
    try:
        run = runtime(cluster, tmp_path).submit(counting(_ENDLESS))
        wait_until(lambda: sent(run) > 0)
        pressed = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
        pressed.start()
        with pytest.raises(KeyboardInterrupt):
            run.awaitTermination()
        pressed.join()
        assert signal.getsignal(signal.SIGINT) is pysparks
        taken = run.takeSnapshot(timeout=_DEADLINE_S)
        assert run.isActive and run.status["incarnation"] == 1 and taken.id in run.status["snapshots"]
        run.stop()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_monitor_that_fails_goes_on(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody foresaw is logged once, and the run is watched again as soon as it is gone."""
    run = runtime(cluster, tmp_path).submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)
    failures: list[None] = []

    def broken(status: Any) -> Any:
        failures.append(None)
        raise RuntimeError("dictionary changed size during iteration")

    with monkeypatch.context() as patch:
        patch.setattr(run._supervisor, "obey", broken)
        wait_until(lambda: len(failures) > 3)
    known = run.lastProgress
    wait_until(lambda: run.lastProgress != known)
    assert [r.levelname for r in caplog.records if "its monitor failed" in r.getMessage()] == ["ERROR"]
    run.stop()


def test_what_a_submit_has_started_ends_with_it(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the start and the end of `submit` leaves no run behind that nobody owns."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(runtime_module, "Run", _interrupted)
        runtime(cluster, tmp_path).submit(counting(_ENDLESS))
    assert all(actor.is_dead for actor in cluster.ray.actors) and not cluster.spark.workers
    run = runtime(cluster, tmp_path).submit(counting(200))
    assert run.awaitTermination(_DEADLINE_S)


def _interrupted(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_a_run_starts_where_it_is_told(cluster: LocalCluster, tmp_path: Path) -> None:
    """By an id, from nothing, or from another run's snapshot; a fork goes on from its own snapshots afterwards."""
    made = runtime(cluster, tmp_path)
    run = made.submit(counting(_ENDLESS))
    first = run.takeSnapshot(timeout=_DEADLINE_S)
    wait_until(lambda: sent(run) > first.node("numbers").state + 20)
    second = run.takeSnapshot(timeout=_DEADLINE_S)
    run.stop()
    upto = first.node("numbers").state
    assert second.node("numbers").state > upto
    fork = made.submit(counting(upto), name="fork", restoreFrom=first)
    assert fork.awaitTermination(_DEADLINE_S)
    assert (fork.name, total_of(fork)) == ("fork", sum(range(upto)))
    assert made.runs() == ["counting", "fork"]
    with pytest.raises(RestoreRefused, match="has no snapshot 999"):
        made.submit(counting(1), restoreFrom=999)
    earlier = made.submit(counting(upto), restoreFrom=first.id)
    assert earlier.awaitTermination(_DEADLINE_S) and total_of(earlier) == sum(range(upto))
    afresh = made.submit(counting(30), restoreFrom=None)
    assert afresh.awaitTermination(_DEADLINE_S) and total_of(afresh) == sum(range(30))
    for wrong in ("oldest", 1.5):
        with pytest.raises(ValueError, match="give 'latest', an id, a Snapshot or None"):
            made.submit(counting(1), restoreFrom=wrong)  # type: ignore[arg-type]


def test_a_failed_run_goes_on_from_its_snapshot(cluster: LocalCluster, tmp_path: Path) -> None:
    """A node fails once: the run restarts, and the result is that of a run without a failure."""
    run = runtime(cluster, tmp_path).submit(counting(2000, tmp_path / "failed", 1500))
    run.takeSnapshot(timeout=_DEADLINE_S)
    assert run.awaitTermination(_DEADLINE_S) and total_of(run) == sum(range(2000))
    (restart,) = run.status["restarts"]
    assert "this message is too much" in restart["reason"] and abs(restart["timestamp"] - time.time()) < 60


def test_a_run_that_fails_too_often_says_why(cluster: LocalCluster, tmp_path: Path) -> None:
    """The error names the run, the node and the cause, wherever it is asked for."""
    made = runtime(cluster, tmp_path, restartPolicy=RestartPolicy(maxRestarts=0))
    run = made.submit(counting(400, tmp_path / "failed", 100))
    with pytest.raises(RunFailed, match=r"(?s)run 'counting': .*count.*this message is too much"):
        run.awaitTermination(_DEADLINE_S)
    assert run.status["outcome"] == "failed" and isinstance(run.exception(), RunFailed)
    with pytest.raises(SnapshotAborted, match="run 'counting' has ended"):
        run.takeSnapshot()


def test_an_active_run_is_looked_at(cluster: LocalCluster, tmp_path: Path) -> None:
    """Waiting has a limit, reports come in, a second submission of the name is refused, and the page shows the run."""
    made = runtime(cluster, tmp_path, page=Page(port=0), snapshotInterval=0.05)
    run = made.submit(counting(_ENDLESS))
    assert run.isActive and run.awaitTermination(0.01) is False and run.exception() is None
    with pytest.raises(RunFailed, match="run 'counting' is live in this driver"):
        made.submit(counting(1))
    wait_until(lambda: len(run.recentProgress) > 1 and len(run.snapshots()) > 1)
    assert run.lastProgress is not None and run.lastProgress["name"] == "counting"
    assert run.recentProgress[0]["timestamp"] <= run.lastProgress["timestamp"]
    assert "counting" in run._repr_html_() and str(run.pageAddress) in run._repr_html_()
    assert run.pageAddress is not None
    assert ask(run.pageAddress, "/api/runs").json["runs"][0]["name"] == "counting"
    status = run.status
    assert (status["phase"], status["outcome"], sorted(status["workers"])) == ("running", None, [0, 1])
    assert {each["source"] for each in status["edges"]} == {"numbers", "count"}
    run.stop()
    assert str(run.pageAddress) not in run._repr_html_()
    assert cluster.spark.groups[0][1] == "cutline run counting"


def test_a_snapshot_that_takes_too_long_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    """A request has its own deadline, and the run goes on after it."""
    run = runtime(cluster, tmp_path).submit(counting(_ENDLESS))
    with pytest.raises(SnapshotAborted, match="counting"):
        run.takeSnapshot(timeout=0.0)
    assert run.isActive
    run.stop()


def test_a_traced_run_is_drawn(cluster: LocalCluster, tmp_path: Path) -> None:
    """The trace has the messages and cuts of all subtasks, also after the end; other runs have none."""
    traced = runtime(cluster, tmp_path, trace=True).submit(counting(100))
    assert traced.awaitTermination(_DEADLINE_S)
    drawn = str(traced.trace().diagram())
    assert all(name in drawn for name in ("numbers", "count[0]", "count[1]", "total"))
    plain = runtime(cluster, tmp_path).submit(counting(100), name="plain")
    assert plain.awaitTermination(_DEADLINE_S)
    with pytest.raises(RunFailed, match="is not traced"):
        plain.trace()


def test_snapshots_in_memory_come_home(cluster: LocalCluster, tmp_path: Path) -> None:
    """The coordinator holds a memory backend while the run is on, and the driver holds it afterwards."""
    backend = MemoryBackend()
    made = runtime(cluster, tmp_path, backend=backend)
    run = made.submit(counting(_ENDLESS))
    taken = run.takeSnapshot(timeout=_DEADLINE_S)
    assert backend.files() == [] and made.runs() == ["counting"]
    assert made.snapshots("counting")[-1].id == taken.id and taken.node("total").state >= 0
    last = run.stop(withSnapshot=True, timeout=_DEADLINE_S)
    assert last is not None and backend.files() != []
    taken.verify()
    upto = last.node("numbers").state
    again = made.submit(counting(upto + 10))
    assert again.awaitTermination(_DEADLINE_S) and total_of(again) == sum(range(upto + 10))


def test_runs_share_a_memory_backend(cluster: LocalCluster, tmp_path: Path) -> None:
    """A run that ends brings its own files home, and leaves those of a run that ended meanwhile."""
    made = runtime(cluster, tmp_path, backend=MemoryBackend())
    long, short = made.submit(counting(_ENDLESS), name="long"), made.submit(counting(10), name="short")
    assert short.awaitTermination(_DEADLINE_S)
    assert long.stop(withSnapshot=True, timeout=_DEADLINE_S) is not None
    assert sorted(made.runs()) == ["long", "short"]
    assert total_of(short) == sum(range(10))


@pytest.mark.parametrize("in_memory", [False, True])
def test_snapshots_are_pinned_and_deleted(cluster: LocalCluster, tmp_path: Path, in_memory: bool) -> None:
    """While the run is active, through its coordinator, and afterwards in the store."""
    backend = MemoryBackend() if in_memory else FileSystemBackend(str(tmp_path / "store"))
    run = runtime(cluster, tmp_path, backend=backend, snapshotInterval=None, retainedSnapshots=2).submit(
        counting(_ENDLESS)
    )
    first, second, third = (run.takeSnapshot(timeout=_DEADLINE_S).id for _ in range(3))
    wait_until(lambda: run.status["snapshots"] == [second, third])
    for call in (run.pinSnapshot, run.unpinSnapshot, run.deleteSnapshot):
        with pytest.raises(FileNotFoundError, match=f"has no snapshot {first}"):
            call(first)
    with pytest.raises(SnapshotInUse, match=f"snapshot {third} of run 'counting' is the newest"):
        run.deleteSnapshot(third)
    run.pinSnapshot(second)
    with pytest.raises(SnapshotInUse, match=f"snapshot {second} of run 'counting' is pinned"):
        run.deleteSnapshot(second)
    fourth, fifth = (run.takeSnapshot(timeout=_DEADLINE_S).id for _ in range(2))
    wait_until(lambda: run.status["snapshots"] == [second, fourth, fifth])
    wait_until(lambda: [each["id"] for each in run.status["snapshotReports"] if each["pinned"]] == [second])
    assert [each.id for each in run.snapshots() if each.pinned] == [second]
    run.deleteSnapshot(fourth)
    assert run.status["snapshots"] == [second, fifth]
    run.unpinSnapshot(second)
    sixth = run.takeSnapshot(pinned=True, timeout=_DEADLINE_S).id
    wait_until(lambda: run.status["snapshots"] == [fifth, sixth])
    last = run.stop(withSnapshot=True, timeout=_DEADLINE_S)
    assert last is not None
    with pytest.raises(SnapshotInUse, match="is pinned"):
        run.deleteSnapshot(sixth)
    run.unpinSnapshot(sixth)
    run.deleteSnapshot(sixth)
    with pytest.raises(SnapshotInUse, match="is the newest"):
        run.deleteSnapshot(last.id)
    assert sixth not in [each.id for each in run.snapshots()]


def test_a_coordinator_that_cannot_restart_ends_the_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its snapshots were in its memory. The error says so, and says what survives."""
    run = runtime(cluster, tmp_path, backend=MemoryBackend()).submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)
    cluster.ray.actors[0].end()
    with pytest.raises(RunFailed, match="its coordinator is lost"):
        run.awaitTermination(_DEADLINE_S)


def test_a_coordinator_is_placed_by_its_backend(cluster: LocalCluster, tmp_path: Path) -> None:
    """Ray restarts it where files are, and never where its memory is the store."""
    runtime(cluster, tmp_path).submit(counting(1)).awaitTermination(_DEADLINE_S)
    runtime(cluster, tmp_path, backend=MemoryBackend()).submit(counting(1)).awaitTermination(_DEADLINE_S)
    files, memory = cluster.ray.options
    assert (files["max_restarts"], files["max_task_retries"], files["num_cpus"]) == (-1, -1, 0)
    assert (memory["max_restarts"], memory["max_task_retries"], memory["max_concurrency"]) == (0, 0, 8)
    wait_until(lambda: all(actor.is_dead for actor in cluster.ray.actors))  # an ended run keeps no process of Ray


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"retainedSnapshots": 0}, "retainedSnapshots and maxConcurrentSnapshots must be at least 1"),
        ({"maxConcurrentSnapshots": 0}, "retainedSnapshots and maxConcurrentSnapshots must be at least 1"),
        ({"tolerableFailedSnapshots": -1}, "tolerableFailedSnapshots at least 0"),
    ],
)
def test_settings_are_checked(cluster: LocalCluster, tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    """What makes no sense is refused before anything starts; the least that makes sense is taken."""
    with pytest.raises(ValueError, match=text):
        runtime(cluster, tmp_path, **changes)
    (name, least), *_ = changes.items()
    runtime(cluster, tmp_path, **{name: least + 1})


def test_what_cannot_start_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    """Names, losses that nobody knows, too few slots, a graph that does not fit the snapshot."""
    made = runtime(cluster, tmp_path)
    with pytest.raises(GraphError, match="run name"):
        made.submit(counting(1), name="a/b")
    with pytest.raises(ValueError, match="'everything'"):
        made.submit(counting(1), allow={"everything"})
    with pytest.raises(RunFailed, match=r"a stage of 5 workers needs 5 slots at one time; local\[4\] has 4"):
        runtime(cluster, tmp_path, workers=5).submit(counting(1))
    with pytest.raises(GraphError):
        made.submit(Graph("empty"))
    assert cluster.ray.actors == [] and made.runs() == []


def test_more_workers_than_subtasks_need(cluster: LocalCluster, tmp_path: Path) -> None:
    """The stage has as many tasks as the runtime says; their connections go both ways."""
    run = runtime(cluster, tmp_path, workers=3).submit(counting(200))
    assert run.awaitTermination(_DEADLINE_S) and total_of(run) == sum(range(200))


def test_an_invariant_is_judged(cluster: LocalCluster, tmp_path: Path) -> None:
    """Each published snapshot is judged in the driver, also the last."""
    graph = counting(300)
    graph.addInvariant("never", lambda snapshot: False)
    graph.addInvariant("always", lambda snapshot: True)
    run = runtime(cluster, tmp_path).submit(graph)
    assert run.awaitTermination(_DEADLINE_S)
    verdicts = run.status["invariants"]
    assert (verdicts["never"]["holds"], verdicts["always"]["holds"]) == (False, True)
    assert verdicts["never"]["violations"][-1] == run.snapshots()[-1].id
