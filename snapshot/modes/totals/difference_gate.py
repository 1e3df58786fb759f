"""Hold the messages of an aggregate while its differences fill memory and its store is behind (PROTOCOL 13.14)."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.listener import Listener


@dataclass(frozen=True, slots=True)
class HeldDifferences:
    """Memory of the differences of an aggregate's subtask whose cut is over."""

    #: whether one waits for the store, or for the end of its snapshot. It may be empty, while another subtask's waits
    is_waiting: bool = False
    #: bytes, about, also of aborted snapshots, which wait for the next cut
    size: int = 0
    #: keys, once for each difference
    keys: int = 0


class DifferenceGate(Listener):
    """Closes backpressure above a number of bytes, as long as a difference before a cut waits for its snapshot's end.

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
        self.held = HeldDifferences()
        self._is_closed = False

    def hold(self, held: HeldDifferences) -> None:
        """Take what is in memory of differences whose cut is over."""
        self.held = held
        self.check()

    def slice_handled(self, channel: ChannelId, count: int, *, together: bool) -> None:
        """Close or open the gate."""
        self.check()

    def check(self) -> None:
        """Close or open the gate."""
        is_full = self.held.is_waiting and self._exceeds
        if is_full is not self._is_closed:
            self._is_closed = is_full
            self._backpressure.closed += 1 if is_full else -1

    @property
    def needs_snapshot(self) -> bool:
        """Whether only a cut can free memory."""
        return not self.held.is_waiting and self._exceeds

    @property
    def _exceeds(self) -> bool:
        return self.held.size + self._node.held_bytes > self._bytes_max


def gate_of(components: SubtaskComponents) -> DifferenceGate | None:
    """Return the gate of a subtask, or None for a node that is no aggregate."""
    return next((each for each in components.listeners if isinstance(each, DifferenceGate)), None)
