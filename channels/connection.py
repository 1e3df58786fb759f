"""The data connection of two workers: all channels between them, both ways, over one socket.

Driven by the worker's loop: `receive` when the socket is readable, `pump` when there is something to send or
the socket is writable. Markers and credits leave ahead of the data that waits; data leaves channel by
channel in turn, while the receiver has given credit.
"""

from __future__ import annotations

import socket

import msgspec

from channels.credits import ReceivingCredit, SendingCredit
from channels.frame_socket import FrameSocket, Traffic
from channels.identity import Identity
from channels.limits import CREDIT_WINDOW_BYTES, PUMP_BYTES_MAX, RECEIVE_BYTES_MAX, WRITE_BUFFER_BYTES
from channels.schedule import SendingSchedule
from channels.wire import (
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
)
from snapshot.channel.channel_sender import ChannelSender
from snapshot.channel.frame import Frame, Marker
from snapshot.channel.output_buffer import buffer_divisor
from snapshot.errors import ChannelError

_CREDIT, _DATA, _MARKER, _MEMORY = WireType.CREDIT, WireType.DATA, WireType.MARKER, WireType.MEMORY

#: What came for a channel, by its number: the loop gives it to the receiving end, and markers to the protocol.
Received = tuple[int, Frame | Marker]


class Connection:
    """One end of the data connection.

    Parameters
    ----------
    sock : socket
        Connected and authenticated; owned from now on.
    peer : Identity
        As the handshake showed; of this side's incarnation.
    window_bytes : int
        Credit of the channel of a receiver that has few. The same at both ends.
    """

    def __init__(self, sock: socket.socket, peer: Identity, *, window_bytes: int = CREDIT_WINDOW_BYTES) -> None:
        self.peer = peer
        self._frames = FrameSocket(sock, peer, LOCAL_DATA_CAPS if sock.family == socket.AF_UNIX else DATA_CAPS)
        #: counters, for metrics
        self.traffic: Traffic = self._frames.traffic
        self._window_bytes = window_bytes
        self._outgoing = SendingSchedule()
        self._incoming: dict[int, ReceivingCredit] = {}

    def attach_sending(self, channel: int, end: ChannelSender, *, siblings: int = 1) -> None:
        """`channel` leaves by this connection, from `end`; its receiver has so many input channels."""
        end.allocate = self._frames.allocate
        self._outgoing.attach(channel, end, SendingCredit(self._window_bytes // buffer_divisor(siblings)))

    def attach_receiving(self, channel: int, *, siblings: int = 1) -> None:
        """`channel` comes by this connection, to a receiver that has so many input channels."""
        assert channel not in self._incoming
        self._incoming[channel] = ReceivingCredit(self._window_bytes // buffer_divisor(siblings))

    def fileno(self) -> int:
        """For selectors; -1 once closed."""
        return self._frames.fileno()

    @property
    def wants_write(self) -> bool:
        """`pump` has something to do as soon as the socket is writable."""
        return bool(self._frames.queued_bytes) or self._outgoing.sendable

    @property
    def has_data(self) -> bool:
        """Something waits at a sending end, if only for credit."""
        return self._outgoing.has_data

    def close(self) -> None:
        """Drop the connection and whatever waits in it. May be called again."""
        self._frames.close()

    def receive(self) -> list[Received]:
        """Receive items in order, at most about `RECEIVE_BYTES_MAX` bytes. Does not block.

        Raises
        ------
        ChannelError
            if the connection is lost or the peer broke the protocol: close it, and report it.
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
        """So many payload bytes of `channel` that came by this connection are processed: credit goes back."""
        granted_bytes = self._incoming[channel].free(processed_bytes)
        if granted_bytes:
            self._frames.put_urgent(credit_frame(channel, self.peer.incarnation, granted_bytes))

    def pump(self) -> None:
        """Write credit, markers and frames, as much as the socket takes and `PUMP_BYTES_MAX` allows.

        Raises
        ------
        ChannelError
            if the connection is lost: close it, and report it.
        """
        frames, outgoing, written = self._frames, self._outgoing, 0
        while written < PUMP_BYTES_MAX and (outgoing.waiting or outgoing.marked or frames.queued_bytes):
            written += self._fill()
            written += frames.flush()
            if frames.queued_bytes:
                return  # The kernel is full.

    def _accept(self, wire: WireFrame) -> Frame | Marker | None:
        incoming = self._incoming.get(wire.channel)
        if wire.type is _DATA and incoming is not None:  # nearly always
            incoming.receive(len(wire.payload))
            self.traffic.messages_in += wire.message_count
            return frame_of(wire)
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
        place = place_of(wire)
        incoming.receive(place.length)  # ahead of the copy
        self.traffic.messages_in += wire.message_count
        return frame_of(msgspec.structs.replace(wire, payload=self._frames.fetch(place)))

    def _fill(self) -> int:
        """Queue markers, and frames up to `WRITE_BUFFER_BYTES`. Returns the bytes that went beside the socket."""
        outgoing, frames, shared_bytes = self._outgoing, self._frames, 0
        while outgoing.waiting or outgoing.marked:
            for channel, marker in outgoing.markers() if outgoing.marked else ():
                # PROTOCOL 1.1: right behind the channel's last written frame, ahead of everything else.
                frames.put_urgent(marker_frame(channel, self.peer.incarnation, marker))
            if frames.queued_bytes + shared_bytes >= WRITE_BUFFER_BYTES:
                break
            taken = outgoing.next_frame()
            if taken is not None:
                channel, frame = taken
                shared_bytes += frames.put_data(channel, frame)
                self.traffic.messages_out += frame.count
        return shared_bytes
