"""Dialer: reaches a listener, proves this side's identity, and returns the socket. Blocks until a deadline."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable

from cutline.channels.frame_reader import FrameReader
from cutline.channels.handshake import NONCE_BYTES, ClientHandshake, HandshakeFailed, HandshakeState
from cutline.channels.identity import Identity, Purpose, Refusal
from cutline.channels.limits import HANDSHAKE_DEADLINE_SECONDS, RECONNECT_PAUSE_SECONDS
from cutline.channels.sockets import Address, is_local, unix_path
from cutline.channels.wire import HANDSHAKE_CAPS, HEADER_BYTES, WireFrame
from cutline.snapshot.errors import ChannelError


def connect(
    address: Address,
    identity: Identity,
    server: str,
    purpose: Purpose,
    secret: bytes,
    *,
    timeout: float,
    waits: bool,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[socket.socket, Identity]:
    """Connect to `server` at `address`, by Unix socket if the server is on this host.

    Blocks for at most `timeout` seconds. A listener that is crowded, or not yet of our incarnation, is tried again. A
    listener that is not up is tried again only if `waits`, because a listener that was up before does not come back.

    Returns
    -------
    (socket, Identity)
        The authenticated socket, read no further than the handshake; and the identity that the server proved.

    Raises
    ------
    HandshakeFailed
        if the server refused for good, or does not hold the secret.
    ChannelError
        if no answer came in time, or nobody listens and `waits` is False.
    """
    deadline = clock() + timeout
    while True:
        # An attempt has a limit of its own, because another program at the address may accept and never answer.
        attempt_deadline = min(deadline, clock() + HANDSHAKE_DEADLINE_SECONDS)
        try:
            return _attempt(address, identity, server, purpose, secret, attempt_deadline, clock)
        except HandshakeFailed as error:
            if error.refusal is not Refusal.NOT_YET:
                raise
            reason: Exception = error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            if not waits:
                raise ChannelError(f"{identity} could not reach {server}: nobody listens there any more") from error
            reason = error
        except (OSError, ChannelError) as error:
            reason = error
        if clock() + RECONNECT_PAUSE_SECONDS >= deadline:
            raise ChannelError(
                f"{identity} could not reach {server} at {address.host}:{address.port} in {timeout:g} s; "
                f"the last attempt ended with: {reason}"
            ) from reason
        time.sleep(RECONNECT_PAUSE_SECONDS)


def _attempt(
    address: Address,
    identity: Identity,
    server: str,
    purpose: Purpose,
    secret: bytes,
    deadline: float,
    clock: Callable[[], float],
) -> tuple[socket.socket, Identity]:
    machine = ClientHandshake(secret, identity, server, purpose, secrets.token_bytes(NONCE_BYTES))
    reader = FrameReader(HANDSHAKE_CAPS, read_ahead_bytes=HEADER_BYTES)
    sock = _open(address, deadline - clock())
    try:
        sock.sendall(machine.start())
        while machine.state is not HandshakeState.DONE:
            sock.settimeout(max(deadline - clock(), 0.001))
            sock.sendall(machine.receive(_read_frame(sock, reader)))
    except BaseException:
        sock.close()
        raise
    assert machine.peer is not None
    return sock, machine.peer


def _open(address: Address, timeout: float) -> socket.socket:
    if not is_local(address):
        return socket.create_connection((address.host, address.port), timeout=max(timeout, 0.001))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(max(timeout, 0.001))
        sock.connect(unix_path(address))
    except BaseException:
        sock.close()
        raise
    return sock


def _read_frame(sock: socket.socket, reader: FrameReader) -> WireFrame:
    while True:
        count = sock.recv_into(reader.space)
        if not count:
            raise ChannelError("it closed the connection without a verdict: is the run's secret the same there?")
        for frame in reader.advance(count):
            return frame
