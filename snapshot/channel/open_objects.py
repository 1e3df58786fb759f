"""Messages by reference of one channel that are in no frame yet, with their keys and an estimate of their memory."""

from __future__ import annotations

from sys import getsizeof
from typing import Any

from cutline.snapshot.channel.object_frame import ObjectFrame
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import Shapes

#: Estimated bytes of memory at which a frame of messages by reference is sealed. Such a frame holds about as many
#: messages as a frame of encoded messages.
OBJECT_FRAME_BYTES_TARGET = 128 * 1024

#: Messages between two estimates of their memory. An estimate takes as long as some messages.
UNWEIGHED_MAX = 256


class OpenObjects:
    """The open messages of one channel sender.

    Parameters
    ----------
    shapes : Shapes
        The check for messages that may go by reference.
    codec : Codec
        Encodes the messages of a frame later.
    divisor : int
        Divisor of the size of a frame.
    """

    def __init__(self, shapes: Shapes, codec: Codec, divisor: int) -> None:
        self.shapes = shapes
        #: the messages, and their keys where known; always the same lists, because `direct_send` holds them
        self.messages: list[Any] = []
        self.keys: list[Any] = []
        #: number of messages from which `ChannelSender.check_objects` must be called; 0: none may be open
        self.limit = 0
        #: whether the receiver takes messages by reference, because it is in this process
        self.are_taken = False
        self._codec = codec
        self._frame_bytes = OBJECT_FRAME_BYTES_TARGET // divisor
        #: estimated memory of the first `_weighed` messages
        self._weight = self._weighed = 0

    def take_back(self) -> Any:
        """Remove and return the only message, which came while none was allowed."""
        [message] = self.messages
        self.messages.clear()
        self.keys.clear()
        return message

    def weigh(self) -> int:
        """Return the estimated memory: of the new messages by the first and the last of them. Set the next limit."""
        messages, weighed = self.messages, self._weighed
        if weighed < len(messages):
            self._weight += (len(messages) - weighed) * max(memory_of(messages[weighed]), memory_of(messages[-1]))
            self._weighed = len(messages)
            room = (self._frame_bytes - self._weight) * self._weighed // self._weight
            self.limit = self._weighed + min(max(room, 1), UNWEIGHED_MAX)
        return self._weight

    @property
    def are_full(self) -> bool:
        """Whether the messages fill a frame."""
        return self.weigh() >= self._frame_bytes

    def frame(self, first: int) -> ObjectFrame:
        """Remove all messages, and return them as a frame. `first` is the number of the first message."""
        count, size = len(self.messages), self.weigh()
        # A frame of which some messages came without their keys has none.
        keys = self.keys[:] if len(self.keys) == count else None
        frame = ObjectFrame(first, count, self.messages[:], keys, size, self._codec)
        self.messages.clear()
        self.keys.clear()
        self._weight = self._weighed = 0
        return frame


def memory_of(message: Any) -> int:
    """Return the bytes of memory of a message that may go by reference."""
    if type(message) is not tuple:
        return getsizeof(message)
    inner = sum(map(memory_of, message)) if tuple in map(type, message) else sum(map(getsizeof, message))
    return getsizeof(message) + inner
