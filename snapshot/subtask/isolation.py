"""Keep messages that failed apart from the others, and send one that still fails along the dead-letter edge."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from snapshot.channel.object_frame import AnyFrame
from snapshot.culprit import IsolatedMessages
from snapshot.errors import NodeError
from snapshot.ids import ChannelId
from snapshot.subtask.output_edge import OutputEdge


class Isolation:
    """The isolated messages of one channel (PROTOCOL 6.6).

    Parameters
    ----------
    channel : ChannelId
    isolated : iterable of IsolatedMessages
        Ascending, without overlaps.
    edge : OutputEdge or None
        Dead-letter edge of the channel, or None if none was declared.
    """

    def __init__(self, channel: ChannelId, isolated: Iterable[IsolatedMessages], edge: OutputEdge | None) -> None:
        self._channel = channel
        self._isolated = deque(isolated)
        self._edge = edge

    def concerns(self, frame: AnyFrame) -> bool:
        """Return whether a frame, or a frame after it, has isolated messages. Frames come in order."""
        while self._isolated and self._isolated[0].last < frame.first:
            self._isolated.popleft()
        return bool(self._isolated)

    def until(self, number: int, last: int) -> tuple[int, str | None]:
        """Return the last number, at most `last`, that may go to the node together with `number`.

        With it comes the error of a message to set aside, or None.
        """
        for isolated in self._isolated:
            if number < isolated.first:
                return min(last, isolated.first - 1), None
            if number <= isolated.last:
                return min(last, isolated.last), isolated.error
        return last, None

    def set_aside(self, message: Any, number: int, error: str) -> None:
        """Send a message that failed along the dead-letter edge."""
        if self._edge is None:
            raise NodeError(f"{self._channel}: message {number} cannot be set aside, because the edge has no onError")
        self._edge.emit({
            "message": message,
            "error": error,
            "node": self._channel.target.node,
            "channel": str(self._channel),
            "sequenceNumber": number,
        })  # fmt: skip
