"""A store of encoded rows in memory, and a writer that does its jobs when a simulator says so.

Together they stand for a database and its thread, so that a cold tier can be explored: the writer may be arbitrarily
late. No I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgpack

from cutline.snapshot.keyed.row_store import Job, Steps, StoredRow


class MemoryRowStore:
    """Rows in a dict. See `RowStore`.

    Parameters
    ----------
    keep : callable, optional
        Keeps a version under the id of a snapshot. Without it, there are no versions.
    version : bytes, optional
        Version with which the store begins.
    """

    def __init__(self, keep: Callable[[int, bytes], None] | None = None, version: bytes | None = None) -> None:
        self._keep = keep
        self.states: bytes = b""
        self.rows: dict[bytes, bytes] = {}
        if version is not None:
            self.states, rows = msgpack.unpackb(version)
            self.rows.update(rows)
        self.is_closed = False
        #: ingestions and removals that are refused, as a store refuses them that is busy
        self.refusals = 0

    def get(self, row: bytes) -> bytes | None:
        """See `RowStore`."""
        assert not self.is_closed
        return self.rows.get(row)

    def get_many(self, rows: list[bytes]) -> list[bytes | None]:
        """See `RowStore`."""
        assert not self.is_closed
        return list(map(self.rows.get, rows))

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `RowStore`."""
        assert not self.is_closed
        return iter(sorted(row for row in self.rows.items() if start <= row[0] < end))

    @property
    def is_busy(self) -> bool:
        """See `RowStore`."""
        return self._is_refused()

    def ingest(self, parts: Iterable[Sequence[StoredRow]]) -> Job:
        """See `RowStore`."""
        assert not self.is_closed
        added: list[StoredRow] = []
        for part in parts:
            added += part
            yield None
        names = [row for row, _ in added]
        assert names == sorted(set(names)), "ingested rows are sorted, each once"
        for row, value in added:
            if value is None:
                self.rows.pop(row, None)
            else:
                self.rows[row] = value

    def remove(self, rows: list[bytes]) -> bool:
        """See `RowStore`."""
        assert not self.is_closed
        if self._is_refused():
            return False
        for row in rows:
            self.rows.pop(row, None)
        return True

    def make_version(self, snapshot_id: int, states: bytes) -> Steps[int]:
        """See `RowStore`."""
        assert self._keep is not None and not self.is_closed
        version: bytes = msgpack.packb((states, list(self.rows.items())))
        self._keep(snapshot_id, version)
        yield None
        return len(version)

    def _is_refused(self) -> bool:
        is_refused = self.refusals > 0
        self.refusals -= is_refused
        return is_refused

    def close(self) -> None:
        """See `RowStore`."""
        self.is_closed = True


class LateWriter:
    """A writer that does nothing until `step` is called. See `Writer`."""

    has_failed = False

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """See `Writer`."""
        self._jobs.append(job)

    def step(self) -> bool:
        """Do one step of the oldest job. Return False without a job."""
        while self._jobs:
            try:
                next(self._jobs[0])
            except StopIteration:
                self._jobs.popleft()
            return True
        return False

    def do_one(self) -> None:
        """Do the oldest job."""
        if self._jobs:
            for _ in self._jobs.popleft():
                pass

    def finish(self) -> None:
        """Do all jobs."""
        while self.step():
            pass

    def check(self) -> None:
        """See `Writer`."""

    def close(self) -> None:
        """See `Writer`."""
        self._jobs.clear()


class NotifyingWriter(LateWriter):
    """A writer that says when it has a job more.

    Parameters
    ----------
    notify : callable
        Called after each `submit`.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        super().__init__()
        self._notify = notify

    def submit(self, job: Job) -> None:
        """See `Writer`."""
        super().submit(job)
        self._notify()
