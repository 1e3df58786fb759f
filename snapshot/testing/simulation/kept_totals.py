"""A store of aggregates in memory, which outlives simulated processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cutline.snapshot.errors import Fenced
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.stored.backend import StoreRefused


@dataclass(slots=True)
class _Cell:
    value: Any
    snapshot_id: int
    before: Any


@dataclass(slots=True)
class StoredCells:
    """What is stored: whose it is, what counts, and the cells by key."""

    claim: StoreClaim | None = None
    committed: int = -1
    cells: dict[Any, _Cell] = field(default_factory=dict)
    #: keys of the cells that do not count yet
    open_keys: dict[Any, None] = field(default_factory=dict)


class KeptTotals(AggregateStore):
    """Totals in memory, as values. Connections share the cells.

    Parameters
    ----------
    cells : StoredCells, optional
        What is stored, shared by all connections. None: nothing.
    """

    isShared: ClassVar[bool] = False

    def __init__(self, cells: StoredCells | None = None) -> None:
        self._stored = StoredCells() if cells is None else cells

    def take(self, claim: StoreClaim) -> int:
        stored = self._stored
        if stored.claim is not None:
            if stored.claim.run not in (claim.run, *claim.formerly):
                raise StoreRefused(f"the store in memory belongs to run {stored.claim.run!r}, not to {claim.run!r}")
            self._check(claim)
        stored.claim = claim
        return stored.committed

    def write(self, claim: StoreClaim, snapshotId: int, items: Sequence[tuple[Any, Any]]) -> None:
        self._check(claim)
        before = self.current([key for key, _ in items])
        for (key, value), old in zip(items, before, strict=True):
            self._stored.cells[key] = _Cell(value, snapshotId, old)
            self._stored.open_keys[key] = None

    def commit(self, claim: StoreClaim, snapshotId: int) -> None:
        self._check(claim)
        stored = self._stored
        stored.committed = max(stored.committed, snapshotId)
        still_open = [key for key in stored.open_keys if stored.cells[key].snapshot_id > stored.committed]
        stored.open_keys = dict.fromkeys(still_open)

    def rollBack(self, claim: StoreClaim, snapshotId: int) -> None:
        self._check(claim)
        stored = self._stored
        for key in [key for key in stored.open_keys if stored.cells[key].snapshot_id > snapshotId]:
            del stored.open_keys[key]
            before = stored.cells[key].before
            if before is None:
                del stored.cells[key]
            else:
                stored.cells[key] = _Cell(before, 0, None)

    def current(self, keys: Sequence[Any]) -> list[Any]:
        return [self._value(self._stored.cells.get(key)) for key in keys]

    def totals(self) -> dict[Any, Any]:
        """Return all totals that count now."""
        found = ((key, self._value(cell)) for key, cell in self._stored.cells.items())
        return {key: value for key, value in found if value is not None}

    def close(self) -> None:
        pass

    def _value(self, cell: _Cell | None) -> Any:
        if cell is None:
            return None
        return cell.value if cell.snapshot_id <= self._stored.committed else cell.before

    def _check(self, claim: StoreClaim) -> None:
        assert self._stored.claim is not None, "take comes first"
        if claim.number < self._stored.claim.number:
            raise Fenced(f"claim {self._stored.claim.number} has taken the store in memory from {claim.number}")
