"""Flow control of one channel in bytes of payload, seen from either side. Arithmetic only.

A sender may begin a frame while its balance is positive, and the frame may drive it below zero, so that a
batch larger than the window leaves (PROTOCOL 9.1). Where frames are so large that few of them fill the window, it
grows to `WINDOW_FRAMES` of the largest that was sent: with room for one only, both sides would wait in turn (within
one worker they do anyway, and one is enough). A receiver gives back what was *processed*, so that what waits in memory
is bounded by the window and one frame. Restored messages never came over the link: they cost nothing and give nothing
back.
"""

from __future__ import annotations

from channels.limits import CREDIT_GRANT_DIVISOR, CREDIT_WINDOW_BYTES, WINDOW_FRAMES
from snapshot.errors import ChannelError


class SendingCredit:
    """The sender's account."""

    __slots__ = ("_frames", "_window_bytes", "balance")

    def __init__(self, window_bytes: int = CREDIT_WINDOW_BYTES, frames: int = WINDOW_FRAMES) -> None:
        self._window_bytes, self._frames = window_bytes, frames
        #: bytes that may still be sent; below zero after a frame larger than what was left
        self.balance = window_bytes

    def spend(self, frame_bytes: int) -> None:
        """A frame leaves. The balance must be positive before."""
        assert self.balance > 0
        grown = self._frames * frame_bytes - self._window_bytes
        if grown > 0:
            self._window_bytes += grown
            self.balance += grown
        self.balance -= frame_bytes

    def grant(self, granted_bytes: int) -> None:
        """The receiver gives credit back. Raises ChannelError if it gives more than it got."""
        if self.balance + granted_bytes > self._window_bytes:
            raise ChannelError(
                f"the receiver gave {granted_bytes:,} bytes of credit back, "
                f"but only {self._window_bytes - self.balance:,} are spent"
            )
        self.balance += granted_bytes


class ReceivingCredit:
    """The receiver's account."""

    __slots__ = ("_frames", "_freed_bytes", "_held_bytes", "_window_bytes")

    def __init__(self, window_bytes: int = CREDIT_WINDOW_BYTES, frames: int = WINDOW_FRAMES) -> None:
        self._window_bytes, self._frames = window_bytes, frames
        #: bytes that came and are not given back
        self._held_bytes = 0
        #: the part of them that is processed
        self._freed_bytes = 0

    def receive(self, frame_bytes: int) -> None:
        """A frame came. Raises ChannelError if the sender cannot have had credit for it."""
        if self._held_bytes >= self._window_bytes:
            raise ChannelError(
                f"a frame came without credit: {self._held_bytes:,} of {self._window_bytes:,} bytes are taken"
            )
        self._held_bytes += frame_bytes
        if self._frames * frame_bytes > self._window_bytes:
            self._window_bytes = self._frames * frame_bytes

    def free(self, frame_bytes: int) -> int:
        """So much of what came over the link is processed. Returns what to give back now; 0 while it is too little.

        What is kept back stops nobody: a sender of whom everything is processed has the rest of the window.
        """
        freed_bytes = self._freed_bytes = self._freed_bytes + frame_bytes
        assert freed_bytes <= self._held_bytes
        if freed_bytes * CREDIT_GRANT_DIVISOR < self._window_bytes:
            return 0
        self._freed_bytes = 0
        self._held_bytes -= freed_bytes
        return freed_bytes
