"""Spark and Ray within this process: a barrier stage is a thread for each worker, an actor is an object.

Everything of ours is real: driver, coordinator, workers, sockets, files. Real Spark and real Ray have the live tests.
"""

from __future__ import annotations

import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyspark
import pytest
from ray.exceptions import ActorDiedError

from cutline.barrier_runtime.coordinator import coordinator_actor
from cutline.barrier_runtime.driver import ray_gateway
from cutline.barrier_runtime.launch import ExitCode, WorkerLaunch
from cutline.barrier_runtime.worker import control_link, task
from cutline.barrier_runtime.worker.worker import Worker
from cutline.snapshot.errors import RunFailed

#: Seconds for a run to end. A passing test does not wait for this.
_END_S = 20.0
#: seconds that a worker looks for a coordinator
_LOOKING_S = 3.0


class LocalSpark:
    """A session whose barrier stages run in threads. Has what `barrier_runtime.driver.stage` uses of Spark."""

    def __init__(self, slots: int = 4) -> None:
        self.slots = slots
        self.conf = {"spark.master": f"local[{slots}]"}
        self.sparkContext = self
        self.master = self.conf["spark.master"]
        self.applicationId = "local-1"
        self.pythonExec = sys.executable
        self.is_stopped = False
        #: (group, description) of all stages
        self.groups: list[tuple[str, str]] = []
        #: workers of the stages that run
        self.workers: list[Worker] = []
        #: files that went to executors
        self.files: list[str] = []
        self.dataSource = types.SimpleNamespace(register=lambda source: None)
        self._jsc = types.SimpleNamespace(sc=lambda: self)
        self._number = threading.local()

    # the Java side

    def resourceProfileManager(self) -> Any:
        return types.SimpleNamespace(defaultResourceProfile=lambda: "default")

    def maxNumConcurrentTasks(self, profile: str) -> int:
        assert profile == "default"
        return self.slots

    def isLocal(self) -> bool:
        return True

    # the context and the session

    def addPyFile(self, path: str) -> None:
        self.files.append(path)

    def stop(self) -> None:
        self.is_stopped = True

    def statusTracker(self) -> Any:
        return types.SimpleNamespace(getActiveStageIds=list)

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool) -> None:
        assert interruptOnCancel
        self.groups.append((group, description))

    def cancelJobGroup(self, group: str) -> None:
        assert group in [each for each, _ in self.groups]
        for worker in self.workers:
            worker.exit_code = ExitCode.QUIT

    def range(self, start: int, end: int, step: int, partitions: int) -> Any:
        assert (start, step, partitions) == (0, 1, end)

        def map_in_arrow(host: Callable[[Iterator[Any]], Iterator[Any]], schema: str, *, barrier: bool) -> Any:
            assert barrier and schema == "worker long"
            return types.SimpleNamespace(collect=lambda: self._run_stage(host, end))

        return types.SimpleNamespace(mapInArrow=map_in_arrow)

    def _run_stage(self, host: Callable[[Iterator[Any]], Iterator[Any]], count: int) -> None:
        errors: list[BaseException] = []

        def run(number: int) -> None:
            self._number.value = number
            try:
                assert list(host(iter([number]))) == []
            except Exception as error:  # noqa: BLE001  # any error of a task fails the stage
                errors.append(error)

        threads = [threading.Thread(target=run, args=(number,), name=f"task-{number}") for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def partitionId(self) -> int:
        number: int = self._number.value
        return number

    def host_worker(self, encoded_launch: bytes, number: int) -> None:
        """Run a worker in this thread. Stands for `task.host_worker`, which forks."""
        worker = Worker(WorkerLaunch.decode(encoded_launch), number)
        self.workers.append(worker)
        try:
            code = worker.run()
        finally:
            self.workers.remove(worker)
            if worker._peers is not None:
                worker._peers.listener.close()  # because the end of a process closes it otherwise
        if code is not ExitCode.FINISHED:
            raise RunFailed(f"worker {number} left with code {code}")


class _Call:
    def __init__(self, actor: _Actor, method: Callable[..., Any]) -> None:
        self._actor = actor
        self._method = method

    def remote(self, *arguments: object) -> Callable[[], Any]:
        sent = pickle.dumps(arguments)
        return lambda: self._answer(*pickle.loads(sent))

    def _answer(self, *arguments: object) -> Any:
        """Call the method. A call during which the actor is killed has no answer, as in Ray."""
        try:
            answer = self._method(*arguments)
        except BaseException as error:
            if self._actor.is_dead:
                raise ActorDiedError from error
            raise
        if self._actor.is_dead:
            raise ActorDiedError
        return answer


class _Actor:
    def __init__(self, instance: Any) -> None:
        self._instance = instance
        self.is_dead = False

    def __getattr__(self, name: str) -> _Call:
        if self.is_dead:
            raise ActorDiedError
        return _Call(self, getattr(self._instance, name))

    def end(self) -> None:
        self.is_dead = True
        self._instance._service.close()


class LocalRay:
    """A Ray whose actors are objects of this process. Has what `barrier_runtime.driver.ray_gateway` uses."""

    def __init__(self) -> None:
        self.actors: list[_Actor] = []
        #: options of the actors
        self.options: list[dict[str, Any]] = []

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return types.SimpleNamespace(get_node_id=lambda: "0" * 56)

    def remote(self, kind: type) -> Any:
        def start(*arguments: object) -> _Actor:
            self.actors.append(_Actor(kind(*pickle.loads(pickle.dumps(arguments)))))
            return self.actors[-1]

        def options(**chosen: object) -> Any:
            self.options.append(chosen)
            return types.SimpleNamespace(remote=start)

        return types.SimpleNamespace(options=options)

    def get(self, call: Callable[[], Any], timeout: float) -> Any:
        assert timeout >= 0
        return call()

    def kill(self, actor: _Actor, *, no_restart: bool) -> None:
        assert no_restart
        actor.end()


class LocalCluster:
    """One `LocalSpark` and one `LocalRay`."""

    def __init__(self, slots: int) -> None:
        self.spark: Any = LocalSpark(slots)
        self.ray = LocalRay()


@contextmanager
def local_cluster(slots: int = 4) -> Iterator[LocalCluster]:
    """Put both in the place of Spark and Ray until the block ends."""
    cluster = LocalCluster(slots)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyspark.TaskContext, "get", lambda: cluster.spark)
        patch.setattr(task, "host_worker", cluster.spark.host_worker)
        patch.setattr(ray_gateway, "ray", cluster.ray)
        patch.setattr(coordinator_actor, "configure", lambda name, level: None)
        # Short, because a thread that looks for an ended coordinator would outlive the test.
        patch.setattr(control_link, "COORDINATOR_SECONDS_MAX", _LOOKING_S)
        yield cluster
        for actor in cluster.ray.actors:
            if not actor.is_dead:
                actor.end()
        for worker in list(cluster.spark.workers):
            worker.exit_code = ExitCode.QUIT
        # All runs end before Spark and Ray are the real ones again.
        for thread in threading.enumerate():
            if thread.name.startswith(("cutline-supervisor", "cutline-run")):
                thread.join(_END_S)
