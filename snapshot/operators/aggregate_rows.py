"""Keep the groups of a keyed aggregate as rows of keyed state, so that a snapshot stores the changed groups only.

A row's key is the group's key: a value, or a tuple with several key columns. Its value is a MessagePack array of the
totals, in the order of the state's columns, 9 bytes each. Types of columns are not in rows, so the node stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cutline.snapshot.columns.slot_blocks import Column
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.keyed.dirty_columns import NUMBER_BYTES, DirtyColumns, numbers_as_bytes, rows_of_bytes
from cutline.snapshot.keyed.row_grouping import RowGrouping
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.operators.groups import Groups

#: Headers of MessagePack arrays of up to 15 elements, and of more.
_SHORT: Final = 0x90
_SHORT_MAX: Final = 15
_LONG: Final = 0xDC


class AggregateRows:
    """The rows of the groups of one subtask. See `snapshot.keyed.keyed_states.AdoptedRows`.

    Parameters
    ----------
    groups_of : callable
        Returns the groups, or None before the first batch.
    """

    def __init__(self, groups_of: Callable[[], Groups | None]) -> None:
        self._groups_of = groups_of

    def restore_rows(self, keys: list[Any], values: list[Any]) -> None:
        """See `AdoptedRows`."""
        groups = self._groups_of()
        if groups is None:
            raise RestoreRefused("the snapshot has groups of a keyed aggregate without the types of their columns")
        groups.restore(keys, _decoded(values, groups.total_kinds))

    def take_dirty(self, spec: StateSpec, grouping: RowGrouping | None) -> DirtyColumns | None:
        """See `AdoptedRows`."""
        groups = self._groups_of()
        if groups is None or not groups.has_changes:
            return None
        return DirtyColumns(spec, groups, groups.capture(), _encoded, grouping)

    def contents(self) -> Iterator[Any]:
        """See `AdoptedRows`."""
        groups = self._groups_of()
        return iter(()) if groups is None else iter(groups.state().to_pylist())


def _encoded(columns: tuple[Column, ...], now: float) -> tuple[pa.Array, None]:
    """Encode the totals of groups, a row for each group."""
    header = _header(len(columns))
    rows = np.empty((len(columns[0]), len(header) + NUMBER_BYTES * len(columns)), np.uint8)
    rows[:, : len(header)] = header
    for place, column in enumerate(columns):
        start = len(header) + NUMBER_BYTES * place
        rows[:, start : start + NUMBER_BYTES] = numbers_as_bytes(column)
    return rows_of_bytes(rows, np.ones(len(rows), np.bool_)), None


def _decoded(values: list[Any], kinds: tuple[type[np.generic], ...]) -> list[Column]:
    """Return the columns of totals that rows hold."""
    header = len(_header(len(kinds)))
    width = header + NUMBER_BYTES * len(kinds)
    if any(type(value) is not bytes or len(value) != width for value in values):
        raise RestoreRefused(f"the snapshot has groups that do not hold {len(kinds)} totals, as this aggregate keeps")
    rows = np.frombuffer(b"".join(values), np.uint8).reshape(-1, width)
    columns = []
    for place, kind in enumerate(kinds):
        start = header + NUMBER_BYTES * place + 1  # after the type
        stored = np.ascontiguousarray(rows[:, start : start + NUMBER_BYTES - 1])
        columns.append(stored.view(np.dtype(kind).newbyteorder(">")).ravel().astype(kind))
    return columns


def _header(count: int) -> list[int]:
    return [_SHORT | count] if count <= _SHORT_MAX else [_LONG, *count.to_bytes(2, "big")]
