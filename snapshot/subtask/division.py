"""How one subtask divides its messages between a snapshot and the next, where a cut is no one moment (PROTOCOL 13).

There are two ways: by epochs, which sources begin, and by a clock that is negotiated. Both stamp messages at the
sources, and pass stamps on at all other subtasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.stamps import Stamp
from cutline.snapshot.ids import ChannelId


class Division(ABC):
    """The division of one subtask's messages.

    Parameters
    ----------
    outputs : mapping of ChannelId to ChannelSender
        Senders that stamp their messages.
    first : Stamp
        Stamp of messages that no source has stamped.
    """

    def __init__(self, outputs: Mapping[ChannelId, ChannelSender], first: Stamp) -> None:
        self._outputs = outputs
        #: stamp of the messages that are sent now
        self._stamp = first

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

    @abstractmethod
    def handled(self, channel: ChannelId, count: int) -> None:
        """Count messages that were handled since `enter`."""

    @abstractmethod
    def input_ended(self, end: ChannelReceiver, frame: AnyFrame) -> None:
        """Count the end of a stream."""

    @abstractmethod
    def stamp_end(self) -> None:
        """Stamp the end that the subtask sends next."""

    @abstractmethod
    def begin(self, snapshot_id: int) -> None:
        """Begin what comes behind a source's cut."""

    @abstractmethod
    def had_ended(self, channel: ChannelId, snapshot_id: int) -> bool:
        """Return whether the end of an ended input belongs to a snapshot."""

    @abstractmethod
    def is_over(self, snapshot_id: int) -> bool:
        """Return whether the end of an ended subtask belongs to a snapshot."""

    @abstractmethod
    def sent(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an output belong to a snapshot. Called once its marker is sent."""

    @abstractmethod
    def received(self, channel: ChannelId, snapshot_id: int) -> int:
        """Return how many messages of an input belong to a snapshot. Called once all markers have come."""

    @abstractmethod
    def settle(self, min_snapshot_id: int) -> None:
        """Forget what is kept for settled snapshots."""

    @property
    def needs_snapshot(self) -> bool:
        """Return whether only another snapshot can free what a source remembers."""
        return False

    @abstractmethod
    def published(self, snapshot_id: int) -> None:
        """Take the publication of a snapshot."""

    def state_at(self, snapshot_id: int, state: Any) -> Any:
        """Return the state that a node has in a snapshot, from its state now."""
        return state

    def is_final(self, snapshot_id: int) -> bool:
        """Return whether a snapshot is known to hold all messages, so that its marker says so."""
        return False

    def bound(self, snapshot_id: int) -> int:
        """Return the epoch below which a snapshot has all that an aggregate has added up."""
        return snapshot_id

    @abstractmethod
    def marker_came(self, snapshot_id: int, *, is_final: bool) -> None:
        """Note what a marker says."""

    def _pass_on(self, stamp: Stamp) -> None:
        if stamp != self._stamp:
            self._stamp = stamp
            for output in self._outputs.values():
                output.stamp(stamp)
