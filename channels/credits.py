"""Flow control of one channel in bytes of payload, on either side. Arithmetic only.

A sender may begin a frame while its balance is positive. The frame may drive the balance below zero, so that a batch
larger than the window leaves (PROTOCOL 9.1). If few frames fill the window, the window grows to `WINDOW_FRAMES` of the
largest of the newest frames. With room for one frame, both sides would wait in turn. (Within one worker both sides wait
in turn anyway, so one frame suffices.) After large frames the sender's window shrinks again, because one large message
must not let small ones pile up for ever. A receiver does not know what its sender has forgotten, so it keeps the
largest window. A receiver gives back *processed* bytes, so that waiting memory is bounded by the window and one frame.
Restored messages never came over the link, so they cost no credit and give none back.
"""

from __future__ import annotations

from cutline.channels.limits import CREDIT_GRANT_DIVISOR, CREDIT_WINDOW_BYTES, WINDOW_FRAMES
from cutline.snapshot.channel.output_buffer import FrameRoom
from cutline.snapshot.errors import ChannelError


class SendingCredit:
    """Sender's account of one channel's credit."""

    __slots__ = ("_frames", "_room", "_spent_bytes", "balance")

    def __init__(self, window_bytes: int = CREDIT_WINDOW_BYTES, frames: int = WINDOW_FRAMES) -> None:
        self._frames = frames
        self._room = FrameRoom(window_bytes)
        #: bytes that were sent, and are not given back
        self._spent_bytes = 0
        #: bytes that may still be sent; below zero after a frame larger than the balance, or when the window shrinks
        self.balance = window_bytes

    def spend(self, frame_bytes: int) -> None:
        """Spend credit on a frame that leaves. The balance must be positive before."""
        assert self.balance > 0
        self._spent_bytes += frame_bytes
        self._room.add(self._frames * frame_bytes)
        self.balance = self._room.bytes - self._spent_bytes

    def grant(self, granted_bytes: int) -> None:
        """Add credit that the receiver gave back. Raises ChannelError if the receiver gave more than it got."""
        if granted_bytes > self._spent_bytes:
            raise ChannelError(
                f"the receiver gave {granted_bytes:,} bytes of credit back, but only {self._spent_bytes:,} are spent"
            )
        self._spent_bytes -= granted_bytes
        self.balance += granted_bytes


class ReceivingCredit:
    """Receiver's account of one channel's credit."""

    __slots__ = ("_base_bytes", "_frames", "_freed_bytes", "_held_bytes", "_window_bytes")

    def __init__(self, window_bytes: int = CREDIT_WINDOW_BYTES, frames: int = WINDOW_FRAMES) -> None:
        self._base_bytes = self._window_bytes = window_bytes
        self._frames = frames
        #: bytes that came and are not given back
        self._held_bytes = 0
        #: processed bytes among `_held_bytes`
        self._freed_bytes = 0

    def receive(self, frame_bytes: int) -> None:
        """Count a frame that came. Raises ChannelError if the sender cannot have had credit for the frame."""
        if self._held_bytes >= self._window_bytes:
            raise ChannelError(
                f"a frame came without credit: {self._held_bytes:,} of {self._window_bytes:,} bytes are taken"
            )
        self._held_bytes += frame_bytes
        if self._frames * frame_bytes > self._window_bytes:
            self._window_bytes = self._frames * frame_bytes

    def free(self, frame_bytes: int) -> int:
        """Count processed bytes that came over the link. Return the credit to give back now, or 0 if it is too little.

        The withheld credit stops no sender, because it is a part of the smallest window. A sender whose frames are all
        processed has the rest.
        """
        freed_bytes = self._freed_bytes = self._freed_bytes + frame_bytes
        assert freed_bytes <= self._held_bytes
        if freed_bytes * CREDIT_GRANT_DIVISOR < self._base_bytes:
            return 0
        self._freed_bytes = 0
        self._held_bytes -= freed_bytes
        return freed_bytes
