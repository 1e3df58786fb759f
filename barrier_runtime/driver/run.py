"""The run's object in the driver, with the names and the behaviour of pyspark's `StreamingQuery`."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cutline.barrier_runtime.driver.coordinator_client import CoordinatorClient
from cutline.barrier_runtime.driver.failed_snapshots import FailedSnapshots
from cutline.barrier_runtime.driver.interruptible import ctrl_c_ends_waiting
from cutline.barrier_runtime.driver.invariant_monitor import InvariantMonitor, InvariantQueue
from cutline.barrier_runtime.driver.progress_report import Polled, progress_report, share_reports
from cutline.barrier_runtime.driver.rescaling import Rescaler
from cutline.barrier_runtime.driver.restore_check import plan_of
from cutline.barrier_runtime.driver.run_html import html_of_run
from cutline.barrier_runtime.driver.snapshot_frames import snapshot_frame
from cutline.barrier_runtime.driver.submission import Submission, Submitter
from cutline.barrier_runtime.driver.submissions import RunOverError, Submissions, going_on
from cutline.barrier_runtime.driver.supervisor import Supervisor
from cutline.barrier_runtime.page.commands import Actions, Kind
from cutline.barrier_runtime.page.server import PageServer
from cutline.barrier_runtime.tracing.joined import opened
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.events import CloseRequest, RemovalRequested, SnapshotRequested, StopRequested
from cutline.snapshot.coordinator.pending_snapshot import SnapshotRequest
from cutline.snapshot.coordinator.restore_plan import RestorePlan
from cutline.snapshot.coordinator.retention import RemovalRequest
from cutline.snapshot.errors import CutlineError, RunFailed, SnapshotAborted, SnapshotInUse
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.declarations import Invariant
from cutline.snapshot.stored.recovery_report import RECOVERY_REPORT, RecoveryReport
from cutline.snapshot.stored.run_store import RunStore, stored_history
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.snapshot_edits import check_removable, remove_snapshot, set_pinned
from cutline.snapshot.trace import Trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Seconds between two polls of the monitor, which keeps progress reports and judges invariants.
_MONITOR_SECONDS = 0.25

#: progress reports that `recentProgress` keeps, as by Spark's default
_RECENT_PROGRESS_MAX = 100

_logger = logging.getLogger("cutline.run")


class Run:
    """A submitted run, returned by `BarrierRuntime.submit`.

    Methods may be called on any thread. The end of the driver's process ends a run with an embedded Ray. Submitting
    the graph again under the same name resumes from the newest snapshot.
    """

    def __init__(
        self,
        submission: Submission,
        submitter: Submitter,
        store: RunStore,
        codec: Codec,
        invariants: Mapping[str, Invariant],
        *,
        page: PageServer | None,
        pinned: Sequence[int],
    ) -> None:
        self.name = submitter.run
        self._submissions = Submissions(submission, submitter, store.backend)
        self._store = store
        self._codec = codec
        self._rescaler = Rescaler(self._submissions, store, codec, lambda timeout: self.takeSnapshot(timeout=timeout))
        self._invariant_monitor = InvariantMonitor(store, codec, invariants)
        self._invariant_queue = InvariantQueue(self._invariant_monitor)
        self._failed_snapshots = FailedSnapshots()
        self._recent: deque[dict[str, Any]] = deque(maxlen=_RECENT_PROGRESS_MAX)
        #: the last error of the monitor, which is logged once, or ""
        self._trouble = ""
        actions: Actions = {
            Kind.SNAPSHOT: self.takeSnapshot,
            Kind.STOP: partial(self.stop, withSnapshot=True),
            Kind.STOP_NOW: self.stop,
            Kind.RESCALE: self.rescale,
            Kind.PIN: self.pinSnapshot,
            Kind.UNPIN: self.unpinSnapshot,
            Kind.DELETE: self.deleteSnapshot,
        }
        self._page = None if page is None else page.show(self.name, submission.topology, actions, pinned)
        #: address of the live page while the run is active, or None without a page
        self.pageAddress = None if self._page is None else self._page.address
        self._monitor = threading.Thread(target=self._watch, name=f"cutline-run-{self.name}", daemon=True)
        self._monitor.start()

    # ---------------------------------------------------------------- as a StreamingQuery

    @property
    def isActive(self) -> bool:
        """True while the run has not ended."""
        return not self._submissions.ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """Status of the run: phase, restarts, progress, nodes, edges, snapshots. `docs/API.md` explains each key."""
        status = self._ask_status()
        status["invariants"] = self._invariant_monitor.as_status()
        return status

    @property
    def recoveryReport(self) -> RecoveryReport | None:
        """How far each subtask was at the last recovery of a run in mode `channelLogs`. None before the first one."""
        found = self.status["mode"].get("recovery")
        return None if found is None else RECOVERY_REPORT.read(found)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """The newest progress report, or None before the first."""
        return self._recent[-1] if self._recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The newest progress reports, oldest first."""
        return list(self._recent)

    def exception(self) -> CutlineError | None:
        """Return the error of a failed run. Return None while the run is active, or if it finished or was stopped."""
        return None if self.isActive else self._submissions.error_of_end()

    @ctrl_c_ends_waiting()
    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Block until the run has ended.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait; None: no limit.

        Returns
        -------
        bool or None
            With a timeout, whether the run has ended. Without a timeout, None.

        Raises
        ------
        RunFailed, Fenced
            if the run failed, or was submitted again elsewhere.
        """
        ended = self._submissions.ended.wait(timeout)
        if ended:
            self._submissions.raise_for_end()
        return None if timeout is None else ended

    # ---------------------------------------------------------------- snapshots

    @ctrl_c_ends_waiting()
    def takeSnapshot(
        self, *, pinned: bool = False, initiators: Collection[Subtask] | None = None, timeout: float | None = None
    ) -> Snapshot:
        """Take a snapshot now and wait until it is published.

        Parameters
        ----------
        pinned : bool
            Whether retention never removes the snapshot.
        initiators : collection of Subtask or None
            Subtasks that start the snapshot; None: the graph's own initiators, which reach all subtasks. The graph's
            own initiators also start the snapshot where the given subtasks do not reach.
        timeout : float or None
            Seconds to wait; None: until the run ends.

        Raises
        ------
        SnapshotAborted
            if the snapshot was aborted, or was not published in time.
        """
        if not self.isActive:
            raise SnapshotAborted(f"run {self.name!r} has ended; its last snapshot is the last of snapshots()")
        request = self._request(pinned, initiators, timeout)
        return self._await_request(SnapshotRequested(request), timeout)

    def plan(
        self, graph: Graph, *, restoreFrom: str | int | None = "latest", allow: Collection[str] = ()
    ) -> RestorePlan:
        """Return what a submission of `graph` under this run's name would restore. Changes nothing.

        Raises
        ------
        GraphError, NodeError
            as `BarrierRuntime.submit`.
        RestoreRefused
            if there is no such snapshot.
        """
        return plan_of(self.name, graph, restoreFrom, allow, lambda _: self._store)

    def snapshots(self) -> list[Snapshot]:
        """Return all kept published snapshots, oldest first. The last snapshot of a bounded run is the run's result."""
        return self._store.read_snapshots(self._codec)

    def snapshotDataFrame(self, snapshotId: int | None = None) -> DataFrame:
        """Return the states, keyed rows, timers and messages in flight of a snapshot as rows. None: of the newest."""
        return snapshot_frame(self._submissions.submitter.settings.spark, self._store.backend, self.name, snapshotId)

    def pinSnapshot(self, snapshotId: int) -> None:
        """Pin a published snapshot, so that retention never removes the snapshot. Also for a run that has ended.

        Raises
        ------
        FileNotFoundError
            if there is no such snapshot.
        """
        self._set_pinned(snapshotId, True)

    def unpinSnapshot(self, snapshotId: int) -> None:
        """Unpin a published snapshot. Retention then removes the snapshot, unless it is among the newest.

        Raises
        ------
        FileNotFoundError
            if there is no such snapshot.
        """
        self._set_pinned(snapshotId, False)

    @ctrl_c_ends_waiting()
    def deleteSnapshot(self, snapshotId: int) -> None:
        """Remove a published snapshot. Parts that other snapshots need stay. Also for a run that has ended.

        Raises
        ------
        FileNotFoundError
            if there is no such snapshot.
        SnapshotInUse
            if the snapshot is pinned, or is the newest, from which the run continues.
        """
        check_removable(self._store, stored_history(self._store), snapshotId)
        event = RemovalRequested(RemovalRequest(secrets.randbits(62), snapshotId))
        while self.isActive:
            try:
                closed = self._submissions.call(lambda client: client.request(event))
            except RunOverError:
                break
            if closed is not None and closed.snapshot_id is None:
                raise SnapshotInUse(f"run {self.name!r}: snapshot {snapshotId} stays: {closed.reason}")
            if closed is not None:
                return
        remove_snapshot(self._store, snapshotId)

    def trace(self) -> Trace:
        """Return the trace: messages, markers, cuts and failures of subtasks and coordinator. A trace draws itself.

        Only the newest messages of each subtask are kept. Workers send their events about twice a second, at a rollback
        and at their end. So the last half second of a killed worker is missing. Events from before a restart of the
        coordinator are missing too.

        Raises
        ------
        RunFailed
            if the run was submitted without ``trace=True``, or the coordinator was lost with the trace.
        """
        if not self._submissions.submitter.settings.trace:
            raise RunFailed(f"run {self.name!r} is not traced; submit it by a BarrierRuntime(trace=True)")
        try:
            kept = self._submissions.traces(self._submissions.call(lambda client: client.trace()))
        except RunOverError:
            kept = self._submissions.traces(None)
        if not kept:
            raise RunFailed(f"run {self.name!r} has ended, and its coordinator was lost with the trace")
        return opened(kept)

    @ctrl_c_ends_waiting()
    def rescale(self, parallelism: Mapping[str, int], *, timeout: float | None = None) -> Snapshot:
        """Go on with other numbers of subtasks: stop with a snapshot, and start from it in the same session.

        Checked first, while the run goes on: the nodes, the graph, the free slots, and whether the newest snapshot can
        be restored at the new parallelism. Returns when the new subtasks run. Ctrl-C ends the waiting only.

        Parameters
        ----------
        parallelism : mapping of str to int
            New number of subtasks, by node. Other nodes keep theirs.
        timeout : float or None
            Seconds that the first of the two snapshots may take, and that the last may wait to begin; None: no limit.

        Returns
        -------
        Snapshot
            The snapshot from which the run went on.

        Raises
        ------
        GraphError, NodeError, RestoreRefused
            if the graph or the newest snapshot does not fit. The run goes on.
        SnapshotAborted
            if a snapshot could not be taken. The run goes on.
        RunFailed
            if the run has ended or is being rescaled, or Spark has too few slots, and the run goes on; or if the new
            subtasks could not start. The text then says how to go on from the snapshot.
        """
        return self._rescaler.rescale(parallelism, timeout)

    @ctrl_c_ends_waiting()
    def stop(self, *, withSnapshot: bool = False, timeout: float | None = None) -> Snapshot | None:
        """End the run and wait for the end.

        Parameters
        ----------
        withSnapshot : bool
            Take a last snapshot first, so that a resumed run processes nothing again.
        timeout : float or None
            Seconds to wait for the last snapshot; None: no limit.

        Raises
        ------
        SnapshotAborted
            if the snapshot could not be taken. The run continues.
        """
        if not self.isActive:
            return None
        if withSnapshot:
            return self._stop_with_snapshot(timeout)
        while True:
            # Repeated, because a new coordinator has not received the request.
            with contextlib.suppress(RunOverError):
                self._submissions.call(lambda client: client.post(StopRequested(None)))
            if self._submissions.ended.wait(_MONITOR_SECONDS):
                return None

    def _stop_with_snapshot(self, timeout: float | None) -> Snapshot:
        """Request the stop until the run has ended. Return the last snapshot.

        A coordinator that is new, or that took over at a rescale, refuses a request that is late, and does not know
        that the run is to stop. It gets a request of its own, without a deadline, because a snapshot was taken in time.
        """
        event = StopRequested(self._request(False, None, timeout))
        snapshot = self._await_request(event, timeout)
        while not self._submissions.ended.wait(_MONITOR_SECONDS):
            with contextlib.suppress(RunOverError, SnapshotAborted):
                closed = self._closed_request(event)
                if closed is None:
                    continue
                if closed.snapshot_id is None:
                    event = StopRequested(self._request(False, None, None))
                elif closed.snapshot_id != snapshot.id:
                    snapshot = self._store.read_snapshot(closed.snapshot_id, self._codec)
        return snapshot

    def _repr_html_(self) -> str:
        """Return the status as HTML for notebooks, without a call to the coordinator."""
        known = self.lastProgress if self.isActive else self._supervisor.status
        status = {**known, "invariants": self._invariant_monitor.as_status()} if known else None
        topology = self._submissions.present.topology
        return html_of_run(self.name, topology, status, self.pageAddress if self.isActive else None)

    # ---------------------------------------------------------------- below

    @property
    def _supervisor(self) -> Supervisor:
        return self._submissions.supervisor

    @property
    def _client(self) -> CoordinatorClient:
        return self._submissions.present.client

    @staticmethod
    def _request(pinned: bool, initiators: Collection[Subtask] | None, timeout: float | None) -> SnapshotRequest:
        deadline = None if timeout is None else time.monotonic() + timeout
        chosen = None if initiators is None else tuple(initiators)
        return SnapshotRequest(secrets.randbits(62), pinned, chosen, deadline)

    def _set_pinned(self, snapshot_id: int, is_pinned: bool) -> None:
        try:
            self._submissions.call(lambda client: client.set_pinned(snapshot_id, is_pinned))
        except RunOverError:
            set_pinned(self._store, snapshot_id, is_pinned)
        if self._page is not None and not is_pinned:
            self._page.note_unpinned(snapshot_id)

    def _await_request(self, event: SnapshotRequested | StopRequested, timeout: float | None) -> Snapshot:
        deadline = None if timeout is None else time.monotonic() + timeout
        before = self._submissions.present
        while (closed := self._closed_request(event)) is None or (closed.snapshot_id is None and self._is_new(before)):
            if deadline is not None and time.monotonic() >= deadline:
                raise SnapshotAborted(f"run {self.name!r}: no snapshot was published in {timeout:g} s")
            before = self._submissions.present
        if closed.snapshot_id is None:
            raise SnapshotAborted(f"run {self.name!r}: {closed.reason}")
        return self._store.read_snapshot(closed.snapshot_id, self._codec)

    def _is_new(self, before: Submission) -> bool:
        """Return whether another coordinator can take the request that was refused, because the run was rescaled."""
        return self._submissions.await_switch(before) and self.isActive

    def _ask_status(self) -> dict[str, Any]:
        try:
            return self._submissions.status()
        except RunOverError:
            return dict(self._supervisor.status)

    def _closed_request(self, event: SnapshotRequested | StopRequested) -> CloseRequest | None:
        try:
            return self._submissions.call(lambda client: client.request(event))
        except RunOverError:
            assert event.request is not None
            closed = self._submissions.closed_requests.get(event.request.request_id)
            if closed is None:
                raise SnapshotAborted(f"run {self.name!r} ended before its snapshot was published") from None
            return closed

    def _watch(self) -> None:
        """Keep progress reports and have invariants judged until the run has ended."""
        before: Polled | None = None
        try:
            while not self._supervisor.join(_MONITOR_SECONDS) or self._pass_on(before):
                before = self._poll(before)
            if self._supervisor.error is None:
                self._invariant_queue.post(self._supervisor.status["snapshots"])
                self._warn_of_failures(self._supervisor.status)
        finally:
            self._supervisor.join(None)
            self._invariant_queue.close()
            self._release()

    def _pass_on(self, before: Polled | None) -> bool:
        """Go on with the submission of a rescale. Return False when the run has ended."""
        last = self._supervisor.status
        if not self._submissions.pass_on():
            return False
        # Shown as a run that goes on, because only this status has the end of the last snapshot.
        self._note(going_on(last), before)
        if self._page is not None:
            self._page.show_graph(self._submissions.present.topology)
        return True

    def _release(self) -> None:
        """End the last coordinator when its data was copied."""
        try:
            self._submissions.end()
        finally:
            if self._page is not None:
                self._page.end(self._supervisor.status, self._supervisor.error, self._invariant_monitor.as_status())
            self._submissions.close()
            if self._page is not None:
                self._page.close()

    def _poll(self, before: Polled | None) -> Polled | None:
        try:
            status = self._client.status()
            self._supervisor.obey(status)
            self._submissions.note(status)
            polled = self._note(self._submissions.shown(status, self._submissions.present), before)
        except RunFailed as error:
            _logger.warning("run %s: ending its stage: %s", self.name, error)
            # Because no coordinator is left that would send Quit to the workers.
            self._supervisor.cancel(f"its coordinator did not answer: {error}")
            return before
        except Exception as error:  # any type, because without its monitor a run hangs, and nobody learns why
            if self._trouble != repr(error):
                self._trouble = repr(error)
                _logger.exception("run %s: its monitor failed, and tries again", self.name)
            return before
        self._trouble = ""
        return polled

    def _note(self, status: dict[str, Any], before: Polled | None) -> Polled:
        polled = Polled(time.monotonic(), status)
        self._invariant_queue.post(status["snapshots"])
        self._warn_of_failures(status)
        share_reports(status, before)
        report = progress_report(self.name, polled, before)
        self._recent.append(report)
        if self._page is not None:
            self._page.see({**report, "invariants": self._invariant_monitor.as_status()})
        return polled

    def _warn_of_failures(self, status: Mapping[str, Any]) -> None:
        for line in self._failed_snapshots.lines(status):
            _logger.warning("run %s: %s", self.name, line)
