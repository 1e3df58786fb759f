"""Spill file: a FIFO of frames on disk, for out-buffers inside a cycle, which must not block (PROTOCOL 9.2, spilling).

A spill file is a sequence of nameless files, each a sequence of wire frames with their checksums. They are deleted when
they are opened, so that nothing is left behind, however the process ends. A file is given back when it is read through.
Only the current positions are in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from typing import IO

from cutline.channels.frame_reader import FrameReader
from cutline.channels.limits import SPILL_BYTES_MAX, SPILL_SEGMENT_BYTES
from cutline.channels.wire import DATA_CAPS, HEADER_BYTES, data_frame, frame_of, header_of
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.errors import ChannelError


class _Segment:
    """A file of frames: appended at `end`, read from `start`."""

    def __init__(self, directory: str) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        self.start = 0
        self.end = 0

    def append(self, header: bytes, payload: bytes | memoryview) -> None:
        rest = [memoryview(header), memoryview(payload)]
        while rest:
            count = os.pwritev(self._file.fileno(), rest, self.end)
            self.end += count
            while rest and count >= len(rest[0]):
                count -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][count:]

    def read(self, position: int) -> tuple[Frame, int]:
        """Return the frame at `position`, and the position after the frame."""
        reader = FrameReader(DATA_CAPS, read_ahead_bytes=HEADER_BYTES)
        while True:
            count = os.preadv(self._file.fileno(), [reader.space], position)
            if not count:
                raise ChannelError("the spill file is shorter than what was written")
            position += count
            for wire in reader.advance(count):
                return frame_of(wire), position

    def close(self) -> None:
        self._file.close()


class SpillFile:
    """A FIFO of the frames of one channel.

    Parameters
    ----------
    channel : str
        Name of the channel in errors.
    directory : str
        Folder of the files; on a disk, not in memory.
    bytes_max : int
        Most bytes that may wait. `append` raises an error above.
    """

    def __init__(
        self,
        channel: str,
        directory: str,
        *,
        bytes_max: int = SPILL_BYTES_MAX,
        segment_bytes: int = SPILL_SEGMENT_BYTES,
    ) -> None:
        self._channel = channel
        self._directory = directory
        self._bytes_max = bytes_max
        self._segment_bytes = segment_bytes
        self._segments: deque[_Segment] = deque()
        self._frame_count = 0
        #: bytes that wait, headers included
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return self._frame_count

    def __iter__(self) -> Iterator[Frame]:
        """Yield the waiting frames, oldest first, without removing them. Make no changes during the iteration."""
        for segment in self._segments:
            position = segment.start
            while position < segment.end:
                frame, position = segment.read(position)
                yield frame

    def append(self, frame: Frame) -> None:
        """Add a frame at the end.

        Raises
        ------
        ChannelError
            if more than `bytes_max` would wait, or the disk refuses.
        """
        wire = data_frame(0, 0, frame)
        size = HEADER_BYTES + len(frame.payload)
        if self.waiting_bytes + size > self._bytes_max:
            raise ChannelError(
                f"{self._channel}: {self.waiting_bytes:,} bytes wait on disk, spill_bytes_max is {self._bytes_max:,}: "
                "the cycle produces faster than it consumes. Send less per message received."
            )
        try:
            self._writable_segment().append(header_of(wire), frame.payload)
        except OSError as error:
            raise ChannelError(f"{self._channel}: cannot spill to {self._directory}: {error}") from error
        self._frame_count += 1
        self.waiting_bytes += size

    def popleft(self) -> Frame:
        """Remove and return the oldest frame.

        Raises
        ------
        ChannelError
            if the file is damaged or cannot be read.
        IndexError
            if no frame waits.
        """
        segment = self._segments[0]
        try:
            frame, segment.start = segment.read(segment.start)
        except (OSError, ChannelError) as error:
            raise ChannelError(f"{self._channel}: a spilled frame cannot be read back: {error}") from error
        self._frame_count -= 1
        self.waiting_bytes -= HEADER_BYTES + len(frame.payload)
        if segment.start == segment.end:
            self._segments.popleft().close()
        return frame

    def close(self) -> None:
        """Drop all frames and give the disk space back. May be called again."""
        while self._segments:
            self._segments.popleft().close()
        self._frame_count = 0
        self.waiting_bytes = 0

    def _writable_segment(self) -> _Segment:
        if not self._segments or self._segments[-1].end >= self._segment_bytes:
            self._segments.append(_Segment(self._directory))
        return self._segments[-1]
