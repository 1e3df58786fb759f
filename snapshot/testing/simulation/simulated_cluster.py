"""All processes of a simulated run: drivers with their coordinators, and workers, around the real machines.

Everything that could happen next is an enabled step of the scheduler. A chooser picks each step.
"""

from __future__ import annotations

from collections.abc import Sequence

from cutline.snapshot.coordinator.machine import Outcome, RunSettings
from cutline.snapshot.coordinator.pending_snapshot import SnapshotRequest
from cutline.snapshot.ids import Subtask
from cutline.snapshot.testing.simulation.driver import Driver
from cutline.snapshot.testing.simulation.simulated_coordinator import SimulatedCoordinator
from cutline.snapshot.testing.simulation.worker import Worker
from cutline.snapshot.testing.simulation.world import World

#: Names of drivers, in the order of their submissions.
_OWNERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class SimulatedCluster:
    """A run, with all its drivers, stages and coordinator instances.

    Parameters
    ----------
    world : World
    settings : RunSettings
    resubmits : bool
        Whether a run that was stopped is submitted again.
    """

    def __init__(self, world: World, settings: RunSettings, *, resubmits: bool) -> None:
        self.world = world
        self.drivers: list[Driver] = []
        self.processes: list[Worker] = []
        self._settings = settings
        self._resubmits = resubmits
        self._requests = 0
        self.submit()

    # ---------------------------------------------------------------- the run as a whole

    def submit(self) -> None:
        """Submit the run by another driver, under the same name."""
        self.drivers.append(Driver(self.world, self, _OWNERS[len(self.drivers)], self._settings))

    @property
    def driver(self) -> Driver:
        """The driver that submitted last."""
        return self.drivers[-1]

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, and every driver and zombie has found out."""
        if self.drivers[-1].outcome is None or any(driver.outcome is None for driver in self.drivers):
            return False
        return not self._wants_result and not any(
            simulated.requests for driver in self.drivers for simulated in driver.zombies
        )

    @property
    def _wants_result(self) -> bool:
        """Whether all drivers have ended, and none with the result."""
        again = (Outcome.FENCED, Outcome.STOPPED) if self._resubmits else (Outcome.FENCED,)
        is_left = all(driver.outcome is not None for driver in self.drivers)
        return is_left and self.driver.outcome in again and len(self.drivers) < len(_OWNERS)

    def resubmit(self) -> None:
        """Submit the run again, if no driver has its result."""
        if self.drivers[-1].outcome is not None and self._wants_result:
            self.submit()

    def dismiss(self) -> None:
        """Let the workers take the coordinator's last messages, after the run is over."""
        for worker in self.workers:
            if worker.driver.outcome in (Outcome.FINISHED, Outcome.STOPPED):
                worker.steps.receive_all()

    def request_snapshot(self, *, stops: bool, pinned: bool) -> None:
        """Let the driver request a snapshot, or a stop after a snapshot."""
        self._requests += 1
        stops = stops and self.driver.requests.stop is None
        request = SnapshotRequest(self._requests, pinned=pinned, initiators=None, deadline=None)
        self.driver.request(request, stops=stops)

    def worker_of(self, subtask: Subtask) -> Worker | None:
        """Return the process that runs a subtask now, or None."""
        running = [worker for worker in self.workers if subtask in worker.data.hosts]
        return max(running, key=lambda worker: worker.incarnation, default=None)

    def coordinator_of(self, worker: Worker) -> SimulatedCoordinator | None:
        """Return the coordinator that a worker may connect to, or None while there is none."""
        return next(driver.simulated for driver in self.drivers if driver is worker.driver)

    @property
    def has_replaced(self) -> bool:
        """Whether a process was replaced, or is about to be: both processes may then run the same subtasks."""
        return len(self.processes) > self._settings.worker_count

    @property
    def workers(self) -> list[Worker]:
        """The processes that run, including lingering processes."""
        return [worker for worker in self.processes if worker.is_alive]

    # ---------------------------------------------------------------- what processes need

    def fork(self, driver: Driver, launch: str, number: int) -> Worker:
        """Start a worker process."""
        make = self.world.mutation.worker or Worker
        worker: Worker = make(self.world, self, driver, launch, number, len(self.processes))
        self.processes.append(worker)
        return worker

    def coordinator_changed(self, driver: Driver) -> None:
        """Let workers connect to a new coordinator, or stop them from connecting if there is none."""
        for worker in self.workers:
            if worker.driver is driver:
                worker.find_coordinator()

    def peers(self, addresses: Sequence[bytes]) -> dict[int, Worker]:
        """Return the processes at addresses, by number, including processes that are gone."""
        return {number: self.processes[int(address)] for number, address in enumerate(addresses)}

    def peers_changed(self) -> None:
        """Note that a worker has connected, or dropped its connections."""
        for worker in self.workers:
            worker.check_peers()

    def worker_left(self, worker: Worker) -> None:
        """Note that a process has ended."""
        for driver in self.drivers:
            driver.worker_left(worker)
        self.peers_changed()
