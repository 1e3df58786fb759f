"""Listen to the events of one subtask. A mode adds listeners, and without any, events cost nothing more."""

from __future__ import annotations

from typing import Any

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.ids import ChannelId


class Listener:
    """Base class whose methods do nothing."""

    @property
    def needs_snapshot(self) -> bool:
        """Whether only another snapshot can free memory. Read after each slice and each poll."""
        return False

    def marker_reached(self, marker: Marker) -> None:
        """Called when all messages before an aligned marker are handled."""

    def slice_begins(self, end: ChannelReceiver, frame: AnyFrame, limit: int) -> int:
        """Called before messages of a frame are handled. Return how many may be handled, at most `limit`."""
        return limit

    def slice_handled(self, channel: ChannelId, count: int, *, together: bool) -> None:
        """Called when messages were handled. `together` says whether the node got them by one call."""

    def input_ended(self, end: ChannelReceiver, frame: AnyFrame) -> None:
        """Called before the end of a stream is handled."""

    def timer_fires(self, at: float, key: Any, *, has_key: bool) -> None:
        """Called before `onTimer`."""

    def polled(self, wait: object) -> None:
        """Called with what `poll` has returned."""

    def published(self, snapshot_id: int) -> None:
        """Called when the output of a published snapshot is committed, before `onPublished`."""

    def stream_ends(self) -> None:
        """Called before the subtask sends the end of its stream."""
