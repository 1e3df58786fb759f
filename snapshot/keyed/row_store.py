"""Contract of a store of encoded rows outside memory, and of the thread that writes to the store.

Owns the words between a cold tier and a database. Must not know rows of users, nor threads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

#: Key and value of a row as `row_keys` and `cold_values` encode them. A row without a value is removed.
StoredRow: TypeAlias = tuple[bytes, bytes | None]

#: Work in small steps. Other threads may compute between two steps. A step yields seconds after which the next step is
#: worth a try, or None for at once.
Job: TypeAlias = Iterator[float | None]

_Result = TypeVar("_Result")

#: a `Job` that returns a result
Steps: TypeAlias = Generator[float | None, None, _Result]

#: Seconds until the next attempt to add rows to a busy store.
BUSY_SECONDS: Final = 0.005


class RowStore(Protocol):
    """Sorted rows of bytes. One thread may write while another reads."""

    def get(self, row: bytes, /) -> bytes | None:
        """Return the value of a row, or None if there is none."""

    def get_many(self, rows: list[bytes]) -> list[bytes | None]:
        """Return the value of each row, or None where there is none."""

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the rows from `start` to before `end`, as they are now, sorted by key."""

    @property
    def is_busy(self) -> bool:
        """Whether the store has so much to arrange that it should get no more rows yet."""

    def ingest(self, parts: Iterable[Sequence[StoredRow]]) -> Job:
        """Add rows over what is there, all at once in the last step. One call at a time.

        Parameters
        ----------
        parts : iterable of sequence of (bytes, bytes or None)
            Sorted by key, each key once. A step takes a part.
        """

    def remove(self, rows: list[bytes]) -> bool:
        """Remove rows. Only jobs of the store's writer may call this.

        Returns
        -------
        bool
            False if the store is too busy. Then no row is removed.
        """

    @property
    def states(self) -> bytes:
        """States of the version that the store was opened with, encoded; empty without such a version."""

    def make_version(self, snapshot_id: int, states: bytes) -> Steps[int]:
        """Keep the rows as they are now, durable, under the id of a snapshot. `states` says what they are of.

        Returns the bytes of the version.

        Only jobs of the store's writer may call this. A store opened with the version has these rows.
        """

    def close(self) -> None:
        """Close the store and remove what it holds, but no version."""


def removing(store: RowStore, rows: list[bytes]) -> Job:
    """Remove rows as soon as the store takes that."""
    while not store.remove(rows):
        yield BUSY_SECONDS
    yield None


class Writer(Protocol):
    """Does jobs in their sequence, on a thread or when a simulator says so."""

    @property
    def has_failed(self) -> bool:
        """Whether a job has failed. No further job is done then."""

    def submit(self, job: Job) -> None:
        """Do `job` after all earlier jobs.

        Raises
        ------
        StateError
            if an earlier job has failed.
        """

    def check(self) -> None:
        """Raise StateError if a job has failed."""

    def close(self) -> None:
        """Give up all jobs, and wait until none runs. May be called again."""
