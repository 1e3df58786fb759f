"""What an out-buffer inside a cycle needs of the file that it overflows to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from snapshot.channel.frame import Frame


class Spill(Protocol):
    """A file-backed FIFO of frames, for out-buffers inside a cycle (PROTOCOL 9.2)."""

    def append(self, frame: Frame) -> None:
        """Add at the end. Raises ChannelError at the cap, naming the setting."""

    def popleft(self) -> Frame:
        """Remove and return the first."""

    @property
    def waiting_bytes(self) -> int:
        """What waits on disk."""

    def __iter__(self) -> Iterator[Frame]: ...

    def __len__(self) -> int: ...
