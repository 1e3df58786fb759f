"""Rescale a run: check, prepare a submission at the new parallelism, stop with a snapshot, and go on from there.

All that can be refused, and all that takes long, comes before the stop::

    compile, count slots ─ snapshot, plan the restore ─ start a coordinator [and workers] ─ stop with a snapshot
    ─ the run's monitor passes the run on ─ the new coordinator takes the run and restores

A rescale is one `stop` with a snapshot and one submission. So whatever fails in between leaves what a stopped run
leaves, and submitting the graph again goes on from the last snapshot.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from cutline.barrier_runtime.driver.preflight import check_rescale
from cutline.barrier_runtime.driver.restore_check import GOES_ON, check_restore
from cutline.barrier_runtime.driver.submission import SUBMITTING, Submission, held_slots
from cutline.barrier_runtime.driver.submissions import RunOverError, Submissions
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.events import CloseRequest, StopRequested
from cutline.snapshot.coordinator.machine import Phase
from cutline.snapshot.coordinator.pending_snapshot import SnapshotRequest
from cutline.snapshot.errors import CutlineError, GraphError, RestoreRefused, RunFailed, SnapshotAborted
from cutline.snapshot.graph import Graph
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot

#: Seconds that workers beside those of the present stage may take to register. The run stops then, and waits for them.
_READY_SECONDS_MAX = 15.0

#: Seconds between two checks whether the new subtasks run, or the stop must be requested again.
_POLL_SECONDS = 0.02

_logger = logging.getLogger("cutline.run")


class Rescaler:
    """Rescales one run, once at a time.

    Parameters
    ----------
    submissions : Submissions
    store : RunStore
    codec : Codec
    take_snapshot : callable
        Takes a snapshot within so many seconds, or without a limit.
    """

    def __init__(
        self,
        submissions: Submissions,
        store: RunStore,
        codec: Codec,
        take_snapshot: Callable[[float | None], Snapshot],
    ) -> None:
        self._submissions = submissions
        self._submitter = submissions.submitter
        self._store = store
        self._codec = codec
        self._take_snapshot = take_snapshot
        #: held from the first check until the new subtasks run, or the rescale has failed
        self._busy = threading.Lock()

    def rescale(self, parallelism: Mapping[str, int], timeout: float | None) -> Snapshot:
        """Rescale the run. Return the snapshot from which the new subtasks went on.

        Once the stop is requested, the rescale goes on also when this call is interrupted.
        """
        run = self._submitter.run
        if self._submissions.ended.is_set():
            raise RunFailed(f"run {run!r} has ended; submit graph.withParallelism(...) under its name to go on")
        if not self._busy.acquire(blocking=False):
            raise RunFailed(f"run {run!r} is being rescaled; try again when that is done")
        done: Future[Snapshot] = Future()
        try:
            graph = self._submitter.graph.withParallelism(parallelism)
            successor = self._prepare(graph, timeout)
            work = (graph, successor, timeout, done)
            name = f"cutline-rescale-{run}"
            threading.Thread(target=self._carry_out, args=work, name=name, daemon=True).start()
        except (GraphError, RestoreRefused) as error:
            self._busy.release()
            raise type(error)(f"run {run!r} is not rescaled, and goes on: {error}") from error
        except BaseException:
            self._busy.release()
            raise
        return done.result()

    # ---------------------------------------------------------------- before the stop

    def _prepare(self, graph: Graph, timeout: float | None) -> Submission:
        """Check all that can be refused, and start what can be started. The run goes on meanwhile."""
        settings, run = self._submitter.settings, self._submitter.run
        compiled = settings.compile(graph, run, self._submitter.mode, code=self._submitter.code)
        self._check_slots(compiled)
        self._take_snapshot(timeout)  # so that a fresh snapshot is planned, and the next snapshot stores little
        check_restore(run, compiled, GOES_ON, self._submitter.allow, lambda _: self._store)
        with SUBMITTING:
            fits_beside = self._check_slots(compiled)
            successor = self._submitter.prepare(compiled, waits=True, beside=fits_beside)
            present = self._submissions.present
            successor.slots = successor.workers if fits_beside else max(0, successor.workers - present.workers)
        try:
            if fits_beside:
                successor.launch()
                successor.await_workers(_READY_SECONDS_MAX)
        except BaseException:
            successor.discard()
            raise
        return successor

    def _check_slots(self, compiled: CompiledGraph) -> bool:
        """Refuse a stage that cannot run when the present stage has ended. Return whether both fit side by side."""
        settings, present = self._submitter.settings, self._submissions.present
        others = held_slots(present.application, besides=self._submitter.owner)
        workers = settings.worker_count(compiled)
        return check_rescale(settings.spark, self._submitter.run, workers, present.workers, others)

    # ---------------------------------------------------------------- the stop, and what follows

    def _carry_out(self, graph: Graph, successor: Submission, timeout: float | None, done: Future[Snapshot]) -> None:
        """Stop the run and let it go on, on a thread that no Ctrl-C reaches."""
        try:
            snapshot = self._switch(successor, timeout)
            self._submitter.graph = graph
            done.set_result(snapshot)
        except BaseException as error:  # noqa: BLE001  # the caller of `rescale` raises it
            done.set_exception(error)
        finally:
            self._busy.release()

    def _switch(self, successor: Submission, timeout: float | None) -> Snapshot:
        before = self._submissions.present
        began = time.monotonic()
        deadline = None if timeout is None else began + timeout
        request = SnapshotRequest(secrets.randbits(62), False, None, deadline)
        self._submissions.propose(successor, request.request_id, _way_out(before, successor))
        closed = self._stop(StopRequested(request), before, successor)
        self._await_running(successor)
        changed = _changes(before, successor)
        _logger.info("run %s: rescaled to %s in %.2f s", successor.run, changed, time.monotonic() - began)
        assert closed.snapshot_id is not None
        return self._store.read_snapshot(closed.snapshot_id, self._codec)

    def _stop(self, event: StopRequested, before: Submission, successor: Submission) -> CloseRequest:
        """Stop the present submission, and wait until the run was passed on. Return the result of the request."""
        closed: CloseRequest | None = None
        while self._submissions.present is before and not self._submissions.ended.is_set():
            try:
                # Repeated, because a new coordinator instance has not received the request.
                found = before.client.request(event)
            except RunFailed as error:  # the run is passed on, or its supervisor meets the same error
                _logger.debug("run %s: %s", before.run, error)
                found = None
            if found is not None and found.snapshot_id is None:
                # Also after a snapshot, because a new coordinator instance does not know that the run is to stop.
                if self._submissions.withdraw(successor):
                    successor.discard()
                    raise self._not_stopped(found)
            else:
                closed = found or closed
            self._submissions.await_switch(before, _POLL_SECONDS)
        if self._submissions.present is before:
            if self._submissions.withdraw(successor):  # proposed when the run had ended
                successor.discard()
            raise self._ended()
        assert event.request is not None
        return closed or self._submissions.closed_requests[event.request.request_id]

    def _not_stopped(self, closed: CloseRequest) -> CutlineError:
        return SnapshotAborted(f"run {self._submitter.run!r} is not rescaled: {closed.reason}")

    def _ended(self) -> CutlineError:
        error = self._submissions.error_of_end()
        return error or RunFailed(f"run {self._submitter.run!r} ended before it was rescaled")

    def _await_running(self, successor: Submission) -> None:
        """Wait until all new subtasks have restored their state and run.

        Raises
        ------
        RunFailed
            if the run has failed. The text says how to go on.
        """
        while not successor.has_run:
            try:
                status = self._submissions.status()
            except RunOverError:
                error = self._submissions.error_of_end()
                if error is not None:
                    raise error from None
                return  # a run that has nothing left to do ends when it is restored
            self._submissions.note(status)
            if status["phase"] in (Phase.FINISHING.value, Phase.RUNNING.value):
                return
            time.sleep(_POLL_SECONDS)


def _changes(before: Submission, after: Submission) -> str:
    """Return the nodes whose parallelism differs, as ``count=4, total=1``."""
    known = before.parallelism()
    changed = {name: count for name, count in after.parallelism().items() if known[name] != count}
    return ", ".join(f"{name}={count}" for name, count in changed.items()) or "the same parallelism"


def _way_out(before: Submission, after: Submission) -> str:
    return (
        f"It was being rescaled to {_changes(before, after)}. Nothing is lost: submit the graph with "
        f"{_changes(after, before)} under the name {before.run!r} to go on from the snapshot that it was stopped with"
    )
