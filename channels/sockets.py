"""Addresses of peers, and the setup of sockets. No other file sets socket options."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

from channels.limits import KERNEL_UNSENT_BYTES, UNIX_SEND_BUFFER_BYTES


class Address(NamedTuple):
    """Address of a listener: by TCP from anywhere, by an abstract Unix socket from the same host."""

    host: str
    port: int
    host_token: str
    unix_name: str


@cache
def host_token() -> str:
    """Equal for two processes that can reach each other's abstract Unix sockets: same boot, same network namespace."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}/{os.stat('/proc/self/ns/net').st_ino}"


def is_local(address: Address) -> bool:
    """The listener is on this host."""
    return address.host_token == host_token()


def unix_path(address: Address) -> str:
    """The abstract socket's path, as the socket calls want it."""
    return f"\0{address.unix_name}"


def prepare(sock: socket.socket) -> None:
    """Set a connected socket up: non-blocking, no delay, and little of ours waiting in the kernel.

    No TCP_USER_TIMEOUT: Linux counts a receiver that is alive and does not read as lost, so one long
    `onMessage` would end the connection. Heartbeats tell the dead from the busy.
    """
    sock.setblocking(False)
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BUFFER_BYTES)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES)
