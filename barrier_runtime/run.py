"""A run, as its driver holds it: named and behaving as pyspark's `StreamingQuery`."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from barrier_runtime.coordinator_client import CoordinatorClient, CoordinatorMemory
from barrier_runtime.supervisor import Supervisor, raise_for
from barrier_runtime.verdicts import Verdicts
from snapshot.channel.serialization import Codec
from snapshot.coordinator.events import CloseOrder, SnapshotOrdered, StopOrdered
from snapshot.coordinator.snapshot_book import SnapshotOrder
from snapshot.declared.declarations import Invariant
from snapshot.errors import CutlineError, RunFailed, SnapshotAborted
from snapshot.ids import Subtask
from snapshot.snapshot import Snapshot
from state_backends.store import RunStore

#: Seconds between two looks at an order; a snapshot takes a few milliseconds at best.
_POLL_SECONDS = 0.005

#: Seconds between two looks of the monitor, which keeps progress and judges invariants.
_MONITOR_SECONDS = 0.25

#: Progress reports that `recentProgress` keeps; as Spark's default.
_RECENT_PROGRESS_MAX = 100

_logger = logging.getLogger("cutline.run")


class Run:
    """One run; got from `BarrierRuntime.submit`.

    Methods may be called on any thread. Closing the driver's process ends a run with an embedded Ray; submitting
    the graph under the same name goes on from its newest snapshot.
    """

    def __init__(
        self,
        name: str,
        supervisor: Supervisor,
        client: CoordinatorClient,
        store: RunStore,
        codec: Codec,
        invariants: Mapping[str, Invariant],
    ) -> None:
        self.name = name
        self._supervisor = supervisor
        self._client = client
        self._store = store
        self._codec = codec
        self._verdicts = Verdicts(store, codec, invariants)
        self._recent: deque[dict[str, Any]] = deque(maxlen=_RECENT_PROGRESS_MAX)
        #: what came of orders, once the coordinator is not there any more to be asked
        self._last_orders: dict[int, CloseOrder] = {}
        self._ended = threading.Event()
        self._monitor = threading.Thread(target=self._watch, name=f"cutline-run-{name}", daemon=True)
        self._monitor.start()

    # ---------------------------------------------------------------- as a StreamingQuery

    @property
    def isActive(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """How it stands: phase, incarnation, snapshots, aborted, restarts with their reasons, workers, progress."""
        status = self._ask_status()
        status["invariants"] = self._verdicts.as_status()
        return status

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """The newest progress report; None before the first."""
        return self._recent[-1] if self._recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The newest progress reports, oldest first."""
        return list(self._recent)

    def exception(self) -> CutlineError | None:
        """Why it failed; None while it is active, and when it finished or was stopped."""
        if not self._ended.is_set():
            return None
        try:
            self._raise_for_end()
        except CutlineError as error:
            return error
        return None

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Block until the run has ended.

        Parameters
        ----------
        timeout : float or None
            seconds; None: however long it takes.

        Returns
        -------
        bool or None
            with a timeout, whether it has ended; else None.

        Raises
        ------
        RunFailed, Fenced
            if it failed, or was submitted again elsewhere.
        """
        ended = self._ended.wait(timeout)
        if ended:
            self._raise_for_end()
        return None if timeout is None else ended

    # ---------------------------------------------------------------- snapshots

    def takeSnapshot(
        self, *, pinned: bool = False, initiators: Collection[Subtask] | None = None, timeout: float | None = None
    ) -> Snapshot:
        """Take a snapshot now and wait until it is published.

        Parameters
        ----------
        pinned : bool
            Retention never removes it.
        initiators : collection of Subtask or None
            Who starts it; None: whoever reaches everybody. Those that these do not reach start it too.
        timeout : float or None
            Seconds to wait; None: as long as the run lives.

        Raises
        ------
        SnapshotAborted
            if it was given up, or was not published in time.
        """
        if not self.isActive:
            raise SnapshotAborted(f"run {self.name!r} has ended; its last snapshot is the last of snapshots()")
        order = self._order(pinned, initiators, timeout)
        return self._await_order(SnapshotOrdered(order), timeout)

    def snapshots(self) -> list[Snapshot]:
        """All published snapshots that are kept, oldest first; the last one of a bounded run is its result."""
        return self._store.read_snapshots(self._codec)

    def stop(self, *, withSnapshot: bool = False, timeout: float | None = None) -> Snapshot | None:
        """End the run and wait for it.

        Parameters
        ----------
        withSnapshot : bool
            Take a last snapshot first, so that nothing has to be processed again when it is resumed.
        timeout : float or None
            Seconds to wait for that snapshot.

        Raises
        ------
        SnapshotAborted
            if the snapshot could not be taken; the run goes on.
        """
        if not self.isActive:
            return None
        snapshot = None
        if withSnapshot:
            event = StopOrdered(self._order(False, None, timeout))
            snapshot = self._await_order(event, timeout)
        else:
            event = StopOrdered(None)
            self._say_stop(event)
        while not self._ended.wait(_MONITOR_SECONDS):
            self._say_stop(event)
        return snapshot

    # ---------------------------------------------------------------- below

    @staticmethod
    def _order(pinned: bool, initiators: Collection[Subtask] | None, timeout: float | None) -> SnapshotOrder:
        deadline = None if timeout is None else time.monotonic() + timeout
        chosen = None if initiators is None else tuple(initiators)
        return SnapshotOrder(secrets.randbits(62), pinned, chosen, deadline)

    def _say_stop(self, event: StopOrdered) -> None:
        """Again and again: a life of the coordinator that began since has not heard of it."""
        if event.order is not None:
            self._closed_order(event)
            return
        try:
            self._client.post(event)
        except RunFailed:
            if not self._ended.is_set():
                raise

    def _await_order(self, event: SnapshotOrdered | StopOrdered, timeout: float | None) -> Snapshot:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (closed := self._closed_order(event)) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise SnapshotAborted(f"run {self.name!r}: no snapshot was published in {timeout:g} s")
            time.sleep(_POLL_SECONDS)
        if closed.snapshot_id is None:
            raise SnapshotAborted(f"run {self.name!r}: {closed.reason}")
        return self._store.read_snapshot(closed.snapshot_id, self._codec)

    def _ask_status(self) -> dict[str, Any]:
        try:
            if not self._ended.is_set():
                return self._client.status()
        except RunFailed:
            if not self._ended.is_set():
                raise
        return dict(self._supervisor.status)

    def _closed_order(self, event: SnapshotOrdered | StopOrdered) -> CloseOrder | None:
        try:
            if not self._ended.is_set():
                return self._client.order(event)
        except RunFailed:
            if not self._ended.is_set():
                raise
        assert event.order is not None
        request = event.order.request
        if request not in self._last_orders:
            raise SnapshotAborted(f"run {self.name!r} ended before its snapshot was published")
        return self._last_orders[request]

    def _raise_for_end(self) -> None:
        if self._supervisor.error is not None:
            raise RunFailed(f"run {self.name!r}: its supervisor failed: {self._supervisor.error}") from (
                self._supervisor.error
            )
        raise_for(self._supervisor.status, self.name)

    def _watch(self) -> None:
        """Keep progress and judge invariants until the run has ended."""
        before: tuple[float, dict[str, Any]] | None = None
        try:
            while not self._supervisor.join(_MONITOR_SECONDS):
                before = self._look(before)
            if self._supervisor.error is None:
                self._verdicts.judge(self._supervisor.status["snapshots"])
        finally:
            self._supervisor.join(None)
            self._release()

    def _release(self) -> None:
        """Keep what only the coordinator has, and end it: an actor is a process of a hundred megabytes."""
        try:
            self._last_orders = self._client.closed_orders()
            if isinstance(self._store.backend, CoordinatorMemory):
                self._store.backend.bring_home()
        except RunFailed as error:
            _logger.debug("run %s: %s", self.name, error)  # the supervisor has said what it means
        finally:
            self._ended.set()
            self._client.end()

    def _look(self, before: tuple[float, dict[str, Any]] | None) -> tuple[float, dict[str, Any]] | None:
        try:
            status, now = self._client.status(), time.monotonic()
            self._supervisor.obey(status)
        except RunFailed as error:
            _logger.warning("run %s: ending its stage: %s", self.name, error)
            self._supervisor.cancel()  # nobody is left who would tell the workers to leave
            return before
        self._verdicts.judge(status["snapshots"])
        self._recent.append(_progress(self.name, now, status, before))
        return now, status


def _progress(
    name: str, now: float, status: dict[str, Any], before: tuple[float, dict[str, Any]] | None
) -> dict[str, Any]:
    """One report, with rates since the one before."""
    done = status["progress"]
    report: dict[str, Any] = {"name": name, "timestamp": time.time(), **status}
    report["numMessagesSent"] = sum(done["sent"].values())
    report["numMessagesProcessed"] = sum(done["processed"].values())
    seconds = now - before[0] if before else 0.0
    same = before is not None and before[1]["incarnation"] == status["incarnation"]
    for field, rate in (("sent", "sentMessagesPerSecond"), ("processed", "processedMessagesPerSecond")):
        earlier = sum(before[1]["progress"][field].values()) if before and same else 0
        report[rate] = (sum(done[field].values()) - earlier) / seconds if seconds and same else 0.0
    return report
