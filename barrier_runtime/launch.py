"""The launch that the driver sends to barrier tasks, and the exit codes of worker processes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import IntEnum

from cutline.channels.sockets import Address
from cutline.snapshot.errors import GraphError
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.state_backends.keyed_state import HeapState, RocksDBState


class ExitCode(IntEnum):
    """Exit code of a worker process. Any code but 0 fails the stage. A worker ended by a signal is forked again."""

    FINISHED = 0  #: the run is over
    QUIT = 3  #: the coordinator sent Quit, so that the stage fails and can be submitted again
    BROKEN = 4  #: Cutline cannot run here; the worker's last error text has the reason


@dataclass(frozen=True)
class WorkerLaunch:
    """All data that a worker needs to join the run. Sent inside the stage's closure."""

    run: str
    #: token of this stage submission (PROTOCOL 6.4, launch token)
    launch: str
    coordinator: Address
    #: secret of the run, in no log and no error
    secret: bytes
    worker_count: int
    #: see `snapshot.plan.compiled_graph.CompiledGraph.shipped`; unpickled by the worker process only, because that may
    #: import the user's modules
    compiled: bytes
    #: pickle of the `StateBackend`
    backend: bytes
    limits: SubtaskLimits
    #: whether to refuse pickle in messages and states
    safe: bool
    #: log level of the workers
    log_level: int
    #: whether subtasks record trace events
    trace: bool
    #: where the rows of keyed state are while the run is active
    keyed_state: HeapState | RocksDBState = HeapState()  # noqa: RUF009  # frozen
    #: whether workers make ready for a restore at once, because they wait for the stage that they follow
    waits: bool = False

    def __repr__(self) -> str:
        return f"WorkerLaunch({self.run!r}, {self.launch})"

    def open_graph(self) -> CompiledGraph:
        """Unpickle the compiled graph. May import the user's modules.

        Raises
        ------
        GraphError
            if the user's modules are missing.
        """
        try:
            return CompiledGraph.opened(self.compiled)
        except (ImportError, AttributeError) as error:
            raise GraphError(
                f"the graph cannot be unpickled on the executors ({type(error).__name__}: {error}). "
                "Its modules must be installed there, sent with addPyFile, or registered with "
                "cloudpickle.register_pickle_by_value"
            ) from error

    def open_backend(self) -> StateBackend:
        """Unpickle a copy of the driver's backend."""
        backend = pickle.loads(self.backend)  # noqa: S301  # trusted like the code
        assert isinstance(backend, StateBackend)
        return backend

    def encode(self) -> bytes:
        """Encode for the closure as bytes, so that unpickling the closure needs no module of Cutline."""
        return pickle.dumps(self)

    @staticmethod
    def decode(data: bytes) -> WorkerLaunch:
        """Decode the bytes of `encode`, which the driver sent together with the code."""
        launch = pickle.loads(data)  # noqa: S301  # trusted like the closure that holds the bytes
        assert isinstance(launch, WorkerLaunch)
        return launch
