"""A live run is rescaled: what is refused while it goes on, what goes on across the switch, what fails and how.

Without Spark and Ray. The parallelism stays in most tests, because they concern the switch; `tests/system` has whole
rescales.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from cutline import MemoryBackend
from cutline.barrier_runtime.driver import rescaling
from cutline.barrier_runtime.driver import runtime as runtime_module
from cutline.barrier_runtime.driver.preflight import HeldSlots, fits_beside, rescale_problem
from cutline.barrier_runtime.driver.run import Run
from cutline.barrier_runtime.driver.submission import Submission
from cutline.barrier_runtime.page.settings import Page
from cutline.snapshot.errors import GraphError, RestoreRefused, RunFailed, SnapshotAborted
from cutline.snapshot.plan.modes import ChannelLogs
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import topology_of_record
from tests.barrier_runtime.driver.test_local_runs import (
    _DEADLINE_S,
    _ENDLESS,
    Count,
    counting,
    runtime,
    sent,
    total_of,
    wait_until,
)
from tests.barrier_runtime.local_cluster import LocalCluster, local_cluster
from tests.leaks import LeakCheck
from tests.page.asking import ask

_SAME = {"count": 2}


@pytest.fixture(scope="module")
def fonts() -> None:
    """Open the fonts of pictures, which stay open, before leaks are counted."""
    counting(1)._repr_html_()


@pytest.fixture(params=[4, 3], ids=["stages side by side", "one stage after the other"])
def cluster(request: pytest.FixtureRequest, fonts: None, leak_check: LeakCheck) -> Iterator[LocalCluster]:
    """A cluster with slots for two stages, or for one only."""
    with local_cluster(request.param) as made:
        yield made


@pytest.fixture
def narrow(fonts: None, leak_check: LeakCheck) -> Iterator[LocalCluster]:
    """A cluster with three slots."""
    with local_cluster(3) as made:
        yield made


@pytest.mark.parametrize("in_memory", [False, True], ids=["files", "memory"])
def test_a_run_goes_on_from_its_last_snapshot(cluster: LocalCluster, tmp_path: Path, in_memory: bool) -> None:
    """Each message is counted once across two switches, and no caller of the run notices them."""
    options = {"backend": MemoryBackend()} if in_memory else {}
    made = runtime(cluster, tmp_path, **options)
    run = made.submit(counting(_ENDLESS))
    waiting = threading.Thread(target=run.awaitTermination)
    waiting.start()
    taken = [_rescaled(run) for _ in range(2)]
    assert waiting.is_alive() and run.isActive and run.status["phase"] == "running"
    assert [each.id for each in taken] == sorted(each.id for each in taken)
    assert run.status["incarnation"] == 3 and run.status["restarts"] == []
    last = run.stop(withSnapshot=True, timeout=_DEADLINE_S)
    waiting.join(_DEADLINE_S)
    assert last is not None and not waiting.is_alive()
    upto = last.node("numbers").state
    finished = made.submit(counting(upto + 10))
    assert finished.awaitTermination(_DEADLINE_S) and total_of(finished) == sum(range(upto + 10))


def _rescaled(run: Run) -> Snapshot:
    """Rescale to the same parallelism, and wait until the new subtasks have sent more than was sent before."""
    wait_until(lambda: sent(run) > 20)
    snapshot = run.rescale(_SAME, timeout=_DEADLINE_S)
    wait_until(lambda: sent(run) > snapshot.node("numbers").state)
    return snapshot


def test_histories_and_the_page_go_on(cluster: LocalCluster, tmp_path: Path) -> None:
    """Aborted snapshots, progress, the address and the published snapshots are those of one run."""
    run = runtime(cluster, tmp_path, page=Page(port=0)).submit(counting(_ENDLESS))
    address = run.pageAddress
    assert address is not None
    with pytest.raises(SnapshotAborted):
        run.takeSnapshot(timeout=0.0)
    before = len(run.recentProgress)
    snapshot = _rescaled(run)
    wait_until(lambda: len(run.recentProgress) > before + 2)
    assert run.pageAddress == address
    document = ask(address, "/api/runs/counting").json
    assert document["isActive"] and document["outcome"] is None and document["reason"] == ""
    assert document["aborted"] == 0, "the last snapshot of a submission is published, whatever is shown after it"
    assert snapshot.id in [each["id"] for each in document["snapshotReports"] if each["state"] == "published"]
    run.stop()


def test_a_trace_has_both_sides_of_the_switch(narrow: LocalCluster, tmp_path: Path) -> None:
    """The coordinator that ends hands its events on, and the diagram draws all subtasks."""
    run = runtime(narrow, tmp_path, trace=True).submit(counting(_ENDLESS))
    _rescaled(run)
    for trace in (run.trace(), (run.stop(), run.trace())[1]):
        assert {event.incarnation for event in trace.events} >= {1, 2}
        assert str(trace.diagram(-60))


def test_what_does_not_fit_is_refused_while_the_run_goes_on(narrow: LocalCluster, tmp_path: Path) -> None:
    """Unknown nodes, numbers below 1, graphs that cannot be built, and slots: nothing stops."""
    graph = counting(_ENDLESS)
    graph.add("relay", counting(1).nodes[1].node, parallelism=2).connect("count", "relay", partitioning="forward")
    run = runtime(narrow, tmp_path).submit(graph)
    wait_until(lambda: sent(run) > 0)
    with pytest.raises(GraphError, match=r"goes on: graph 'counting': there is no node counts. It has numbers=1"):
        run.rescale({"counts": 2})
    with pytest.raises(GraphError, match="parallelism 0 of node count is no whole number from 1 on"):
        run.rescale({"count": 0})
    with pytest.raises(GraphError, match=r"goes on: .*'forward' needs equal parallelism, but it is 3 and 2"):
        run.rescale({"count": 3})
    with pytest.raises(RunFailed, match=r"goes on: its stage would need 4 slots at one time, and 3 are free"):
        run.rescale({"count": 4, "relay": 4})
    assert run.isActive and run.status["incarnation"] == 1 and len(narrow.ray.actors) == 1
    run.stop()
    with pytest.raises(RunFailed, match=r"run 'counting' has ended; submit graph\.withParallelism"):
        run.rescale(_SAME)


def test_the_mode_stays(narrow: LocalCluster, tmp_path: Path) -> None:
    """The new subtasks take snapshots as the old ones did."""
    run = runtime(narrow, tmp_path).submit(counting(_ENDLESS), mode="channelLogs")
    snapshot = _rescaled(run)
    last = run.stop(withSnapshot=True, timeout=_DEADLINE_S)
    assert last is not None and last.id > snapshot.id
    assert {topology_of_record(each.manifest.topology).mode for each in (snapshot, last)} == {ChannelLogs()}


def test_workers_that_the_user_chose_stay(narrow: LocalCluster, tmp_path: Path) -> None:
    """Without a number of workers the largest parallelism decides, as at submit; a chosen number stays."""
    run = runtime(narrow, tmp_path, workers=1).submit(counting(_ENDLESS))
    _rescaled(run)
    assert sorted(run.status["workers"]) == [0]
    run.stop()


def test_a_snapshot_that_fails_stops_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    """Neither the first snapshot nor the last: the run goes on, and what was prepared is gone."""
    run = runtime(cluster, tmp_path).submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Count, "snapshotState", _fail)
        with pytest.raises(SnapshotAborted, match="the disk is full"):
            run.rescale(_SAME)
        assert len(cluster.ray.actors) == 1, "nothing was started yet"
        patch.setattr(run._rescaler, "_take_snapshot", lambda timeout: None)
        with pytest.raises(SnapshotAborted, match=r"run 'counting' is not rescaled: (.|\n)*the disk is full"):
            run.rescale(_SAME)
    assert run.isActive and run.status["incarnation"] == 1
    assert [actor.is_dead for actor in cluster.ray.actors] == [False, True]
    _rescaled(run)
    run.stop()


def _fail(self: Count, snapshotId: int, timestamp: float) -> Any:
    raise OSError("the disk is full")


def test_a_last_snapshot_must_begin_in_time(
    narrow: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for another snapshot, the timeout ends the rescale, and the run goes on."""
    run = runtime(narrow, tmp_path, maxConcurrentSnapshots=1).submit(counting(_ENDLESS))
    may_end = threading.Event()

    def hold(self: Count, snapshotId: int, timestamp: float) -> Any:
        may_end.wait(_DEADLINE_S)
        return self.counts

    monkeypatch.setattr(Count, "snapshotState", hold)
    monkeypatch.setattr(run._rescaler, "_take_snapshot", lambda timeout: None)
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(run.takeSnapshot)
        wait_until(lambda: len(run.status["pending"]) == 1)
        rescaled = pool.submit(run.rescale, _SAME, timeout=0.0)
        wait([rescaled], _DEADLINE_S / 3)
        may_end.set()
    with pytest.raises(SnapshotAborted, match="'counting' is not rescaled: none could be started in time"):
        rescaled.result()
    assert run.isActive and run.snapshots()[-1].id == other.result().id
    run.stop()


def test_ctrl_c_ends_the_waiting_only(narrow: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rescale goes on without its caller, and meanwhile no second one begins."""
    run = runtime(narrow, tmp_path).submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)

    class Interrupted(Future[Snapshot]):
        def result(self, timeout: float | None = None) -> Snapshot:
            with pytest.raises(RunFailed, match="is being rescaled"):
                run.rescale(_SAME)
            raise KeyboardInterrupt

    monkeypatch.setattr(rescaling, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.rescale(_SAME)
    wait_until(lambda: run.status["incarnation"] == 2 and run.status["phase"] == "running")
    assert run.isActive
    run.stop()


def test_requests_wait_for_the_switch(cluster: LocalCluster, tmp_path: Path) -> None:
    """Snapshots, pins and a stop that come during a rescale are carried out by whichever coordinator is there."""
    run = runtime(cluster, tmp_path).submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run.rescale, _SAME)
        while not done.done():
            taken = run.takeSnapshot(timeout=_DEADLINE_S)
            run.pinSnapshot(taken.id)
            run.unpinSnapshot(taken.id)
            assert run.status["outcome"] is None
        again = pool.submit(run.rescale, _SAME)
        last = run.stop(withSnapshot=True)
        assert last is not None and not run.isActive and run.exception() is None
        again.exception(_DEADLINE_S)  # rescaled, or the run was over


def test_a_restart_that_is_refused_fails_with_the_way_out(
    narrow: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only the last snapshot shows ends the run: the error says how to go on, and that loses nothing."""
    made = runtime(narrow, tmp_path, page=Page(port=0))
    run = made.submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)
    _make_refused(monkeypatch)
    way_out = r"being rescaled to count=1\. .* submit the graph with count=2 under the name 'counting'"
    with pytest.raises(RunFailed, match=f"too late to be refused. It was {way_out}"):
        run.rescale({"count": 1})
    assert not run.isActive
    with pytest.raises(RunFailed, match=way_out):
        run.awaitTermination()
    monkeypatch.undo()
    upto = run.snapshots()[-1].node("numbers").state
    again = made.submit(counting(upto + 10))
    assert again.awaitTermination(_DEADLINE_S) and total_of(again) == sum(range(upto + 10))


def _make_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the coordinator of the new parallelism refuse the restore, and not the check before it."""
    from cutline.snapshot.coordinator import deployment

    def refuse(*arguments: Any) -> Any:
        raise RestoreRefused("too late to be refused")

    monkeypatch.setattr(rescaling, "check_restore", lambda *arguments: None)
    monkeypatch.setattr(deployment, "plan_restore", refuse)


def test_a_run_that_ends_is_not_rescaled(narrow: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run finishes while a successor is prepared: it is finished, the caller is told, and nothing is left."""
    run = runtime(narrow, tmp_path).submit(counting(400))
    taken = run._rescaler._take_snapshot

    def taken_at_the_end(timeout: float | None) -> Snapshot:
        snapshot = taken(timeout)
        assert run.awaitTermination(_DEADLINE_S)
        return snapshot

    monkeypatch.setattr(run._rescaler, "_take_snapshot", taken_at_the_end)
    with pytest.raises(RunFailed, match="run 'counting' ended before it was rescaled"):
        run.rescale(_SAME)
    assert run.status["outcome"] == "finished" and total_of(run) == sum(range(400))
    assert all(actor.is_dead for actor in narrow.ray.actors)


def test_another_driver_keeps_the_run_that_it_took(narrow: LocalCluster, tmp_path: Path) -> None:
    """A submission elsewhere fences the run for good, also when it comes between the stop and the new claim."""
    run = runtime(narrow, tmp_path).submit(counting(_ENDLESS))
    wait_until(lambda: sent(run) > 0)
    begin = Submission.begin
    others: list[Run] = []

    def begin_too_late(self: Submission, *arguments: Any) -> None:
        patch.undo()
        runtime_module._LIVE_IN_DRIVER.clear()  # as in another process
        others.append(runtime(narrow, tmp_path).submit(counting(_ENDLESS)))
        wait_until(lambda: others[0].status["phase"] == "running")
        begin(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Submission, "begin", begin_too_late)
        with pytest.raises(Exception, match="took the run: it was submitted again elsewhere"):
            run.rescale(_SAME)
    assert not run.isActive and others[0].isActive
    others[0].stop()


def test_slots_are_counted_with_their_numbers() -> None:
    """The refusal names what is needed, what is free, who holds the rest, and what to do."""
    held = [HeldSlots("other", 3)]
    assert rescale_problem("words", "local[8]", 5, 8, held) is None
    problem = rescale_problem("words", "local[8]", 6, 8, held)
    assert problem == (
        "run 'words' is not rescaled, and goes on: its stage would need 6 slots at one time, and 5 are free for it "
        "when the present stage has ended (local[8] has 8, 3 of them held by run 'other'). Rescale to 5 at most, give "
        "Spark more cores, or stop the run, and submit it by BarrierRuntime(workers=5)"
    )
    assert fits_beside(4, 2, 8, [HeldSlots("other", 2)], active=4)
    assert not fits_beside(4, 2, 8, [HeldSlots("other", 2)], active=5), "another job takes a slot"
    assert not fits_beside(4, 2, 8, held, active=0)
