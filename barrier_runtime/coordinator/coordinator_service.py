"""The shell around `snapshot.coordinator.machine`: one loop thread, an endpoint for workers, threads for storage.

Input enters as an event on the loop's queue, and output leaves as an effect that is performed here. This file makes no
decision and needs no Ray, because the actor is a separate shell around the service.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, assert_never

from cutline.barrier_runtime.coordinator.coordinator_store import CoordinatorStore
from cutline.barrier_runtime.coordinator.endpoint import Endpoint
from cutline.barrier_runtime.coordinator.instance_start import InstanceStart
from cutline.barrier_runtime.coordinator.mode_status import mode_status
from cutline.barrier_runtime.coordinator.request_results import RequestResults
from cutline.barrier_runtime.coordinator.service_threads import ServiceThreads
from cutline.barrier_runtime.progress import ProgressTracker, WorkerProgress
from cutline.barrier_runtime.reactor import Reactor
from cutline.barrier_runtime.tracing.chunks import WorkerTrace
from cutline.barrier_runtime.tracing.trace_store import KeptTrace, TraceStore
from cutline.snapshot.coordinator.control import WorkerRegistered
from cutline.snapshot.coordinator.events import (
    AskStore,
    Begin,
    CancelStage,
    CloseRequest,
    CollectOrphans,
    DeleteSnapshots,
    Effect,
    Event,
    ListRecords,
    PinChanged,
    ReadManifest,
    RecordsRemoved,
    RecordsUnusable,
    RemovalRequested,
    RemoveRecords,
    RunGivenUp,
    SendToWorker,
    SnapshotRequested,
    SnapshotsDeleted,
    StageEnded,
    StageLaunched,
    StopRequested,
    StoreCut,
    TimePassed,
    WorkerLost,
    WorkerMessageReceived,
)
from cutline.snapshot.coordinator.machine import CoordinatorMachine, Outcome
from cutline.snapshot.errors import ChannelError, CutlineError, RunFailed
from cutline.snapshot.stored.snapshot_edits import set_pinned

#: longest sleep of the loop, in seconds, because handshake deadlines have to be checked
SLEEP_SECONDS_MAX = 0.5

_logger = logging.getLogger("cutline.coordinator")


@dataclass(slots=True)
class Launches:
    """The launches of the barrier stage that a coordinator instance knows."""

    #: newest launch that the instance has received; tokens of one submission ascend
    newest: str = ""
    #: token of the stage that the supervisor must cancel, or "" before the first
    cancelled: str = ""


class CoordinatorService:
    """Runs one coordinator instance. Methods may be called on any thread.

    Parameters
    ----------
    coordinator : CoordinatorMachine
    store : CoordinatorStore
    secret : bytes
        Secret of the run.
    host, port
        Address that workers connect to; port 0 lets the system choose a port. ``status()["port"]`` is the bound port.
    trace : TraceStore or None
        Keeps the events of workers; None: the run is not traced.
    waits : bool
        Whether the coordinator takes the run only when `begin` is called. Until then workers register and wait.
    on_superseded : callable
        Called when another instance of this coordinator has the run. This instance has no more work then.
    """

    def __init__(
        self,
        coordinator: CoordinatorMachine,
        store: CoordinatorStore,
        secret: bytes,
        host: str,
        port: int,
        *,
        trace: TraceStore | None = None,
        waits: bool = False,
        on_superseded: Callable[[], None],
    ) -> None:
        self._on_superseded = on_superseded
        self._coordinator = coordinator
        self._store = store
        self._trace = trace
        self._events: deque[Event] = deque()
        self._start = InstanceStart()
        self._requests = RequestResults()
        self._progress = ProgressTracker(coordinator.settings.topology)
        self._launches = Launches()
        self._reactor = Reactor()
        self._endpoint = Endpoint(
            coordinator.settings.run,
            secret,
            host,
            port,
            reactor=self._reactor,
            is_newest=lambda registered: registered.launch >= self._launches.newest,
            on_message=self._on_message,
            on_lost=lambda worker, reason: self._events.append(WorkerLost(worker, reason)),
        )
        self._threads = ServiceThreads(self._reactor.wake)
        self._closing = False
        #: traceback of the error that ended the loop while the run continues, or "" without an error
        self._broken = ""
        if not waits:
            self.begin()
        self._thread = threading.Thread(target=self._run, name="cutline-coordinator", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- for the actor

    def begin(self) -> None:
        """Let the coordinator take the run. Later calls have no effect."""
        self._start.begin(lambda: self.post(Begin()))

    def post(self, event: Event) -> None:
        """Queue an event for the coordinator."""
        self._refuse_if_broken()
        if isinstance(event, StageLaunched | StageEnded):
            self._launches.newest = max(self._launches.newest, event.launch)
        self._events.append(event)
        self._reactor.wake()

    def request(self, event: SnapshotRequested | StopRequested | RemovalRequested) -> CloseRequest | None:
        """Return the result of a request, which is placed if this instance does not know it.

        Blocks for a moment until the result is known. None: the request is pending.
        """
        self._refuse_if_broken()
        assert event.request is not None
        if self._requests.place(event.request.request_id):
            self.post(event)
        return self._requests.wait(event.request.request_id)

    def set_pinned(self, snapshot_id: int, is_pinned: bool) -> None:
        """Pin or unpin a published snapshot. Blocks until the removals that were requested before are done.

        Raises
        ------
        FileNotFoundError, SnapshotCorrupt, OSError
            as `snapshot_edits.set_pinned`.
        """
        self._refuse_if_broken()
        # On the thread of removals, because a removal must see the pin, or the pin the removal.
        pinned = self._threads.answered_sweep(set_pinned, self._store.store, snapshot_id, is_pinned)
        try:
            pinned.result()
        except CancelledError:
            self._refuse_if_broken()  # because a loop that broke cancels what waits
            raise
        self.post(PinChanged(snapshot_id, is_pinned))

    def closed_requests(self) -> dict[int, CloseRequest]:
        """Return the results of the newest requests to this instance."""
        self._refuse_if_broken()
        return self._requests.all_closed()

    def trace(self) -> KeptTrace:
        """Return the stored trace of a traced run, without the events that its workers have not sent yet."""
        self._refuse_if_broken()
        assert self._trace is not None
        return self._trace.kept(is_whole=self._endpoint.is_deserted)

    def status(self) -> dict[str, Any]:
        """Return the status of the run, as plain data."""
        self._refuse_if_broken()
        c = self._coordinator
        restarts, aborted = c.restarts, c.aborted  # read once, because the loop's thread replaces them
        return {
            "phase": c.phase.value,
            "mode": self._mode_status(c),
            "outcome": c.outcome.value if c.outcome else None,
            "reason": c.reason,
            "incarnation": c.incarnation,
            "snapshots": list(c.history),
            "pending": c.pending,
            "storeError": self._store.error,
            "aborted": [{"id": snapshot_id, "reason": reason} for snapshot_id, reason in aborted.newest],
            "abortedCount": aborted.count,
            "restarts": [{"timestamp": restart.at, "reason": restart.reason} for restart in restarts.newest],
            "restartCount": restarts.count,
            "restart_delay": c.restart_delay(time.monotonic()),
            "workers": c.workers,
            "coordinator_start": self._start.at,
            "has_begun": self._start.has_begun,
            "port": self._endpoint.port,
            "newest_launch": self._launches.newest,
            "cancelled_launch": self._launches.cancelled,
            "refused": self._progress.refused(self._endpoint.refused),
            "progress": self._progress.totals(c.incarnation),
            "nodes": self._progress.nodes(c.incarnation),
            "edges": self._progress.edges(c.incarnation),
            "snapshotReports": c.table.reports(time.monotonic()),
        }

    def _mode_status(self, c: CoordinatorMachine) -> dict[str, Any]:
        status = mode_status(c.settings.topology.mode, c.newest, c.incarnation, self._progress.mode(c.incarnation))
        return status | c.completion.status(time.monotonic())

    def close(self) -> None:
        """Stop at once, without a message to workers."""
        self._closing = True
        self._reactor.wake()
        self._thread.join()

    # ---------------------------------------------------------------- the loop

    def _run(self) -> None:
        try:
            while not self._closing:
                self._check_connections()
                self._take_events()
                self._reactor.wait(self._sleep_seconds())
                self._threads.raise_failure()
        except Exception:
            # Stored and checked by each call, because driver and workers would otherwise wait for ever.
            _logger.exception("the coordinator broke")
            self._broken = traceback.format_exc()
        self._threads.shut_down()
        self._endpoint.close()
        self._reactor.close()

    def _check_connections(self) -> None:
        try:
            self._endpoint.check_connections()
        except ChannelError as error:
            self._events.append(RunGivenUp(str(error)))

    def _refuse_if_broken(self) -> None:
        if self._broken:
            run = self._coordinator.settings.run
            raise RunFailed(f"run {run!r}: its coordinator broke, which is a bug of Cutline: {self._broken}")

    def _take_events(self) -> None:
        while self._events:
            self._step(self._events.popleft())
        alarm = self._coordinator.next_deadline()
        if alarm is not None and time.monotonic() >= alarm:
            self._step(TimePassed())

    def _sleep_seconds(self) -> float:
        if self._events:
            return 0.0
        alarm = self._coordinator.next_deadline()
        return SLEEP_SECONDS_MAX if alarm is None else max(0.0, min(SLEEP_SECONDS_MAX, alarm - time.monotonic()))

    def _step(self, event: Event) -> None:
        effects = self._coordinator.step(event, time.monotonic())
        if self._trace is not None:
            self._trace.collect(self._coordinator, effects)
        for effect in effects:
            self._perform(effect)
        if self._coordinator.outcome is Outcome.SUPERSEDED:
            self._on_superseded()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendToWorker(worker, message):
                self._endpoint.send(worker, message)
            case AskStore():
                self._threads.store(self._ask_store, effect)
            case ReadManifest(run, snapshot_id):
                self._threads.store(lambda: self.post(self._store.read_manifest(run, snapshot_id)))
            case ListRecords() | StoreCut():
                self._threads.store(lambda: self.post(self._store.about_records(effect)))
            case RemoveRecords(paths):
                self._threads.sweep(self._remove_records, paths)
            case DeleteSnapshots(snapshot_ids):
                keep = tuple(s for s in self._coordinator.history if s not in snapshot_ids)
                self._threads.sweep(self._delete, snapshot_ids, keep, self._coordinator.incarnation)
            case CollectOrphans(incarnation):
                self._threads.sweep(self._store.collect_orphans, tuple(self._coordinator.history), incarnation)
            case CancelStage(launch):
                self._launches.cancelled = launch
            case CloseRequest():
                self._requests.close(effect)
            case _:
                assert_never(effect)

    # ---------------------------------------------------------------- what comes back

    def _on_message(self, worker: int, message: Any) -> None:
        if isinstance(message, WorkerProgress):
            self._progress.note(message)
            return
        if isinstance(message, WorkerTrace):
            if self._trace is not None:
                self._trace.take(message)
            return
        if isinstance(message, WorkerRegistered) and message.launch > self._launches.newest:
            # The stage began before this instance, because the driver reported the launch to an earlier instance.
            self._launches.newest = message.launch
            self._events.append(StageLaunched(message.launch))
        self._events.append(WorkerMessageReceived(worker, message))

    def _ask_store(self, ask: AskStore) -> None:
        try:
            self.post(self._store.answer(ask))
        except (OSError, CutlineError) as error:
            # The run ends with this reason, because the run cannot continue without the fence's records.
            self.post(RecordsUnusable(f"the run's records cannot be used: {error}"))

    def _remove_records(self, paths: tuple[str, ...]) -> None:
        self._store.remove_records(paths)
        self.post(RecordsRemoved())

    def _delete(self, snapshot_ids: tuple[int, ...], keep: tuple[int, ...], claim: int) -> None:
        removed = self._store.delete_snapshots(snapshot_ids, keep, claim)
        versions: tuple[int, ...] = ()
        if self._coordinator.settings.topology.row.makes_versions:
            left = tuple(each for each in snapshot_ids if each not in removed)
            versions = self._store.versions_of((*keep, *left), claim)
        self.post(SnapshotsDeleted(removed, versions))
