"""What happens between workers, coordinator, driver and store.

A process is named by its number, in the order in which processes were started, and so is a life of a coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from snapshot.testing.step_types.step import Step


@dataclass(frozen=True, slots=True, repr=False)
class Store(Step):
    """A subtask's part of a snapshot is written."""

    subtask: Any
    snapshotId: int

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class Quiesce(Step):
    """Everything happens that needs neither data nor time: deploying, storing, acknowledging, publishing."""


@dataclass(frozen=True, slots=True, repr=False)
class _OfProcess(Step):
    process: int


class Register(_OfProcess):
    """A worker connects to the coordinator."""

    __slots__ = ()


class Receive(_OfProcess):
    """A worker takes what the coordinator said next."""

    __slots__ = ()


class Restore(_OfProcess):
    """A worker makes its subtasks, from a snapshot if there is one."""

    __slots__ = ()


class Link(_OfProcess):
    """A worker connects to its peers."""

    __slots__ = ()


class NoticeLoss(_OfProcess):
    """A worker notices that a peer is gone."""

    __slots__ = ()


class NoticeExit(_OfProcess):
    """The driver's stage notices that a worker is gone."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class _OfDriver(Step):
    driver: str = "A"


class Launch(_OfDriver):
    """A driver submits its stage."""

    __slots__ = ()


class Fork(_OfDriver):
    """A driver's stage starts a worker process."""

    __slots__ = ()


class StartCoordinator(_OfDriver):
    """A driver's coordinator begins a life."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class _OfCoordinator(Step):
    coordinator: int = 0


class Think(_OfCoordinator):
    """A coordinator takes the next of what driver and store told it."""

    __slots__ = ()


class Wake(_OfCoordinator):
    """A coordinator looks at the clock."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Listen(Step):
    """A coordinator takes what a worker said next."""

    process: int
    coordinator: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Step):
    """The store does what a coordinator asked of it, by the number of the request."""

    request: int
    coordinator: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Land(Step):
    """What a lost coordinator had asked of the store happens after all."""

    request: int


#: What `Quiesce` lets happen.
CONTROL = (
    Store, Register, Receive, Restore, Link, NoticeLoss, NoticeExit, Launch, Fork, StartCoordinator, Think, Wake,
    Listen, Answer,
)  # fmt: skip
