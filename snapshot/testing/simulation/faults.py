"""The effect of each fault on a simulated run, and the faults that are possible now.

A hook that is made to raise does so once, and leaves no trace in the attributes of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, assert_never

from cutline.snapshot.coordinator import control
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import defines
from cutline.snapshot.testing import steps
from cutline.snapshot.testing.simulation.connection import Connection
from cutline.snapshot.testing.simulation.host import inject_hook_failure
from cutline.snapshot.testing.simulation.simulated_cluster import SimulatedCluster
from cutline.snapshot.testing.simulation.store import Break
from cutline.snapshot.testing.simulation.worker import Worker
from cutline.snapshot.trace_events import Kind

#: Hooks that can be made to raise: the hooks of a new instance, and the hooks of a running instance.
NEW_HOOKS = ("restoreState", "open", "onStart", "discardUncommitted")
RUNNING_HOOKS = ("poll", "onMessage", "onMessages", "onBatch", "onTimer", "snapshotState", "prepareCommit", "commit")

#: maximum number of drivers in one history, except where a schedule names more
_DRIVERS_MAX = 4


class Impossible(ValueError):
    """Raised for a step that cannot be taken now. The text gives the reason."""


def inject(cluster: SimulatedCluster, fault: steps.Fault) -> None:
    """Let a fault happen.

    Raises
    ------
    Impossible
        if the fault has nothing to act on.
    """
    _FAULTS[type(fault)](cluster, fault)
    cluster.world.history_log.note(Kind.FAULT, text=repr(fault))
    cluster.world.see(type(fault).__name__)


def possible(cluster: SimulatedCluster) -> Iterator[steps.Fault]:
    """Yield all faults that could happen now, grouped by kind."""
    for worker in cluster.workers:
        yield steps.Crash(worker.process)
    for subtask in cluster.world.history.topology.subtasks:
        worker_of = cluster.worker_of(subtask)
        if worker_of is not None and worker_of.is_started:
            yield steps.Fail(subtask)
    for worker in cluster.workers:
        if worker.connection is not None and worker.connection.is_open:
            yield steps.CutControl(worker.process)
        yield from (steps.FailStore(worker.process), steps.TearStore(worker.process))
        yield from (steps.HangStore(worker.process), steps.Freeze(worker.process))
        if _acknowledgement(worker) is not None:
            for kind in (steps.LoseAcknowledgement, steps.RepeatAcknowledgement, steps.DelayAcknowledgement):
                yield kind(worker.process)
    yield from map(steps.LoseTotals, cluster.world.stores)
    driver = cluster.driver
    if driver.simulated is not None:
        yield from (steps.CrashCoordinator(), steps.OrphanCoordinator())
    if driver.stage is not None and not driver.stage.is_failed:
        yield steps.FailStage()
    yield from (steps.Doubt(what) for what in ("done", "late", "never"))
    if len(cluster.drivers) < _DRIVERS_MAX:
        yield from (steps.KillDriver(), steps.SubmitAgain())


def hooks_of(cluster: SimulatedCluster, worker: Worker) -> list[steps.FailHook]:
    """Return the hook failures that are possible for a worker's nodes."""
    return [
        steps.FailHook(subtask, hook)
        for subtask, host in worker.data.hosts.items()
        for hook in (*NEW_HOOKS, *RUNNING_HOOKS)
        if defines(host.machine.node, hook)
    ]


# ---- workers


def _worker(cluster: SimulatedCluster, process: int) -> Worker:
    if not 0 <= process < len(cluster.processes):
        raise Impossible(f"there is no process {process} yet; there are {len(cluster.processes)}")
    worker = cluster.processes[process]
    if not worker.is_alive:
        raise Impossible(f"process {process} has ended")
    return worker


def _hosting(cluster: SimulatedCluster, subtask: Subtask) -> Worker:
    worker = cluster.worker_of(subtask)
    if worker is None:
        raise Impossible(f"no worker runs {subtask} now")
    return worker


def _crash(cluster: SimulatedCluster, fault: steps.Crash) -> None:
    named = isinstance(fault.worker, Subtask)
    worker = _hosting(cluster, fault.worker) if named else _worker(cluster, fault.worker)
    cluster.world.see("a worker crashed")
    if worker.has_pending_uploads:
        cluster.world.see("a fault between state capture and upload")
    worker.leave()


def _fail(cluster: SimulatedCluster, fault: steps.Fail) -> None:
    _hosting(cluster, fault.subtask).fail(f"{fault.subtask}: a simulated failure of its node")


def _fail_hook(cluster: SimulatedCluster, fault: steps.FailHook) -> None:
    worker = cluster.worker_of(fault.subtask)
    node = None if worker is None else worker.data.hosts[fault.subtask].machine.node
    if fault.subtask not in cluster.world.placement or fault.hook not in (*NEW_HOOKS, *RUNNING_HOOKS):
        raise Impossible(f"there is no {fault.subtask}, or no hook {fault.hook!r} that can be made to raise")
    if node is not None and not defines(node, fault.hook):
        raise Impossible(f"{fault.subtask} has no {fault.hook}")
    if fault.hook in NEW_HOOKS:
        cluster.world.hook_failures[fault.subtask] = fault.hook
    elif node is None:
        raise Impossible(f"{fault.subtask} does not run now")
    else:
        inject_hook_failure(node, fault.hook)


def _cut_control(cluster: SimulatedCluster, fault: steps.CutControl) -> None:
    connection = _worker(cluster, fault.process).connection
    if connection is None or not connection.is_open:
        raise Impossible(f"process {fault.process} has no connection to the coordinator")
    connection.close()


def _freeze(cluster: SimulatedCluster, fault: steps.Freeze) -> None:
    worker = _worker(cluster, fault.process)
    groups = (worker.steps.group, worker.data.group, worker.uploads)
    for group in groups:
        group.suspend()
        cluster.world.scheduler.at(cluster.world.now + fault.seconds, group.resume)


def _break_store(cluster: SimulatedCluster, fault: steps.FailStore | steps.TearStore) -> None:
    _worker(cluster, fault.process)
    how = Break.FAILS if isinstance(fault, steps.FailStore) else Break.TEARS
    cluster.world.store.backend_of(fault.process).break_next(how)


def _hang_store(cluster: SimulatedCluster, fault: steps.HangStore) -> None:
    uploads = _worker(cluster, fault.process).uploads
    uploads.suspend()
    cluster.world.scheduler.at(cluster.world.now + fault.seconds, uploads.resume)


def _lose_totals(cluster: SimulatedCluster, fault: steps.LoseTotals) -> None:
    store = cluster.world.stores.get(fault.node)
    if store is None:
        raise Impossible(f"node {fault.node!r} has no store of totals")
    store.failures[:] = [False] * (fault.calls - fault.happen) + [True] * fault.happen


# ---- acknowledgements


def _acknowledgement(worker: Worker) -> tuple[Connection, control.WorkerMessage] | None:
    """Return the oldest acknowledgement on its way, with its connection, or None."""
    connection = worker.connection
    if connection is None:
        return None
    found = next((said for said in connection.sent if isinstance(said, control.SnapshotAcknowledged)), None)
    return None if found is None else (connection, found)


def _disturb(cluster: SimulatedCluster, fault: steps.Fault) -> None:
    assert isinstance(fault, steps.LoseAcknowledgement | steps.RepeatAcknowledgement | steps.DelayAcknowledgement)
    found = _acknowledgement(_worker(cluster, fault.process))
    if found is None:
        raise Impossible(f"process {fault.process} has no acknowledgement on its way")
    connection, message = found
    match fault:
        case steps.LoseAcknowledgement():
            connection.lose(message)
        case steps.RepeatAcknowledgement():
            connection.send(message)
        case steps.DelayAcknowledgement():
            connection.lose(message)
            connection.send(message)
        case _:
            assert_never(fault)


# ---- stages, coordinators, drivers


def _crash_coordinator(cluster: SimulatedCluster, fault: steps.CrashCoordinator | steps.OrphanCoordinator) -> None:
    simulated = cluster.driver.simulated
    if simulated is None:
        raise Impossible("there is no coordinator now")
    if simulated.is_publishing:
        cluster.world.see("a fault between last part and manifest")
    if simulated.has_published_unseen:
        cluster.world.see("a fault after the manifest before its acknowledgement")
    stays_alive = isinstance(fault, steps.OrphanCoordinator)
    if stays_alive:
        cluster.world.see("two lives of a coordinator")
    cluster.driver.lose_coordinator(stays_alive=stays_alive)


def _fail_stage(cluster: SimulatedCluster, fault: steps.FailStage) -> None:
    stage = cluster.driver.stage
    if stage is None or stage.is_failed or cluster.driver.outcome is not None:
        raise Impossible("there is no stage now")
    alive = [worker for worker in stage.workers if worker is not None and worker.is_alive]
    cluster.driver.fail_stage("a task was killed")
    if alive:
        alive[0].leave()


def _doubt(cluster: SimulatedCluster, fault: steps.Doubt) -> None:
    if fault.what not in ("done", "late", "never"):
        raise Impossible(f"{fault!r}: a write is 'done', 'late' or 'never'")
    cluster.driver.doubt = fault.what


def _kill_driver(cluster: SimulatedCluster, fault: steps.KillDriver) -> None:
    if cluster.driver.outcome is not None:
        raise Impossible("the driver has ended")
    cluster.driver.die()
    cluster.submit()


def _submit_again(cluster: SimulatedCluster, fault: steps.SubmitAgain) -> None:
    cluster.world.see("two drivers")
    cluster.submit()


_FAULTS: dict[type[steps.Fault], Callable[[SimulatedCluster, Any], None]] = {
    steps.Crash: _crash,
    steps.Fail: _fail,
    steps.FailHook: _fail_hook,
    steps.CutControl: _cut_control,
    steps.Freeze: _freeze,
    steps.FailStore: _break_store,
    steps.TearStore: _break_store,
    steps.HangStore: _hang_store,
    steps.LoseTotals: _lose_totals,
    steps.LoseAcknowledgement: _disturb,
    steps.RepeatAcknowledgement: _disturb,
    steps.DelayAcknowledgement: _disturb,
    steps.CrashCoordinator: _crash_coordinator,
    steps.OrphanCoordinator: _crash_coordinator,
    steps.FailStage: _fail_stage,
    steps.Doubt: _doubt,
    steps.KillDriver: _kill_driver,
    steps.SubmitAgain: _submit_again,
}
