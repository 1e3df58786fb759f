"""The submissions of one run, one after another: the present submission, and its successor while the run is rescaled.

Calls of the coordinator go through `Submissions.call`, so that a rescale does not disturb them. Only the run's monitor
passes the run on, because the monitor sees the end of a stage first, and because no Ctrl-C reaches its thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from cutline.barrier_runtime.driver.coordinator_client import CoordinatorClient, CoordinatorMemory
from cutline.barrier_runtime.driver.submission import Submission, Submitter
from cutline.barrier_runtime.driver.supervisor import Supervisor, raise_for
from cutline.barrier_runtime.tracing.trace_store import KeptTrace
from cutline.snapshot.coordinator.events import CloseRequest
from cutline.snapshot.coordinator.machine import Outcome, Phase
from cutline.snapshot.errors import CutlineError, RunFailed
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.backend import StateBackend

Answer = TypeVar("Answer")

_logger = logging.getLogger("cutline.run")


def going_on(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a submission that has stopped, as that of a run that goes on with the next submission."""
    if status["outcome"] != Outcome.STOPPED.value:
        return status
    return {**status, "phase": Phase.FINISHING.value, "outcome": None, "reason": ""}


class RunOverError(Exception):
    """The run has ended, so that no coordinator is there to call."""


class Submissions:
    """The submissions of one run. Methods may be called on any thread, `pass_on` and `end` on the monitor's only.

    Parameters
    ----------
    first : Submission
    submitter : Submitter
    backend : StateBackend
        The backend through which the driver reads the run's files.
    """

    def __init__(self, first: Submission, submitter: Submitter, backend: StateBackend) -> None:
        self.present = first
        self.submitter = submitter
        self.ended = threading.Event()
        #: {request id: result} of all requests to coordinators that have ended
        self.closed_requests: dict[int, CloseRequest] = {}
        self._backend = backend
        #: traces of coordinators that have ended, each with the topology that its events refer to
        self._traces: list[tuple[Topology, KeptTrace]] = []
        #: the submission whose data was copied last, or None
        self._kept: Submission | None = None
        #: guards the three fields below and `present`; notified when one of the four changes
        self._changed = threading.Condition()
        self._successor: Submission | None = None
        #: id of the request for the snapshot from which the successor goes on
        self._request_id = 0
        #: how to go on when the present submission, which was made by a rescale, fails before it has run; or ""
        self._way_out = ""

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the present submission."""
        return self.present.supervisor

    def call(self, act: Callable[[CoordinatorClient], Answer]) -> Answer:
        """Call the coordinator of the present submission. Call again when the run was passed on meanwhile.

        Raises
        ------
        RunOverError
            if the run has ended.
        RunFailed
            if the coordinator is lost.
        """
        while not self.ended.is_set():
            present = self.present
            try:
                return act(present.client)
            except RunFailed:
                if present is self.present and not self.ended.is_set():
                    raise
        raise RunOverError

    def status(self) -> dict[str, Any]:
        """Return the status of the run, which goes on while it is passed on.

        Raises
        ------
        RunOverError, RunFailed
            as `call`.
        """
        before = self.present
        return self.shown(self.call(lambda client: client.status()), before)

    def shown(self, status: dict[str, Any], before: Submission) -> dict[str, Any]:
        """Return a status of the submission `before` as users see it: a run that is passed on has not stopped."""
        with self._changed:
            is_switching = self._successor is not None or self.present is not before
        return going_on(status) if is_switching else status

    def traces(self, present: KeptTrace | None) -> list[tuple[Topology, KeptTrace]]:
        """Return the traces of all submissions, with that of the present coordinator if it has not ended."""
        return [*self._traces, *([(self.present.topology, present)] if present is not None else [])]

    # ---------------------------------------------------------------- a successor

    def propose(self, successor: Submission, request_id: int, way_out: str) -> None:
        """Let the run go on with `successor` when the present submission has stopped with the requested snapshot."""
        with self._changed:
            self._successor, self._request_id, self._way_out = successor, request_id, way_out

    def withdraw(self, successor: Submission) -> bool:
        """Take the proposal back. Return False when the run is passed on already."""
        with self._changed:
            if self._successor is not successor:
                return False
            self._take_back()
            return True

    def await_switch(self, before: Submission, seconds: float | None = None) -> bool:
        """Wait while a successor of `before` is proposed. Return whether the run was passed on from `before`."""
        with self._changed:
            self._changed.wait_for(lambda: self._successor is None or self.ended.is_set(), seconds)
            return self.present is not before

    # ---------------------------------------------------------------- on the monitor's thread

    def pass_on(self) -> bool:
        """Go on with the successor, because the stage has ended. Return False when the run has ended."""
        present = self.present
        with self._changed:
            successor = self._successor
            if successor is None or not self._has_stopped(present):
                return False
            files = self.submitter.settings.memory_contents()
            self.present, self._successor = successor, None
            present.slots = 0
            self._changed.notify_all()
        # Ended before the successor begins, because Ray would otherwise start it again to take the run back.
        present.client.end()
        successor.begin(present.client.histories, files)
        if isinstance(self._backend, CoordinatorMemory):
            self._backend.follow(successor.client)
        return True

    def note(self, status: dict[str, Any]) -> None:
        """Note a status of the present submission."""
        self.present.has_run |= status["phase"] == Phase.RUNNING.value

    def end(self) -> None:
        """Copy the data of the last coordinator, because its process takes a hundred megabytes and is ended next.

        A successor is discarded that the run did not reach.
        """
        with self._changed:
            successor, self._successor = self._successor, None
            if successor is not None:
                self._way_out = ""
        if successor is not None:
            successor.discard()
        self._keep(self.present)
        self.present.slots = 0
        status = self.present.supervisor.status
        if status and status["outcome"] == Outcome.FAILED.value:
            status["reason"] += self._hint()

    def close(self) -> None:
        """Mark the run as ended, and end its coordinator."""
        with self._changed:
            self.ended.set()
            self._changed.notify_all()
        self.present.client.end()

    def raise_for_end(self) -> None:
        """Raise the error of the ended run. Raise nothing for a run that finished or was stopped."""
        name, error = self.submitter.run, self.present.supervisor.error
        if isinstance(error, RunFailed):
            raise RunFailed(f"{error}{self._hint()}") from error
        if error is not None:
            raise RunFailed(f"run {name!r}: its supervisor failed: {error}{self._hint()}") from error
        raise_for(self.present.supervisor.status, name)

    def error_of_end(self) -> CutlineError | None:
        """Return the error of the ended run, or None if it finished or was stopped."""
        try:
            self.raise_for_end()
        except CutlineError as error:
            return error
        return None

    def _hint(self) -> str:
        return f". {self._way_out}" if self._way_out and not self.present.has_run else ""

    def _has_stopped(self, present: Submission) -> bool:
        """Return whether the present submission has stopped with the requested snapshot. Copy its data then."""
        supervisor = present.supervisor
        if supervisor.error is not None or supervisor.status["outcome"] != Outcome.STOPPED.value:
            return False
        closed = self.closed_requests.get(self._request_id) if self._keep(present) else None
        return closed is not None and closed.snapshot_id is not None

    def _take_back(self) -> None:
        self._successor, self._way_out = None, ""
        self._changed.notify_all()

    def _keep(self, submission: Submission) -> bool:
        """Copy the data of a coordinator. Return False if the snapshots in its memory are lost with it."""
        if self._kept is submission:
            return True
        client = submission.client
        try:
            if isinstance(self._backend, CoordinatorMemory):
                self._backend.bring_home()
            self.closed_requests |= client.closed_requests()
            if self.submitter.settings.trace:
                self._traces.append((submission.topology, client.final_trace()))
        except RunFailed as error:
            _logger.debug("run %s: %s", self.submitter.run, error)  # debug only, because the supervisor has the cause
            return not isinstance(self._backend, CoordinatorMemory)
        self._kept = submission
        return True
