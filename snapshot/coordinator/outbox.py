"""One step of the coordinator: when it is, and what was decided, in the order in which it is to be performed."""

from __future__ import annotations

from snapshot.coordinator.control import CoordinatorMessage
from snapshot.coordinator.events import Effect, TellWorker
from snapshot.coordinator.members import Members


class Outbox:
    """Gathers effects; knows the time, and whom "all" are.

    Parameters
    ----------
    members : Members
    epoch_offset : float
        Seconds from monotonic time to seconds since the epoch.
    """

    def __init__(self, members: Members, epoch_offset: float) -> None:
        #: monotonic seconds
        self.now = 0.0
        self.epoch_offset = epoch_offset
        self._members = members
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> float:
        """Seconds since the epoch."""
        return self.now + self.epoch_offset

    def put(self, effect: Effect) -> None:
        """Have it performed after all that was put before."""
        self._effects.append(effect)

    def tell(self, worker: int, message: CoordinatorMessage) -> None:
        """Send to one worker."""
        self.put(TellWorker(worker, message))

    def tell_all(self, message: CoordinatorMessage) -> None:
        """Send to every worker that is there."""
        for worker in self._members.numbers():
            self.tell(worker, message)

    def take(self) -> list[Effect]:
        """All that was put since the last call."""
        effects, self._effects = self._effects, []
        return effects
