"""Hold the messages of an aggregate while its differences fill memory and its store is behind (PROTOCOL 13.14)."""

from __future__ import annotations

from snapshot.channel.output_buffer import BackpressureFlag
from snapshot.operators.persistent_aggregate import PersistentAggregate


class DifferenceGate:
    """Closes backpressure above a number of bytes, as long as differences behind a cut wait for the store.

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
        #: bytes of differences behind a cut that wait for the store
        self._waiting_bytes = 0
        #: bytes of differences that wait for the next cut, because their snapshots were aborted
        self._carried_bytes = 0
        self._is_closed = False

    def hold(self, waiting_bytes: int, carried_bytes: int) -> None:
        """Note how many bytes are behind a cut."""
        self._waiting_bytes, self._carried_bytes = waiting_bytes, carried_bytes
        self.check()

    def check(self) -> None:
        """Close or open the gate. Called after each slice of messages."""
        is_full = bool(self._waiting_bytes) and self._exceeds
        if is_full is not self._is_closed:
            self._is_closed = is_full
            self._backpressure.closed += 1 if is_full else -1

    @property
    def needs_snapshot(self) -> bool:
        """Whether only a cut can free memory."""
        return not self._waiting_bytes and self._exceeds

    @property
    def _exceeds(self) -> bool:
        return self._waiting_bytes + self._carried_bytes + self._node.held_bytes > self._bytes_max
