"""The contract of a store that holds the totals of an aggregate, by key, for others to read.

A store keeps one *cell* for each key: a value, the id of the snapshot that wrote it, and the value before. It also
keeps one committed id. A cell counts by its value where its id is at most the committed id, else by the value before.
So one commit makes all cells of a snapshot count at once, whichever subtasks wrote them.

At a restore the calls come in this order: `take`, `commit` of the restored snapshot, `rollBack` to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class StoreClaim:
    """Who writes: an incarnation of an aggregate. A store obeys the highest number that has taken it.

    A claim may take the store of its former names.
    """

    #: name of the run and of the node, because two nodes may name one store in two ways
    run: str
    #: number of the incarnation
    number: int
    #: former names
    formerly: tuple[str, ...] = ()


class AggregateStore(ABC):
    """Totals by key. Keys and values are plain: None, bool, int, float, Fraction, str, bytes, and tuples of such.

    Values come back with their types. Keys of different types are different keys: 1, 1.0 and True are three. NaN and
    infinities are refused, and so are other types. None is no value, because it says that a key has none.

    An instance connects at its first call, not when it is made, and is pickled unconnected. One thread at a time uses
    it. All subtasks of an aggregate, and all readers, see one store.

    Calls raise ``OSError`` where another try may succeed, as when a server is away, and then changed nothing or have
    done all. A roll-back may have done a part, because readers see no difference. Calls raise `StoreRefused` where no
    other try can succeed, also for a claim that has not taken the store. The texts name the store.
    """

    #: whether several processes may use the store at once
    isShared: ClassVar[bool] = True

    @abstractmethod
    def take(self, claim: StoreClaim) -> int:
        """Take the store for a claim, so that lower claims can write no more. Return the committed id; -1 at first.

        Raises
        ------
        Fenced
            if a higher claim has taken the store.
        StoreRefused
            if the store belongs to another run.
        """

    @abstractmethod
    def write(self, claim: StoreClaim, snapshotId: int, items: Sequence[tuple[Any, Any]]) -> None:
        """Write cells: the new value of each key. One call is atomic, and may be repeated. Keys are distinct.

        `snapshotId` is above the committed id. The value before is the one that counts now.

        Raises
        ------
        Fenced
            if a higher claim has taken the store. Nothing was written then.
        StoreRefused
            if `snapshotId` is not above the committed id, or the store cannot hold a key or a value. Nothing was
            written then.
        """

    @abstractmethod
    def commit(self, claim: StoreClaim, snapshotId: int) -> None:
        """Let all cells of snapshots up to `snapshotId` count. A lower id than the committed one changes nothing.

        A run that begins commits 0, which has no cells. So a store with a committed id of -1 is known to have lost
        the totals of any snapshot.

        Raises
        ------
        Fenced
            if a higher claim has taken the store.
        """

    @abstractmethod
    def rollBack(self, claim: StoreClaim, snapshotId: int) -> None:
        """Return cells of snapshots above `snapshotId` to the value before. Remove those that had none.

        Raises
        ------
        Fenced
            if a higher claim has taken the store.
        StoreRefused
            if a higher snapshot is committed.
        """

    @abstractmethod
    def current(self, keys: Sequence[Any]) -> list[Any]:
        """Return the value of each key that counts now; None for a key that has none."""

    def get(self, key: Any) -> Any:
        """Return the value of a key that counts now; None for a key that has none."""
        return self.current([key])[0]

    @abstractmethod
    def close(self) -> None:
        """End the connection. Another call connects again."""
