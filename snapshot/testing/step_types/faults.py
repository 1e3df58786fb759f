"""What a run without faults does not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from snapshot.testing.step_types.step import Fault


@dataclass(frozen=True, slots=True, repr=False)
class Crash(Fault):
    """A worker process is killed: by its number, or the one that runs a subtask."""

    worker: Any

    def __post_init__(self) -> None:
        if isinstance(self.worker, str):
            self.resolve("worker")


@dataclass(frozen=True, slots=True, repr=False)
class Fail(Fault):
    """A subtask's node raises; its worker process goes on."""

    subtask: Any

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class FailHook(Fault):
    """The node of a subtask raises when this hook of it is called next."""

    subtask: Any
    hook: str

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class _OnProcess(Fault):
    process: int


class CutControl(_OnProcess):
    """A worker's connection to the coordinator breaks; both live."""

    __slots__ = ()


class FailStore(_OnProcess):
    """The next part that a worker stores, or reads, fails."""

    __slots__ = ()


class TearStore(_OnProcess):
    """The next part that a worker stores is half written, and fails."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class HangStore(Fault):
    """A worker's store does not answer for so long."""

    process: int
    seconds: float = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Freeze(Fault):
    """A worker stops and goes on later; a zombie, if others have moved on meanwhile."""

    process: int
    seconds: float = 10.0


class LoseAcknowledgement(_OnProcess):
    """The oldest acknowledgement on its way from a worker never comes."""

    __slots__ = ()


class RepeatAcknowledgement(_OnProcess):
    """The oldest acknowledgement on its way from a worker comes twice."""

    __slots__ = ()


class DelayAcknowledgement(_OnProcess):
    """The oldest acknowledgement on its way from a worker comes after all else that is on its way."""

    __slots__ = ()


class FailStage(Fault):
    """A barrier task is killed, and the stage with it; the other workers linger."""

    __slots__ = ()


class CrashCoordinator(Fault):
    """The coordinator's process is killed; another life follows."""

    __slots__ = ()


class OrphanCoordinator(Fault):
    """The coordinator is taken for dead, is replaced, and lives on: a zombie."""

    __slots__ = ()


class KillDriver(Fault):
    """The driver is killed, and somebody submits the run again."""

    __slots__ = ()


class SubmitAgain(Fault):
    """Another driver submits the run while the first one lives."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Doubt(Fault):
    """The answer to the next manifest's write is lost, and the write is "done", happens "late", or "never"."""

    what: str
