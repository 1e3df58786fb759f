"""The driver's client of the coordinator's actor: starts the actor, calls the actor, survives restarts of the actor."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tenacity import retry, stop_after_attempt

from barrier_runtime.coordinator.coordinator_actor import CoordinatorActor, CoordinatorSetup
from barrier_runtime.driver.ray_messages import are_messages_logged, log_ray_messages
from barrier_runtime.driver.run_histories import RunHistories
from barrier_runtime.tracing.trace_store import KeptTrace
from barrier_runtime.worker.control_link import FAREWELL_SECONDS_MAX
from snapshot.channel.frame import Buffer
from snapshot.coordinator.events import CloseRequest, Event, RemovalRequested, SnapshotRequested, StopRequested
from snapshot.errors import RunFailed
from snapshot.stored.backend import StateBackend
from state_backends.base import DeadlineBackend

#: Seconds that one call of the coordinator may take, a restart by Ray included.
ANSWER_SECONDS_MAX = 60.0

#: attempts to start an embedded Ray before its error is raised in the driver
RAY_STARTS_MAX = 3

#: Seconds between two checks whether the last messages of all workers are read, which takes milliseconds.
_FAREWELL_POLL_SECONDS = 0.01

#: Bytes of Ray's object store: the smallest size, because only small answers pass through the store.
_OBJECT_STORE_BYTES = 80 * 1024 * 1024


def ensure_ray(address: str | None) -> None:
    """Use the connected Ray, or connect to the Ray at `address`, or start a Ray that ends with the driver."""
    if ray.is_initialized():
        if not are_messages_logged():  # else this process started Ray, or found it connected before
            log_ray_messages(is_embedded=False)
        return
    # Token authentication stays on. A token is set here, because Ray would otherwise write a token to the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if address is not None:
        log_ray_messages(is_embedded=False)
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
        return
    # Ray's default niceness of 15 is for batch jobs. Coordinators must answer workers at once.
    os.environ.setdefault("RAY_worker_niceness", "0")
    log_ray_messages(is_embedded=True)
    _start_ray()


@retry(stop=stop_after_attempt(RAY_STARTS_MAX), before_sleep=lambda _: ray.shutdown(), reraise=True)
def _start_ray() -> None:
    """Start Ray. Retry on any error, because Ray's processes may not connect in time on a busy machine."""
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        logging_level=logging.WARNING,
        log_to_driver=False,
    )


def free_port(host: str) -> int:
    """Return a port that is free now. The coordinator wants the port again after each restart."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


class CoordinatorClient:
    """The client of one run's coordinator in the driver.

    Parameters
    ----------
    setup : CoordinatorSetup
    restarts : bool
        Whether Ray restarts the coordinator. False when the coordinator's memory holds the snapshots.
    """

    def __init__(self, setup: CoordinatorSetup, *, restarts: bool) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options: dict[str, Any] = {
            "max_restarts": -1 if restarts else 0,
            "max_task_retries": -1 if restarts else 0,
            "num_cpus": 0,
            "max_concurrency": 8,
            "scheduling_strategy": here,  # because the address must be known before a start and after a restart
        }
        self.actor: Any = ray.remote(CoordinatorActor).options(**options).remote(setup)
        self._run = setup.settings.run
        self._restarts = restarts
        self._histories = RunHistories()
        self.status()  # because the first call awaits the actor's start

    def post(self, event: Event) -> None:
        """Send an event to the coordinator."""
        self._ask("post", event)

    def status(self) -> dict[str, Any]:
        """Return the status of the run, with the histories of all its coordinator instances."""
        status: dict[str, Any] = self._ask("status")
        self._histories.complete(status)
        return status

    def trace(self) -> KeptTrace:
        """Return the trace that the present coordinator instance keeps of a traced run."""
        kept: KeptTrace = self._ask("trace")
        return kept

    def final_trace(self) -> KeptTrace:
        """Return the trace after the stage has ended. Wait for the last messages of workers that have left."""
        deadline = time.monotonic() + FAREWELL_SECONDS_MAX
        while not (kept := self.trace()).is_whole and time.monotonic() < deadline:
            time.sleep(_FAREWELL_POLL_SECONDS)
        return kept

    def request(self, event: SnapshotRequested | StopRequested | RemovalRequested) -> CloseRequest | None:
        """Return the result of a request, or None while the request is pending.

        Place the request if the coordinator has not received it. Blocks for a moment until the result is known.
        """
        closed: CloseRequest | None = self._ask("request", event)
        return closed

    def set_pinned(self, snapshot_id: int, is_pinned: bool) -> None:
        """Pin or unpin a published snapshot. Raises as `snapshot_edits.set_pinned`."""
        self._ask_store("set_pinned", snapshot_id, is_pinned)

    def closed_requests(self) -> dict[int, CloseRequest]:
        """Return the results of all requests to the present coordinator instance."""
        closed: dict[int, CloseRequest] = self._ask("closed_requests")
        return closed

    def get(self, path: str) -> bytes:
        """Read a file from the coordinator's memory."""
        data: bytes = self._ask_store("get", path)
        return data

    def files(self, prefix: str) -> list[str]:
        """List the files in the coordinator's memory whose paths begin with `prefix`."""
        files: list[str] = self._ask("files", prefix)
        return files

    def end(self) -> None:
        """End the actor without a restart."""
        with contextlib.suppress(RayError):
            ray.kill(self.actor, no_restart=True)

    def _ask_store(self, method: str, *arguments: object) -> Any:
        """Call a method that works on the store, and raise the method's own errors."""
        try:
            return self._ask(method, *arguments)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None  # type: ignore[no-untyped-call]  # Ray's

    def _ask(self, method: str, *arguments: object) -> Any:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            if not ray.is_initialized():
                # A call is refused here, because Ray would start another Ray for it.
                raise RunFailed(f"run {self._run!r}: this process has left the Ray that its coordinator runs in")
            try:
                return ray.get(getattr(self.actor, method).remote(*arguments), timeout=ANSWER_SECONDS_MAX)
            except ActorDiedError as error:  # final: the actor was ended, cannot start, or may not restart
                raise RunFailed(self._lost_text(error)) from error
            except RayActorError as error:
                if not self._restarts or time.monotonic() >= deadline:
                    raise RunFailed(self._lost_text(error)) from error
            except ray.exceptions.GetTimeoutError as error:
                raise RunFailed(
                    f"run {self._run!r}: its coordinator did not answer in {ANSWER_SECONDS_MAX:g} s"
                ) from error

    def _lost_text(self, error: RayActorError) -> str:
        text = f"run {self._run!r}: its coordinator is lost: {error}"
        if self._restarts:
            return text
        return f"{text}. Its snapshots were in its memory; use a FileSystemBackend to survive this"


class CoordinatorMemory(DeadlineBackend):
    """Reads the `MemoryBackend` in the coordinator's process, and after `bring_home` the driver's `MemoryBackend`.

    Parameters
    ----------
    client : CoordinatorClient
    home : StateBackend
        The driver's `MemoryBackend`, signed if the run is, with the files of runs that have ended in this process.
    folder : str
        Folder of the run.
    """

    def __init__(self, client: CoordinatorClient, home: StateBackend, folder: str) -> None:
        super().__init__()
        self._client = client
        self._home = home
        self._folder = folder
        self._is_home = False

    def bring_home(self) -> None:
        """Copy the files of the run from the coordinator to the driver, so that the coordinator may end."""
        theirs = self._client.files(self._folder)
        self._home.delete(*(path for path in self._home.files(self._folder) if path not in theirs))
        for path in theirs:
            self._home.put_if_absent(
                path, [self._client.get(path)]
            )  # a path present already holds the same bytes, because every file is written once
        self._is_home = True

    def __str__(self) -> str:
        return "memory:"

    def _put_if_absent(self, path: str, chunks: Sequence[Buffer]) -> bool:
        if self._is_home:
            return self._home.put_if_absent(path, chunks)
        raise OSError(f"{self}: {path} can only be written by the coordinator")

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        whole = self._home.get(path) if self._is_home else self._client.get(path)
        return whole[offset : None if size is None else offset + size]

    def _exists(self, path: str) -> bool:
        return path in self._files("")

    def _files(self, prefix: str) -> list[str]:
        return self._home.files(prefix) if self._is_home else self._client.files(prefix)

    def _delete(self, paths: Sequence[str]) -> None:
        if self._is_home:
            return self._home.delete(*paths)
        raise OSError(f"{self}: {paths[0]} can only be removed by the coordinator")
