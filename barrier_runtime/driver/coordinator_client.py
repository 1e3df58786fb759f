"""The driver's client of the coordinator's actor: starts the actor, calls the actor, survives restarts of the actor."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cutline.barrier_runtime.coordinator.coordinator_actor import CoordinatorActor, CoordinatorSetup
from cutline.barrier_runtime.driver.ray_gateway import ActorLostError, RemoteActor
from cutline.barrier_runtime.driver.run_histories import RunHistories
from cutline.barrier_runtime.tracing.trace_store import KeptTrace
from cutline.barrier_runtime.worker.control_link import FAREWELL_SECONDS_MAX
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.coordinator.events import CloseRequest, Event, RemovalRequested, SnapshotRequested, StopRequested
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.stored.backend import StateBackend
from cutline.state_backends.base import DeadlineBackend

#: Seconds between two checks whether the last messages of all workers are read, which takes milliseconds.
_FAREWELL_POLL_SECONDS = 0.01


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
        self.actor = RemoteActor(CoordinatorActor, setup, restarts=restarts)
        self._run = setup.settings.run
        self.histories = RunHistories()
        #: whether every instance of the coordinator must begin at once
        self._begins = not setup.waits
        self.status()  # because the first call awaits the actor's start

    def begin(self, histories: RunHistories, files: Mapping[str, bytes]) -> None:
        """Let a waiting coordinator take the run. Continue the histories of the submission before.

        Parameters
        ----------
        histories : RunHistories
        files : mapping of str to bytes
            Files that a `MemoryBackend` holds: {path: bytes}.
        """
        self.histories = histories
        self._begins = True
        self._ask("begin", files)

    def post(self, event: Event) -> None:
        """Send an event to the coordinator."""
        self._ask("post", event)

    def status(self) -> dict[str, Any]:
        """Return the status of the run, with the histories of all its coordinator instances."""
        status: dict[str, Any] = self._ask("status")
        if self._begins and not status["has_begun"]:
            self._ask("begin", {})  # because a new instance waits as the first instance did
        self.histories.complete(status)
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
        self._ask("set_pinned", snapshot_id, is_pinned)

    def closed_requests(self) -> dict[int, CloseRequest]:
        """Return the results of all requests to the present coordinator instance."""
        closed: dict[int, CloseRequest] = self._ask("closed_requests")
        return closed

    def get(self, path: str) -> bytes:
        """Read a file from the coordinator's memory."""
        data: bytes = self._ask("get", path)
        return data

    def files(self, prefix: str) -> list[str]:
        """List the files in the coordinator's memory whose paths begin with `prefix`."""
        files: list[str] = self._ask("files", prefix)
        return files

    def end(self) -> None:
        """End the actor without a restart."""
        self.actor.kill(restart=False)

    def _ask(self, method: str, *arguments: object) -> Any:
        try:
            return self.actor.call(method, *arguments)
        except TimeoutError as error:
            raise RunFailed(f"run {self._run!r}: its coordinator: {error}") from error
        except ActorLostError as error:
            text = f"run {self._run!r}: its coordinator is lost: {error}"
            if not self.actor.restarts:
                text = f"{text}. Its snapshots were in its memory; use a FileSystemBackend to survive this"
            raise RunFailed(text) from error


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

    def follow(self, client: CoordinatorClient) -> None:
        """Read the memory of another coordinator of the run from now on."""
        self._client = client
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
