"""Assign what one subtask does to a snapshot or to the next: messages, ends, and the state of its node.

In most modes a cut is a moment of the subtask: what was done before it belongs to the snapshot. Where nothing is held
for a cut, messages say on which side of it they are (PROTOCOL 13). Sources stamp them, and all other subtasks pass
stamps on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.stamps import Clock, Numbers, Stamp
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.subtask.listener import Listener


class CutAssigner:
    """The assigner of a subtask whose cuts are moments."""

    #: whether a cut is a moment. Else messages are counted by their stamps, and none is recorded
    is_moment = True

    #: whether the subtask is asked for its clock before a cut
    gives_clock = False

    def begin(self, snapshot_id: int) -> None:
        """Begin what comes after a source's cut."""

    def had_ended(self, channel: ChannelId, snapshot_id: int) -> bool:
        """Return whether the end of an ended input belongs to a snapshot."""
        return True

    def had_exhausted(self, snapshot_id: int) -> bool:
        """Return whether the end of an exhausted source belongs to a snapshot."""
        return True

    def is_over(self, snapshot_id: int) -> bool:
        """Return whether the end of an ended subtask belongs to a snapshot."""
        return True

    def is_final(self, snapshot_id: int) -> bool:
        """Return whether a snapshot is known to hold all messages, so that its marker says so."""
        return False

    def state_at(self, snapshot_id: int, state: Any) -> Any:
        """Return the state that a node has in a snapshot, from its state now."""
        return state

    def bound(self, snapshot_id: int) -> int:
        """Return the epoch below which a snapshot has all that an aggregate has added up."""
        return snapshot_id

    def settle(self, min_snapshot_id: int) -> None:
        """Forget what is kept for settled snapshots."""

    def ask(self, snapshot_id: int) -> Numbers:
        """Return the clock that the subtask has not reached. Only where clocks are negotiated."""
        raise AssertionError((self, snapshot_id))

    def announce(self, snapshot_id: int, clock: Clock) -> None:
        """Divide by this clock from now on. Only where clocks are negotiated."""
        raise AssertionError((self, snapshot_id, clock))

    def sent(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an output belong to a snapshot, once its marker is sent. Not of a moment."""
        raise AssertionError((self, channel, snapshot_id))

    def received(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an input belong to a snapshot, once all markers have come. Not of a moment."""
        raise AssertionError((self, channel, snapshot_id))


class StampAssigner(CutAssigner, Listener, ABC):
    """An assigner by the stamps of messages.

    Parameters
    ----------
    outputs : mapping of ChannelId to ChannelSender
        Senders that stamp their messages.
    first : Stamp
        Stamp of messages that no source has stamped.
    """

    is_moment = False

    def __init__(self, outputs: Mapping[ChannelId, ChannelSender], first: Stamp) -> None:
        self._outputs = outputs
        #: stamp of the messages that are sent now
        self._stamp = first

    def slice_begins(self, end: ChannelReceiver, frame: AnyFrame, limit: int) -> int:
        """Pass on the stamp of the next message of a channel. Return how many messages have it in a row."""
        assert frame.stamps is not None, f"{end.channel}: a frame without stamps"
        passed = end.processed + 1 - frame.first
        for stamp, count in frame.stamps:
            if passed < count:
                self._pass_on(stamp)
                return min(limit, count - passed)
            passed -= count
        raise AssertionError((end.channel, end.processed, frame.first, frame.stamps))

    @abstractmethod
    def sent(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an output belong to a snapshot. Called once its marker is sent."""

    @abstractmethod
    def received(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an input belong to a snapshot. Called once all markers have come."""

    def _pass_on(self, stamp: Stamp) -> None:
        if stamp != self._stamp:
            self._stamp = stamp
            for output in self._outputs.values():
                output.stamp(stamp)
