"""Divide the messages of one subtask by a negotiated clock (Jackson, "Exactly once semantics", 2014; PROTOCOL 13.15).

A message has the position of the slice that it came from: its partition, and the number of the slice in this
incarnation. A clock gives, for each partition, the number below which a snapshot has all slices. An aggregate answers
with the clock that it has not reached, and takes no message until the clock of all is announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.stamps import NOWHERE, Clock, Numbers, Position, Stamp
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.clocks.source_slices import SourceSlices
from cutline.snapshot.node import Node
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.subtask.cut_assigner import StampAssigner

#: position of what `onEnd` sends, below a clock above everything only; and the epoch in which aggregates keep it
_BEHIND: Final[Position] = ("", 2**62)
_LAST_EPOCH: Final = 2**62


class SliceAssigner(StampAssigner):
    """The positions of one subtask.

    Parameters
    ----------
    subtask : Subtask
    node : Node
        A source has positions, and an aggregate adds up below the clock and above it.
    outputs : mapping of ChannelId to ChannelSender
        Senders that stamp their messages.
    backpressure : BackpressureFlag
        Closed by an aggregate from its answer to the announcement, and by a source with too many slices.
    """

    def __init__(
        self, subtask: Subtask, node: Node, outputs: Mapping[ChannelId, ChannelSender], backpressure: BackpressureFlag
    ) -> None:
        super().__init__(outputs, NOWHERE)
        self._subtask = subtask
        self._node = node if isinstance(node, PersistentAggregate) else None
        self._backpressure = backpressure
        #: {partition: number of the slice after the last one that was seen}, of an aggregate
        self._seen: dict[str, int] = {}
        #: snapshot whose clock was asked for and is not known, and the last one that has a clock; 0: none
        self._asked = self._announced = 0
        #: the last one before that has a clock
        self._before = 0
        #: the clock of the last one: {partition: number of a slice}, or None for a clock above everything
        self._clock: Mapping[str, int] | None = {}
        #: whether that snapshot is not cut here
        self._is_pending = False
        self._slices = SourceSlices(backpressure)
        #: snapshots whose markers said that they hold all messages
        self._final: dict[int, None] = {}
        self._is_source = isinstance(node, ReplayableSource)
        self.gives_clock = self._node is not None
        if isinstance(node, ReplayableSource):
            node.on_slice = self._begin_slice

    def ask(self, snapshot_id: int) -> Numbers:
        """Return the clock that an aggregate has not reached, and let it take no message until `announce`."""
        if not self._asked:
            self._backpressure.closed += 1
        self._asked = snapshot_id
        return tuple(self._seen.items())

    def announce(self, snapshot_id: int, clock: Clock) -> None:
        """Divide by this clock from now on."""
        self._before, self._announced, self._is_pending = self._announced, snapshot_id, True
        self._clock = None if clock is None else dict(clock)
        self._resume()
        if clock is None:
            self._final[snapshot_id] = None

    def slice_handled(self, channel: ChannelId, count: int, *, together: bool) -> None:
        """Note the slice of the messages that were handled since `slice_begins`."""
        if self._node is not None and self._position != _BEHIND:
            partition, number = self._position
            self._seen[partition] = max(number + 1, self._seen.get(partition, 0))

    def input_ended(self, end: ChannelReceiver, frame: AnyFrame) -> None:
        """Take the end of a stream. It belongs to a snapshot whose clock is above everything, and so does `onEnd`."""
        self._pass_on(_BEHIND)

    def begin(self, snapshot_id: int) -> None:
        """Go on after a source's cut."""
        self._slices.cut(snapshot_id)

    @property
    def needs_snapshot(self) -> bool:
        """Return whether only another snapshot can free what a source remembers."""
        return self._slices.needs_snapshot

    def published(self, snapshot_id: int) -> None:
        """Note at a source what all aggregates have got."""
        self._slices.published(snapshot_id)

    def had_ended(self, channel: ChannelId, snapshot_id: int) -> bool:
        """Return whether the end of an ended input belongs to a snapshot."""
        return self.is_final(snapshot_id)

    def had_exhausted(self, snapshot_id: int) -> bool:
        """Return whether the end of an exhausted source belongs to a snapshot."""
        return not self._is_source or self.is_final(snapshot_id)

    def is_over(self, snapshot_id: int) -> bool:
        """Return whether the end of an ended subtask belongs to a snapshot."""
        return self.is_final(snapshot_id)

    def sent(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return 0, because nobody counts messages below a clock that is found later. A restore begins with 1."""
        return 0

    def received(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return 0, as `sent`. At an aggregate, all messages of the snapshot have come now."""
        if snapshot_id == self._announced:
            self._is_pending = False
        return 0

    def settle(self, min_snapshot_id: int) -> None:
        """Forget settled snapshots. An aborted negotiation lets an aggregate take messages again."""
        if 0 < self._asked < min_snapshot_id:
            self._resume()
        if self._announced < min_snapshot_id:
            self._is_pending = False
        self._slices.settle(min_snapshot_id)
        self._final = {each: None for each in self._final if each >= min_snapshot_id}

    def state_at(self, snapshot_id: int, state: Any) -> Any:
        """Return the offsets at the clock: those of the slices that are the first above it."""
        assert snapshot_id == self._announced
        if self._clock is None or not self._is_source:
            return state
        of_node = f"{self._subtask.node}/"
        own = {name.removeprefix(of_node): number for name, number in self._clock.items() if name.startswith(of_node)}
        return self._slices.offsets_at(own, state)

    def is_final(self, snapshot_id: int) -> bool:
        """Return whether a snapshot is known to hold all messages, so that its marker says so."""
        return snapshot_id in self._final

    def bound(self, snapshot_id: int) -> int:
        """Return the epoch below which a snapshot has all that an aggregate has added up."""
        return _LAST_EPOCH + 1 if self.is_final(snapshot_id) else snapshot_id

    def marker_reached(self, marker: Marker) -> None:
        """Note whether the marker says that its snapshot holds all messages."""
        if marker.is_final:
            self._final[marker.snapshot_id] = None

    @property
    def _position(self) -> Position:
        assert isinstance(self._stamp, tuple)
        return self._stamp

    def _resume(self) -> None:
        if self._asked:
            self._asked = 0
            self._backpressure.closed -= 1

    def _begin_slice(self, partition: str, start: Any) -> None:
        """Number the slice that a source reads next."""
        self._pass_on((f"{self._subtask.node}/{partition}", self._slices.add(partition, start)))

    def _pass_on(self, stamp: Stamp) -> None:
        super()._pass_on(stamp)
        if self._node is not None:
            self._node.epoch = self._epoch_of(self._position)

    def _epoch_of(self, position: Position) -> int:
        """Return the last snapshot whose clock is not above a position."""
        partition, number = position
        if position == _BEHIND:
            return _LAST_EPOCH
        is_below = self._clock is None or number < self._clock.get(partition, 0)
        return self._before if self._is_pending and is_below else self._announced
