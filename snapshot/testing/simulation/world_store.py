"""The store of a simulated run, which outlives all its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cutline.snapshot.coordinator import events
from cutline.snapshot.coordinator.fence_answers import perform
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.testing.simulation.disks import SimulatedDisk
from cutline.snapshot.testing.simulation.scheduler import Group
from cutline.snapshot.testing.simulation.store import SimulatedBackend
from cutline.snapshot.testing.steps import Land

#: A request of a coordinator to the store.
StoreRequest = (
    events.AskStore
    | events.ReadManifest
    | events.ListRecords
    | events.StoreCut
    | events.RemoveRecords
    | events.DeleteSnapshots
    | events.CollectOrphans
)


class WorldStore:
    """The files of a run, and what reaches them late.

    Parameters
    ----------
    run : str
    files : dict
        ``{path: bytes}``, read and written.
    late : Group
        Group of the steps by which requests of lost coordinators reach the store.
    see : callable
        Counts a situation that must happen in some run.
    """

    def __init__(self, run: str, files: dict[str, bytes], late: Group, see: Callable[[str], None]) -> None:
        self._run = run
        self._files = files
        self._late = late
        self._see = see
        self._landings = 0
        self._backends: dict[int, SimulatedBackend] = {}
        #: the store as no process sees it, without faults
        self.faultless = self.open(None)
        #: {handle: bytes} of every part that was ever published
        self.published_parts: dict[Handle, bytes] = {}

    def open(self, process: int | None) -> RunStore:
        """Open the run's store, as one process sees the store."""
        backend = SimulatedBackend(self._files)
        if process is not None:
            self._backends[process] = backend
        return RunStore(backend, self._run)

    def disk(self, name: str) -> SimulatedDisk:
        """Return a disk that workers see."""
        return SimulatedDisk(name, self._run, self._files)

    def backend_of(self, process: int) -> SimulatedBackend:
        """Return the backend of a process, through which faults reach its store."""
        return self._backends[process]

    def keep(self, handle: Handle) -> None:
        """Keep a published part, which stays readable when it is removed. Raises SnapshotCorrupt."""
        self.published_parts[handle] = self.faultless.read_stored(handle)

    def leave_behind(self, requests: Iterable[StoreRequest]) -> None:
        """Keep the requests of a coordinator that is gone. Each request may still happen, or not."""
        for request in requests:
            if isinstance(request, events.AskStore):
                step = Land(self._landings)
                self._landings += 1
                self._late.once(step, lambda r=request: self._land(r))  # type: ignore[misc]  # defaults bind now

    def _land(self, request: events.AskStore) -> None:
        self._see("a request of a lost coordinator reached the store")
        perform(self.faultless, request.effect, request.manifest)
