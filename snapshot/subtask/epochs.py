"""Divide the messages of one subtask by epochs, so that a cut needs no one moment (PROTOCOL 13.9).

A source begins an epoch with each cut. All other subtasks pass the stamps of messages on, and count them by channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snapshot.channel.channel_receiver import ChannelReceiver
from snapshot.channel.channel_sender import ChannelSender
from snapshot.channel.object_frame import AnyFrame
from snapshot.channel.stamps import StampCounts
from snapshot.ids import ChannelId
from snapshot.node import Node
from snapshot.operators.persistent_aggregate import PersistentAggregate

#: before every epoch
_RESTORED = -1


class Epochs:
    """The epochs of one subtask.

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
        self._node = node if isinstance(node, PersistentAggregate) else None
        self._received = {end.channel: StampCounts(end.processed) for end in inputs}
        self._outputs = outputs
        #: stamp of the messages that are sent now
        self._stamp = 0
        #: {ended input: stamp of its end}, without ends of the restored snapshot
        self._ends: dict[ChannelId, int] = {}

    def begin(self, snapshot_id: int) -> None:
        """Begin the epoch behind a source's cut."""
        self._pass_on(snapshot_id)

    def enter(self, end: ChannelReceiver, frame: AnyFrame) -> int:
        """Pass on the stamp of the next message of a channel. Return how many messages have it in a row."""
        assert frame.stamps is not None, f"{end.channel}: a frame without stamps"
        passed = end.processed + 1 - frame.first
        for stamp, count in frame.stamps:
            if passed < count:
                self._pass_on(stamp)
                return count - passed
            passed -= count
        raise AssertionError((end.channel, end.processed, frame.first, frame.stamps))

    def handled(self, channel: ChannelId, count: int) -> None:
        """Count messages that were handled since `enter`."""
        self._received[channel].add(self._stamp, count)

    def input_ended(self, end: ChannelReceiver, frame: AnyFrame) -> None:
        """Count the end of a stream, which belongs to an epoch as a message does.

        What `onEnd` sends belongs to a snapshot if the ends of all channels of the edge do, because else a restore
        calls `onEnd` again.
        """
        self.enter(end, frame)
        self.handled(end.channel, 1)
        self._ends[end.channel] = self._stamp
        source = end.channel.source.node
        self._pass_on(max(stamp for channel, stamp in self._ends.items() if channel.source.node == source))

    def stamp_end(self) -> None:
        """Stamp the end that the subtask sends: it belongs to a snapshot if the ends of all inputs do."""
        if self._received:
            self._pass_on(max(self._ends.values(), default=self._stamp))

    def had_ended(self, channel: ChannelId, snapshot_id: int) -> bool:
        """Return whether the end of an ended input belongs to a snapshot."""
        return self._ends.get(channel, _RESTORED) < snapshot_id

    def is_over(self, snapshot_id: int) -> bool:
        """Return whether the ends of all ended inputs belong to a snapshot."""
        return all(stamp < snapshot_id for stamp in self._ends.values())

    def sent(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an output belong to a snapshot. Called once its marker is sent."""
        stamps = self._outputs[channel].stamps
        assert stamps is not None
        return stamps.counts.below(snapshot_id)

    def received(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an input belong to a snapshot. Called once all markers have come."""
        return self._received[channel].below(snapshot_id)

    def settle(self, min_snapshot_id: int) -> None:
        """Forget what was counted for settled snapshots."""
        for counts in self._received.values():
            counts.settle(min_snapshot_id)
        for output in self._outputs.values():
            assert output.stamps is not None
            output.stamps.counts.settle(min_snapshot_id)

    def _pass_on(self, stamp: int) -> None:
        if stamp != self._stamp:
            self._stamp = stamp
            for output in self._outputs.values():
                output.stamp(stamp)
            if self._node is not None:
                self._node.epoch = stamp
