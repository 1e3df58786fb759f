"""Versions of a subtask's local database: the rows at a cut, on a disk that stays (PROTOCOL 12.17, versions).

Owns what a version says of its states, and how others wait for a version. Must not know files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgpack

from cutline.snapshot.errors import SnapshotAborted, SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.row_store import Steps

#: Seconds between two checks whether a version is made.
_WAIT_SECONDS: Final = 0.005


class LocalVersion(NamedTuple):
    """A version of the local database of a subtask: the rows of its keyed state at a cut, on a disk of a worker."""

    disk: str  #: id of the disk
    run: str
    subtask: Subtask
    snapshot_id: int  #: snapshot at whose cut the version was made
    size: int  #: bytes of its files, which versions and databases share


@dataclass(slots=True)
class PendingVersion:
    """A version that the writer of a database makes. Other threads wait for it."""

    snapshot_id: int
    #: whether the version is durable
    is_made: bool = False
    #: bytes of its files
    size: int = 0
    #: why there will be no such version, or ""
    failure: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nobody makes the version any more."""
        return self.is_made or bool(self.failure)

    def waiting(self) -> Steps[None]:
        """Yield the seconds until the next check, until the version is durable.

        Raises
        ------
        SnapshotAborted
            if there will be no such version.
        """
        while not self.is_made:
            if self.failure:
                raise SnapshotAborted(self.failure)
            yield _WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class VersionedState:
    """A state whose rows are in a local database."""

    name: str
    kind: StateKind
    #: number of the state in the database
    number: int
    #: whether rows may expire
    is_timed: bool


def encode_states(states: Iterable[VersionedState]) -> bytes:
    """Encode what a version says of its states."""
    packed: bytes = msgpack.packb([[s.name, int(s.kind), s.number, s.is_timed] for s in states])
    return packed


def decode_states(data: bytes, name: str) -> list[VersionedState]:
    """Decode what a version says of its states. `name` names the version in errors.

    Raises
    ------
    SnapshotCorrupt
        if the bytes are damaged.
    """
    try:
        rows: list[Any] = msgpack.unpackb(data)
        return [VersionedState(state, StateKind(kind), number, timed) for state, kind, number, timed in rows]
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise SnapshotCorrupt(f"{name}: its states cannot be read: {error!r}") from error
