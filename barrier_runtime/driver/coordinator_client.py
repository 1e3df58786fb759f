"""The driver's hold on the coordinator's actor: starts it, asks it, survives its restarts."""

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
from barrier_runtime.tracing.trace_store import KeptTrace
from barrier_runtime.worker.control_link import FAREWELL_SECONDS_MAX
from snapshot.channel.frame import Buffer
from snapshot.coordinator.events import CloseRequest, Event, SnapshotRequested, StopRequested
from snapshot.errors import RunFailed
from state_backends.base import DeadlineBackend
from state_backends.memory import MemoryBackend

#: Seconds that one question to the coordinator may take, its restart by Ray included.
ANSWER_SECONDS_MAX = 60.0

#: How often an embedded Ray is started before its error is the driver's.
RAY_STARTS_MAX = 3

#: Seconds between two looks whether all is read that workers sent last; it takes milliseconds.
_FAREWELL_POLL_SECONDS = 0.01

#: Ray's object store is not used: nothing but small answers crosses it. Its smallest size.
_OBJECT_STORE_BYTES = 80 * 1024 * 1024


def ensure_ray(address: str | None) -> None:
    """Use the Ray that this process is connected to, or `address`, or start one that ends with the driver."""
    if ray.is_initialized():
        return
    # Token authentication stays on. A token of our own keeps Ray from writing one to the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if address is not None:
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
        return
    # Ray starts its workers with a niceness of 15, which is for batch jobs; coordinators answer workers.
    os.environ.setdefault("RAY_worker_niceness", "0")
    _start_ray()


@retry(stop=stop_after_attempt(RAY_STARTS_MAX), before_sleep=lambda _: ray.shutdown(), reraise=True)
def _start_ray() -> None:
    """On a crowded machine Ray's processes may not find each other in time; what it raises then may be anything."""
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        logging_level=logging.WARNING,
        log_to_driver=False,
    )


def free_port(host: str) -> int:
    """A port that nobody listens on now; the coordinator keeps it over its restarts."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


class CoordinatorClient:
    """One run's coordinator, as the driver sees it.

    Parameters
    ----------
    setup : CoordinatorSetup
    restarts : bool
        Whether Ray brings it back; not where its memory holds the snapshots.
    """

    def __init__(self, setup: CoordinatorSetup, *, restarts: bool) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options: dict[str, Any] = {
            "max_restarts": -1 if restarts else 0,
            "max_task_retries": -1 if restarts else 0,
            "num_cpus": 0,
            "max_concurrency": 8,
            "scheduling_strategy": here,  # its address is known before it starts, and after it restarts
        }
        self.actor: Any = ray.remote(CoordinatorActor).options(**options).remote(setup)
        self._run = setup.settings.run
        self._restarts = restarts
        self._ask("port")

    def post(self, event: Event) -> None:
        """Have the coordinator take an event."""
        self._ask("post", event)

    def status(self) -> dict[str, Any]:
        """Return the status of the run."""
        status: dict[str, Any] = self._ask("status")
        return status

    def trace(self) -> KeptTrace:
        """Return the trace that the present instance has stored."""
        kept: KeptTrace = self._ask("trace")
        return kept

    def final_trace(self) -> KeptTrace:
        """Return the trace after the stage has ended. Waits for the last messages of workers that have left."""
        deadline = time.monotonic() + FAREWELL_SECONDS_MAX
        while not (kept := self.trace()).is_whole and time.monotonic() < deadline:
            time.sleep(_FAREWELL_POLL_SECONDS)
        return kept

    def request_snapshot(self, event: SnapshotRequested | StopRequested) -> CloseRequest | None:
        """Return the result of a snapshot request, which is sent again if the coordinator does not know it.

        Blocks for a moment until it is known; None: it waits.
        """
        closed: CloseRequest | None = self._ask("request_snapshot", event)
        return closed

    def closed_requests(self) -> dict[int, CloseRequest]:
        """Return the results of all snapshot requests of the present instance."""
        closed: dict[int, CloseRequest] = self._ask("closed_requests")
        return closed

    def get(self, path: str) -> bytes:
        """A file in the coordinator's memory."""
        try:
            data: bytes = self._ask("get", path)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None  # type: ignore[no-untyped-call]  # Ray's
        return data

    def files(self, prefix: str) -> list[str]:
        """Files in the coordinator's memory."""
        files: list[str] = self._ask("files", prefix)
        return files

    def end(self) -> None:
        """End the actor, for good."""
        with contextlib.suppress(RayError):
            ray.kill(self.actor, no_restart=True)

    def _ask(self, method: str, *arguments: object) -> Any:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            if not ray.is_initialized():
                # Asking would start another Ray, as Ray does by itself.
                raise RunFailed(f"run {self._run!r}: this process has left the Ray that its coordinator runs in")
            try:
                return ray.get(getattr(self.actor, method).remote(*arguments), timeout=ANSWER_SECONDS_MAX)
            except ActorDiedError as error:  # for good: it was ended, cannot start, or may not restart
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
    """Reads what a `MemoryBackend` holds in the coordinator's process, and after `bring_home` what the driver's holds.

    Parameters
    ----------
    client : CoordinatorClient
    home : MemoryBackend
        The driver's: what the runs that have ended in this process left.
    folder : str
        Of the run.
    """

    def __init__(self, client: CoordinatorClient, home: MemoryBackend, folder: str) -> None:
        super().__init__()
        self._client = client
        self._home = home
        self._folder = folder
        self._is_home = False

    def bring_home(self) -> None:
        """Have the driver hold what the coordinator holds of the run, so that the coordinator may end."""
        theirs = self._client.files(self._folder)
        self._home.delete(*(path for path in self._home.files(self._folder) if path not in theirs))
        for path in theirs:
            self._home.put_if_absent(path, [self._client.get(path)])  # every file is written once
        self._is_home = True

    def __str__(self) -> str:
        return "memory:"

    def _put_if_absent(self, path: str, chunks: Sequence[Buffer]) -> bool:
        raise OSError(f"{self}: {path} can only be written by the coordinator")

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        whole = self._home.get(path) if self._is_home else self._client.get(path)
        return whole[offset : None if size is None else offset + size]

    def _exists(self, path: str) -> bool:
        return path in self._files("")

    def _files(self, prefix: str) -> list[str]:
        return self._home.files(prefix) if self._is_home else self._client.files(prefix)

    def _delete(self, paths: Sequence[str]) -> None:
        raise OSError(f"{self}: {paths[0]} can only be removed by the coordinator")
