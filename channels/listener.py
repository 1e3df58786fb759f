"""Listener: accepts connections, has each peer prove its identity, and returns the admitted peers.

Strangers cost little. A handshake has a deadline, a small message cap and one of `PENDING_HANDSHAKES_MAX` places.
Nothing of a stranger's is parsed, and a refusal is counted. The listener has one file descriptor for the worker's loop,
which never blocks here. The listening sockets are kept open for good, so the address stays ours.

A listener that cannot accept, because no descriptor is free, pauses. Peers wait in the kernel's queue meanwhile. The
listening sockets are not polled during the pause, because they stay readable and the loop would spin.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cutline.channels.admission import Admission
from cutline.channels.frame_reader import FrameReader
from cutline.channels.handshake import NONCE_BYTES, HandshakeFailed, HandshakeState, ServerHandshake
from cutline.channels.identity import Identity, Purpose, Refusal
from cutline.channels.limits import (
    ACCEPT_PAUSE_SECONDS,
    ACCEPTS_PER_CALL,
    HANDSHAKE_DEADLINE_SECONDS,
    LISTEN_BACKLOG,
    PENDING_HANDSHAKES_MAX,
)
from cutline.channels.sockets import Address, host_token, unix_path
from cutline.channels.wire import HANDSHAKE_CAPS, HEADER_BYTES, WireFrame
from cutline.snapshot.errors import ChannelError

_logger = logging.getLogger("cutline.channels")


class Admitted(NamedTuple):
    """An authenticated and admitted peer. Nothing beyond the handshake has been read from `sock`."""

    sock: socket.socket
    peer: Identity
    purpose: Purpose


@dataclass(slots=True)
class _Pending:
    """A connection whose handshake is under way."""

    sock: socket.socket
    machine: ServerHandshake
    reader: FrameReader
    deadline: float


class Listener:
    """Listen by TCP and, for peers on this host, on an abstract Unix socket.

    Parameters
    ----------
    secret : bytes
        The run's secret.
    admission : Admission
        The rule that is applied at the end of each handshake.
    bind : str
        Address to listen on by TCP.
    port : int
        TCP port; 0 lets the system choose.
    advertise : str, optional
        The host that `address` names to peers; None: `bind`.
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(
        self,
        secret: bytes,
        admission: Admission,
        *,
        bind: str,
        port: int = 0,
        advertise: str | None = None,
        handshake_deadline: float = HANDSHAKE_DEADLINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.admission = admission
        #: number of refused connections by reason
        self.refused: Counter[Refusal] = Counter()
        self._secret = secret
        self._clock = clock
        self._handshake_deadline = handshake_deadline
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._tcp = socket.create_server((bind, port), family=family, backlog=LISTEN_BACKLOG)
        unix_name = f"cutline-{secrets.token_hex(16)}"
        self.address = Address(advertise or bind, self._tcp.getsockname()[1], host_token(), unix_name)
        self._unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._unix.bind(unix_path(self.address))
        self._unix.listen(LISTEN_BACKLOG)
        self._listening = {sock.fileno(): sock for sock in (self._tcp, self._unix)}
        #: {file descriptor: handshake}, oldest first
        self._pending: dict[int, _Pending] = {}
        #: time of the clock when accepting goes on, or None while the listening sockets are polled
        self._resume_at: float | None = None
        #: True from a failed `accept` call of the system to the next accepted connection
        self._is_starved = False
        self._poll = select.epoll()
        for sock in self._listening.values():
            sock.setblocking(False)
        self._watch()

    def fileno(self) -> int:
        """Return the descriptor for selectors: readable when `accept` has something to do."""
        return self._poll.fileno()

    @property
    def pending_count(self) -> int:
        """Number of handshakes under way."""
        return len(self._pending)

    @property
    def has_deadline(self) -> bool:
        """True during a handshake or a pause. Call `accept` regularly then, because no descriptor shows a deadline."""
        return bool(self._pending) or self._resume_at is not None

    def accept(self) -> list[Admitted]:
        """Take a bounded step of every handshake, and return the admitted peers. Does not block."""
        if self._resume_at is not None and self._clock() >= self._resume_at:
            self._watch()
        admitted: list[Admitted] = []
        for descriptor, _ in self._poll.poll(0):
            pending = self._pending.get(descriptor)
            if pending is not None:
                admitted += self._advance(descriptor, pending)
            elif descriptor in self._listening and self._resume_at is None:
                self._accept_from(self._listening[descriptor])
        self._expire()
        return admitted

    def close(self) -> None:
        """Stop listening and drop all pending handshakes. May be called again."""
        for pending in self._pending.values():
            pending.sock.close()
        self._pending.clear()
        for sock in self._listening.values():
            sock.close()
        self._poll.close()

    def _watch(self) -> None:
        """Poll the listening sockets from now on."""
        self._resume_at = None
        for descriptor in self._listening:
            self._poll.register(descriptor, select.EPOLLIN)

    def _pause(self, error: OSError) -> None:
        """Stop polling the listening sockets for `ACCEPT_PAUSE_SECONDS`."""
        if not self._is_starved:
            _logger.warning(
                "%s:%d cannot accept connections: %s. They wait until a descriptor is free; `ulimit -n` has the limit",
                *self.address[:2],
                error,
            )
        self._is_starved = True
        self._resume_at = self._clock() + ACCEPT_PAUSE_SECONDS
        for descriptor in self._listening:
            self._poll.unregister(descriptor)

    def _accept_from(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_CALL):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return  # no connection waits, or the kernel has removed a lost connection from the queue
            except OSError as error:
                # Any other error may leave the connection in the queue (accept(2): EMFILE, ENFILE, ENOBUFS, ENOMEM).
                self._pause(error)
                return
            self._is_starved = False
            if len(self._pending) >= PENDING_HANDSHAKES_MAX:
                self._drop(next(iter(self._pending)), Refusal.CROWDED_OUT)
            sock.setblocking(False)
            nonce = secrets.token_bytes(NONCE_BYTES)
            machine = ServerHandshake(self._secret, lambda: self.admission.identity, self.admission.judge, nonce)
            reader = FrameReader(HANDSHAKE_CAPS, read_ahead_bytes=HEADER_BYTES)
            deadline = self._clock() + self._handshake_deadline
            self._pending[sock.fileno()] = _Pending(sock, machine, reader, deadline)
            self._poll.register(sock.fileno(), select.EPOLLIN)

    def _advance(self, descriptor: int, pending: _Pending) -> list[Admitted]:
        """Read at most one message of the peer, and answer it."""
        try:
            answer = pending.machine.receive(_read_frame(pending))
            if pending.sock.send(answer) != len(answer):
                raise ChannelError("the peer does not read")
        except BlockingIOError:
            return []
        except HandshakeFailed as error:
            self._drop(descriptor, error.refusal)
            return []
        except (ChannelError, OSError, ValueError):
            self._drop(descriptor, Refusal.MALFORMED)
            return []
        return self._conclude(descriptor, pending)

    def _conclude(self, descriptor: int, pending: _Pending) -> list[Admitted]:
        machine = pending.machine
        if machine.state is HandshakeState.FAILED:
            assert machine.refusal is not None
            self._drop(descriptor, machine.refusal)
        if machine.state is not HandshakeState.DONE:
            return []
        assert machine.peer is not None
        assert machine.purpose is not None
        self._poll.unregister(descriptor)
        del self._pending[descriptor]
        return [Admitted(pending.sock, machine.peer, machine.purpose)]

    def _expire(self) -> None:
        now = self._clock()
        for descriptor, pending in list(self._pending.items()):
            if pending.deadline > now:
                return  # oldest first, so all others have later deadlines
            self._drop(descriptor, Refusal.TOO_SLOW)

    def _drop(self, descriptor: int, refusal: Refusal) -> None:
        self.refused[refusal] += 1
        self._poll.unregister(descriptor)
        self._pending.pop(descriptor).sock.close()


def _read_frame(pending: _Pending) -> WireFrame:
    """Read one message, and never beyond it. Raises BlockingIOError when the message is incomplete."""
    while True:
        count = pending.sock.recv_into(pending.reader.space)
        if not count:
            raise ChannelError("the peer closed the connection")
        for frame in pending.reader.advance(count):
            return frame
