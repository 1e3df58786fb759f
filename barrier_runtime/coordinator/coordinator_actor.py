"""The coordinator as a Ray actor: a shell over `CoordinatorService`. The call site applies ``ray.remote``."""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutline.barrier_runtime.coordinator.coordinator_service import CoordinatorService
from cutline.barrier_runtime.coordinator.coordinator_store import CoordinatorStore
from cutline.barrier_runtime.logs import configure
from cutline.barrier_runtime.tracing.trace_store import KeptTrace, TraceStore
from cutline.snapshot.assembly import completion_of, cut_start_of
from cutline.snapshot.coordinator.events import CloseRequest, Event, RemovalRequested, SnapshotRequested, StopRequested
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_events import RestoreFrom
from cutline.snapshot.coordinator.machine import CoordinatorMachine, RunSettings
from cutline.snapshot.stored.backend import StateBackend

_logger = logging.getLogger("cutline.coordinator")


@dataclass(frozen=True)
class CoordinatorSetup:
    """The arguments of every coordinator instance of one submission."""

    settings: RunSettings
    #: name of the submission
    owner: str
    restore_from: RestoreFrom
    #: pickle of the `StateBackend`
    backend: bytes
    #: files that a `MemoryBackend` holds at the start: {path: bytes}
    files: Mapping[str, bytes]
    secret: bytes
    host: str
    port: int
    #: whether to keep a trace
    trace: bool
    #: whether instances take the run only when `CoordinatorActor.begin` is called
    waits: bool = False

    def __repr__(self) -> str:
        return f"CoordinatorSetup({self.settings.run!r}, {self.owner})"


class CoordinatorActor:
    """A coordinator instance of one run. Ray starts a new instance with the same arguments after the instance dies."""

    def __init__(self, setup: CoordinatorSetup) -> None:
        configure(f"{setup.settings.run} coordinator", logging.INFO)
        _log_niceness()
        self._backend: StateBackend = pickle.loads(setup.backend)  # noqa: S301  # trusted like the code, because the driver sent both
        for path, data in setup.files.items():
            self._backend.put_if_absent(path, [data])
        coordinator = CoordinatorMachine(
            setup.settings,
            Fence(setup.owner, secrets.token_hex(16), setup.restore_from),
            cut_start_of,
            completion_of,
            launch="",
            epoch_offset=time.time() - time.monotonic(),
        )
        store = CoordinatorStore(self._backend, setup.settings.run)
        trace = TraceStore(setup.settings.topology) if setup.trace else None
        self._service = CoordinatorService(
            coordinator,
            store,
            setup.secret,
            setup.host,
            setup.port,
            trace=trace,
            waits=setup.waits,
            on_superseded=_leave,
        )

    def begin(self, files: Mapping[str, bytes]) -> None:
        """Take the run, unless this instance has begun. `files` are those that a `MemoryBackend` holds by now."""
        for path, data in files.items():
            self._backend.put_if_absent(path, [data])
        self._service.begin()

    def post(self, event: Event) -> None:
        """Queue an event for the coordinator."""
        self._service.post(event)

    def request(self, event: SnapshotRequested | StopRequested | RemovalRequested) -> CloseRequest | None:
        """Place a request if it is new. Return its result after a moment, or None while the request is pending."""
        return self._service.request(event)

    def set_pinned(self, snapshot_id: int, is_pinned: bool) -> None:
        """Pin or unpin a published snapshot."""
        self._service.set_pinned(snapshot_id, is_pinned)

    def closed_requests(self) -> dict[int, CloseRequest]:
        """Return the results of all requests to this coordinator instance."""
        return self._service.closed_requests()

    def trace(self) -> KeptTrace:
        """Return the kept trace of a traced run."""
        return self._service.trace()

    def status(self) -> dict[str, Any]:
        """Return the status of the run."""
        return self._service.status()

    def get(self, path: str) -> bytes:
        """Read a file of the backend. Used for a backend in this process's memory."""
        return self._backend.get(path)

    def files(self, prefix: str) -> list[str]:
        """List the backend's files whose paths begin with `prefix`. Used for a backend in this process's memory."""
        return self._backend.files(prefix)


def _log_niceness() -> None:
    """Log a raised niceness. A nice coordinator on busy cores waits before each of the small steps of a snapshot."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness > 0:
        _logger.info("niceness %d: snapshots take longer under load; RAY_worker_niceness=0 for Ray's nodes", niceness)


def _leave() -> None:
    """End this process, so that Ray starts a new instance, or finds that another instance runs."""
    os._exit(1)
