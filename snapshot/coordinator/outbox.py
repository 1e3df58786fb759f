"""One step of the coordinator: when it is, and what was decided, in the order in which it is to be performed."""

from __future__ import annotations

from snapshot.coordinator.control import CoordinatorMessage
from snapshot.coordinator.events import Effect, SendToWorker
from snapshot.coordinator.worker_registry import WorkerRegistry


class Outbox:
    """Gathers effects; knows the time, and whom "all" are.

    Parameters
    ----------
    registry : WorkerRegistry
    epoch_offset : float
        Seconds from monotonic time to seconds since the epoch.
    """

    def __init__(self, registry: WorkerRegistry, epoch_offset: float) -> None:
        #: monotonic seconds
        self.now = 0.0
        self.epoch_offset = epoch_offset
        self._registry = registry
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> float:
        """Seconds since the epoch."""
        return self.now + self.epoch_offset

    def put(self, effect: Effect) -> None:
        """Have it performed after all that was put before."""
        self._effects.append(effect)

    def send(self, worker: int, message: CoordinatorMessage) -> None:
        """Send to one worker."""
        self.put(SendToWorker(worker, message))

    def broadcast(self, message: CoordinatorMessage) -> None:
        """Send to every worker that is there."""
        for worker in self._registry.numbers():
            self.send(worker, message)

    def take(self) -> list[Effect]:
        """All that was put since the last call."""
        effects, self._effects = self._effects, []
        return effects
