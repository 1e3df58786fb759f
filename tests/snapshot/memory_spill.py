"""A spill in memory: the FIFO that an out-buffer needs, without a file."""

from __future__ import annotations

from collections import deque

from snapshot.channel.frame import Frame


class MemorySpill(deque[Frame]):
    """Frames in order."""

    @property
    def waiting_bytes(self) -> int:
        return sum(len(frame.payload) for frame in self)
