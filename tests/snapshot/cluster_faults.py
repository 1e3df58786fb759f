"""The faults of a cluster: each is one function, and one draw of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.snapshot.cluster_programs import HOOKS

if TYPE_CHECKING:
    from tests.snapshot.cluster import Cluster
    from tests.snapshot.cluster_worker import ClusterWorker

Choose = Callable[[int], int]

#: Seconds that are longer than every deadline of a run.
_LONG = 10.0

#: Drivers that one history sees at most.
_DRIVERS_MAX = 4


def inject(cluster: Cluster, choose: Choose) -> None:
    """Let one fault happen, if there is anything for it to happen to."""
    fault = _FAULTS[choose(len(_FAULTS))]
    fault(cluster, choose)


def _some_worker(cluster: Cluster, choose: Choose) -> ClusterWorker | None:
    workers = cluster.workers
    return workers[choose(len(workers))] if workers else None


def crash_worker(cluster: Cluster, choose: Choose) -> None:
    """A worker process is killed."""
    worker = _some_worker(cluster, choose)
    if worker is not None:
        cluster.see("a worker crashed")
        worker.leave()


def cut_control(cluster: Cluster, choose: Choose) -> None:
    """A control connection breaks; both ends live."""
    worker = _some_worker(cluster, choose)
    if worker is not None and worker.connection is not None:
        worker.connection.is_open = False


def raise_in_hook(cluster: Cluster, choose: Choose) -> None:
    """The user's code raises, where it is called next."""
    cluster.world.armed = HOOKS[choose(len(HOOKS))]


def crash_coordinator(cluster: Cluster, choose: Choose) -> None:
    """The coordinator's process is killed; another life follows."""
    if cluster.drivers[-1].life is not None:
        cluster.drivers[-1].lose_life()


def orphan_coordinator(cluster: Cluster, choose: Choose) -> None:
    """The coordinator is taken for dead and lives on."""
    if cluster.drivers[-1].life is not None:
        cluster.see("two lives of a coordinator")
        cluster.drivers[-1].lose_life(lives_on=True)


def fail_stage(cluster: Cluster, choose: Choose) -> None:
    """A barrier task is killed, and the stage with it; the other workers linger."""
    stage = cluster.drivers[-1].stage
    if stage is not None and not stage.is_failed:
        workers = [worker for worker in stage.workers if worker is not None]
        if workers:
            workers[choose(len(workers))].leave()
        cluster.drivers[-1].fail_stage("a task was killed")


def doubt_manifest(cluster: Cluster, choose: Choose) -> None:
    """The answer to a write is lost; the write happened, happens late, or never."""
    cluster.drivers[-1].doubt = ("done", "late", "never")[choose(3)]


def fail_store(cluster: Cluster, choose: Choose) -> None:
    """A part cannot be stored."""
    worker = _some_worker(cluster, choose)
    if worker is not None:
        worker.store_fails = True


def stick_store(cluster: Cluster, choose: Choose) -> None:
    """A worker's store does not answer for long."""
    worker = _some_worker(cluster, choose)
    if worker is not None:
        worker.store_stuck_until = cluster.now + _LONG


def freeze_worker(cluster: Cluster, choose: Choose) -> None:
    """A worker that has work is stopped and goes on later."""
    worker = _some_worker(cluster, choose)
    if worker is not None and worker.machines:
        worker.frozen_until = cluster.now + _LONG


def submit_again(cluster: Cluster, choose: Choose) -> None:
    """Another driver submits the run while the first one lives."""
    if len(cluster.drivers) < _DRIVERS_MAX:
        cluster.see("two drivers")
        cluster.submit()


def kill_driver(cluster: Cluster, choose: Choose) -> None:
    """The driver is killed, and somebody submits the run again."""
    if len(cluster.drivers) < _DRIVERS_MAX:
        cluster.drivers[-1].die()
        cluster.submit()


_FAULTS: tuple[Callable[[Cluster, Choose], None], ...] = (
    crash_worker, crash_worker, cut_control, raise_in_hook, raise_in_hook, crash_coordinator, crash_coordinator,
    orphan_coordinator, fail_stage, doubt_manifest, fail_store, stick_store, freeze_worker, submit_again, kill_driver,
)  # fmt: skip
