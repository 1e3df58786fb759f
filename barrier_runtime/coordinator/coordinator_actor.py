"""The coordinator as a Ray actor: a shell over `CoordinatorService`; ``ray.remote`` is at the call site."""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barrier_runtime.coordinator.coordinator_service import CoordinatorService
from barrier_runtime.coordinator.coordinator_store import CoordinatorStore
from barrier_runtime.logs import configure
from barrier_runtime.tracing.trace_store import KeptTrace, TraceStore
from snapshot.coordinator.events import CloseRequest, Event, SnapshotRequested, StopRequested
from snapshot.coordinator.fence import Fence
from snapshot.coordinator.fence_events import RestoreFrom
from snapshot.coordinator.machine import Coordinator, RunSettings
from snapshot.stored.backend import StateBackend

_logger = logging.getLogger("cutline.coordinator")


@dataclass(frozen=True)
class CoordinatorSetup:
    """Arguments of every instance of one submission's coordinator."""

    settings: RunSettings
    #: the submission
    owner: str
    restore_from: RestoreFrom
    #: pickle of the `StateBackend`
    backend: bytes
    #: what a `MemoryBackend` holds already: {path: bytes}
    files: Mapping[str, bytes]
    secret: bytes
    host: str
    port: int
    #: keep a trace
    trace: bool

    def __repr__(self) -> str:
        return f"CoordinatorSetup({self.settings.run!r}, {self.owner})"


class CoordinatorActor:
    """One life of a run's coordinator; Ray starts another with the same arguments when it dies."""

    def __init__(self, setup: CoordinatorSetup) -> None:
        configure(f"{setup.settings.run} coordinator", logging.INFO)
        _log_niceness()
        self._backend: StateBackend = pickle.loads(setup.backend)  # noqa: S301  # came with the code, from the driver
        for path, data in setup.files.items():
            self._backend.put_if_absent(path, [data])
        coordinator = Coordinator(
            setup.settings,
            Fence(setup.owner, secrets.token_hex(16), setup.restore_from),
            launch="",
            epoch_offset=time.time() - time.monotonic(),
        )
        store = CoordinatorStore(self._backend, setup.settings.run)
        trace = TraceStore(setup.settings.topology) if setup.trace else None
        self._service = CoordinatorService(
            coordinator, store, setup.secret, setup.host, setup.port, trace=trace, on_superseded=_leave
        )

    def port(self) -> int:
        """Return the address for workers."""
        return self._service.port

    def post(self, event: Event) -> None:
        """Have the coordinator take an event."""
        self._service.post(event)

    def request_snapshot(self, event: SnapshotRequested | StopRequested) -> CloseRequest | None:
        """Return the result of a snapshot request, placed if need be, or None while the request waits."""
        return self._service.request_snapshot(event)

    def closed_requests(self) -> dict[int, CloseRequest]:
        """Return the results of all snapshot requests of this instance."""
        return self._service.closed_requests()

    def trace(self) -> KeptTrace:
        """Return the stored trace of a traced run."""
        return self._service.trace()

    def status(self) -> dict[str, Any]:
        """Return the status of the run."""
        return self._service.status()

    def get(self, path: str) -> bytes:
        """A file of the backend; for a backend in this process's memory."""
        return self._backend.get(path)

    def files(self, prefix: str) -> list[str]:
        """Files of the backend; likewise."""
        return self._backend.files(prefix)


def _log_niceness() -> None:
    """A snapshot is a chain of small steps, some of them here: with workers on all cores the nice wait for each."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness > 0:
        _logger.info("niceness %d: snapshots take longer under load; RAY_worker_niceness=0 for Ray's nodes", niceness)


def _leave() -> None:
    """End this process, so that Ray starts a fresh life, or finds that the other one is running."""
    os._exit(1)
