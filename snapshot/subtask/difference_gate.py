"""Hold the messages of an aggregate while its differences fill memory and its store is behind (PROTOCOL 13.14)."""

from __future__ import annotations

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate


class DifferenceGate:
    """Closes backpressure above a number of bytes, as long as a difference behind a cut waits for its snapshot's end.

    An empty difference waits as well, because then the store of another subtask keeps the next cut from coming.

    Parameters
    ----------
    node : PersistentAggregate
    backpressure : BackpressureFlag
    bytes_max : int
    """

    def __init__(self, node: PersistentAggregate, backpressure: BackpressureFlag, bytes_max: int) -> None:
        self._node = node
        self._backpressure = backpressure
        self._bytes_max = bytes_max
        #: whether a difference behind a cut waits for the end of its snapshot
        self._is_waiting = False
        #: bytes of differences behind a cut, also those of aborted snapshots, which wait for the next cut
        self._bytes = 0
        self._is_closed = False

    def hold(self, size: int, *, is_waiting: bool) -> None:
        """Note how many bytes are behind a cut, and whether a difference waits for the end of its snapshot."""
        self._bytes, self._is_waiting = size, is_waiting
        self.check()

    def check(self) -> None:
        """Close or open the gate. Called after each slice of messages."""
        is_full = self._is_waiting and self._exceeds
        if is_full is not self._is_closed:
            self._is_closed = is_full
            self._backpressure.closed += 1 if is_full else -1

    @property
    def needs_snapshot(self) -> bool:
        """Whether only a cut can free memory."""
        return not self._is_waiting and self._exceeds

    @property
    def _exceeds(self) -> bool:
        return self._bytes + self._node.held_bytes > self._bytes_max
