"""Rows of keyed state: the state that they are of, and the changed rows that a subtask passes to storage at a cut.

Owns the words of the room, with `snapshot.keyed.kinds`. Must not know where rows are kept while a subtask runs, nor how
rows are encoded.

A value is an exact bool, int, float or str as it is, or `bytes`: any other value, encoded. None is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from cutline.snapshot.keyed.kinds import RowForm, StateKind

#: Name of the state that holds the keyed timers of a subtask. No user's state has this name.
TIMERS_STATE: Final = "#timers"


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A state of a node, as it is stored in the header of a segment."""

    name: str
    kind: StateKind
    #: Seconds of `Context.now` after which a row that was not written again expires, or None for never. 0 stands for a
    #: list whose rows never expire, but once did (PROTOCOL 11.6, tombstones).
    ttl: float | None = None
    #: `Node.stateVersion` of the values
    version: int = 1

    @property
    def form(self) -> RowForm:
        """The form of the rows."""
        return self.kind.form


class DirtyRows(Protocol):
    """Rows that changed since the last capture: of one state, or a memtable."""

    def release(self) -> bool:
        """Give up the rows. Return True if the caller must empty them. Safe from any thread."""


@dataclass(frozen=True, slots=True)
class DirtyTable:
    """The rows of one state that changed since the last capture.

    The dicts have one user at a time, or several who only read them.
    """

    spec: StateSpec
    #: {key: value}, or {key: {sub-key: value}} for kinds with sub-keys
    rows: dict[Any, Any]
    #: {key: seconds} or {key: {sub-key: seconds}}: when the row expires, for states with a time-to-live, else None
    expiries: dict[Any, Any] | None = None

    def release(self) -> bool:
        """Give up the dicts. Return True, because their user empties them."""
        return True


@dataclass(frozen=True, slots=True)
class CapturedRows:
    """All rows of a subtask that changed between two captures. A capture without changed rows makes none."""

    #: `Context.now` at the capture, in seconds since the epoch
    now: float
    #: key groups that the subtask owns
    groups: range
    #: in the order in which rows were written: where two tables hold one row, the later table counts
    tables: tuple[DirtyRows, ...]
    #: key columns of the edge that rows are grouped by, where the node's own keys are others; else empty
    grouped_by: tuple[str, ...] = ()
