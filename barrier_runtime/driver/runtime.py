"""`BarrierRuntime`, the users' entry point: submits graphs to barrier stages and lists their snapshots."""

from __future__ import annotations

import math
import secrets
import sys
import weakref
from collections.abc import Collection
from typing import TYPE_CHECKING

from cutline.barrier_runtime.dataframes.snapshot_source import SnapshotDataSource
from cutline.barrier_runtime.driver.coordinator_client import CoordinatorClient, CoordinatorMemory
from cutline.barrier_runtime.driver.preflight import check_cluster, run_name_problem
from cutline.barrier_runtime.driver.ray_gateway import ensure_ray
from cutline.barrier_runtime.driver.restore_check import check_restore, origin_of, plan_of
from cutline.barrier_runtime.driver.run import Run
from cutline.barrier_runtime.driver.snapshot_frames import snapshot_frame
from cutline.barrier_runtime.driver.submission import SUBMITTING, RuntimeSettings, Submitter, application_of, held_slots
from cutline.barrier_runtime.page.server import PageServer, close_page, open_page
from cutline.barrier_runtime.page.settings import Page, settings_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.pending_snapshot import SnapshotPolicy
from cutline.snapshot.coordinator.recovery import check_allowances
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.restore_plan import RestorePlan
from cutline.snapshot.errors import GraphError, RunFailed
from cutline.snapshot.graph import Graph
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.modes import ModeWish, mode_of
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.layout import run_folder
from cutline.snapshot.stored.run_store import RunStore, pinned_off_chain, runs
from cutline.snapshot.stored.signed import with_signing_key
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.state_backends.keyed_state import HeapState, RocksDBState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: {(backend, name): the run of that name that this driver last submitted to that backend}
_LIVE_IN_DRIVER: weakref.WeakValueDictionary[tuple[str, str], Run] = weakref.WeakValueDictionary()


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
    keyedState : HeapState or RocksDBState
        Where the rows of keyed state are while the run is active: in memory, or in databases on the workers' disks.
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
        keyedState: HeapState | RocksDBState = HeapState(),  # noqa: B008  # frozen
        safe: bool = False,
        signingKey: bytes | None = None,
        trace: bool = False,
        page: bool | Page = True,
    ) -> None:
        if retainedSnapshots < 1 or maxConcurrentSnapshots < 1 or tolerableFailedSnapshots < 0:
            raise ValueError(
                "retainedSnapshots and maxConcurrentSnapshots must be at least 1, tolerableFailedSnapshots at least 0"
            )
        _check_seconds(snapshotInterval, snapshotTimeout, minPause)
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}; a stage has at least one")
        self._settings = RuntimeSettings(
            spark=_session(spark),
            backend=backend,
            records=with_signing_key(backend, signingKey),
            workers=workers,
            policy=SnapshotPolicy(
                interval=snapshotInterval,
                timeout=snapshotTimeout,
                min_pause=minPause,
                max_concurrent=maxConcurrentSnapshots,
                tolerable_failures=tolerableFailedSnapshots,
            ),
            retained=retainedSnapshots,
            alignment=alignment,
            restart_policy=restartPolicy,
            keyed_state=keyedState,
            safe=safe,
            trace=trace,
        )
        self._settings.spark.dataSource.register(SnapshotDataSource)
        self._ray_address = rayAddress
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
        mode: ModeWish = "markers",
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
        mode : "markers", "inputLogging", or the settings of a mode
            What snapshots store, and how a restore uses it. A run keeps its mode for life.

        Raises
        ------
        GraphError
            if the graph cannot be built, the mode cannot run it, or the store of an aggregate cannot serve its workers.
            The text lists all problems.
        ValueError
            if there is no such mode.
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
        allowed, of_run = check_allowances(allow), mode_of(mode)
        origin = origin_of(restoreFrom, run_name)
        settings = self._settings
        with SUBMITTING:
            self._refuse_live(run_name)
            settings.check_mode(graph, of_run)
            settings.keyed_state_of(of_run).check()
            settings.backend.probe(run_folder(run_name), secrets.token_hex(8))
            submitter = Submitter(settings, graph, run_name, origin, allowed, of_run)
            compiled = settings.compile(submitter.graph, run_name, of_run, origin)
            check_cluster(settings.spark, settings.worker_count(compiled), held_slots(application_of(settings.spark)))
            check_restore(run_name, compiled, origin, allowed, self._store)
            self._live[run_name] = self._start_shown(submitter, compiled)
            run = self._live[run_name][0]
            _LIVE_IN_DRIVER[self._place_of(run_name)] = run
            return run

    def plan(
        self,
        graph: Graph,
        name: str | None = None,
        *,
        restoreFrom: str | int | Snapshot | None = "latest",
        allow: Collection[str] = (),
        mode: ModeWish | None = None,
    ) -> RestorePlan:
        """Return what `submit` with the same arguments would restore, or why it would refuse. Changes nothing.

        The run may be active, here or elsewhere. Print the plan, or read its `lines`. Without `mode` it is the mode of
        the snapshot.

        Raises
        ------
        GraphError, NodeError, ValueError
            as `submit`.
        RestoreRefused
            if there is no such snapshot.
        """
        run_name = graph.name if name is None else name
        return plan_of(run_name, graph, restoreFrom, allow, self._store, mode)

    def runs(self) -> list[str]:
        """Return the names of all runs in the backend, with a `MemoryBackend` also those of this runtime."""
        backend = self._settings.backend
        return sorted({*runs(backend), *self._live}) if self._settings.in_memory else runs(backend)

    def snapshots(self, name: str) -> list[Snapshot]:
        """Return the published snapshots of a run, oldest first. The run need not be active."""
        return self._store(name).read_snapshots(Codec(safe=self._settings.safe))

    def snapshotDataFrame(self, name: str, snapshotId: int | None = None) -> DataFrame:
        """Return the states, keyed rows, timers and messages in flight of a stored snapshot as rows.

        Parameters
        ----------
        name : str
            Name of the run, which need not be active.
        snapshotId : int or None
            None: the newest.
        """
        return snapshot_frame(self._settings.spark, self._store(name).backend, name, snapshotId)

    # ---------------------------------------------------------------- below

    def _place_of(self, name: str) -> tuple[str, str]:
        """Return the key of a run in this driver. All `BarrierRuntime`s share the keys."""
        backend = self._settings.backend
        return (f"memory {id(backend)}" if self._settings.in_memory else str(backend), name)

    def _refuse_live(self, name: str) -> None:
        live = _LIVE_IN_DRIVER.get(self._place_of(name))
        if live is not None and live.isActive:
            raise RunFailed(f"run {name!r} is live in this driver; stop it first, or submit under another name")

    def _start_shown(self, submitter: Submitter, compiled: CompiledGraph) -> tuple[Run, RunStore]:
        """Open the page, then start the run, because nothing may run if the page cannot be opened."""
        if self._page is None:
            return self._start(submitter, compiled, None)
        page = open_page(self._page)
        try:
            started = self._start(submitter, compiled, page)
        except BaseException:
            close_page(page)
            raise
        sys.stderr.write(f"run {submitter.run}: live page at {started[0].pageAddress}\n")
        return started

    def _start(self, submitter: Submitter, compiled: CompiledGraph, page: PageServer | None) -> tuple[Run, RunStore]:
        name, settings = submitter.run, self._settings
        pinned = [] if page is None else [each.id for each in pinned_off_chain(self._store(name), ())]
        ensure_ray(self._ray_address)
        submission = submitter.prepare(compiled, waits=False)
        try:
            store = RunStore(self._reachable(submission.client, name), name)
            submission.launch()
            codec = Codec(safe=settings.safe, names=compiled.program_names())
            return Run(submission, submitter, store, codec, compiled.invariants, page=page, pinned=pinned), store
        except BaseException:  # Ctrl-C too, because nobody else would end what has started
            submission.discard()
            raise

    def _reachable(self, client: CoordinatorClient, name: str) -> StateBackend:
        """Return the backend through which the driver reads the run's files."""
        records = self._settings.records
        return CoordinatorMemory(client, records, run_folder(name)) if self._settings.in_memory else records

    def _store(self, name: str) -> RunStore:
        return self._live[name][1] if name in self._live else RunStore(self._settings.records, name)


def _check_seconds(interval: float | None, timeout: float, pause: float) -> None:
    """Refuse times with which a run would only take snapshots, or would take none."""
    if interval is not None and not 0 < interval < math.inf:
        raise ValueError(f"snapshotInterval is {interval!r}; give seconds above 0, or None for no snapshots by time")
    if not timeout > 0:
        raise ValueError(f"snapshotTimeout is {timeout!r}; give seconds above 0")
    if not 0 <= pause < math.inf:
        raise ValueError(f"minPause is {pause!r}; give seconds from 0 on")


def _session(spark: SparkSession | None) -> SparkSession:
    if spark is not None:
        return spark
    from pyspark.sql import SparkSession as Session

    active = Session.getActiveSession()
    if active is None:
        raise RunFailed("there is no active Spark session; give BarrierRuntime one, or make one first")
    return active
