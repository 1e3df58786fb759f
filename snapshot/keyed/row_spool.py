"""Keep encoded rows until they are stored: in memory, or on the local disk where the rows of a subtask exceed memory.

Owns the contract. Must not know the disk.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from cutline.snapshot.keyed.merging import PieceRef
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.plan.topology import KEY_GROUPS

#: The pieces of one segment that waits, disjoint and sorted.
KeptRows: TypeAlias = tuple[PieceRef, ...]


class RowSpool(Protocol):
    """Where encoded rows wait. All methods are safe from any thread."""

    #: whether rows are outside memory, in pieces so small that each belongs to few ranges of a merge
    is_outside_memory: bool

    def keep(self, segment: Segment) -> KeptRows:
        """Keep the rows of a segment.

        Raises
        ------
        OSError
            if the local disk refuses.
        """

    def read(self, ref: PieceRef) -> Segment:
        """Return the rows of a piece that is kept."""

    def discard(self, rows: KeptRows) -> None:
        """Give up rows that are stored, or are kept in another segment too."""

    def close(self) -> None:
        """Give up all rows. May be called again."""


class MemorySpool:
    """Keep all rows in memory. See `RowSpool`."""

    is_outside_memory = False

    def keep(self, segment: Segment) -> KeptRows:
        """See `RowSpool`."""
        return in_memory(segment)

    def read(self, ref: PieceRef) -> Segment:
        """See `RowSpool`."""
        assert isinstance(ref.place, Segment)
        return ref.place

    def discard(self, rows: KeptRows) -> None:
        """See `RowSpool`. The rows go with the last reference."""

    def close(self) -> None:
        """See `RowSpool`."""


def in_memory(segment: Segment) -> KeptRows:
    """Return the rows of a segment as one piece in memory."""
    return (PieceRef(0, KEY_GROUPS, segment.rows.nbytes, segment),)
