"""What all checks of a store of aggregates share: connections, claims, ids, and how a broken sentence is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from cutline.snapshot.drawing.labels import shortened
from cutline.snapshot.errors import Fenced
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.stored.backend import StoreRefused
from cutline.snapshot.testing.checking.verdict import CheckFailed

#: the checker's name in errors, and the run of its claims
_NAME: Final = "checkStore"

_NAMED: Final = "The texts name the store."


def demand(holds: bool, sentence: str, found: str) -> None:
    """Raise if a sentence of the contract does not hold.

    Raises
    ------
    CheckFailed
        with the sentence, and what was found.
    """
    if not holds:
        raise CheckFailed(_NAME, f'the store breaks "{sentence}": {found}')


class StoreTrial:
    """Two connections to one store, and the claims and snapshot ids that were used.

    Parameters
    ----------
    maker : callable
        Returns a fresh connection to the store.
    """

    def __init__(self, maker: Callable[[], AggregateStore]) -> None:
        self.maker = maker
        self.one, self.other = maker(), maker()
        self.committed = -1
        self._number = 0
        self._rows = count(1)

    @property
    def claim(self) -> StoreClaim:
        """The claim that has taken the store."""
        return StoreClaim(_NAME, self._number)

    @property
    def lower_claim(self) -> StoreClaim:
        """A claim that is fenced."""
        return StoreClaim(_NAME, self._number - 1)

    @property
    def higher_claim(self) -> StoreClaim:
        """A claim that has not taken the store yet."""
        return StoreClaim(_NAME, self._number + 1)

    @property
    def foreign_claim(self) -> StoreClaim:
        """A claim of another run. Its number is higher than all others."""
        return StoreClaim("another run", self._number + 2)

    def take(self, sentence: str) -> None:
        """Take the store for a higher claim, and demand that it returns the committed id."""
        found = self.one.take(self.higher_claim)
        self._number += 1
        demand(found == self.committed, sentence, f"take returned the id {found!r}, not {self.committed}")

    def rename(self, sentence: str) -> None:
        """Take the store for another name, and back, and demand that each claim names the one before it."""
        for name, before in (("renamed", _NAME), (_NAME, "renamed")):
            self._number += 1
            try:
                self.one.take(StoreClaim(name, self._number, (before,)))
            except StoreRefused as error:
                demand(False, sentence, f"take by {name!r}, formerly {before!r}, raised {error!r}")

    def fresh(self, count: int) -> list[tuple[int, int]]:
        """Return keys that were not used before."""
        row = next(self._rows)
        return [(row, number) for number in range(count)]

    def write(self, *items: tuple[Any, Any]) -> None:
        """Write cells of the next snapshot."""
        self.one.write(self.claim, self.committed + 1, items)

    def commit(self) -> None:
        """Commit the next snapshot."""
        self.one.commit(self.claim, self.committed + 1)
        self.committed += 1

    def write_and_commit(self, *items: tuple[Any, Any]) -> None:
        """Write cells that count from now on."""
        self.write(*items)
        self.commit()

    def expect(self, values: Sequence[Any], keys: Sequence[Any], sentence: str) -> None:
        """Demand that both connections return these values, with their types."""
        for store in (self.one, self.other):
            found = store.current(keys)
            demand(
                # A text is compared, because `==` takes 1, 1.0 and True for one value.
                [repr(each) for each in found] == [repr(each) for each in values],
                sentence,
                f"current({_shown(keys)}) returned {_shown(found)}, not {_shown(values)}",
            )

    def expect_fenced(self, call: Callable[[], object], name: str, sentence: str) -> None:
        """Demand that a call raises `Fenced`."""
        self._expect_error(Fenced, call, name, sentence)

    def expect_refused(self, call: Callable[[], object], name: str, sentence: str) -> None:
        """Demand that a call raises `StoreRefused`."""
        self._expect_error(StoreRefused, call, name, sentence)

    def _expect_error(self, kind: type[Exception], call: Callable[[], object], name: str, sentence: str) -> None:
        found: Exception | None = None
        try:
            call()
        except Exception as error:  # noqa: BLE001  # because any other error breaks the contract too
            found = error
        demand(isinstance(found, kind), sentence, f"{name} raised {found!r}, not {kind.__name__}")
        demand(str(self.one) in str(found), _NAMED, f"{name} raised {found!r}, without {str(self.one)!r}")


def _shown(values: Sequence[Any]) -> str:
    return shortened(repr(list(values)))
