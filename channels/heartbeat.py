"""Heartbeats between peers, on connections of their own, by one background thread for all peers.

A thread, so that a long `onMessage` is not taken for a death. Connections of their own, because a data connection may
have half a frame on the way (PROTOCOL 9.3). TCP reports nothing to the receiver of a half-open connection, so only
silence shows the loss.

Silence is counted only while this thread runs. After a pause of this process, or a jump of the clock, the thread reads
the peers' heartbeats before it declares a peer lost. The pause counts as at most two intervals.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from cutline.channels.frame_socket import FrameSocket
from cutline.channels.identity import Identity
from cutline.channels.limits import HEARTBEAT_DEADLINE_SECONDS, HEARTBEAT_INTERVAL_SECONDS, RECEIVE_BYTES_MAX
from cutline.channels.wire import HEARTBEAT_CAPS, WireFrame, WireType
from cutline.snapshot.errors import ChannelError

#: Called with the peer and the reason, once a peer, on the heartbeat's thread. Must return at once.
OnLost = Callable[[Identity, str], None]


class _Peer:
    """A connection, and the seconds of its silence."""

    def __init__(self, sock: socket.socket, own: Identity, peer: Identity) -> None:
        self.identity = peer
        self.silence = 0.0
        self._frames = FrameSocket(sock, peer, HEARTBEAT_CAPS)
        self._beat = WireFrame(WireType.HEARTBEAT, 0, own.incarnation, b"")

    def fileno(self) -> int:
        return self._frames.fileno()

    def beat(self) -> None:
        """Send a heartbeat, unless the last heartbeat still waits."""
        if not self._frames.queued_bytes:
            self._frames.put(self._beat)
        self._frames.flush()

    def listen(self) -> None:
        if self._frames.receive(RECEIVE_BYTES_MAX):
            self.silence = 0.0

    def close(self) -> None:
        self._frames.close()


class Heartbeats:
    """Thread that sends this process's heartbeats and receives those of its peers.

    Parameters
    ----------
    on_lost : callable
        Called for each peer that was silent for `deadline` seconds, or whose connection broke. The peer is dropped
        before the call.
    interval, deadline : float
        Seconds. The same at both ends.
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(
        self,
        on_lost: OnLost,
        *,
        interval: float = HEARTBEAT_INTERVAL_SECONDS,
        deadline: float = HEARTBEAT_DEADLINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_lost = on_lost
        self._interval = interval
        self._deadline = deadline
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        #: actions that other threads request of this thread, in order
        self._requests: deque[Callable[[], None]] = deque()
        self._peers: dict[str, _Peer] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="cutline-heartbeat", daemon=True)
        self._thread.start()

    def add(self, sock: socket.socket, own: Identity, peer: Identity) -> None:
        """Send heartbeats to one more peer and receive its own. `sock` is authenticated, and owned from now on.

        The connection replaces an earlier connection to a peer of the same name.
        """
        self._request(lambda: self._add(_Peer(sock, own, peer)))

    def remove(self, name: str) -> None:
        """Drop a peer without calling `on_lost`. Unknown names are ignored."""
        self._request(lambda: self._remove(name))

    def close(self) -> None:
        """Drop all connections and end the thread. Blocks until the thread has ended. May be called again."""
        self._request(self._close)
        self._thread.join()

    def _request(self, action: Callable[[], None]) -> None:
        self._requests.append(action)
        try:
            self._wake_out.send(b"\0")
        except OSError:
            assert self._closing  # the thread has ended, so nobody serves requests

    def _run(self) -> None:
        before = next_beat = self._clock()
        while not self._closing:
            ready = self._selector.select(max(0.0, next_beat - self._clock()))
            self._receive(ready)
            now = self._clock()
            self._judge(min(now - before, 2 * self._interval))
            before = now
            if now >= next_beat:
                self._beat()
                next_beat = now + self._interval

    def _receive(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in ready:
            peer: _Peer | None = key.data
            if peer is None:
                self._wake_in.recv(4096)
                while self._requests:
                    self._requests.popleft()()
            elif self._peers.get(peer.identity.name) is peer:
                self._attempt(peer, peer.listen)

    def _judge(self, elapsed: float) -> None:
        for peer in list(self._peers.values()):
            peer.silence += elapsed
            if peer.silence > self._deadline:
                self._lose(peer, f"no sign of life for {self._deadline:g} s")

    def _beat(self) -> None:
        for peer in list(self._peers.values()):
            self._attempt(peer, peer.beat)

    def _attempt(self, peer: _Peer, action: Callable[[], None]) -> None:
        try:
            action()
        except ChannelError as error:
            self._lose(peer, str(error))

    def _lose(self, peer: _Peer, why: str) -> None:
        self._remove(peer.identity.name)
        self._on_lost(peer.identity, why)

    def _add(self, peer: _Peer) -> None:
        self._remove(peer.identity.name)
        self._peers[peer.identity.name] = peer
        self._selector.register(peer, selectors.EVENT_READ, peer)
        self._attempt(peer, peer.beat)

    def _remove(self, name: str) -> None:
        peer = self._peers.pop(name, None)
        if peer is not None:
            self._selector.unregister(peer)
            peer.close()

    def _close(self) -> None:
        self._closing = True
        for name in list(self._peers):
            self._remove(name)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
