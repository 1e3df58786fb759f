"""Choose the key groups of rows whose keys are not the keys of the node's edge.

A node that aggregates by more columns than its edge has is an example. A row belongs to the subtask that gets its
messages. So the columns of the edge decide the group, and not the key of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutline.snapshot.channel.key_hash import hash_keys
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Stands for columns that cannot be named, because a function makes the key of the edge. No column has the name.
_UNNAMED: Final = "#function"


@dataclass(frozen=True, slots=True)
class RowGrouping:
    """How the group of a row follows from the row's key."""

    #: key columns of the edge, as the header of a segment names them
    grouped_by: tuple[str, ...]
    #: places of these columns in the row's key, or None where a function makes the key of the edge
    places: tuple[int, ...] | None
    #: whether the key of the edge, and the key of the row, are tuples
    is_tuple: bool
    is_row_tuple: bool

    @staticmethod
    def of_edges(edge_keys: Sequence[Key], columns: tuple[str, ...], parallelism: int) -> RowGrouping | None:
        """Return the grouping of rows whose keys have `columns`, or None where the keys are those of the edge.

        Parameters
        ----------
        edge_keys : sequence of Key
            Key of each edge with hash partitioning.
        columns : tuple of str
            A row's key is the value of the only column, or the tuple of the values.
        parallelism : int
        """
        described = [key if isinstance(key, str) or callable(key) else tuple(key) for key in edge_keys]
        found = [each for place, each in enumerate(described) if each not in described[:place]]
        if found == [columns[0] if len(columns) == 1 else columns] or (not found and parallelism == 1):
            return None
        is_row_tuple = len(columns) > 1
        if len(found) == 1 and not callable(found[0]):
            names = (found[0],) if isinstance(found[0], str) else found[0]
            if all(name in columns for name in names):
                places = tuple(map(columns.index, names))
                return RowGrouping(names, places, not isinstance(found[0], str), is_row_tuple)
        return RowGrouping((_UNNAMED,), None, False, is_row_tuple)

    @staticmethod
    def shown(grouped_by: tuple[str, ...]) -> str:
        """Return what rows are grouped by, for human readers."""
        if grouped_by == (_UNNAMED,):
            return "a function"
        return ", ".join(grouped_by) or "their own keys"

    @staticmethod
    def moves(grouped_by: tuple[str, ...]) -> bool:
        """Return whether rows go with their messages to other subtasks. A function cannot be found in the header."""
        return grouped_by != (_UNNAMED,)

    def groups(self, keys: list[Any], owned: range) -> npt.NDArray[np.uint16]:
        """Return the group of each key. `owned` are the groups of the subtask."""
        if self.places is None:
            # Rows stay in their subtask, in groups that mean nothing elsewhere.
            within = hash_keys(keys) % np.uint64(max(1, len(owned)))
            return (within + np.uint64(owned.start)).astype(np.uint16)
        rows = keys if self.is_row_tuple else [(key,) for key in keys]
        places = self.places
        edge_keys = [tuple(row[place] for place in places) for row in rows]
        hashes = hash_keys(edge_keys if self.is_tuple else [key[0] for key in edge_keys])
        return (hashes % np.uint64(KEY_GROUPS)).astype(np.uint16)
