"""Addresses of listeners, and the setup of sockets. No other file sets socket options."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cutline.channels.limits import KERNEL_UNSENT_BYTES, UNIX_SEND_BUFFER_BYTES


class Address(NamedTuple):
    """Address of a listener: for TCP from anywhere, and for an abstract Unix socket from the same host."""

    host: str
    port: int
    host_token: str
    unix_name: str


@cache
def host_token() -> str:
    """Return a token of this boot and network namespace, within which processes share abstract Unix sockets."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}/{os.stat('/proc/self/ns/net').st_ino}"


def is_local(address: Address) -> bool:
    """Return whether the listener is on this host."""
    return address.host_token == host_token()


def unix_path(address: Address) -> str:
    """Return the abstract socket's path, in the form of socket calls."""
    return f"\0{address.unix_name}"


def prepare(sock: socket.socket) -> None:
    """Set up a connected socket: non-blocking, no delay, and few unsent bytes in the kernel.

    No TCP_USER_TIMEOUT, because Linux counts a live receiver that does not read as lost, so one long `onMessage` would
    end the connection. Heartbeats distinguish dead peers from busy peers.
    """
    sock.setblocking(False)
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BUFFER_BYTES)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES)
