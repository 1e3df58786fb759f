"""The contract of a collector: who takes the contributions of a worker's subtasks when they are stored.

The coordinator takes them, or the worker collects what its subtasks store by themselves. A collector has no I/O. It
returns decisions, and the machine performs each decision before the collector makes the next one, because a subtask may
report at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from cutline.snapshot.coordinator.control import CoordinatorMessage, SnapshotAskedFor, WorkerMessage
from cutline.snapshot.ids import Subtask
from cutline.snapshot.subtask.events import ControlEvent
from cutline.snapshot.subtask.reports import RecordTaken
from cutline.snapshot.worker.events import (
    Deadline,
    Effect,
    RequestDeadline,
    SendToCoordinator,
)
from cutline.snapshot.worker.ledger import CollectorTask


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass an event to subtasks."""

    event: ControlEvent
    subtasks: tuple[Subtask, ...]


@dataclass(frozen=True, slots=True)
class Await:
    """Set a deadline, in seconds since the epoch."""

    deadline: Deadline
    at: float


Decisions = Iterable[Effect | Pass | Await]


class Collector(Protocol):
    """Takes the contributions of the subtasks of one worker in one incarnation. `now` is in seconds since the epoch."""

    #: messages of the coordinator that `obey` takes in place of the machine
    obeys: tuple[type[CoordinatorMessage], ...]
    #: called after the turns of all subtasks
    after_turns: tuple[Callable[[float], Decisions], ...]

    def started(self, now: float) -> Decisions:
        """Begin, because the subtasks process events from now on."""

    def obey(self, message: CoordinatorMessage, now: float) -> Decisions:
        """Take a message of `obeys`."""

    def stored(self, messages: Iterable[WorkerMessage], now: float, *, is_running: bool) -> Decisions:
        """Take what has become of contributions. Not `is_running`: a subtask has failed."""

    def asked(self, subtask: Subtask, now: float) -> Decisions:
        """Take that a node asks for a snapshot."""

    def ended(self, subtask: Subtask, now: float) -> Decisions:
        """Take that a subtask has ended."""

    def captured(self, report: RecordTaken, now: float) -> Decisions:
        """Take what a subtask has captured by itself."""

    def performed(self, task: CollectorTask, result: object, now: float) -> Decisions:
        """Take what has become of what a subtask stores by itself."""

    def due(self, subtask: Subtask, now: float) -> Decisions:
        """Take that the time has come at which a subtask stores something by itself."""


class ToCoordinator:
    """Send all contributions to the coordinator.

    Parameters
    ----------
    incarnation : int
    request_seconds : float
        Seconds that a node waits for the answer to `requestSnapshot`.
    """

    obeys: tuple[type[CoordinatorMessage], ...] = ()
    after_turns: tuple[Callable[[float], Decisions], ...] = ()

    def __init__(self, incarnation: int = 0, request_seconds: float = 0.0) -> None:
        self._incarnation = incarnation
        self._request_seconds = request_seconds

    def started(self, now: float) -> Decisions:
        """Do nothing."""
        return ()

    def obey(self, message: CoordinatorMessage, now: float) -> Decisions:
        """Do nothing."""
        return ()

    def stored(self, messages: Iterable[WorkerMessage], now: float, *, is_running: bool) -> Decisions:
        """Send the messages together."""
        return (SendToCoordinator(sent),) if (sent := tuple(messages)) else ()

    def asked(self, subtask: Subtask, now: float) -> Decisions:
        """Ask the coordinator."""
        yield Await(RequestDeadline(subtask), now + self._request_seconds)
        yield SendToCoordinator((SnapshotAskedFor(self._incarnation, subtask),))

    def ended(self, subtask: Subtask, now: float) -> Decisions:
        """Do nothing."""
        return ()

    def captured(self, report: RecordTaken, now: float) -> Decisions:
        """Do nothing, because no subtask captures by itself."""
        return ()

    def performed(self, task: CollectorTask, result: object, now: float) -> Decisions:
        """Do nothing."""
        return ()

    def due(self, subtask: Subtask, now: float) -> Decisions:
        """Do nothing."""
        return ()
