"""The rows of an input log that the partitions of a `DataFrameSource` have not sent yet.

Owns how row groups are shared among partitions, the form of an offset in snapshots, and reads between two offsets. Must
not know contexts. A partition is only a name: its offset lists the row groups that it reads. So any log has the same
partitions, and a fork continues the log of another run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cutline.barrier_runtime.dataframes.input_log import InputLog
from cutline.snapshot.errors import SnapshotCorrupt

#: Names of the partitions of any log. A later parallelism deals them evenly, because 480 has many divisors. Each
#: manifest holds the names, so they are few.
PARTITIONS = tuple(f"{number:03}" for number in range(480))


@dataclass(frozen=True, slots=True)
class Unread:
    """The rows that a partition still reads."""

    log: InputLog
    #: numbers of the row groups, in `InputLog.row_groups`; not empty
    row_groups: range
    #: rows of the first row group that were sent
    row: int = 0

    def read(self) -> Iterator[tuple[Unread, pa.RecordBatch]]:
        """Read the rows in order. Yield batches, each with what is unread after it."""
        places = self.log.row_groups
        for index, number in enumerate(self.row_groups):
            (file, group), first_row = places[number], 0 if index else self.row
            if first_row == self.log.files[file].row_counts[group]:
                continue  # because the row group would be decoded for nothing
            for row, batch in self.log.read((file, group), first_row):
                yield Unread(self.log, self.row_groups[index:], row), batch

    def as_offset(self) -> dict[str, Any]:
        """Return the offset for a snapshot. The offset names the log in which it counts."""
        numbers = self.row_groups
        return {
            "place": list(self.log.place),
            "log": self.log.name,
            "rowGroups": [numbers.start, numbers.stop, numbers.step],
            "row": self.row,
        }

    @staticmethod
    def of_offset(log: InputLog, offset: Mapping[str, Any]) -> Unread:
        """Return what `as_offset` described. `log` is the log that the offset names."""
        return Unread(log, range(*offset["rowGroups"]), offset["row"])


class BatchReader:
    """Reads slices of partitions. The row group stays open for the next slice, because a seek decodes its start."""

    def __init__(self) -> None:
        self._at: Unread | None = None
        self._batches: Iterator[tuple[Unread, pa.RecordBatch]] = iter(())
        #: the batch at `_at`, with what is unread after it; None until it is read, and at the end
        self._next: tuple[Unread, pa.RecordBatch] | None = None

    def next_batch(self, start: Unread) -> tuple[Unread, pa.RecordBatch] | None:
        """Return the batch at `start`, with what is unread after it, or None at the end. The same at each call."""
        if self._at != start:
            self._at, self._batches, self._next = start, start.read(), None
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next

    def slice(self, start: Unread, stop: Unread) -> Iterator[pa.RecordBatch]:
        """Yield the rows from `start` up to `stop`, in one batch where `stop` came from `next_batch`.

        Raises
        ------
        SnapshotCorrupt
            if the rows end before `stop`.
        """
        while start != stop:
            found = self.next_batch(start)
            if found is None or len(found[0].row_groups) < len(stop.row_groups):
                raise SnapshotCorrupt(f"{start.log.place} of the input log has no row {stop.row} at {stop.row_groups}")
            start, batch = found
            beyond = start.row - stop.row if start.row_groups == stop.row_groups else 0
            if beyond > 0:  # another version of Arrow may return larger batches
                start, batch = stop, batch.slice(0, batch.num_rows - beyond)
                self._batches = stop.read()
            self._at, self._next = start, None
            yield batch


def share(log: InputLog, names: Sequence[str], index: int, parallelism: int) -> dict[str, Unread | None]:
    """Return {partition: what it reads, or None} for one of `parallelism` shares of a log.

    Row groups are divided round robin among the shares. The partitions of a share take its row groups in order, each as
    many as the others, up to one. So reading the partitions in turn keeps the order of the log.

    Parameters
    ----------
    names : sequence of str
        Partitions of the share, at least one.
    """
    mine = range(index, len(log.row_groups), parallelism)
    size, larger = divmod(len(mine), len(names))
    found: dict[str, Unread | None] = {}
    for name in names:
        count = size + (len(found) < larger)
        found[name] = Unread(log, mine[:count]) if count else None
        mine = mine[count:]
    return found
