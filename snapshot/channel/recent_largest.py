"""The largest of the newest frames of a channel, for bounds that grow with large frames, and shrink behind them."""

from __future__ import annotations

from typing import Final

#: Frames that count at least; up to twice as many do. So many small frames may wait beside the room of a large one.
FRAMES: Final = 32


class RecentLargest:
    """Sizes of frames, of which the largest is known for at least `FRAMES` frames."""

    __slots__ = ("_before", "_left", "_now")

    def __init__(self) -> None:
        #: largest size of the present block of frames, and of the block before
        self._now = self._before = 0
        self._left = FRAMES

    def add(self, size: int) -> int:
        """Add the size of the newest frame. Return the largest size."""
        if not self._left:
            self._before, self._now, self._left = self._now, 0, FRAMES
        self._left -= 1
        if size > self._now:
            self._now = size
        return self._now if self._now > self._before else self._before
