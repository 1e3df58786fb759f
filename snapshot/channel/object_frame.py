"""Frames of messages by reference, between two subtasks of one worker: only of messages that nobody can change."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.stamps import StampRuns


class ObjectFrame(msgspec.Struct, frozen=True, gc=False):  # its messages refer to nothing that refers to a frame
    """Messages ``first .. last`` of one channel. ``count`` is at least 1.

    Nobody changes the lists, because a recording holds the same frame.
    """

    first: int
    count: int
    messages: list[Any]
    #: the messages' keys, as the partitioner read them; None if the receiver has to read them
    keys: list[Any] | None
    #: estimated bytes of memory, for credit, buffers and limits
    size: int
    #: encodes the messages when a cut or a spill file needs their bytes
    codec: Codec
    #: see `Frame.stamps`
    stamps: StampRuns | None = None
    #: see `Frame.is_control`
    is_control: ClassVar[Literal[False]] = False

    @property
    def last(self) -> int:
        """Number of the last message in the frame."""
        return self.first + self.count - 1


#: A frame on a channel. Only a `Frame` is stored, or sent through a socket.
AnyFrame = Frame | ObjectFrame
