"""The launch that the driver sends to barrier tasks, and the exit codes of worker processes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import IntEnum

from channels.sockets import Address
from snapshot.errors import GraphError
from snapshot.plan.compiled_graph import CompiledGraph
from snapshot.stored.backend import StateBackend
from snapshot.subtask.limits import SubtaskLimits


class ExitCode(IntEnum):
    """Exit code of a worker process. After a signal it is forked anew; any code but 0 fails the stage."""

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
    #: cloudpickle of `snapshot.plan.compiled_graph.CompiledGraph`: only the worker process opens it, it may need the
    #: user's modules
    compiled: bytes
    #: pickle of the `StateBackend`
    backend: bytes
    limits: SubtaskLimits
    #: refuse pickle in messages and states
    safe: bool
    #: where out-buffers of cycles spill to
    spill_folder: str
    #: level of the workers' logging
    log_level: int
    #: subtasks write down what they do
    trace: bool

    def __repr__(self) -> str:
        return f"WorkerLaunch({self.run!r}, {self.launch})"

    def open_graph(self) -> CompiledGraph:
        """The built graph; may import the user's modules.

        Raises
        ------
        GraphError
            if they are not there.
        """
        try:
            graph = pickle.loads(self.compiled)  # noqa: S301  # came with the code, from the driver
        except (ImportError, AttributeError) as error:
            raise GraphError(
                f"the graph cannot be unpickled on the executors ({type(error).__name__}: {error}). "
                "Its modules must be installed there, sent with addPyFile, or registered with "
                "cloudpickle.register_pickle_by_value"
            ) from error
        assert isinstance(graph, CompiledGraph)
        return graph

    def open_backend(self) -> StateBackend:
        """A copy of the driver's."""
        backend = pickle.loads(self.backend)  # noqa: S301  # likewise
        assert isinstance(backend, StateBackend)
        return backend

    def encode(self) -> bytes:
        """For the closure: bytes, so that opening the closure needs nothing of ours."""
        return pickle.dumps(self)

    @staticmethod
    def decode(data: bytes) -> WorkerLaunch:
        """The inverse of `encode`; the bytes came with the code, from the driver."""
        launch = pickle.loads(data)  # noqa: S301  # as trusted as the closure that it came in
        assert isinstance(launch, WorkerLaunch)
        return launch
