"""Log of the frames that one channel has sent, up to the next stored record of its sender. No I/O."""

from __future__ import annotations

from collections import deque

from snapshot.channel.frame import Frame
from snapshot.channel.frame_codec import encoded_frame
from snapshot.channel.object_frame import AnyFrame


class SendLog:
    """Frames that no stored record has.

    A frame stays until a record that holds it is stored, because a record that could not be stored holds nothing.
    """

    def __init__(self) -> None:
        self._frames: deque[AnyFrame] = deque()

    def append(self, frame: AnyFrame) -> None:
        """Add a frame that was sent."""
        self._frames.append(frame)

    @property
    def byte_count(self) -> int:
        """Bytes of all frames."""
        return sum(frame.size for frame in self._frames)

    def frames(self) -> tuple[Frame, ...]:
        """Return all frames, encoded."""
        return tuple(encoded_frame(frame) for frame in self._frames)

    def drop_through(self, sent: int) -> None:
        """Drop the frames up to a message, because a stored record has them."""
        while self._frames and self._frames[0].last <= sent:
            self._frames.popleft()
