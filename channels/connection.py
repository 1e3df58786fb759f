"""Data connection of two workers: all channels between them, both ways, over one socket.

The worker's loop calls `receive` when the socket is readable, and `pump` when there is something to send or the socket
is writable. Markers and credits leave before waiting data. Data leaves channel by channel in turn, while the receiver
has given credit.
"""

from __future__ import annotations

import socket

import msgspec

from cutline.channels.credits import ReceivingCredit, SendingCredit
from cutline.channels.frame_socket import FrameSocket, Traffic
from cutline.channels.identity import Identity
from cutline.channels.limits import CREDIT_WINDOW_BYTES, PUMP_BYTES_MAX, RECEIVE_BYTES_MAX, WRITE_BUFFER_BYTES
from cutline.channels.schedule import SendingSchedule
from cutline.channels.wire import (
    DATA_CAPS,
    LOCAL_DATA_CAPS,
    WireFrame,
    WireType,
    credit_frame,
    credit_of,
    frame_of,
    marker_frame,
    marker_of,
    place_of,
    stamps_of,
)
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import buffer_divisor
from cutline.snapshot.channel.stamps import StampRuns
from cutline.snapshot.errors import ChannelError

_CREDIT, _DATA, _MARKER, _MEMORY = WireType.CREDIT, WireType.DATA, WireType.MARKER, WireType.MEMORY
_STAMPS = WireType.STAMPS

#: (channel, frame or marker) that came. The loop gives frames to channel receivers, and markers to the protocol.
Received = tuple[int, AnyFrame | Marker]


class Connection:
    """An end of the data connection.

    Parameters
    ----------
    sock : socket
        Connected and authenticated. Owned by the connection from now on.
    peer : Identity
        The identity that the peer proved in the handshake, of this side's incarnation.
    window_bytes : int
        Credit of a channel whose receiver has few input channels. The same at both ends.
    """

    def __init__(self, sock: socket.socket, peer: Identity, *, window_bytes: int = CREDIT_WINDOW_BYTES) -> None:
        self.peer = peer
        self._frames = FrameSocket(sock, peer, LOCAL_DATA_CAPS if sock.family == socket.AF_UNIX else DATA_CAPS)
        #: counters, for metrics
        self.traffic: Traffic = self._frames.traffic
        self._window_bytes = window_bytes
        self._outgoing = SendingSchedule()
        self._incoming: dict[int, ReceivingCredit] = {}
        #: epochs that came before the next frame of a channel
        self._stamps: dict[int, StampRuns] = {}

    def attach_sending(self, channel: int, end: ChannelSender, *, siblings: int = 1) -> None:
        """Send `channel` by this connection, from `end`. Its receiver has `siblings` input channels."""
        end.allocate = self._frames.allocate
        self._outgoing.attach(channel, end, SendingCredit(self._window_bytes // buffer_divisor(siblings)))

    def attach_receiving(self, channel: int, *, siblings: int = 1) -> None:
        """Receive `channel` by this connection, at a receiver that has `siblings` input channels."""
        assert channel not in self._incoming
        self._incoming[channel] = ReceivingCredit(self._window_bytes // buffer_divisor(siblings))

    def fileno(self) -> int:
        """Return the descriptor for selectors, or -1 once closed."""
        return self._frames.fileno()

    @property
    def wants_write(self) -> bool:
        """`pump` has something to do as soon as the socket is writable."""
        return bool(self._frames.queued_bytes) or self._outgoing.sendable

    @property
    def has_data(self) -> bool:
        """A frame or marker waits at a channel sender, if only for credit."""
        return self._outgoing.has_data

    def close(self) -> None:
        """Drop the connection and everything that waits in it. May be called again."""
        self._frames.close()

    def receive(self) -> list[Received]:
        """Return the frames and markers that have come, in order, about `RECEIVE_BYTES_MAX` at most. Does not block.

        Raises
        ------
        ChannelError
            if the connection is lost or the peer broke the protocol. Close the connection, and report the error.
        """
        received: list[Received] = []
        for frame in self._frames.receive(RECEIVE_BYTES_MAX):
            try:
                item = self._accept(frame)
            except ChannelError as error:
                raise ChannelError(f"{self.peer}, channel {frame.channel}: {error}") from error
            if item is not None:
                received.append((frame.channel, item))
        return received

    def free(self, channel: int, processed_bytes: int) -> None:
        """Give credit back for `processed_bytes` of payload of `channel` that came by this connection."""
        granted_bytes = self._incoming[channel].free(processed_bytes)
        if granted_bytes:
            self._frames.put_urgent(credit_frame(channel, self.peer.incarnation, granted_bytes))

    def pump(self) -> None:
        """Write credit, markers and frames, as much as the socket takes and `PUMP_BYTES_MAX` permits.

        Raises
        ------
        ChannelError
            if the connection is lost. Close the connection, and report the error.
        """
        frames, outgoing, written = self._frames, self._outgoing, 0
        while written < PUMP_BYTES_MAX and (outgoing.waiting or outgoing.marked or frames.queued_bytes):
            written += self._fill()
            written += frames.flush()
            if frames.queued_bytes:
                return  # the kernel's buffer is full

    def _accept(self, wire: WireFrame) -> Frame | Marker | None:
        incoming = self._incoming.get(wire.channel)
        if wire.type is _DATA and incoming is not None:  # nearly always
            incoming.receive(len(wire.payload))
            self.traffic.messages_in += wire.message_count
            return self._stamped(wire) if self._stamps else frame_of(wire)
        if wire.type is _MEMORY:
            self._frames.open_memory(wire)
            return None
        if wire.type is _CREDIT:
            if wire.channel not in self._outgoing:
                raise ChannelError("credit came for a channel that does not leave by this connection")
            self._outgoing.grant(wire.channel, credit_of(wire))
            return None
        if incoming is None:
            raise ChannelError(f"a {wire.type.name} frame came for a channel that does not come by this connection")
        if wire.type is _MARKER:
            return marker_of(wire)
        if wire.type is _STAMPS:
            self._stamps[wire.channel] = stamps_of(wire)
            return None
        place = place_of(wire)
        incoming.receive(place.length)  # before the copy
        self.traffic.messages_in += wire.message_count
        return self._stamped(msgspec.structs.replace(wire, payload=self._frames.fetch(place)))

    def _stamped(self, wire: WireFrame) -> Frame:
        """Return the channel's frame, with the epochs that came before it."""
        frame, stamps = frame_of(wire), self._stamps.pop(wire.channel, None)
        if stamps is None:
            return frame
        if sum(count for _, count in stamps) != frame.count:
            raise ChannelError(f"epochs of {sum(count for _, count in stamps)} messages came for {frame.count}")
        return msgspec.structs.replace(frame, stamps=stamps)

    def _fill(self) -> int:
        """Queue markers, and frames up to `WRITE_BUFFER_BYTES`. Return the bytes that went beside the socket."""
        outgoing, frames, shared_bytes = self._outgoing, self._frames, 0
        while outgoing.waiting or outgoing.marked:
            for channel, marker in outgoing.markers() if outgoing.marked else ():
                # PROTOCOL 1.1: right after the channel's last written frame, before everything else.
                frames.put_urgent(marker_frame(channel, self.peer.incarnation, marker))
            if frames.queued_bytes + shared_bytes >= WRITE_BUFFER_BYTES:
                break
            taken = outgoing.next_frame()
            if taken is not None:
                channel, frame = taken
                assert isinstance(frame, Frame), channel  # only a link inside one process takes objects
                shared_bytes += frames.put_data(channel, frame)
                self.traffic.messages_out += frame.count
        return shared_bytes
