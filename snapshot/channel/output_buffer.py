"""Output buffer of a channel: sealed frames and markers that wait for the link, and overtaken frames. No I/O.

::

    append(frame) ─> │ frames, aligned markers between them │ overtaking markers │ ─ take() ─> link
                      framed (S)                             written (w)

The more channels a subtask has, the less each may hold, because all that waits is in every unaligned snapshot. With a
fixed size for each channel, the waiting bytes between two nodes grew with the square of their subtasks. Sources of 32
subtasks ran seconds ahead of their 32 targets, and no snapshot was faster than those seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from cutline.snapshot.channel.channel_cuts import SentCut
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.frame_codec import encoded_frame
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.ids import ChannelId

#: Bytes in an out-buffer at which its subtask gets no next event, if `BUFFER_FRAMES_MIN` frames wait too
#: (PROTOCOL 9.1, room). Four frames of messages, because all that waits is in every unaligned snapshot.
BUFFER_BYTES_MAX = 128 * 1024

#: Frames that an out-buffer may hold however large they are. Without room for the next frames, two workers would wait
#: for each other in turn. A link inside one worker needs fewer frames (`OutputBuffer.frames_min`).
BUFFER_FRAMES_MIN = 3

#: Most channels of one subtask on one side that may each use a full buffer.
FULL_CHANNELS = 2

#: Largest divisor of a frame's size, because a frame of fewer than some tens of messages costs too much.
BUFFER_DIVISOR_MAX = 16


def buffer_divisor(channels: int) -> int:
    """Return the divisor of each channel's buffer size, where a subtask has `channels` channels on one side."""
    return min(BUFFER_DIVISOR_MAX, max(1, channels // FULL_CHANNELS))


class BackpressureFlag:
    """Flag whether a subtask may be given its next event. An attribute, because it is checked once a message."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        #: number of full channels; 0: the subtask may go on
        self.closed = 0


class Spill(Protocol):
    """A file-backed FIFO of frames, for out-buffers inside a cycle (PROTOCOL 9.2, spilling)."""

    def append(self, frame: Frame) -> None:
        """Add a frame at the end. Raises ChannelError, which names the setting, when the file is at its cap."""

    def popleft(self) -> Frame:
        """Remove and return the first frame."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait on disk."""

    def __iter__(self) -> Iterator[Frame]: ...

    def __len__(self) -> int: ...


def _nobody() -> None:
    """Do nothing."""


#: Frames that count at least for a `FrameRoom`; up to twice as many do. So many small frames may wait in the room of a
#: large one.
ROOM_FRAMES: Final = 32


class FrameRoom:
    """Room of a buffer or a window for frames that wait: it grows with large frames, and shrinks after them.

    Parameters
    ----------
    base_bytes : int
        The least room.
    """

    __slots__ = ("_base_bytes", "_before", "_left", "_now", "bytes")

    def __init__(self, base_bytes: int) -> None:
        self.bytes = self._base_bytes = base_bytes
        #: most bytes that a frame of the present block of frames wants, and of the block before
        self._now = self._before = 0
        self._left = ROOM_FRAMES

    def add(self, wanted_bytes: int) -> None:
        """Note one more frame, which wants so many bytes of room."""
        if not self._left:
            self._before, self._now, self._left = self._now, 0, ROOM_FRAMES
        self._left -= 1
        if wanted_bytes > self._now:
            self._now = wanted_bytes
        self.bytes = max(self._base_bytes, self._now, self._before)


class OutputBuffer:
    """Frames and markers that one channel has sent and its link has not taken.

    Parameters
    ----------
    channel : ChannelId
    backpressure : BackpressureFlag
        Closed while the buffer is full, unless the channel can spill.
    sent : int
        Number of the last message that was sent before (0 on a fresh channel).
    spill : Spill, optional
        Disk queue for frames when memory is full, or None to close `backpressure` instead.
    siblings : int
        Number of the subtask's output channels, with this channel. The more channels, the less may wait on each.
    """

    def __init__(
        self, channel: ChannelId, backpressure: BackpressureFlag, *, sent: int, spill: Spill | None, siblings: int
    ) -> None:
        self.channel = channel
        #: number of the last message that the link took (w)
        self.written = sent
        #: number of the last message in a frame
        self.framed = sent
        #: bytes of the frames that wait in memory
        self.buffered_bytes = 0
        #: frames that may wait however large they are; set by the link
        self.frames_min = BUFFER_FRAMES_MIN
        #: called when a frame or marker has come that may be taken; set by the link
        self.on_waiting: Callable[[], None] = _nobody
        #: called with each marker that is taken, or None without an observer
        self.on_marker_taken: Callable[[ChannelId, Marker], None] | None = None
        self._backpressure = backpressure
        self._sets_backpressure = False
        #: bytes at which the buffer is full; more with large frames, unless they can be spilled
        self._room = FrameRoom(BUFFER_BYTES_MAX // buffer_divisor(siblings))
        self._spill = spill
        #: frames in order, with the aligned markers between them
        self._queue: deque[AnyFrame | Marker] = deque()
        #: overtaking markers, in order of arrival; they go before everything in `_queue`
        self._head: deque[Marker] = deque()
        #: aligned markers in `_queue`: {snapshot_id: S when the marker was queued}
        self._waiting: dict[int, int] = {}
        #: cuts whose marker can no longer be moved: {snapshot_id: cut}; removed by `settled`
        self._settled: dict[int, SentCut] = {}

    def spill_from_now(self, spill: Spill | None) -> None:
        """Spill frames when memory is full, instead of closing `backpressure`: a replay must not wait (PROTOCOL 12.10).

        None: close `backpressure` again. Nothing may wait on disk then.
        """
        assert not self.spilling and not self._sets_backpressure
        self._spill = spill

    def append(self, frame: AnyFrame) -> None:
        """Buffer a frame. Its first message follows the last message of the frame before."""
        self.framed += frame.count
        if self._spill is None:
            self._queue.append(frame)
            self.buffered_bytes += frame.size
            self._room.add(self.frames_min * frame.size)
            if self._sets_backpressure or self.buffered_bytes >= self._room.bytes:
                self._set_backpressure()
        elif len(self._spill) or self.buffered_bytes >= self._room.bytes:
            self._spill.append(encoded_frame(frame))
        else:
            self._queue.append(frame)
            self.buffered_bytes += frame.size
        self.on_waiting()

    def take(self) -> AnyFrame | Marker | None:
        """Return the next frame or marker, or None. A taken frame counts as written: take a frame only to write it."""
        if self._head:
            return self._taken(self._head.popleft())
        if not self._queue:
            return self._take_spilled()
        item = self._queue.popleft()
        if isinstance(item, Marker):
            self._settled[item.snapshot_id] = SentCut(self._waiting.pop(item.snapshot_id), item.written, ())
            return self._taken(item)
        self.written += item.count
        self.buffered_bytes -= item.size
        if self._sets_backpressure:
            self._set_backpressure()
        return item

    @property
    def has_marker(self) -> bool:
        """The next item is a marker, which needs no credit."""
        return bool(self._head or (self._waiting and isinstance(self._queue[0], Marker)))

    @property
    def marker_overtakes(self) -> bool:
        """The next item is a marker that overtakes the waiting frames."""
        return bool(self._head)

    @property
    def has_data(self) -> bool:
        """A frame or marker waits for the link."""
        return bool(self._queue or self._head or self._spill)

    @property
    def spilling(self) -> bool:
        """Frames wait on disk."""
        return bool(self._spill)

    @property
    def spilled_bytes(self) -> int:
        """Bytes that wait on disk."""
        return 0 if self._spill is None else self._spill.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait in memory and on disk."""
        return self.buffered_bytes + self.spilled_bytes

    def put_marker(
        self, snapshot_id: int, min_snapshot_id: int, *, aligned: bool, saves: bool = True, is_final: bool = False
    ) -> None:
        """Put a marker on the channel: after all sent messages if `aligned`, else before all waiting messages.

        With `saves` False, overtaken messages are not saved, because the snapshot has failed already.
        """
        if aligned:
            self._queue.append(Marker(snapshot_id, min_snapshot_id, self.framed, True, is_final))
            self._waiting[snapshot_id] = self.framed
            self.on_waiting()
        else:
            if self._waiting:
                self._overtake_through(len(self._queue))
            self._put_at_head(Marker(snapshot_id, min_snapshot_id, self.written, False), self.framed, saves=saves)

    def overtake(self, snapshot_id: int) -> None:
        """Move the waiting marker of `snapshot_id`, and the markers before it, to the head (PROTOCOL 4.3)."""
        if snapshot_id in self._waiting:
            waiting = (n for n, i in enumerate(self._queue) if isinstance(i, Marker) and i.snapshot_id == snapshot_id)
            self._overtake_through(next(waiting) + 1)

    def settled(self, snapshot_id: int) -> SentCut | None:
        """Return the cut of `snapshot_id` once, as soon as nothing can change the cut. Return None before and after."""
        return self._settled.pop(snapshot_id, None)

    def discard(self, snapshot_id: int) -> None:
        """Drop the saved frames of `snapshot_id`, and its marker if the marker still waits among the messages."""
        self._settled.pop(snapshot_id, None)
        if self._waiting.pop(snapshot_id, None) is not None:
            self._queue = deque(i for i in self._queue if not (isinstance(i, Marker) and i.snapshot_id == snapshot_id))

    def validate(self) -> None:
        """Assert that the waiting frames hold the messages (written, framed]."""
        expected = self.written + 1
        for frame in self._frames():
            assert frame.first == expected, (frame.first, expected)
            expected = frame.last + 1
        assert expected == self.framed + 1, (expected, self.framed)

    def _taken(self, marker: Marker) -> Marker:
        if self.on_marker_taken is not None:
            self.on_marker_taken(self.channel, marker)
        return marker

    def _take_spilled(self) -> Frame | None:
        frame = self._spill.popleft() if self._spill else None
        self.written += 0 if frame is None else frame.count
        return frame

    def _set_backpressure(self) -> None:
        full = self.buffered_bytes >= self._room.bytes
        if full is not self._sets_backpressure:
            self._sets_backpressure = full
            self._backpressure.closed += 1 if full else -1

    def _overtake_through(self, position: int) -> None:
        """Move the markers among the first `position` items to the head, because markers never overtake each other."""
        items = list(self._queue)
        self._queue = deque(i for n, i in enumerate(items) if n >= position or not isinstance(i, Marker))
        for marker in (item for item in items[:position] if isinstance(item, Marker)):
            moved = marker._replace(written=self.written, aligned=False)
            self._put_at_head(moved, self._waiting.pop(marker.snapshot_id))

    def _put_at_head(self, marker: Marker, sent: int, *, saves: bool = True) -> None:
        self._head.append(marker)
        self.on_waiting()
        self._settled[marker.snapshot_id] = SentCut(sent, marker.written, self._unwritten(sent) if saves else ())

    def _unwritten(self, through: int) -> tuple[Frame, ...]:
        """Return the frames of (written, through], encoded: the frames that a marker at the head has overtaken."""
        return tuple(encoded_frame(frame) for frame in self._frames() if frame.last <= through)

    def _frames(self) -> Iterator[AnyFrame]:
        """Return all waiting frames, in order."""
        return (item for part in (self._queue, self._spill or ()) for item in part if not isinstance(item, Marker))
