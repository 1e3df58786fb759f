"""`BarrierRuntime`, the users' entry point: submits graphs to barrier stages and lists their snapshots."""

from __future__ import annotations

import logging
import pickle
import secrets
import sys
import tempfile
import threading
import weakref
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import cloudpickle

from barrier_runtime.coordinator.coordinator_actor import CoordinatorSetup
from barrier_runtime.dataframes.nodes import DataFrameSource
from barrier_runtime.driver.coordinator_client import CoordinatorClient, CoordinatorMemory, free_port
from barrier_runtime.driver.preflight import HeldSlots, check_cluster, run_name_problem
from barrier_runtime.driver.ray_gateway import ensure_ray
from barrier_runtime.driver.restore_check import Origin, check_restore, origin_of
from barrier_runtime.driver.run import Run
from barrier_runtime.driver.stage import bind_host, is_connect
from barrier_runtime.driver.supervisor import Supervisor
from barrier_runtime.launch import WorkerLaunch
from barrier_runtime.page.server import PageServer, close_page, open_page
from barrier_runtime.page.settings import Page, settings_of
from channels.sockets import Address
from snapshot.channel.serialization import Codec
from snapshot.coordinator.machine import RunSettings
from snapshot.coordinator.pending_snapshot import SnapshotPolicy
from snapshot.coordinator.recovery import check_allowances
from snapshot.coordinator.restart_policy import RestartPolicy
from snapshot.errors import GraphError, RunFailed
from snapshot.graph import Graph
from snapshot.plan.compiled_graph import CompiledGraph, build
from snapshot.plan.declarations import AlignmentWish
from snapshot.plan.partitions import with_partitions
from snapshot.stored.backend import StateBackend
from snapshot.stored.layout import run_folder
from snapshot.stored.run_store import RunStore, pinned_off_chain, runs
from snapshot.stored.signed import with_signing_key
from snapshot.stored.snapshot import Snapshot
from snapshot.subtask.limits import SubtaskLimits
from state_backends.filesystem import FileSystemBackend
from state_backends.memory import MemoryBackend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds for all workers of a stage to register, because Spark first starts Python and imports on every executor.
GATHERING_SECONDS_MAX = 120.0

#: Seconds for the missing workers of a stage to register again. The time is shorter, because a task forks a new worker
#: in milliseconds. A worker that does not register is stopped or cut off.
REGATHERING_SECONDS_MAX = 30.0

_SECRET_BYTES = 32

#: lock of submissions of all `BarrierRuntime`s, because a submission checks for a live run and then adds its run
_SUBMITTING = threading.Lock()

#: {(backend, name): the run of that name that this driver last submitted to that backend}
_LIVE_IN_DRIVER: weakref.WeakValueDictionary[tuple[str, str], Run] = weakref.WeakValueDictionary()

#: {run of this driver: (Spark application whose slots the run holds while it is active, workers)}
_HOLDERS: weakref.WeakKeyDictionary[Run, tuple[str, int]] = weakref.WeakKeyDictionary()


class BarrierRuntime:
    """Runs graphs on the barrier stages of a Spark session, with snapshots and recovery.

    Parameters
    ----------
    spark : SparkSession or None
        A classic or a Connect session; None: the active session.
    backend : StateBackend
        The storage of snapshots.
    workers : int or None
        Barrier tasks of the stage; None: the largest parallelism in the graph.
    rayAddress : str or None
        Address of an existing Ray, where the coordinator survives the loss of its own process and of nothing else.
        None: the Ray that this process is connected to, or else a new Ray that ends with this process.
    snapshotInterval : float or None
        Seconds between two snapshots; None: only requested snapshots, and those that detect termination.
    snapshotTimeout : float
        Seconds after which an incomplete snapshot is aborted.
    minPause : float
        Seconds between the end of a snapshot and the next snapshot that the interval or a node starts.
    maxConcurrentSnapshots, tolerableFailedSnapshots, retainedSnapshots : int
        Limits of: concurrent snapshots; failures in a row that are only recorded; kept snapshots besides pinned ones.
    alignment : "unaligned", "aligned" or float
        Alignment, where possible, of edges that declare none; a float: aligned for at most so many seconds.
    restartPolicy : RestartPolicy
    safe : bool
        Refuse pickles of classes and functions in messages and states.
    signingKey : bytes or None
        Sign all stored records of runs with this key, and refuse unsigned or wrongly signed ones. Without it whoever
        may write the store may run code in the driver and the workers. None: nothing is signed or checked.
    page : bool or Page
        Serve a live page and metrics while a run is active, at port 4640 of this machine or the next free port. A
        `Page` sets another address. `Run.pageAddress` holds the address, which is printed too.
    trace : bool
        Record every message, marker and cut of subtasks for `Run.trace`. Recording is bounded in memory, but takes
        time. False costs nothing.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        backend: StateBackend,
        workers: int | None = None,
        rayAddress: str | None = None,
        snapshotInterval: float | None = 10.0,
        snapshotTimeout: float = 600.0,
        minPause: float = 0.0,
        maxConcurrentSnapshots: int = 2,
        tolerableFailedSnapshots: int = 3,
        retainedSnapshots: int = 5,
        alignment: AlignmentWish = "unaligned",
        restartPolicy: RestartPolicy = RestartPolicy(),  # noqa: B008  # frozen
        safe: bool = False,
        signingKey: bytes | None = None,
        trace: bool = False,
        page: bool | Page = True,
    ) -> None:
        if retainedSnapshots < 1 or maxConcurrentSnapshots < 1 or tolerableFailedSnapshots < 0:
            raise ValueError(
                "retainedSnapshots and maxConcurrentSnapshots must be at least 1, tolerableFailedSnapshots at least 0"
            )
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}; a stage has at least one")
        self._spark = _session(spark)
        self._backend = backend
        #: the door to all records of runs; `_backend` itself, if nothing is signed
        self._records = with_signing_key(backend, signingKey)
        self._workers = workers
        self._ray_address = rayAddress
        self._policy = SnapshotPolicy(
            interval=snapshotInterval,
            timeout=snapshotTimeout,
            min_pause=minPause,
            max_concurrent=maxConcurrentSnapshots,
            tolerable_failures=tolerableFailedSnapshots,
        )
        self._retained = retainedSnapshots
        self._alignment: AlignmentWish = alignment
        self._restart_policy = restartPolicy
        self._safe = safe
        self._trace = trace
        self._page = settings_of(page)
        #: {name: the run that this runtime last submitted under the name, and its storage as reached from the driver}
        self._live: dict[str, tuple[Run, RunStore]] = {}

    # ---------------------------------------------------------------- submit

    def submit(
        self,
        graph: Graph,
        *,
        name: str | None = None,
        restoreFrom: str | int | Snapshot | None = "latest",
        allow: Collection[str] = (),
    ) -> Run:
        """Start a graph, or resume the run of that name. Return at once: the run has the progress and the failures.

        Parameters
        ----------
        graph : Graph
        name : str or None
            Name of the run; None: the name of the graph.
        restoreFrom : "latest", int, Snapshot or None
            "latest": the newest snapshot of the run, if any. An int: the snapshot with that id. None: a fresh start. A
            snapshot of another run: a fork, while this run has no snapshot of its own.
        allow : collection of str
            Losses that are accepted: ``changedGraph``, ``droppedMessages``, ``droppedState``, ``repeatedOutput``.

        Raises
        ------
        GraphError
            if the graph cannot be built. The text lists all problems.
        NodeError
            if the partitions of a source cannot be listed.
        RestoreRefused
            if the snapshot does not fit, or restoring the snapshot would repeat output.
        RunFailed
            if Spark has too few free slots or allocates executors dynamically, or a run of the name is active in this
            driver.
        OSError
            if the backend cannot hold the run. The text names what the store lacks or refuses.
        """
        run_name = graph.name if name is None else name
        problem = run_name_problem(run_name)
        if problem is not None:
            raise GraphError(f"run name {run_name!r}: {problem}")
        allowed = check_allowances(allow)
        origin = origin_of(restoreFrom, run_name)
        with _SUBMITTING:
            self._refuse_live(run_name)
            self._backend.probe(run_folder(run_name), secrets.token_hex(8))
            self._prepare_sources(graph, run_name)
            compiled = with_partitions(build(graph, self._alignment), graph)
            workers = self._workers or max(node.parallelism for node in compiled.topology.nodes)
            check_cluster(self._spark, workers, self._held_slots())
            check_restore(run_name, compiled, origin, allowed, self._store)
            self._live[run_name] = self._start_shown(run_name, compiled, workers, origin, allowed)
            run = self._live[run_name][0]
            _LIVE_IN_DRIVER[self._place_of(run_name)] = run
            _HOLDERS[run] = (_application(self._spark), workers)
            return run

    def runs(self) -> list[str]:
        """Return the names of all runs in the backend, with a `MemoryBackend` also those of this runtime."""
        if isinstance(self._backend, MemoryBackend):
            return sorted({*runs(self._backend), *self._live})
        return runs(self._backend)

    def snapshots(self, name: str) -> list[Snapshot]:
        """Return the published snapshots of a run, oldest first. The run need not be active."""
        return self._store(name).read_snapshots(Codec(safe=self._safe))

    # ---------------------------------------------------------------- below

    def _place_of(self, name: str) -> tuple[str, str]:
        """Return the key of a run in this driver. All `BarrierRuntime`s share the keys."""
        in_memory = isinstance(self._backend, MemoryBackend)
        return (f"memory {id(self._backend)}" if in_memory else str(self._backend), name)

    def _refuse_live(self, name: str) -> None:
        live = _LIVE_IN_DRIVER.get(self._place_of(name))
        if live is not None and live.isActive:
            raise RunFailed(f"run {name!r} is live in this driver; stop it first, or submit under another name")

    def _prepare_sources(self, graph: Graph, run: str) -> None:
        root = self._backend.root if isinstance(self._backend, FileSystemBackend) else None
        for declared in graph.nodes:
            if isinstance(declared.node, DataFrameSource):
                declared.node.prepare(root, run, declared.name)

    def _held_slots(self) -> list[HeldSlots]:
        """Return the slots that active runs of this driver hold in the session of this runtime."""
        own = _application(self._spark)
        holders = [(run, workers) for run, (application, workers) in _HOLDERS.items() if application == own]
        return [HeldSlots(run.name, workers) for run, workers in holders if run.isActive]

    def _start_shown(
        self, name: str, compiled: CompiledGraph, workers: int, origin: Origin, allow: tuple[str, ...]
    ) -> tuple[Run, RunStore]:
        """Open the page, then start the run, because nothing may run if the page cannot be opened."""
        if self._page is None:
            return self._start(name, compiled, workers, origin, allow, None)
        page = open_page(self._page)
        try:
            started = self._start(name, compiled, workers, origin, allow, page)
        except BaseException:
            close_page(page)
            raise
        sys.stderr.write(f"run {name}: live page at {started[0].pageAddress}\n")
        return started

    def _start(
        self,
        name: str,
        compiled: CompiledGraph,
        workers: int,
        origin: Origin,
        allow: tuple[str, ...],
        page: PageServer | None,
    ) -> tuple[Run, RunStore]:
        pinned = [] if page is None else [each.id for each in pinned_off_chain(self._store(name), ())]
        ensure_ray(self._ray_address)
        host = bind_host(self._spark)
        submission, secret, port = secrets.token_hex(8), secrets.token_bytes(_SECRET_BYTES), free_port(host)
        backend = pickle.dumps(self._records)
        setup = CoordinatorSetup(
            settings=self._run_settings(name, compiled, workers, origin, allow),
            owner=submission,
            restore_from=origin.restore,
            backend=backend,
            files=self._memory_contents(),
            secret=secret,
            host=host,
            port=port,
            trace=self._trace,
        )
        client = CoordinatorClient(setup, restarts=not isinstance(self._backend, MemoryBackend))
        launch = WorkerLaunch(
            run=name,
            launch="",
            coordinator=Address(host, port, "", ""),
            secret=secret,
            worker_count=workers,
            compiled=cloudpickle.dumps(replace(compiled, invariants={})),  # left out, because the driver judges them
            backend=backend,
            limits=SubtaskLimits(),
            safe=self._safe,
            spill_folder=tempfile.gettempdir(),
            log_level=logging.getLogger("cutline").getEffectiveLevel(),
            trace=self._trace,
        )
        supervisor = Supervisor(self._spark, client, name, submission, workers, partial(_encode_launch, launch))
        store = RunStore(self._reachable(client, name), name)
        codec, topology = Codec(safe=self._safe), compiled.topology
        run = Run(
            name,
            supervisor,
            client,
            store,
            codec,
            compiled.invariants,
            topology,
            is_traced=self._trace,
            page=page,
            pinned=pinned,
        )
        return run, store

    def _run_settings(
        self, name: str, compiled: CompiledGraph, workers: int, origin: Origin, allow: tuple[str, ...]
    ) -> RunSettings:
        return RunSettings(
            run=name,
            topology=compiled.topology,
            partitions=compiled.partitions,
            worker_count=workers,
            policy=self._policy,
            restart_policy=self._restart_policy,
            retained=self._retained,
            allow=allow,
            forked_from=origin.fork,
            gathering_timeout=GATHERING_SECONDS_MAX,
            regathering_timeout=REGATHERING_SECONDS_MAX,
        )

    def _reachable(self, client: CoordinatorClient, name: str) -> StateBackend:
        """Return the backend through which the driver reads the run's files."""
        if isinstance(self._backend, MemoryBackend):
            return CoordinatorMemory(client, self._records, run_folder(name))
        return self._records

    def _memory_contents(self) -> dict[str, bytes]:
        """Return the files of a memory backend, because a pickled copy of the backend is empty."""
        in_memory = isinstance(self._backend, MemoryBackend)
        return {path: self._records.get(path) for path in self._records.files()} if in_memory else {}

    def _store(self, name: str) -> RunStore:
        return self._live[name][1] if name in self._live else RunStore(self._records, name)


def _session(spark: SparkSession | None) -> SparkSession:
    if spark is not None:
        return spark
    from pyspark.sql import SparkSession as Session

    active = Session.getActiveSession()
    if active is None:
        raise RunFailed("there is no active Spark session; give BarrierRuntime one, or make one first")
    return active


def _encode_launch(launch: WorkerLaunch, token: str, port: int) -> bytes:
    return replace(launch, launch=token, coordinator=launch.coordinator._replace(port=port)).encode()


def _application(spark: SparkSession) -> str:
    """Return the id of the Spark application, whose sessions share their slots; "" for Connect."""
    return "" if is_connect(spark) else str(spark.sparkContext.applicationId)
