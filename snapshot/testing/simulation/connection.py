"""A control connection in a simulated run: two FIFO queues, until either end or the network drops the connection."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from cutline.snapshot.coordinator import control
from cutline.snapshot.testing.simulation.scheduler import EnabledStep


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
        """Drop the connection, and the messages that are on their way."""


class Connection:
    """The connection between one worker and one coordinator instance.

    Messages that the worker sent before the connection broke still arrive. Then the coordinator notices the break.
    """

    def __init__(self, worker: WorkerEnd, listen: EnabledStep) -> None:
        self.worker = worker
        self.is_open = True
        self.sent: deque[control.WorkerMessage] = deque()
        self._listen = listen

    def send(self, message: control.WorkerMessage) -> None:
        """Send a message to the coordinator."""
        self.sent.append(message)
        self._listen.set(True)

    def lose(self, message: control.WorkerMessage) -> None:
        """Lose a message of the worker."""
        self.sent.remove(message)
        self._listen.set(bool(self.sent) or not self.is_open)

    def send_to_worker(self, message: control.CoordinatorMessage) -> None:
        """Send a message to the worker."""
        if self.is_open:
            self.worker.put(message)

    def take(self) -> control.WorkerMessage | None:
        """Take the worker's next message, or None if the worker is gone."""
        message = self.sent.popleft() if self.sent else None
        self._listen.set(bool(self.sent) or (message is not None and not self.is_open))
        return message

    def disconnect(self) -> None:
        """Break the connection at the coordinator's end. Messages on their way are dropped, and no end is noticed."""
        self.sent.clear()
        self.close()
        self._listen.set(False)

    def close(self) -> None:
        """Break the connection, whether its ends go on or not."""
        if self.is_open:
            self.is_open = False
            self._listen.set(True)
            self.worker.disconnect()
