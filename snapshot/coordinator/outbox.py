"""Collect the effects of one step of the coordinator, and hold the time of the step."""

from __future__ import annotations

from cutline.snapshot.coordinator.control import CoordinatorMessage
from cutline.snapshot.coordinator.events import Effect, SendToWorker
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry


class Outbox:
    """Collect effects in the order of performance.

    Parameters
    ----------
    registry : WorkerRegistry
    epoch_offset : float
        Seconds to add to monotonic time, giving seconds since the epoch.
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
        """Add an effect after all earlier effects."""
        self._effects.append(effect)

    def send(self, worker: int, message: CoordinatorMessage) -> None:
        """Send a message to one worker."""
        self.put(SendToWorker(worker, message))

    def broadcast(self, message: CoordinatorMessage) -> None:
        """Send a message to every registered worker."""
        for worker in self._registry.numbers():
            self.send(worker, message)

    def take(self) -> list[Effect]:
        """Remove and return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects
