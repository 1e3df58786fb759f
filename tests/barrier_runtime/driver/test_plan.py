"""`plan` of a runtime and of an active run: what a submission would restore, while the run goes on."""

from __future__ import annotations

from cutline import BarrierRuntime, MemoryBackend
from cutline.snapshot.coordinator.restore_plan import NodeLine
from tests.barrier_runtime.driver.test_local_runs import counting
from tests.barrier_runtime.local_cluster import local_cluster
from tests.leaks import LeakCheck


def test_an_active_run_is_planned(leak_check: LeakCheck) -> None:
    """The newest snapshot is planned, without a claim: the run is not fenced. A removed node is shown."""
    with local_cluster() as cluster:
        runtime = BarrierRuntime(cluster.spark, backend=MemoryBackend(), page=False, snapshotInterval=None)
        run = runtime.submit(counting(10**9))
        snapshot = run.takeSnapshot()
        graph = counting(10**9)
        plan = run.plan(graph)
        assert (plan.run, plan.snapshot_id, plan.isRefused) == (run.name, snapshot.id, False)
        assert str(runtime.plan(graph, run.name)) == str(plan)
        graph.nodes.pop()
        graph.edges.pop()
        smaller = run.plan(graph)
        assert smaller.isRefused and smaller.reason is not None and "changedGraph" in smaller.reason
        assert [line.change for line in smaller.lines if isinstance(line, NodeLine)][-1] == "-"
        assert run.takeSnapshot().id > snapshot.id, "the run goes on"
        run.stop()
