"""A history whose size has a limit: the newest entries, and the number of all entries there ever were.

Restarts, aborted snapshots and verdicts of a run are kept so, because a run lives for months. Each status of the run
holds these histories. ::

    BoundedHistory(count=207, newest=(entry 108, ..., entry 207))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

#: Newest entries to keep. Every query of a run's status copies all of them, four times a second. Reasons are long, and
#: a person reads the last few.
HISTORY_MAX = 100

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class BoundedHistory(Generic[Entry]):
    """The newest entries of a history. An instance never changes, so any thread may read count and entries together."""

    #: number of all entries, with the entries that were dropped
    count: int = 0
    #: at most `HISTORY_MAX` entries, oldest first
    newest: tuple[Entry, ...] = ()

    def add(self, entry: Entry) -> BoundedHistory[Entry]:
        """Return the history with one more entry."""
        return self.then(BoundedHistory(1, (entry,)))

    def then(self, later: BoundedHistory[Entry]) -> BoundedHistory[Entry]:
        """Return the history that continues with all entries of `later`."""
        return BoundedHistory(self.count + later.count, (*self.newest, *later.newest)[-HISTORY_MAX:])

    def since(self, count: int) -> tuple[Entry, ...]:
        """Return the kept entries among those after the first `count` entries."""
        return self.newest[max(0, len(self.newest) - max(0, self.count - count)) :]
