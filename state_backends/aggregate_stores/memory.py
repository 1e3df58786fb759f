"""Totals of an aggregate in the memory of one process, for the simulator and for tests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from cutline.state_backends.aggregate_stores.cell_store import NOBODY, Cell, CellStore, CellTable, Holder, Result


class MemoryTable:
    """Cells in a dict. See `CellTable`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = NOBODY
        self._cells: dict[str, Cell] = {}
        #: {snapshot above the committed one: keys that it wrote}
        self._written: dict[int, set[str]] = {}

    def atomically(self, deed: Callable[[], Result], *, alone: bool) -> Result:
        """See `CellTable`."""
        with self._lock:
            return deed()

    def holder(self) -> Holder:
        """See `CellTable`."""
        return self._holder

    def hold(self, holder: Holder) -> None:
        """See `CellTable`."""
        self._holder = holder
        self._written = {id_: keys for id_, keys in self._written.items() if id_ > holder.committed}

    def write(self, texts: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
        """See `CellTable`."""
        self._cells.update((key, Cell(value, snapshot_id, self._counting(key, committed))) for key, value in texts)
        self._written.setdefault(snapshot_id, set()).update(key for key, _ in texts)

    def roll_back(self, snapshot_id: int, committed: int) -> bool:
        """See `CellTable`."""
        for id_ in [each for each in self._written if each > snapshot_id]:
            for key in self._written.pop(id_):
                cell = self._cells.get(key)
                if cell is None or cell.snapshot_id <= snapshot_id:
                    continue  # because another snapshot wrote the key too
                if cell.previous is None:
                    del self._cells[key]
                else:
                    self._cells[key] = Cell(cell.previous, committed)
        return False

    def read(self, keys: Sequence[str]) -> list[str | None]:
        """See `CellTable`."""
        with self._lock:
            return [self._counting(key, self._holder.committed) for key in keys]

    def close(self) -> None:
        """See `CellTable`."""

    def _counting(self, key: str, committed: int) -> str | None:
        cell = self._cells.get(key)
        return None if cell is None else cell.counting(committed)


#: {id of a store: its table}, because pickled copies of a store share its table
_TABLES: dict[str, MemoryTable] = {}


class MemoryStore(CellStore):
    """Keep totals in this process. They are lost with the process.

    Copies of an instance have one table, also those that were pickled, so that all subtasks in a process share it.
    """

    isShared: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._id = secrets.token_hex(8)

    def __str__(self) -> str:
        return f"MemoryStore {self._id}"

    def _connect(self) -> CellTable:
        return _TABLES.setdefault(self._id, MemoryTable())

    def _translated(self, error: Exception) -> OSError | None:
        return None
