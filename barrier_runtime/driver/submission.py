"""Submissions of a run: each has a coordinator, and the stages in which a graph runs at its parallelism.

`BarrierRuntime.submit` makes the first submission. Each rescale makes one more, beside the present submission::

    prepare ──> [launch, if slots are free] ──> begin ──> the run's stages ──> release
       └─────────────────┴──> discard

All submissions of a run have one owner. So the fence passes the run from one submission to the next, and the run is
never taken back from another driver.
"""

from __future__ import annotations

import logging
import pickle
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cutline.barrier_runtime.coordinator.coordinator_actor import CoordinatorSetup
from cutline.barrier_runtime.dataframes.nodes import DataFrameSource
from cutline.barrier_runtime.driver.coordinator_client import CoordinatorClient, free_port
from cutline.barrier_runtime.driver.preflight import HeldSlots
from cutline.barrier_runtime.driver.restore_check import GOES_ON, Origin
from cutline.barrier_runtime.driver.run_histories import RunHistories
from cutline.barrier_runtime.driver.stage import bind_host, is_connect
from cutline.barrier_runtime.driver.store_check import check_stores
from cutline.barrier_runtime.driver.supervisor import Supervisor
from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.channels.sockets import Address
from cutline.snapshot.coordinator.events import StopRequested
from cutline.snapshot.coordinator.machine import RunSettings
from cutline.snapshot.coordinator.pending_snapshot import SnapshotPolicy
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.errors import GraphError, RunFailed
from cutline.snapshot.graph import Graph
from cutline.snapshot.plan.compiled_graph import CompiledGraph, GraphCode, build
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.modes import Mode, row_of
from cutline.snapshot.plan.partitions import with_partitions
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.state_backends.filesystem import FileSystemBackend
from cutline.state_backends.keyed_state import HeapState, RocksDBState
from cutline.state_backends.memory import MemoryBackend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds for all workers of a stage to register, because Spark first starts Python and imports on every executor.
GATHERING_SECONDS_MAX = 120.0

#: Seconds for the missing workers of a stage to register again. The time is shorter, because a task forks a new worker
#: in milliseconds. A worker that does not register is stopped or cut off.
REGATHERING_SECONDS_MAX = 30.0

#: Seconds for the workers of a discarded submission to leave, before their stage is cancelled.
_DISCARD_SECONDS_MAX = 5.0

#: Seconds between two checks whether the workers of a launched submission have registered, which takes a second.
_REGISTERED_POLL_SECONDS = 0.02

_SECRET_BYTES = 32

#: Lock of submissions of all runs, because a submission checks for free slots and live runs, and then adds its run.
SUBMITTING = threading.Lock()

#: submissions of this driver that may hold slots
_submissions: weakref.WeakSet[Submission] = weakref.WeakSet()

_logger = logging.getLogger("cutline.run")


@dataclass(frozen=True)
class RuntimeSettings:
    """Settings of a `BarrierRuntime` that hold for all its submissions."""

    spark: SparkSession
    backend: StateBackend
    #: the door to all records of runs; `backend` itself, if nothing is signed
    records: StateBackend
    #: workers of a stage, or None for the largest parallelism of the graph
    workers: int | None
    policy: SnapshotPolicy
    #: newest snapshots that are kept, besides pinned snapshots
    retained: int
    alignment: AlignmentWish
    restart_policy: RestartPolicy
    keyed_state: HeapState | RocksDBState
    safe: bool
    trace: bool

    @property
    def in_memory(self) -> bool:
        """True when the coordinator's memory holds the snapshots."""
        return isinstance(self.backend, MemoryBackend)

    def memory_contents(self) -> dict[str, bytes]:
        """Return the files of a memory backend, because a pickled copy of the backend is empty."""
        return {path: self.records.get(path) for path in self.records.files()} if self.in_memory else {}

    def worker_count(self, compiled: CompiledGraph) -> int:
        """Return the number of workers of a graph."""
        return self.workers or max(node.parallelism for node in compiled.topology.nodes)

    def compile(
        self, graph: Graph, run: str, mode: Mode | None, origin: Origin = GOES_ON, code: GraphCode | None = None
    ) -> CompiledGraph:
        """Compile a graph for a run. Write the input logs of DataFrames, and list the partitions of sources.

        Parameters
        ----------
        code : GraphCode or None
            See `build`.

        Raises
        ------
        GraphError
            if the graph cannot be built, or the mode cannot run the graph or lacks something of this runtime, or the
            store of an aggregate cannot serve its workers.
        NodeError
            if the partitions of a source cannot be listed.
        """
        root = self.backend.root if isinstance(self.backend, FileSystemBackend) else None
        self.check_mode(graph, mode)
        repeated = origin.fork[0] if row_of(mode).has_steps and origin.fork is not None else None
        for declared in graph.nodes:
            if isinstance(declared.node, DataFrameSource):
                declared.node.prepare(root, run, declared.name, repeated)
        compiled = with_partitions(build(graph, self.alignment, mode, code), graph)
        check_stores(graph, self.worker_count(compiled))
        return compiled

    def check_mode(self, graph: Graph, mode: Mode | None) -> None:
        """Refuse a mode that lacks something of this runtime.

        Raises
        ------
        GraphError
        """
        if mode is None:
            return
        head = f"mode {mode.name!r} cannot run graph {graph.name!r}: "
        if self.in_memory:
            raise GraphError(f"{head}a MemoryBackend does not outlive the coordinator")
        row = row_of(mode)
        if row.makes_versions:
            if isinstance(self.keyed_state, RocksDBState) and self.keyed_state.folder not in (
                None,
                row.versions_folder,
            ):
                raise GraphError(f"{head}the folder of the mode is that of the keyed state: RocksDBState(folder=None)")
        elif row.has_steps and not isinstance(self.keyed_state, HeapState):
            raise GraphError(f"{head}it keeps all state in memory; set keyedState=HeapState()")

    def keyed_state_of(self, mode: Mode | None) -> HeapState | RocksDBState:
        """Return where the rows of keyed state are in a mode."""
        row = row_of(mode)
        if not row.makes_versions:
            return self.keyed_state
        in_database = self.keyed_state if isinstance(self.keyed_state, RocksDBState) else RocksDBState()
        return replace(in_database, folder=row.versions_folder)


class Submission:
    """A coordinator of a run, and the supervisor of its stages. `Submitter` makes submissions.

    Parameters
    ----------
    run : str
    owner : str
        Name of all submissions of one `Submitter`.
    client : CoordinatorClient
    topology : Topology
    workers : int
    application : str
        Spark application whose slots the stages take; "" for Connect.
    make_supervisor : callable
        Starts the supervisor, which submits the stage.
    """

    def __init__(
        self,
        run: str,
        owner: str,
        client: CoordinatorClient,
        topology: Topology,
        workers: int,
        application: str,
        make_supervisor: Callable[[], Supervisor],
    ) -> None:
        self.run = run
        self.owner = owner
        self.client = client
        self.topology = topology
        self.workers = workers
        self.application = application
        #: slots that no other run may take
        self.slots = workers
        #: whether the coordinator was seen in the phase "running"
        self.has_run = False
        self._make_supervisor = make_supervisor
        self._supervisor: Supervisor | None = None
        _submissions.add(self)

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of a launched submission."""
        assert self._supervisor is not None
        return self._supervisor

    def parallelism(self) -> dict[str, int]:
        """Return the parallelism of each node."""
        return {node.name: node.parallelism for node in self.topology.nodes}

    def launch(self) -> None:
        """Submit the stage, unless it is submitted. Its workers register, and wait until the coordinator begins."""
        if self._supervisor is None:
            self._supervisor = self._make_supervisor()

    def await_workers(self, seconds: float) -> None:
        """Wait until all workers have registered, or for so many seconds."""
        deadline = time.monotonic() + seconds
        while len(self.client.status()["workers"]) < self.workers and time.monotonic() < deadline:
            time.sleep(_REGISTERED_POLL_SECONDS)

    def begin(self, histories: RunHistories, files: Mapping[str, bytes]) -> None:
        """Let the coordinator take the run, and submit the stage."""
        self.slots = self.workers
        try:
            self.client.begin(histories, files)
        except RunFailed as error:
            # Not raised, because the supervisor meets the same error, and ends the run with it.
            _logger.warning("%s", error)
        finally:
            self.launch()

    def discard(self) -> None:
        """End a submission that did not begin, or whose run has ended. Its coordinator has taken no claim."""
        self.slots = 0
        try:
            self.client.post(StopRequested(None))
        except RunFailed as error:
            _logger.debug("run %s: %s", self.run, error)  # the coordinator is gone already
        if self._supervisor is not None and not self._supervisor.join(_DISCARD_SECONDS_MAX):
            self._supervisor.cancel()
            self._supervisor.join(None)
        self.client.end()


class Submitter:
    """Makes the submissions of one run.

    Parameters
    ----------
    settings : RuntimeSettings
    graph : Graph
        The graph as submitted. A copy is kept, because the user may go on to change the graph.
    run : str
    origin : Origin
    allow : tuple of str
    mode : Mode or None
        The mode of the run, which is never another.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        graph: Graph,
        run: str,
        origin: Origin,
        allow: tuple[str, ...],
        mode: Mode | None = None,
    ) -> None:
        self.settings = settings
        self.graph = graph.withParallelism({})
        self.run = run
        self.origin = origin
        self.allow = allow
        self.mode = mode
        self.owner = secrets.token_hex(8)
        #: the code of the first submission, which all others run too; None before
        self.code: GraphCode | None = None

    def prepare(self, compiled: CompiledGraph, *, waits: bool, beside: bool = False) -> Submission:
        """Start a coordinator for a compiled graph. Nothing of the graph runs before `Submission.launch`.

        Parameters
        ----------
        waits : bool
            Whether the coordinator takes the run only when the submission begins.
        beside : bool
            Whether the stage is submitted before that, beside the stage that it follows.
        """
        settings, self.code = self.settings, compiled.code
        host, workers = bind_host(settings.spark), settings.worker_count(compiled)
        secret, port = secrets.token_bytes(_SECRET_BYTES), free_port(host)
        backend = pickle.dumps(settings.records)
        setup = CoordinatorSetup(
            settings=self._run_settings(compiled, workers),
            owner=self.owner,
            restore_from=GOES_ON.restore if waits else self.origin.restore,
            backend=backend,
            files={} if waits else settings.memory_contents(),
            secret=secret,
            host=host,
            port=port,
            trace=settings.trace,
            waits=waits,
        )
        client = CoordinatorClient(setup, restarts=not settings.in_memory)
        launch = WorkerLaunch(
            run=self.run,
            launch="",
            coordinator=Address(host, port, "", ""),
            secret=secret,
            worker_count=workers,
            compiled=compiled.shipped(),
            backend=backend,
            limits=SubtaskLimits(),
            safe=settings.safe,
            log_level=logging.getLogger("cutline").getEffectiveLevel(),
            trace=settings.trace,
            keyed_state=settings.keyed_state_of(compiled.topology.mode),
            waits=beside,
        )
        # A group of its own for each submission, because stages of two submissions may be active for a moment.
        group = secrets.token_hex(8) if waits else self.owner
        make_supervisor = partial(
            Supervisor, settings.spark, client, self.run, group, workers, partial(_encode_launch, launch)
        )
        return Submission(
            self.run, self.owner, client, compiled.topology, workers, application_of(settings.spark), make_supervisor
        )

    def _run_settings(self, compiled: CompiledGraph, workers: int) -> RunSettings:
        settings = self.settings
        return RunSettings(
            run=self.run,
            topology=compiled.topology,
            partitions=compiled.partitions,
            worker_count=workers,
            policy=settings.policy,
            restart_policy=settings.restart_policy,
            retained=settings.retained,
            allow=self.allow,
            forked_from=self.origin.fork,
            gathering_timeout=GATHERING_SECONDS_MAX,
            regathering_timeout=REGATHERING_SECONDS_MAX,
        )


def held_slots(application: str, besides: str = "") -> list[HeldSlots]:
    """Return the slots that the active runs of this driver hold in a Spark application, without those of an owner."""
    held: dict[str, HeldSlots] = {}
    for each in list(_submissions):
        if each.slots and each.application == application and each.owner != besides:
            known = held.get(each.owner, HeldSlots(each.run, 0))
            held[each.owner] = HeldSlots(each.run, known.workers + each.slots)
    return list(held.values())


def application_of(spark: SparkSession) -> str:
    """Return the id of the Spark application, whose sessions share their slots; "" for Connect."""
    return "" if is_connect(spark) else str(spark.sparkContext.applicationId)


def _encode_launch(launch: WorkerLaunch, token: str, port: int) -> bytes:
    return replace(launch, launch=token, coordinator=launch.coordinator._replace(port=port)).encode()
