"""Log of the frames that one channel has sent, up to the next stored record of its sender. No I/O."""

from __future__ import annotations

from collections import deque
from typing import Any

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.frame_codec import encoded_frame
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import BackpressureFlag, OutputBuffer
from cutline.snapshot.ids import ChannelId


class LogMemory:
    """Memory of the logs of one subtask, which bounds what waits for a store that hangs.

    Parameters
    ----------
    backpressure : BackpressureFlag
        Closed while the logs have `bytes_max` bytes or more.
    bytes_max : int
    """

    def __init__(self, backpressure: BackpressureFlag, bytes_max: int) -> None:
        self._backpressure = backpressure
        self._bytes_max = bytes_max
        self._bytes = 0
        self._is_full = False

    @property
    def is_half_full(self) -> bool:
        """Whether the next record should not wait for its time."""
        return 2 * self._bytes >= self._bytes_max

    def change(self, byte_count: int) -> None:
        """Count bytes that were added, or removed where negative."""
        self._bytes += byte_count
        if self._is_full is not (self._bytes >= self._bytes_max):
            self._is_full = not self._is_full
            self._backpressure.closed += 1 if self._is_full else -1


class SendLog:
    """Frames that no stored record has.

    A frame stays until a record that holds it is stored, because a record that could not be stored holds nothing.

    Parameters
    ----------
    memory : LogMemory
    """

    def __init__(self, memory: LogMemory) -> None:
        self._memory = memory
        self._frames: deque[AnyFrame] = deque()

    def append(self, frame: AnyFrame) -> None:
        """Add a frame that was sent."""
        self._frames.append(frame)
        self._memory.change(frame.size)

    def frames(self) -> tuple[Frame, ...]:
        """Return all frames, encoded."""
        return tuple(encoded_frame(frame) for frame in self._frames)

    def drop_through(self, sent: int) -> None:
        """Drop the frames up to a message, because a stored record has them."""
        while self._frames and self._frames[0].last <= sent:
            self._memory.change(-self._frames.popleft().size)


class LoggedOutputBuffer(OutputBuffer):
    """Output buffer that adds each frame to a log, too.

    Parameters
    ----------
    log : SendLog
    channel, backpressure, sent, spill, siblings
        See `OutputBuffer`.
    """

    def __init__(self, log: SendLog, channel: ChannelId, backpressure: BackpressureFlag, **settings: Any) -> None:
        super().__init__(channel, backpressure, **settings)
        self._log = log

    def append(self, frame: AnyFrame) -> None:
        """Log and buffer a frame."""
        self._log.append(frame)
        super().append(frame)
