"""Steps that a run without faults does not take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutline.snapshot.testing.step_types.step import Fault


@dataclass(frozen=True, slots=True, repr=False)
class Crash(Fault):
    """Kill a worker process, by its number or by a subtask that it runs."""

    worker: Any

    def __post_init__(self) -> None:
        if isinstance(self.worker, str):
            self.resolve("worker")


@dataclass(frozen=True, slots=True, repr=False)
class Fail(Fault):
    """Let a subtask's node raise. Its worker process goes on."""

    subtask: Any

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class FailHook(Fault):
    """Let the node of a subtask raise at the next call of this hook."""

    subtask: Any
    hook: str

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class _OnProcess(Fault):
    process: int


class CutControl(_OnProcess):
    """Break a worker's connection to the coordinator. Both processes go on."""

    __slots__ = ()


class FailStore(_OnProcess):
    """Fail the next part that a worker stores, or reads."""

    __slots__ = ()


class TearStore(_OnProcess):
    """Write half of the next part that a worker stores, and fail."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class LoseTotals(Fault):
    """Fail the next calls on the store of an aggregate. The first ones happen all the same, and lose their answer."""

    node: str
    calls: int = 3
    happen: int = 1


@dataclass(frozen=True, slots=True, repr=False)
class HangStore(Fault):
    """Leave a worker's store without an answer for some seconds."""

    process: int
    seconds: float = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Freeze(Fault):
    """Stop a worker for some seconds. The worker is then a zombie, if others have moved on meanwhile."""

    process: int
    seconds: float = 10.0


class LoseAcknowledgement(_OnProcess):
    """Lose the oldest acknowledgement on its way from a worker."""

    __slots__ = ()


class RepeatAcknowledgement(_OnProcess):
    """Deliver the oldest acknowledgement on its way from a worker twice."""

    __slots__ = ()


class DelayAcknowledgement(_OnProcess):
    """Deliver the oldest acknowledgement on its way from a worker after all else that is on its way."""

    __slots__ = ()


class FailStage(Fault):
    """Kill a barrier task, and the stage with it. The other workers linger."""

    __slots__ = ()


class CrashCoordinator(Fault):
    """Kill the coordinator's process. Another coordinator instance follows."""

    __slots__ = ()


class OrphanCoordinator(Fault):
    """Replace a coordinator that runs, as if it were dead. The old instance runs on as a zombie."""

    __slots__ = ()


class KillDriver(Fault):
    """Kill the driver. The run is then submitted again."""

    __slots__ = ()


class SubmitAgain(Fault):
    """Submit the run by another driver while the first driver runs."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Doubt(Fault):
    """Lose the answer to the next manifest's write. The write is "done", happens "late", or "never"."""

    what: str
