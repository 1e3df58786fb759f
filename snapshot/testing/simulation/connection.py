"""A control connection in a simulated run: two FIFO queues, until either end or the network drops it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from snapshot.coordinator import control
from snapshot.testing.simulation.scheduler import EnabledStep


class WorkerEnd(Protocol):
    """The worker's end of a connection: `snapshot.testing.simulation.worker.Worker`."""

    number: int
    process: int

    @property
    def incarnation(self) -> int:
        """Return the incarnation of the last deployment."""

    def put(self, message: control.CoordinatorMessage) -> None:
        """Queue a message of the coordinator."""

    def disconnect(self) -> None:
        """Drop the connection, and what was on its way with it."""


class Connection:
    """Between one worker and one life of a coordinator.

    What the worker said before the connection broke is still heard; then the coordinator notices that it broke.
    """

    def __init__(self, worker: WorkerEnd, listen: EnabledStep) -> None:
        self.worker = worker
        self.is_open = True
        self.sent: deque[control.WorkerMessage] = deque()
        self._listen = listen

    def send(self, message: control.WorkerMessage) -> None:
        """To the coordinator."""
        self.sent.append(message)
        self._listen.set(True)

    def lose(self, message: control.WorkerMessage) -> None:
        """Something that the worker said never comes."""
        self.sent.remove(message)
        self._listen.set(bool(self.sent) or not self.is_open)

    def send_to_worker(self, message: control.CoordinatorMessage) -> None:
        """To the worker."""
        if self.is_open:
            self.worker.put(message)

    def take(self) -> control.WorkerMessage | None:
        """What the worker said next; None: it is gone."""
        message = self.sent.popleft() if self.sent else None
        self._listen.set(bool(self.sent) or (message is not None and not self.is_open))
        return message

    def disconnect(self) -> None:
        """The coordinator breaks it: what was on its way is dropped, and it has no end to notice."""
        self.sent.clear()
        self.close()
        self._listen.set(False)

    def close(self) -> None:
        """It breaks; both ends live, or not."""
        if self.is_open:
            self.is_open = False
            self._listen.set(True)
            self.worker.disconnect()
