"""The rules of a store of aggregates, once for all stores: claims, committed id, texts, and when to connect again.

A store adds a `CellTable`, which keeps cells of texts and knows no rule. Each method of the contract is one atomic deed
on the table, and is checked in it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import Fenced
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.aggregate_stores.texts import from_text, to_text

Result = TypeVar("Result")

#: seconds until a call of a server that does not answer becomes an error
CALL_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class Holder:
    """The claim that a store obeys, and the committed id. Number 0 is no claim, and id -1 is nothing committed yet."""

    run: str
    number: int
    committed: int


#: the holder of a store that nobody has taken
NOBODY: Final = Holder("", 0, -1)


class Cell(NamedTuple):
    """The newest value of a key, the snapshot that wrote it, and the value before, or None where there was none.

    As text it is three lines, because JSON text has no line feed. The last line is empty for None.
    """

    value: str
    snapshot_id: int
    previous: str | None = None

    @classmethod
    def of(cls, text: str) -> Cell:
        """Return the cell of a text."""
        value, snapshot_id, previous = text.split("\n")
        return cls(value, int(snapshot_id), previous or None)

    def __str__(self) -> str:
        return f"{self.value}\n{self.snapshot_id}\n{self.previous or ''}"

    def counting(self, committed: int) -> str | None:
        """Return the value that counts with a committed id."""
        return self.value if self.snapshot_id <= committed else self.previous


class CellTable(Protocol):
    """A connection to the cells of one store. Keys and values are texts."""

    def atomically(self, deed: Callable[[], Result], *, alone: bool) -> Result:
        """Do a deed that reads the holder, and then changes the table at most once. All of it is done, or nothing.

        Nobody else changes the holder meanwhile. The deed may be called several times. With `alone` no other deed
        happens meanwhile.
        """

    def holder(self) -> Holder:
        """Return the holder, within a deed. The first one is `NOBODY`."""

    def hold(self, holder: Holder) -> None:
        """Replace the holder, within a deed."""

    def write(self, texts: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
        """Write cells, within a deed. The value before is the one that counts with this committed id."""

    def roll_back(self, snapshot_id: int, committed: int) -> bool:
        """Return cells above `snapshot_id` to the value before, within a deed. Remove those that have none.

        The cells get the committed id. A table of a server returns some cells only, and whether it has returned any.
        """

    def read(self, keys: Sequence[str]) -> list[str | None]:
        """Return the text of each key that counts at one moment; None where there is none."""

    def close(self) -> None:
        """End the connection. Never raises."""


class CellStore(AggregateStore):
    """A store over a `CellTable`, which is connected at the first call, and again after an error."""

    def __init__(self) -> None:
        self._table: CellTable | None = None
        #: the committed id that this instance has seen last
        self._committed = NOBODY.committed

    @abstractmethod
    def __str__(self) -> str:
        """Return the name in errors, without a password."""

    @abstractmethod
    def _connect(self) -> CellTable:
        """Connect. Make what the store needs, where it is missing."""

    @abstractmethod
    def _translated(self, error: Exception) -> OSError | None:
        """Return the error of the contract for an error of the library; None for any other error."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def take(self, claim: StoreClaim) -> int:
        """See `AggregateStore`."""

        def deed(table: CellTable) -> int:
            holder = self._obeyed(table, claim)
            table.hold(Holder(claim.run, claim.number, holder.committed))
            return holder.committed

        return self._deed(deed, alone=True)

    def write(self, claim: StoreClaim, snapshotId: int, items: Sequence[tuple[Any, Any]]) -> None:
        """See `AggregateStore`."""
        # Sorted, because two writers that lock the same cells in different sequences would wait for each other.
        texts = sorted((self._text(key, key), self._value_text(key, value)) for key, value in items)

        def deed(table: CellTable) -> None:
            committed = self._check(table, claim).committed
            if snapshotId <= committed:
                raise StoreRefused(f"{self}: snapshot {snapshotId} cannot be written, because {committed} is committed")
            table.write(texts, snapshotId, committed)

        self._deed(deed)

    def commit(self, claim: StoreClaim, snapshotId: int) -> None:
        """See `AggregateStore`."""

        def deed(table: CellTable) -> None:
            holder = self._check(table, claim)
            if snapshotId > holder.committed:
                table.hold(replace(holder, committed=snapshotId))

        self._deed(deed, alone=True)

    def rollBack(self, claim: StoreClaim, snapshotId: int) -> None:
        """See `AggregateStore`."""

        def deed(table: CellTable) -> bool:
            committed = self._check(table, claim).committed
            if snapshotId < committed:
                raise StoreRefused(f"{self} has committed snapshot {committed}; it cannot go back to {snapshotId}")
            return table.roll_back(snapshotId, committed)

        # In parts, because all at once could take longer than a call may, and then no try would ever succeed. Readers
        # see no difference, because the value that counts stays.
        while self._deed(deed, alone=True):
            pass

    def current(self, keys: Sequence[Any]) -> list[Any]:
        """See `AggregateStore`."""
        texts = [self._text(key, key) for key in keys]
        found = self._call(lambda table: table.read(texts))
        return [None if text is None else from_text(text) for text in found]

    def close(self) -> None:
        """See `AggregateStore`."""
        if self._table is not None:
            table, self._table = self._table, None
            table.close()

    def _deed(self, deed: Callable[[CellTable], Result], *, alone: bool = False) -> Result:
        return self._call(lambda table: table.atomically(lambda: deed(table), alone=alone))

    def _call(self, function: Callable[[CellTable], Result]) -> Result:
        """Call with a connected table. After an error the connection ends, because nobody knows its state."""
        try:
            if self._table is None:
                self._table = self._connect()
            return function(self._table)
        except BaseException as error:
            self.close()
            translated = self._translated(error) if isinstance(error, Exception) else None
            if translated is None:
                raise
            raise translated from error

    def _check(self, table: CellTable, claim: StoreClaim) -> Holder:
        """Return the holder, if it is the claim. Else raise."""
        holder = self._obeyed(table, claim)
        if holder.number != claim.number:
            raise StoreRefused(f"{self}: claim {claim.number} of run {claim.run!r} has not taken the store")
        return holder

    def _obeyed(self, table: CellTable, claim: StoreClaim) -> Holder:
        """Return the holder, if the store has what it had, and no claim that is higher or of another run."""
        holder = table.holder()
        self._refuse_older(holder, claim)
        if holder.committed < self._committed:
            raise StoreRefused(
                f"{self} had committed snapshot {self._committed}, and now has {holder.committed}: it has lost totals. "
                "Restore its data, and let its server keep what it confirms"
            )
        self._committed = holder.committed
        return holder

    def _refuse_older(self, holder: Holder, claim: StoreClaim) -> None:
        if holder.number and holder.run not in (claim.run, *claim.formerly):
            raise StoreRefused(
                f"{self} belongs to run {holder.run!r}, not to {claim.run!r}: give each run and each aggregate a "
                "store of its own"
            )
        if claim.number < holder.number:
            raise Fenced(f"{self}: claim {holder.number} of run {holder.run!r} has taken the store from {claim.number}")

    def _value_text(self, key: Any, value: Any) -> str:
        if value is None:
            raise StoreRefused(
                f"{self} cannot hold None of key {shown(key)}, because None says that a key has no value"
            )
        return self._text(key, value)

    def _text(self, key: Any, value: Any) -> str:
        try:
            return to_text(value)
        except (TypeError, ValueError) as error:
            raise StoreRefused(f"{self} cannot hold {shown(value)} of key {shown(key)}: {error}") from error


def imported(store: object, module: str, extra: str) -> Any:
    """Import an optional module for a store.

    Raises
    ------
    StoreRefused
        if it is not installed here. The text has the command.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise StoreRefused(
            f"{store}: {error.name} is not installed where this runs: pip install 'cutline[{extra}]'"
        ) from error
