"""Place subtasks on the workers that see the disks with their local versions (PROTOCOL 12.17, versions).

A *place* is what `Topology.place` calls a worker: subtasks that run together. Its *host* is the worker that runs them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology


class Placement:
    """The worker of each subtask of a run.

    Parameters
    ----------
    topology : Topology
    worker_count : int
    """

    def __init__(self, topology: Topology, worker_count: int) -> None:
        #: {subtask: worker}; those who send messages keep a reference
        self.workers = topology.place(worker_count)
        #: see `Deploy.worker_of_place`
        self.worker_of_place: tuple[int, ...] = ()
        self._row = topology.row
        self._places = dict(self.workers)

    def host(self, plan: list[RestoredSubtask], disks: Sequence[Collection[str]]) -> list[RestoredSubtask]:
        """Choose workers that see the disks with the local versions of a plan. Return the plan for them.

        Raises
        ------
        RestoreRefused
            as `hosts_of`.
        """
        if not self._row.makes_versions:
            return plan
        worker_of_place, hosted = hosts_of(plan, self._places, disks, is_copied=self._row.copies_rows)
        self.adopt(worker_of_place)
        return hosted

    def adopt(self, worker_of_place: tuple[int, ...]) -> None:
        """Take over the hosts that workers have."""
        self.worker_of_place = worker_of_place
        self.workers.update(placed_on(worker_of_place, self._places))


def hosts_of(
    plan: Sequence[RestoredSubtask], places: Mapping[Subtask, int], disks: Sequence[Collection[str]], *, is_copied: bool
) -> tuple[tuple[int, ...], list[RestoredSubtask]]:
    """Return the host of each place, and the plan for these hosts. A place is its own host where that is possible.

    Parameters
    ----------
    plan : sequence of RestoredSubtask
    places : mapping of Subtask to int
    disks : sequence of collection of str
        Disks that each worker sees, by worker number. There are as many places as workers.
    is_copied : bool
        Whether the backend has the rows too, which are then read where no worker can open a version.

    Raises
    ------
    RestoreRefused
        if no worker sees the disks of a place, and the rows were not copied.
    """
    needs = [_versions_of(plan, places, place) for place in range(len(disks))]
    host_of: dict[int, int] = {}
    for place, need in enumerate(needs):
        if need and not _find_host(place, needs, disks, host_of, []):
            if not is_copied:
                raise RestoreRefused(_unseen(need, disks))
            needs[place] = []
    for place, need in enumerate(needs):
        if not need:
            free = [worker for worker in range(len(disks)) if worker not in host_of.values()]
            host_of[place] = place if place in free else free[0]
    kept = {restored.subtask for need in needs for restored in need}
    worker_of_place = tuple(host_of[place] for place in range(len(disks)))
    return worker_of_place, [each if each.subtask in kept else replace(each, version=None) for each in plan]


def placed_on(worker_of_place: Sequence[int], places: Mapping[Subtask, int]) -> Mapping[Subtask, int]:
    """Return the worker of each subtask. Without hosts, each place is at the worker of its number."""
    return {subtask: worker_of_place[place] for subtask, place in places.items()} if worker_of_place else places


def _versions_of(plan: Sequence[RestoredSubtask], places: Mapping[Subtask, int], place: int) -> list[RestoredSubtask]:
    return [each for each in plan if each.version is not None and places[each.subtask] == place]


def _find_host(
    place: int,
    needs: Sequence[Sequence[RestoredSubtask]],
    disks: Sequence[Collection[str]],
    host_of: dict[int, int],
    tried: list[int],
) -> bool:
    """Find a host for a place, and other hosts for the places that are in the way (Kuhn's augmenting paths)."""
    workers = [place, *(worker for worker in range(len(disks)) if worker != place)]
    for worker in workers:
        if worker in tried or not all(_disk_of(each) in disks[worker] for each in needs[place]):
            continue
        tried.append(worker)
        other = next((each for each, host in host_of.items() if host == worker), None)
        if other is None or _find_host(other, needs, disks, host_of, tried):
            host_of[place] = worker
            return True
    return False


def _disk_of(restored: RestoredSubtask) -> str:
    assert restored.version is not None
    return restored.version.disk


def _unseen(need: Sequence[RestoredSubtask], disks: Sequence[Collection[str]]) -> str:
    """Return why no worker can host a place."""
    way_out = "bring it back, or use copy=True in the next run"
    for restored in need:
        assert restored.version is not None
        if not any(restored.version.disk in each for each in disks):
            node, index, step = restored.subtask.node, restored.subtask.index, restored.version.snapshot_id
            at = f"step {step} of {node!r}, subtask {index} is on disk {restored.version.disk}"
            return f"{at}, which no worker sees; {way_out}"
    some = ", ".join(f"{each.subtask} on disk {_disk_of(each)}" for each in need[:4])
    return f"no worker is left that sees the disks of subtasks which run together: {some}; {way_out}"
