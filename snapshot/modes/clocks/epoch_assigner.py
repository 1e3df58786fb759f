"""Divide the messages of one subtask by epochs (PROTOCOL 13.9, epochs).

A source begins an epoch with each cut. All other subtasks pass the stamps of messages on, and count them by channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.stamped_buffer import StampedBuffer
from cutline.snapshot.channel.stamps import Stamp, StampCounts
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import Node
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.subtask.cut_assigner import StampAssigner

#: before every epoch
_RESTORED = -1


class EpochAssigner(StampAssigner):
    """The epochs of one subtask. A stamp is the id of the snapshot that the source had begun last, or 0.

    Parameters
    ----------
    node : Node
        An aggregate adds up by epochs.
    inputs : sequence of ChannelReceiver
    outputs : mapping of ChannelId to ChannelSender
        Senders that stamp their messages.
    """

    def __init__(
        self, node: Node, inputs: Sequence[ChannelReceiver], outputs: Mapping[ChannelId, ChannelSender]
    ) -> None:
        super().__init__(outputs, 0)
        self._node = node if isinstance(node, PersistentAggregate) else None
        self._received = {end.channel: StampCounts(end.processed) for end in inputs}
        #: {ended input: stamp of its end}, without ends of the restored snapshot
        self._ends: dict[ChannelId, int] = {}

    def begin(self, snapshot_id: int) -> None:
        """Begin the epoch after a source's cut."""
        self._pass_on(snapshot_id)

    def slice_handled(self, channel: ChannelId, count: int, *, together: bool) -> None:
        """Count messages that were handled since `slice_begins`."""
        self._received[channel].add(self._epoch, count)

    def input_ended(self, end: ChannelReceiver, frame: AnyFrame) -> None:
        """Count the end of a stream, which belongs to an epoch as a message does.

        What `onEnd` sends belongs to a snapshot if the ends of all channels of the edge do, because else a restore
        calls `onEnd` again.
        """
        self.slice_begins(end, frame, 1)
        self._received[end.channel].add(self._epoch, 1)
        self._ends[end.channel] = self._epoch
        source = end.channel.source.node
        self._pass_on(max(stamp for channel, stamp in self._ends.items() if channel.source.node == source))

    def stream_ends(self) -> None:
        """Stamp the end that the subtask sends next: it belongs to a snapshot if the ends of all inputs do."""
        if self._received:
            self._pass_on(max(self._ends.values(), default=self._epoch))

    def had_ended(self, channel: ChannelId, snapshot_id: int) -> bool:
        """Return whether the end of an ended input belongs to a snapshot."""
        return self._ends.get(channel, _RESTORED) < snapshot_id

    def is_over(self, snapshot_id: int) -> bool:
        """Return whether the end of an ended subtask belongs to a snapshot."""
        return all(stamp < snapshot_id for stamp in self._ends.values())

    def sent(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an output belong to a snapshot. Called once its marker is sent."""
        return self._counts_of(self._outputs[channel]).below(snapshot_id)

    def received(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an input belong to a snapshot. Called once all markers have come."""
        return self._received[channel].below(snapshot_id)

    def settle(self, min_snapshot_id: int) -> None:
        """Forget what was counted for settled snapshots."""
        for counts in self._received.values():
            counts.settle(min_snapshot_id)
        for output in self._outputs.values():
            self._counts_of(output).settle(min_snapshot_id)

    def _counts_of(self, output: ChannelSender) -> StampCounts:
        assert isinstance(output.buffer, StampedBuffer)
        return output.buffer.stamps.counts

    @property
    def _epoch(self) -> int:
        assert isinstance(self._stamp, int)
        return self._stamp

    def _pass_on(self, stamp: Stamp) -> None:
        super()._pass_on(stamp)
        if self._node is not None:
            self._node.epoch = self._epoch
