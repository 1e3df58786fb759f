"""The stores of aggregates in a simulated run, and the calls of one worker on them.

A store outlives all processes. Each call is a step, and so is each cell. Calls of an incarnation go on when it is over,
as those of a thread would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutline.snapshot.coordinator.control import Deploy
from cutline.snapshot.errors import CutlineError, Fenced
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.ledger import CommitTotals, TotalsTask
from cutline.snapshot.modes.totals.store_calls import StoreCalls, claim_of, opening
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals, StoredCells
from cutline.snapshot.testing.simulation.scheduler import Group
from cutline.snapshot.testing.steps import WorkRows
from cutline.snapshot.worker.ledger import TaskRefused


@dataclass(slots=True)
class SimulatedStore:
    """The store of one aggregate, and the failures of its next calls."""

    cells: StoredCells = field(default_factory=StoredCells)
    #: for each of the next calls: whether it happens although it fails
    failures: list[bool] = field(default_factory=list)

    def totals(self) -> dict[Any, Any]:
        """Return all totals that count now."""
        return KeptTotals(self.cells).totals()


class StoreConnection(KeptTotals):
    """A connection to a simulated store."""

    def __init__(self, store: SimulatedStore) -> None:
        super().__init__(store.cells)
        self._failures = store.failures

    def take(self, claim: StoreClaim) -> int:
        committed: int = self._failing(lambda: KeptTotals.take(self, claim))
        return committed

    def write(self, claim: StoreClaim, snapshotId: int, items: Sequence[tuple[Any, Any]]) -> None:
        self._failing(lambda: KeptTotals.write(self, claim, snapshotId, items))

    def commit(self, claim: StoreClaim, snapshotId: int) -> None:
        self._failing(lambda: KeptTotals.commit(self, claim, snapshotId))

    def rollBack(self, claim: StoreClaim, snapshotId: int) -> None:
        self._failing(lambda: KeptTotals.rollBack(self, claim, snapshotId))

    def _failing(self, call: Callable[[], Any]) -> Any:
        if not self._failures:
            return call()
        if self._failures.pop():
            call()
        raise OSError("simulated: the store is away")


class StoreThreads:
    """What the threads of one worker do on the stores of its aggregates.

    Parameters
    ----------
    run : str
    topology : Topology
    stores : mapping of str to SimulatedStore
        Stores by node.
    connect : callable
        Returns a connection to a store.
    see : callable
        Counts a situation.
    """

    def __init__(
        self,
        run: str,
        topology: Topology,
        stores: dict[str, SimulatedStore],
        connect: Callable[[SimulatedStore], KeptTotals],
        see: Callable[[str], None],
    ) -> None:
        self._run = run
        self._topology = topology
        self._stores = stores
        self._connect = connect
        self._see = see
        self._claims: dict[tuple[int, Subtask], StoreClaim] = {}
        self._calls: dict[tuple[int, Subtask], StoreCalls] = {}
        #: commits that the stores do not have
        self._commits: dict[tuple[int, Subtask], None] = {}

    def open(self, deploy: Deploy, group: Group, opened: Callable[[CutlineError | None], None]) -> None:
        """Take the stores of a deployment, one call a step, and then report."""
        calls = self._opening(deploy)
        process = WorkRows(deploy.subtasks[0].subtask, "OpenStore") if deploy.subtasks else None
        if process is None:
            opened(None)
            return

        def step() -> None:
            nonlocal calls
            try:
                ended = next(calls, self) is self
            except OSError:
                calls, ended = self._opening(deploy), False  # every call may be made again
            except CutlineError as error:
                opened(error)
                return
            if ended:
                opened(None)
            else:
                group.once(process, step)

        step()

    def _opening(self, deploy: Deploy) -> Iterator[None]:
        for each in deploy.subtasks:
            node = each.subtask.node
            if self._topology.node(node).is_aggregate:
                snapshot_id = 0 if each.origin is None else each.origin.snapshot_id
                claim = claim_of(self._run, each, deploy.incarnation)
                self._claims[deploy.incarnation, each.subtask] = claim
                yield from opening(self._connect(self._stores[node]), claim, node, snapshot_id)

    def work(
        self,
        task: TotalsTask,
        incarnation: int,
        monoid: Any,
        group: Group,
        ended: Callable[[TotalsTask, TaskRefused | None], None],
    ) -> None:
        """Perform a task, one call a step, behind the tasks of the subtask before it."""
        at = (incarnation, task.subtask)
        if at not in self._calls:
            store = self._connect(self._stores[task.subtask.node])
            self._calls[at] = StoreCalls(store, self._claims[at], monoid, keys_at_once=1)
        calls = self._calls[at]
        was_busy = calls.has_work
        calls.put(task)
        if isinstance(task, CommitTotals):
            self._commits[at] = None
        step = WorkRows(task.subtask, "StoreTotals")

        def call() -> None:
            done = None
            try:
                done = calls.step()
            except OSError:
                self._see("a store of totals was away")
            except Fenced as error:
                self._see("a store refused an old claim")
                ended(task, TaskRefused(error))
                return
            if calls.has_work:
                if calls.is_writing:
                    self._see("some cells of a difference are written")
                group.once(step, call)
            if isinstance(done, CommitTotals):
                del self._commits[at]
            if done is not None:
                ended(done, None)

        if not was_busy:
            group.once(step, call)

    def note_crash(self, incarnation: int) -> None:
        """Count what the end of the process interrupts in its present incarnation."""
        if any(calls.cells_left for (number, _), calls in self._calls.items() if number == incarnation):
            self._see("a crash between the cells of a difference")
        if any(number == incarnation for number, _ in self._commits):
            self._see("a crash before a commit")
