"""What travels from the driver to the barrier tasks, and how a worker process says why it left."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import IntEnum

from channels.sockets import Address
from snapshot.limits import SubtaskLimits


class ExitCode(IntEnum):
    """How a worker process ends. Anything else, a signal above all, is a crash: its task forks a new one."""

    FINISHED = 0  #: the run is over
    QUIT = 3  #: it was told to leave, so that the stage fails and can be submitted again
    BROKEN = 4  #: Cutline itself cannot work here; the reason is in its last words


@dataclass(frozen=True)
class WorkerLaunch:
    """All that a worker needs to join the run. Shipped inside the stage's closure."""

    run: str
    #: token of this stage submission (PROTOCOL 6.4)
    launch: str
    coordinator: Address
    #: of the run; in no log and no error
    secret: bytes
    worker_count: int
    #: cloudpickle of `snapshot.built.Built`: only the worker process opens it, it may need the user's modules
    built: bytes
    #: pickle of the `StateBackend`
    backend: bytes
    limits: SubtaskLimits
    #: refuse pickle in messages and states
    safe: bool
    #: where out-buffers of cycles spill to
    spill_folder: str
    #: level of the workers' logging
    log_level: int

    def __repr__(self) -> str:
        return f"WorkerLaunch({self.run!r}, {self.launch})"

    def encode(self) -> bytes:
        """For the closure: bytes, so that opening the closure needs nothing of ours."""
        return pickle.dumps(self)

    @staticmethod
    def decode(data: bytes) -> WorkerLaunch:
        """The inverse of `encode`; the bytes came with the code, from the driver."""
        launch = pickle.loads(data)  # noqa: S301  # as trusted as the closure that it came in
        assert isinstance(launch, WorkerLaunch)
        return launch
