"""The out-buffer of a channel: sealed frames and markers that wait for the link, and what markers overtake. No I/O.

::

    append(frame) ─> │ frames, aligned markers between them │ overtaking markers │ ─ take() ─> link
                      framed (S)                             written (w)

A channel of a subtask that has many of them has less room, because all that waits is in every unaligned snapshot. With
as much for each, what waited between two nodes grew with the square of their subtasks: sources of 32 subtasks ran
seconds ahead of their 32 targets, and no snapshot was faster than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from snapshot.channel.channel_cuts import SentCut
from snapshot.channel.frame import Frame, Marker
from snapshot.ids import ChannelId

#: A subtask whose out-buffer on any channel holds this much, and `BUFFER_FRAMES_MIN` frames, gets no next event
#: (PROTOCOL 9.1). Four frames of messages: what waits is in every unaligned snapshot.
BUFFER_BYTES_MAX = 128 * 1024

#: Frames that an out-buffer has room for however large they are: while one is written the next ones are made, else the
#: two workers wait for each other in turn. A link to the same worker asks for less (`OutputBuffer.frames_min`).
BUFFER_FRAMES_MIN = 3

#: Channels of one subtask on one side that have all the room that one channel can use.
FULL_CHANNELS = 2

#: Frames become no smaller than this part of a full one: below some tens of messages their own cost is felt.
BUFFER_DIVISOR_MAX = 16


def buffer_divisor(channels: int) -> int:
    """By what the room of each channel is divided where a subtask has so many of them on one side."""
    return min(BUFFER_DIVISOR_MAX, max(1, channels // FULL_CHANNELS))


class BackpressureFlag:
    """Says whether a subtask may be given its next event. Checked once a message, so it is one attribute."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        #: number of full channels; 0 means that the subtask may go on
        self.closed = 0


class Spill(Protocol):
    """A file-backed FIFO of frames, for out-buffers inside a cycle (PROTOCOL 9.2)."""

    def append(self, frame: Frame) -> None:
        """Add at the end. Raises ChannelError at the cap, naming the setting."""

    def popleft(self) -> Frame:
        """Remove and return the first."""

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that wait on disk."""

    def __iter__(self) -> Iterator[Frame]: ...

    def __len__(self) -> int: ...


def _nobody() -> None:
    """Call nobody."""


class OutputBuffer:
    """Holds the frames and markers that one channel has sent and its link has not taken.

    Parameters
    ----------
    channel : ChannelId
    backpressure : BackpressureFlag
        Closed while the buffer is full; not by a channel that can spill.
    sent : int
        Number of the last message that was sent before (0 on a fresh channel).
    spill : Spill, optional
        Where frames go when memory is full, instead of closing the gate.
    siblings : int
        Output channels of the subtask, this one among them: the more, the less may wait on each.
    """

    def __init__(
        self, channel: ChannelId, backpressure: BackpressureFlag, *, sent: int, spill: Spill | None, siblings: int
    ) -> None:
        self.channel = channel
        #: w: number of the last message that was taken
        self.written = sent
        #: number of the last message that is in a frame
        self.framed = sent
        #: bytes of the frames that wait in memory
        self.buffered_bytes = 0
        #: frames that there is room for however large they are; set by the link
        self.frames_min = BUFFER_FRAMES_MIN
        #: called when something has come that may be taken; set by the link
        self.on_waiting: Callable[[], None] = _nobody
        #: called with each marker that is taken; set for an observer
        self.on_marker_taken: Callable[[ChannelId, Marker], None] | None = None
        self._backpressure = backpressure
        self._sets_backpressure = False
        #: bytes; grows with the frames that come, unless they can be spilled
        self._full_at = BUFFER_BYTES_MAX // buffer_divisor(siblings)
        self._spill = spill
        #: frames in order, with the aligned markers between them
        self._queue: deque[Frame | Marker] = deque()
        #: markers that overtake: ahead of everything in `_queue`, ascending by arrival
        self._head: deque[Marker] = deque()
        #: aligned markers in `_queue`: {snapshot_id: S when it was put there}
        self._waiting: dict[int, int] = {}
        #: cuts whose marker can no longer be moved; taken by `settled`
        self._settled: dict[int, SentCut] = {}

    def append(self, frame: Frame) -> None:
        """Buffer a frame, which begins behind the last one."""
        self.framed += frame.count
        if self._spill is None:
            self._queue.append(frame)
            self.buffered_bytes += len(frame.payload)
            self._full_at = max(self._full_at, self.frames_min * len(frame.payload))
            if self._sets_backpressure or self.buffered_bytes >= self._full_at:
                self._set_backpressure()
        elif len(self._spill) or self.buffered_bytes >= self._full_at:
            self._spill.append(frame)
        else:
            self._queue.append(frame)
            self.buffered_bytes += len(frame.payload)
        self.on_waiting()

    def take(self) -> Frame | Marker | None:
        """Take the next item for the link. A frame that is taken counts as written, so take it only to write it."""
        if self._head:
            return self._taken(self._head.popleft())
        if not self._queue:
            return self._take_spilled()
        item = self._queue.popleft()
        if isinstance(item, Marker):
            self._settled[item.snapshot_id] = SentCut(self._waiting.pop(item.snapshot_id), item.written, ())
            return self._taken(item)
        self.written += item.count
        self.buffered_bytes -= len(item.payload)
        if self._sets_backpressure:
            self._set_backpressure()
        return item

    @property
    def has_marker(self) -> bool:
        """A marker is next: it needs no credit."""
        return bool(self._head or (self._waiting and isinstance(self._queue[0], Marker)))

    @property
    def marker_overtakes(self) -> bool:
        """A marker is next that went ahead of what waits."""
        return bool(self._head)

    @property
    def has_data(self) -> bool:
        """Something sealed waits to be taken."""
        return bool(self._queue or self._head or self._spill)

    @property
    def spilling(self) -> bool:
        """Frames wait on disk."""
        return bool(self._spill)

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that wait, in memory and on disk."""
        return self.buffered_bytes + (0 if self._spill is None else self._spill.waiting_bytes)

    def put_marker(self, snapshot_id: int, min_snapshot_id: int, *, aligned: bool, saves: bool = True) -> None:
        """Put a marker on the channel: behind all that was sent if `aligned`, else ahead of all that waits.

        With `saves` False nothing of what the marker overtakes is kept, because the snapshot has failed already.
        """
        if aligned:
            self._queue.append(Marker(snapshot_id, min_snapshot_id, self.framed, True))
            self._waiting[snapshot_id] = self.framed
            self.on_waiting()
        else:
            if self._waiting:
                self._overtake_through(len(self._queue))
            self._put_at_head(Marker(snapshot_id, min_snapshot_id, self.written, False), self.framed, saves=saves)

    def overtake(self, snapshot_id: int) -> None:
        """Move the waiting marker of `snapshot_id`, and those ahead of it, to the head (PROTOCOL 4.3)."""
        if snapshot_id in self._waiting:
            waiting = (n for n, i in enumerate(self._queue) if isinstance(i, Marker) and i.snapshot_id == snapshot_id)
            self._overtake_through(next(waiting) + 1)

    def settled(self, snapshot_id: int) -> SentCut | None:
        """Return the cut of `snapshot_id` once, when nothing can change it any more; otherwise None."""
        return self._settled.pop(snapshot_id, None)

    def discard(self, snapshot_id: int) -> None:
        """Forget what was saved for `snapshot_id`, and its marker, if that still waits among the messages."""
        self._settled.pop(snapshot_id, None)
        if self._waiting.pop(snapshot_id, None) is not None:
            self._queue = deque(i for i in self._queue if not (isinstance(i, Marker) and i.snapshot_id == snapshot_id))

    def validate(self) -> None:
        """Assert that the frames that wait are those of (written, framed]."""
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
        full = self.buffered_bytes >= self._full_at
        if full is not self._sets_backpressure:
            self._sets_backpressure = full
            self._backpressure.closed += 1 if full else -1

    def _overtake_through(self, position: int) -> None:
        """Move the markers among the first `position` items to the head: markers never overtake each other."""
        items = list(self._queue)
        self._queue = deque(i for n, i in enumerate(items) if n >= position or isinstance(i, Frame))
        for marker in (item for item in items[:position] if isinstance(item, Marker)):
            moved = marker._replace(written=self.written, aligned=False)
            self._put_at_head(moved, self._waiting.pop(marker.snapshot_id))

    def _put_at_head(self, marker: Marker, sent: int, *, saves: bool = True) -> None:
        self._head.append(marker)
        self.on_waiting()
        self._settled[marker.snapshot_id] = SentCut(sent, marker.written, self._unwritten(sent) if saves else ())

    def _unwritten(self, through: int) -> tuple[Frame, ...]:
        """The frames of (written, through]: what a marker at the head has overtaken."""
        return tuple(frame for frame in self._frames() if frame.last <= through)

    def _frames(self) -> Iterator[Frame]:
        """All that wait, in order."""
        return (item for part in (self._queue, self._spill or ()) for item in part if isinstance(item, Frame))
