"""Steps between workers, coordinator, driver and store.

Processes are numbered in the order in which they were started, and so are the instances of a coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutline.snapshot.testing.step_types.step import Step


@dataclass(frozen=True, slots=True, repr=False)
class Store(Step):
    """Write a subtask's part of a snapshot."""

    subtask: Any
    snapshotId: int

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class PutRecord(Step):
    """Write a record of a subtask alone."""

    subtask: Any
    number: int

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class CheckClaim(Step):
    """Let a worker check, behind a record, whether another coordinator has taken the run."""

    subtask: Any
    number: int

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class WorkRows(Step):
    """Perform a task on the keyed rows of a subtask: ``"EncodeRows"``, ``"StoreRows"`` or ``"CompactRows"``."""

    subtask: Any
    task: str

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class Quiesce(Step):
    """Let everything happen that needs neither data nor time: deploying, storing, acknowledging, publishing."""


@dataclass(frozen=True, slots=True, repr=False)
class _OfProcess(Step):
    process: int


class Register(_OfProcess):
    """Connect a worker to the coordinator."""

    __slots__ = ()


class Receive(_OfProcess):
    """Let a worker take the coordinator's next message."""

    __slots__ = ()


class Restore(_OfProcess):
    """Make the subtasks of a worker, from a snapshot if there is one."""

    __slots__ = ()


class Link(_OfProcess):
    """Connect a worker to its peers."""

    __slots__ = ()


class NoticeLoss(_OfProcess):
    """Let a worker notice that a peer is gone."""

    __slots__ = ()


class NoticeExit(_OfProcess):
    """Let the driver's stage notice that a worker is gone."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class _OfDriver(Step):
    driver: str = "A"


class Launch(_OfDriver):
    """Let a driver submit its stage."""

    __slots__ = ()


class Fork(_OfDriver):
    """Let a driver's stage start a worker process."""

    __slots__ = ()


class StartCoordinator(_OfDriver):
    """Start a coordinator instance of a driver."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class _OfCoordinator(Step):
    coordinator: int = 0


class Think(_OfCoordinator):
    """Let a coordinator take the next event from its driver or store."""

    __slots__ = ()


class Wake(_OfCoordinator):
    """Let a coordinator check the clock."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Listen(Step):
    """Let a coordinator take a worker's next message."""

    process: int
    coordinator: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Step):
    """Let the store answer a coordinator's request, by the number of the request."""

    request: int
    coordinator: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Land(Step):
    """Perform a store request that a lost coordinator left behind."""

    request: int


#: The steps that `Quiesce` takes.
CONTROL = (
    Store, PutRecord, CheckClaim, WorkRows, Register, Receive, Restore, Link, NoticeLoss, NoticeExit, Launch, Fork,
    StartCoordinator, Think, Wake, Listen, Answer,
)  # fmt: skip
