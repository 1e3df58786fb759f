"""Which workers of the newest stage are there, and how far each is in becoming part of an incarnation."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.control import WorkerRegistered


@dataclass(slots=True)
class Member:
    """One registered worker."""

    registration: WorkerRegistered
    #: incarnation that it has restored, 0 for none
    restored: int = 0
    #: incarnation in which it has connections to all peers
    connected: int = 0
    idle: bool = False


class Members:
    """The workers of the newest stage."""

    def __init__(self, worker_count: int) -> None:
        self.worker_count = worker_count
        self.launch = ""
        self._members: dict[int, Member] = {}

    def __contains__(self, worker: int) -> bool:
        return worker in self._members

    def __getitem__(self, worker: int) -> Member:
        return self._members[worker]

    def numbers(self) -> list[int]:
        """Those that are there, ascending."""
        return sorted(self._members)

    def missing(self) -> list[int]:
        """Those that are not there."""
        return [worker for worker in range(self.worker_count) if worker not in self._members]

    @property
    def all_there(self) -> bool:
        """Every worker has registered."""
        return len(self._members) == self.worker_count

    def register(self, registration: WorkerRegistered) -> None:
        """A worker came, or came back."""
        self._members[registration.worker] = Member(registration)

    def remove(self, worker: int) -> None:
        """A worker is gone."""
        self._members.pop(worker, None)

    def clear(self) -> None:
        """The stage is gone."""
        self._members.clear()

    def common_incarnation(self) -> int:
        """The incarnation that all of them run; 0 where there is none."""
        incarnations = [member.registration.incarnation for member in self._members.values()]
        return incarnations[0] if all(i == incarnations[0] for i in incarnations) else 0

    def all_restored(self, incarnation: int) -> bool:
        """All are restored under `incarnation`."""
        return self.all_there and all(member.restored == incarnation for member in self._members.values())

    def all_connected(self, incarnation: int) -> bool:
        """All are connected in `incarnation`."""
        return self.all_there and all(member.connected == incarnation for member in self._members.values())

    @property
    def all_idle(self) -> bool:
        """Nothing will happen anywhere, unless it is on its way already."""
        return self.all_there and all(member.idle for member in self._members.values())

    def addresses(self) -> tuple[bytes, ...]:
        """Where each is reached by its peers, by number; call only when all are there."""
        return tuple(self._members[worker].registration.address for worker in range(self.worker_count))
