"""Define what records of one subtask alone need, where no marker cuts the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.send_log import LogMemory
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.subtask.reports import RecordTaken

#: Returns the encoded state and the status of a subtask for a snapshot or record.
Capture = Callable[[int], tuple[tuple[Buffer, ...], SubtaskStatus]]


class Recording(Protocol):
    """Takes records of one subtask. At most one record is being stored at a time."""

    @property
    def interval(self) -> float:
        """Seconds from one record to the next."""
        ...

    @property
    def memory(self) -> LogMemory:
        """Memory of the logs of the outputs."""
        ...

    def record(self, number: int, capture: Capture) -> RecordTaken:
        """Capture the state and the channel ends, all between two events. Raise SnapshotAborted as `capture` does."""
        ...

    def stored(self) -> None:
        """Drop what the record that was captured last holds, because it is stored."""
        ...
