"""Make the calls of one subtask of an aggregate on its store, one at a time, in order.

A call that raised is made again, so that a store may be away for any time. Knows no thread: the worker's thread for the
store and the simulator call `step`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.ledger import TotalsTask, WriteTotals
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.operators.monoid import Monoid
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.subtask.assembly import fresh_node

#: Keys of one call: enough to hide the way to a server, and few enough for the seconds that a statement may take.
KEYS_AT_ONCE = 10_000


def aggregate_of(subtask: Subtask, compiled: CompiledGraph) -> PersistentAggregate | None:
    """Return a copy of a subtask's aggregate, for the calls of its store. None for another node."""
    if not compiled.topology.node(subtask.node).is_aggregate:
        return None
    node = fresh_node(subtask, compiled)
    assert isinstance(node, PersistentAggregate)
    return node


def claim_of(run: str, restored: RestoredSubtask, incarnation: int) -> StoreClaim:
    """Return the claim of a subtask of an aggregate on its store."""
    node = restored.subtask.node
    formerly = tuple(f"{run}/{old}" for old, new in restored.renames if new == node)
    return StoreClaim(f"{run}/{node}", incarnation, formerly)


def opening(store: AggregateStore, claim: StoreClaim, node: str, snapshot_id: int) -> Iterator[None]:
    """Take a store for an incarnation that restores a snapshot, one call a step. 0: it begins afresh.

    Take comes first, so that nobody writes any more. The commit is repeated before the roll-back, because whoever
    published the snapshot may have been lost before its commit.

    Raises
    ------
    RestoreRefused
        if the store has committed a later snapshot, or none although the run had begun with it.
    """
    committed = store.take(claim)
    if committed < 0 < snapshot_id:
        raise RestoreRefused(
            f"snapshot {snapshot_id} has totals in the store of {node!r}, and no run has begun in this store: bring "
            "its data back, or name the store that has them. A fork takes no totals along. A node of another name "
            "begins with none"
        )
    if committed > snapshot_id:
        raise RestoreRefused(
            f"the store of {node!r} has committed snapshot {committed}; it cannot go back to {snapshot_id}: "
            "restore a later snapshot, or begin with an empty store"
        )
    yield
    store.commit(claim, snapshot_id)
    yield
    store.rollBack(claim, snapshot_id)
    yield


class StoreCalls:
    """The calls of one subtask.

    Parameters
    ----------
    store : AggregateStore
        A connection of its own, taken by `opening`.
    claim : StoreClaim
    monoid : Monoid
    keys_at_once : int
        Keys of one call. After one that failed only half, because a store gives up what takes it too long, as 10,000
        sketches may; after one that succeeded twice as many.
    """

    def __init__(
        self, store: AggregateStore, claim: StoreClaim, monoid: Monoid, keys_at_once: int = KEYS_AT_ONCE
    ) -> None:
        self._store = store
        self._claim = claim
        self._monoid = monoid
        self._keys_max = self._keys_at_once = keys_at_once
        self._tasks: deque[TotalsTask] = deque()
        #: keys and states of the first task that are not written yet; None before its first call
        self._left: list[tuple[Any, Any]] | None = None
        #: calls so far that read or wrote cells, or committed
        self.operations = 0

    def put(self, task: TotalsTask) -> None:
        """Add a task. Another thread than that of the calls may add it."""
        self._tasks.append(task)

    @property
    def current(self) -> TotalsTask:
        """The task whose calls are made now. There is one while `has_work`."""
        return self._tasks[0]

    @property
    def has_work(self) -> bool:
        """Whether a task is not done."""
        return bool(self._tasks)

    @property
    def is_writing(self) -> bool:
        """Whether cells of the first task are written, and others are not."""
        return bool(self._left)

    @property
    def cells_left(self) -> int:
        """Cells that are not written. Another thread than that of the calls may read it."""
        left, tasks = self._left, list(self._tasks)
        return sum(map(_cells_of, tasks)) if left is None else len(left) + sum(map(_cells_of, tasks[1:]))

    def step(self) -> TotalsTask | None:
        """Make the next call. Return the task if that was its last.

        Raises
        ------
        OSError
            if the store failed. The next step makes the call again.
        Fenced
            if a later incarnation has taken the store.
        """
        task = self._tasks[0]
        if isinstance(task, WriteTotals):
            if self._left is None:
                self._left = list(task.difference.items())
            self._write(task.snapshot_id, self._left)
            if self._left:
                return None
        else:
            self._store.commit(self._claim, task.snapshot_id)
            self.operations += 1
        self._tasks.popleft()
        self._left = None
        return task

    def close(self) -> None:
        """End the connection."""
        self._store.close()

    def _write(self, snapshot_id: int, left: list[tuple[Any, Any]]) -> None:
        """Write the next cells, and remove them from `left`."""
        size = self._keys_at_once
        some = left[-size:]
        if not some:
            return
        self._keys_at_once = max(1, size // 2)
        before = self._store.current([key for key, _ in some])
        plus = self._monoid.plus
        items = [
            (key, state if old is None else plus(old, state)) for (key, state), old in zip(some, before, strict=True)
        ]
        self._store.write(self._claim, snapshot_id, items)
        del left[-len(some) :]
        self._keys_at_once = min(self._keys_max, 2 * size)
        self.operations += 2


def _cells_of(task: TotalsTask) -> int:
    return len(task.difference) if isinstance(task, WriteTotals) else 0
