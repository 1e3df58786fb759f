"""Link between subtasks of one worker: a queue, with the interface and the rules of `channels.connection`.

Frames go by reference, and so do messages that nobody can change. All others are encoded when they are sent. Credit
bounds the frames that wait at the receiver, as on a socket, counted in memory where messages are not encoded. A marker
overtakes the frames that wait at the sender.
"""

from __future__ import annotations

from cutline.channels.connection import Received
from cutline.channels.credits import ReceivingCredit, SendingCredit
from cutline.channels.frame_socket import Traffic
from cutline.channels.limits import CREDIT_WINDOW_BYTES, LOCAL_FRAMES, PUMP_BYTES_MAX
from cutline.channels.schedule import SendingSchedule
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.output_buffer import buffer_divisor


class InProcessConnection:
    """All channels that begin and end in this worker.

    Parameters
    ----------
    window_bytes : int
        Credit of a channel whose receiver has few input channels.
    """

    def __init__(self, *, window_bytes: int = CREDIT_WINDOW_BYTES) -> None:
        self.traffic = Traffic()
        self._window_bytes = window_bytes
        self._outgoing = SendingSchedule()
        self._incoming: dict[int, ReceivingCredit] = {}
        self._moved: list[Received] = []

    def attach_sending(self, channel: int, end: ChannelSender, *, siblings: int = 1) -> None:
        """Send `channel` from `end`. Its receiver has `siblings` input channels."""
        end.buffer.frames_min = LOCAL_FRAMES
        end.take_objects()
        credit = SendingCredit(self._window_bytes // buffer_divisor(siblings), LOCAL_FRAMES)
        self._outgoing.attach(channel, end, credit)

    def attach_receiving(self, channel: int, *, siblings: int = 1) -> None:
        """Receive `channel` here, at a receiver that has `siblings` input channels."""
        assert channel not in self._incoming
        self._incoming[channel] = ReceivingCredit(self._window_bytes // buffer_divisor(siblings), LOCAL_FRAMES)

    @property
    def wants_write(self) -> bool:
        """`pump` has frames or markers to move, or `receive` has some to return."""
        return bool(self._moved) or self._outgoing.sendable

    @property
    def has_data(self) -> bool:
        """A frame or marker waits on its way."""
        return bool(self._moved) or self._outgoing.has_data

    def close(self) -> None:
        """Drop all frames and markers that were moved and not received. May be called again."""
        self._moved.clear()

    def receive(self) -> list[Received]:
        """Return the frames and markers that `pump` has moved since the last call, in order."""
        received, self._moved = self._moved, []
        return received

    def free(self, channel: int, processed_bytes: int) -> None:
        """Give credit back for `processed_bytes` of payload of `channel` that came by this link."""
        granted_bytes = self._incoming[channel].free(processed_bytes)
        if granted_bytes:
            self._outgoing.grant(channel, granted_bytes)

    def pump(self) -> None:
        """Move markers, and frames while there is credit, about `PUMP_BYTES_MAX` bytes at most."""
        moved_bytes = 0
        self._move_markers()
        while moved_bytes < PUMP_BYTES_MAX:
            taken = self._outgoing.next_frame()
            if taken is None:
                return
            channel, frame = taken
            self._incoming[channel].receive(frame.size)
            self._moved.append((channel, frame))
            self._count(frame.size, frame.count)
            moved_bytes += frame.size
            self._move_markers()

    def _move_markers(self) -> None:
        self._moved.extend(self._outgoing.markers())

    def _count(self, frame_bytes: int, messages: int) -> None:
        traffic = self.traffic
        traffic.frames_in += 1
        traffic.frames_out += 1
        traffic.bytes_in += frame_bytes
        traffic.bytes_out += frame_bytes
        traffic.messages_in += messages
        traffic.messages_out += messages
