"""Which workers of the newest stage are there, and how far each is in becoming part of an incarnation."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.coordinator.control import WorkerRegistered


@dataclass(slots=True)
class RegisteredWorker:
    """One registered worker. Each field but the first holds an incarnation, 0 for none."""

    registration: WorkerRegistered
    #: whose data it processes
    running: int
    #: which it has restored
    restored: int = 0
    #: in which it has connections to all peers
    connected: int = 0
    #: in which nothing will happen at it without a message from elsewhere
    idle: int = 0


class WorkerRegistry:
    """The workers of the newest stage.

    Parameters
    ----------
    worker_count : int
    launch : str
        Token of the stage; "" while there is none.
    """

    def __init__(self, worker_count: int, launch: str) -> None:
        self.worker_count = worker_count
        self.launch = launch
        #: number of the claim of the last rollback: all are to be part of it. 0 before the first
        self.incarnation = 0
        self._workers: dict[int, RegisteredWorker] = {}

    def __contains__(self, worker: int) -> bool:
        return worker in self._workers

    def __getitem__(self, worker: int) -> RegisteredWorker:
        return self._workers[worker]

    def numbers(self) -> list[int]:
        """Those that are there, ascending."""
        return sorted(self._workers)

    def process_ids(self) -> dict[int, int]:
        """Of those that are there, by number. May be called on any thread."""
        return {worker: worker_entry.registration.pid for worker, worker_entry in sorted(self._workers.copy().items())}

    def missing(self) -> list[int]:
        """Those that are not there, ascending."""
        return [worker for worker in range(self.worker_count) if worker not in self._workers]

    @property
    def all_there(self) -> bool:
        """Every worker has registered."""
        return len(self._workers) == self.worker_count

    def register(self, registration: WorkerRegistered) -> None:
        """A worker came, or came back."""
        self._workers[registration.worker] = RegisteredWorker(registration, registration.incarnation)

    def remove(self, worker: int) -> None:
        """A worker is gone."""
        del self._workers[worker]

    def new_stage(self, launch: str) -> None:
        """Forget everybody: only who registers with `launch` belongs to the run now (PROTOCOL 6.4)."""
        self.launch = launch
        self._workers.clear()

    def running(self) -> list[int]:
        """The incarnations whose data they process, each once, ascending; 0 stands for those that process none."""
        return sorted(dict.fromkeys(worker_entry.running for worker_entry in self._workers.values()))

    def not_restored(self) -> list[int]:
        """Those that are not restored under the incarnation, ascending."""
        return [worker for worker in self.numbers() if self[worker].restored != self.incarnation]

    def not_connected(self) -> list[int]:
        """Those that are not connected in the incarnation, ascending."""
        return [worker for worker in self.numbers() if self[worker].connected != self.incarnation]

    def note_idle(self, worker: int, incarnation: int) -> None:
        """A worker has nothing to do in `incarnation`; 0: it is busy.

        Also heard before this life of the coordinator knows the incarnation: it may be said only once.
        """
        if worker in self._workers:
            self._workers[worker].idle = incarnation

    @property
    def all_idle(self) -> bool:
        """Nothing will happen anywhere, unless it is on its way already."""
        return self.all_there and all(worker_entry.idle == self.incarnation for worker_entry in self._workers.values())

    def addresses(self) -> tuple[bytes, ...]:
        """Where each is reached by its peers, by number; call only when all are there."""
        return tuple(self._workers[worker].registration.address for worker in range(self.worker_count))
