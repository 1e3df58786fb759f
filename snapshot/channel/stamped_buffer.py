"""Out-buffer of a channel whose messages have stamps."""

from __future__ import annotations

from typing import Any

import msgspec

from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import OutputBuffer
from cutline.snapshot.channel.stamps import OpenStamps


class StampedBuffer(OutputBuffer):
    """An `OutputBuffer` that puts stamps on its frames.

    Parameters
    ----------
    stamps : OpenStamps
        Stamps of the messages that are in no frame yet.
    """

    def __init__(self, stamps: OpenStamps, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.stamps = stamps

    def append(self, frame: AnyFrame) -> None:
        """Buffer a frame, as `OutputBuffer.append`. It holds all messages that are in no frame."""
        super().append(msgspec.structs.replace(frame, stamps=self.stamps.take(frame.last)))
