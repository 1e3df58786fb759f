"""Control messages between a worker and the coordinator, as bytes. The caller knows their content."""

from __future__ import annotations

import socket

from cutline.channels.frame_socket import FrameSocket, Traffic
from cutline.channels.identity import Identity
from cutline.channels.limits import CONTROL_BACKLOG_BYTES_MAX, CONTROL_BYTES_MAX, RECEIVE_BYTES_MAX
from cutline.channels.wire import CONTROL_CAPS, WireFrame, WireType
from cutline.snapshot.errors import ChannelError


class ControlConnection:
    """An end of a control connection.

    Parameters
    ----------
    sock : socket
        Connected and authenticated. Owned by the connection from now on.
    own, peer : Identity
        The identities of the handshake. Their incarnations may differ, and never change, because the connection
        survives rollbacks. Messages that need an incarnation hold it.
    """

    def __init__(self, sock: socket.socket, own: Identity, peer: Identity) -> None:
        self.peer = peer
        self._own = own
        self._frames = FrameSocket(sock, peer, CONTROL_CAPS)

    def fileno(self) -> int:
        """Return the descriptor for selectors, or -1 once closed."""
        return self._frames.fileno()

    @property
    def traffic(self) -> Traffic:
        """Counters, for metrics."""
        return self._frames.traffic

    @property
    def wants_write(self) -> bool:
        """`pump` has something to do as soon as the socket is writable."""
        return bool(self._frames.queued_bytes)

    def close(self) -> None:
        """Drop the connection and everything that waits in it. May be called again."""
        self._frames.close()

    def send(self, *messages: bytes) -> None:
        """Queue messages and write what the socket takes, in one call, so that the peer wakes once. Does not block.

        Raises
        ------
        ChannelError
            if a message is too large, the peer has stopped reading, or the connection is lost.
        """
        for message in messages:
            self._put(message)
        self._frames.flush()

    def _put(self, message: bytes) -> None:
        if len(message) > CONTROL_BYTES_MAX:
            raise ChannelError(
                f"a control message of {len(message):,} bytes for {self.peer}; "
                f"at most {CONTROL_BYTES_MAX:,} can be sent"
            )
        if self._frames.queued_bytes + len(message) > CONTROL_BACKLOG_BYTES_MAX:
            raise ChannelError(f"{self.peer} does not read: {self._frames.queued_bytes:,} bytes wait for it")
        self._frames.put(WireFrame(WireType.CONTROL, 0, self._own.incarnation, message))

    def pump(self) -> None:
        """Write the waiting messages, as much as the socket takes. Raises ChannelError if the connection is lost."""
        self._frames.flush()

    def receive(self) -> list[bytes]:
        """Return the messages that have come, in order. Does not block.

        Raises
        ------
        ChannelError
            if the connection is lost or the peer broke the protocol. Close the connection.
        """
        return [bytes(frame.payload) for frame in self._frames.receive(RECEIVE_BYTES_MAX)]
