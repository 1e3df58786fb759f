"""Channel receiver: its in-queue, the numbers of PROTOCOL 1, and the recordings of snapshots.

No I/O. At a cut the receiver's number is ``processed`` (p). `snapshot.channel.channel_sender` has the picture of both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cutline.snapshot.channel.channel_cuts import ReceivedCut
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.frame_codec import cut_frame
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId


@dataclass(slots=True)
class _Recording:
    after: int
    frames: list[AnyFrame] = field(default_factory=list)


class ChannelReceiver:
    """Queue, number and record the frames of one channel on the receiver's side.

    Parameters
    ----------
    channel : ChannelId
    processed : int
        Number of the last message that was processed before (0 on a fresh channel).
    restored : sequence of Frame
        Recorded channel state: queued before anything from the link, processed by the ordinary code
        (PROTOCOL 6.2, restored channels). The next frame of the link must follow it.
    waves : tuple of (int, int)
        Waves of the restored messages: (number of the last message, wave), ascending (PROTOCOL 6.11, waves).
    """

    def __init__(
        self,
        channel: ChannelId,
        *,
        processed: int = 0,
        restored: tuple[Frame, ...] = (),
        waves: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.channel = channel
        self.processed = processed
        self.arrived = processed
        self.held = False
        self.ended = False
        self._queue: deque[AnyFrame | Marker] = deque()
        self._recordings: dict[int, _Recording] = {}
        #: bytes of the frames in open recordings
        self.recorded_bytes = 0
        self._freed_bytes = 0
        for frame in restored:
            self.deliver(frame)
        #: frames at the front of the queue that are not charged to the link's credit: they came from a snapshot, or
        #: their credit was given back in advance
        self._uncharged = len(restored)
        self._waves = waves

    def deliver(self, frame: AnyFrame) -> None:
        """Queue a frame from the link.

        Raises
        ------
        ChannelError
            if there is a gap or a repeat in the message numbers, because neither is ever repaired.
        """
        if frame.first != self.arrived + 1:
            what = "a gap" if frame.first > self.arrived + 1 else "a repeat"
            raise ChannelError(f"{self.channel}: {what}: message {self.arrived + 1} was due, {frame.first} came")
        self.arrived += frame.count
        self._queue.append(frame)
        if self._recordings:
            for recording in self._recordings.values():
                recording.frames.append(frame)
                self.recorded_bytes += frame.size

    def deliver_marker(self, marker: Marker) -> None:
        """Check a marker's place. An aligned marker waits its turn among the frames.

        Raises
        ------
        ChannelError
            if messages are missing that the sender wrote before the marker.
        """
        if marker.written != self.arrived:
            raise ChannelError(
                f"{self.channel}: the marker of snapshot {marker.snapshot_id} follows message {marker.written}, "
                f"but the last that came is {self.arrived}"
            )
        if marker.aligned:
            self._queue.append(marker)

    @property
    def head(self) -> AnyFrame | Marker | None:
        """Next frame or marker, or None. Messages of a frame up to `processed` are done."""
        return self._queue[0] if self._queue else None

    def frames(self) -> Iterator[AnyFrame]:
        """Yield the frames that wait, up to the first marker."""
        for item in self._queue:
            if isinstance(item, Marker):
                return
            yield item

    @property
    def wave(self) -> int | None:
        """Wave of the next message, or None after the messages that have waves."""
        while self._waves and self._waves[0][0] <= self.processed and not self._recordings:
            self._waves = self._waves[1:]
        return next((wave for through, wave in self._waves if through > self.processed), None)

    @property
    def ready(self) -> bool:
        """A frame or marker can be processed."""
        return bool(self._queue) and not self.held

    @property
    def drained(self) -> bool:
        """The queue is empty."""
        return not self._queue

    def advance(self, count: int) -> None:
        """Count `count` more messages of the head frame as processed."""
        frame = self._queue[0]
        assert not isinstance(frame, Marker)
        self.processed += count
        if self.processed - frame.first + 1 == frame.count:
            self._queue.popleft()
            if self._uncharged:
                self._uncharged -= 1
            else:
                self._freed_bytes += frame.size

    @property
    def has_charged_frames(self) -> bool:
        """Return whether frames wait whose credit was not given back."""
        return sum(not isinstance(item, Marker) for item in self._queue) > self._uncharged

    def free_ahead(self) -> None:
        """Give back the credit of all frames that wait, because a replay needs more messages by one call.

        The frames of a replay end elsewhere than those of the run before, so the messages may need more frames than the
        window has room for.
        """
        frames = [item for item in self._queue if not isinstance(item, Marker)]
        self._freed_bytes += sum(frame.size for frame in frames[self._uncharged :])
        self._uncharged = len(frames)

    def pass_marker(self) -> Marker:
        """Remove the marker at the head and return it."""
        marker = self._queue.popleft()
        assert isinstance(marker, Marker)
        return marker

    def take_freed_bytes(self) -> int:
        """Return the payload bytes that were processed since the last call: the credit to give back (PROTOCOL 9.1)."""
        freed, self._freed_bytes = self._freed_bytes, 0
        return freed

    def start_recording(self, snapshot_id: int) -> None:
        """Keep every message that is not processed yet, from now on, for `snapshot_id`."""
        recording = _Recording(self.processed)
        for item in self._queue:
            if not isinstance(item, Marker):
                recording.frames.append(item)
                self.recorded_bytes += item.size
        self._recordings[snapshot_id] = recording

    def stop_recording(self, snapshot_id: int, written: int) -> ReceivedCut:
        """End a recording. Return the receiver's cut, with the messages (processed at the cut, written] encoded."""
        recording = self._drop(snapshot_id)
        assert recording is not None
        after = recording.after
        kept = [f for f in recording.frames if f.last > after and f.first <= written]
        frames = tuple(cut_frame(frame, after, written) for frame in kept)
        return ReceivedCut(after, written, frames, tuple(each for each in self._waves if each[0] > after))

    @property
    def waves_left(self) -> tuple[tuple[int, int], ...]:
        """Waves of the messages that wait: (number of the last message, wave) pairs, ascending."""
        return tuple(each for each in self._waves if each[0] > self.processed)

    def discard(self, snapshot_id: int) -> None:
        """Drop the recording of `snapshot_id`, if there is one."""
        self._drop(snapshot_id)

    def empty_recording(self, snapshot_id: int) -> None:
        """Drop the recorded frames of a snapshot that failed here. Its marker may still come."""
        recording = self._recordings.get(snapshot_id)
        if recording is not None:
            self._drop(snapshot_id)
            self._recordings[snapshot_id] = _Recording(self.arrived)

    def validate(self) -> None:
        """Assert the receiver's invariants."""
        assert self.processed <= self.arrived
        if not self._queue and not self._recordings:
            assert self.processed == self.arrived and not self.recorded_bytes
            return
        frames = [item for item in self._queue if not isinstance(item, Marker)]
        assert not frames or frames[0].first <= self.processed + 1 <= frames[0].last, (self.channel, self.processed)
        assert sum(f.count for f in frames) - (self.processed - frames[0].first + 1 if frames else 0) == (
            self.arrived - self.processed
        )
        recorded = sum(f.size for r in self._recordings.values() for f in r.frames)
        assert recorded == self.recorded_bytes

    def _drop(self, snapshot_id: int) -> _Recording | None:
        recording = self._recordings.pop(snapshot_id, None)
        if recording is not None:
            self.recorded_bytes -= sum(frame.size for frame in recording.frames)
        return recording
