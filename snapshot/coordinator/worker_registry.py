"""Record the registered workers of the newest stage, and the progress of each in the incarnation."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.channel.rerouting import ReroutedCount
from cutline.snapshot.coordinator.control import WorkerRegistered


@dataclass(slots=True)
class RegisteredWorker:
    """A registered worker. Each number is an incarnation, or 0 for none."""

    registration: WorkerRegistered
    #: incarnation whose data the worker processes
    running: int
    #: incarnation that the worker has restored
    restored: int = 0
    #: messages of reshaped edges that the worker has read and taken in that restore
    rerouted: tuple[ReroutedCount, ...] = ()
    #: incarnation in which the worker is connected to all peers
    connected: int = 0
    #: whether a subtask of the worker has restored steps to repeat
    is_replaying: bool = False
    #: incarnation in which the worker does nothing until a message arrives
    idle: int = 0


class WorkerRegistry:
    """The workers of the newest stage.

    Parameters
    ----------
    worker_count : int
    launch : str
        Token of the stage, or "" without a stage.
    """

    def __init__(self, worker_count: int, launch: str) -> None:
        self.worker_count = worker_count
        self.launch = launch
        #: number of the last rollback's claim, which all workers must join; 0 before the first
        self.incarnation = 0
        self._workers: dict[int, RegisteredWorker] = {}

    def __contains__(self, worker: int) -> bool:
        return worker in self._workers

    def __getitem__(self, worker: int) -> RegisteredWorker:
        return self._workers[worker]

    def numbers(self) -> list[int]:
        """Return the numbers of the registered workers, ascending."""
        return sorted(self._workers)

    def process_ids(self) -> dict[int, int]:
        """Return {worker number: process id} of the registered workers. Any thread may call this method."""
        return {worker: worker_entry.registration.pid for worker, worker_entry in sorted(self._workers.copy().items())}

    def missing(self) -> list[int]:
        """Return the numbers of the missing workers, ascending."""
        return [worker for worker in range(self.worker_count) if worker not in self._workers]

    @property
    def all_there(self) -> bool:
        """Whether every worker has registered."""
        return len(self._workers) == self.worker_count

    def register(self, registration: WorkerRegistered) -> None:
        """Register a worker, also a worker that registers again."""
        self._workers[registration.worker] = RegisteredWorker(
            registration, registration.incarnation, is_replaying=registration.is_replaying
        )

    def remove(self, worker: int) -> None:
        """Remove a worker."""
        del self._workers[worker]

    def new_stage(self, launch: str) -> None:
        """Remove all workers. Only workers that register with `launch` belong to the run (PROTOCOL 6.4)."""
        self.launch = launch
        self._workers.clear()

    def running(self) -> list[int]:
        """Return the distinct incarnations that workers process, ascending. 0 stands for workers without data."""
        return sorted(dict.fromkeys(worker_entry.running for worker_entry in self._workers.values()))

    def not_restored(self) -> list[int]:
        """Return the workers that have not restored the incarnation, ascending."""
        return [worker for worker in self.numbers() if self[worker].restored != self.incarnation]

    def not_connected(self) -> list[int]:
        """Return the workers that are not connected in the incarnation, ascending."""
        return [worker for worker in self.numbers() if self[worker].connected != self.incarnation]

    @property
    def any_replaying(self) -> bool:
        """Whether a worker has restored steps to repeat."""
        return any(worker_entry.is_replaying for worker_entry in self._workers.values())

    def note_idle(self, worker: int, incarnation: int) -> None:
        """Record that a worker is idle in `incarnation`, or busy for 0.

        An incarnation that this instance does not know yet is recorded too, because a worker reports each change once.
        """
        if worker in self._workers:
            self._workers[worker].idle = incarnation

    @property
    def all_idle(self) -> bool:
        """Whether all workers are idle. Messages may still be in flight."""
        return self.all_there and all(worker_entry.idle == self.incarnation for worker_entry in self._workers.values())

    def disks(self) -> tuple[tuple[str, ...], ...]:
        """Return the disks that each worker sees, in the order of worker numbers. All workers must be registered."""
        return tuple(self._workers[worker].registration.disks for worker in range(self.worker_count))

    def addresses(self) -> tuple[bytes, ...]:
        """Return the addresses for the peers, in the order of worker numbers. All workers must be registered."""
        return tuple(self._workers[worker].registration.address for worker in range(self.worker_count))
