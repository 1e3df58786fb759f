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
from cutline.snapshot.modes.totals.store_calls import StoreCalls, aggregate_of, claim_of, opening
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals, StoredCells
from cutline.snapshot.testing.simulation.scheduler import Group
from cutline.snapshot.testing.steps import WorkRows
from cutline.snapshot.worker.events import Performed
from cutline.snapshot.worker.ledger import AnyTask, TaskRefused


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
    compiled : CompiledGraph
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
        compiled: CompiledGraph,
        stores: dict[str, SimulatedStore],
        connect: Callable[[SimulatedStore], KeptTotals],
        see: Callable[[str], None],
    ) -> None:
        self._run = run
        self._compiled = compiled
        self._stores = stores
        self._connect = connect
        self._see = see
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
            if (aggregate := aggregate_of(each.subtask, self._compiled)) is not None:
                name = each.subtask.node
                snapshot_id = 0 if each.origin is None else each.origin.snapshot_id
                store, claim = self._connect(self._stores[name]), claim_of(self._run, each, deploy.incarnation)
                self._calls[deploy.incarnation, each.subtask] = StoreCalls(store, claim, aggregate.monoid, 1)
                yield from opening(store, claim, name, snapshot_id)

    def work(self, task: AnyTask, incarnation: int, group: Group, ended: Callable[[Performed], None]) -> None:
        """Perform a task, one call a step, after the earlier tasks of the subtask."""
        assert isinstance(task, TotalsTask)
        at = (incarnation, task.subtask)
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
                ended(Performed(incarnation, task, TaskRefused(error)))
                return
            if calls.has_work:
                if calls.is_writing:
                    self._see("some cells of a difference are written")
                group.once(step, call)
            if isinstance(done, CommitTotals):
                del self._commits[at]
            if done is not None:
                ended(Performed(incarnation, done, None))

        if not was_busy:
            group.once(step, call)

    def note_crash(self, incarnation: int) -> None:
        """Count what the end of the process interrupts in its present incarnation."""
        if any(calls.cells_left for (number, _), calls in self._calls.items() if number == incarnation):
            self._see("a crash between the cells of a difference")
        if any(number == incarnation for number, _ in self._commits):
            self._see("a crash before a commit")
