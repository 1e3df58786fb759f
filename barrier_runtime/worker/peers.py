"""Connections between a worker and its peers: listener, admission, addresses."""

from __future__ import annotations

import os
import socket

import msgpack

from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.channels.admission import PeerAdmission
from cutline.channels.control import ControlConnection
from cutline.channels.dialer import connect
from cutline.channels.heartbeat import Heartbeats
from cutline.channels.identity import Identity, Purpose
from cutline.channels.listener import Admitted, Listener
from cutline.channels.sockets import Address
from cutline.snapshot.coordinator.control import WorkerRegistered
from cutline.snapshot.worker.events import Register

#: Seconds that connecting to a peer may take. All peers are restored and accept before any peer dials. A loaded
#: machine may still take a second.
CONNECT_SECONDS_MAX = 30.0


class Peers:
    """The peers of one worker: all other workers of the stage.

    Parameters
    ----------
    launch : WorkerLaunch
    number : int
        Number of this worker.
    control : ControlConnection
        The control connection, whose local address is the address by which peers reach this host.
    """

    def __init__(self, launch: WorkerLaunch, number: int, control: ControlConnection) -> None:
        self._launch = launch
        self._number = number
        self._own = Identity(launch.run, f"worker-{number}", 0)
        self._names = [f"worker-{n}" for n in range(launch.worker_count) if n != number]
        self._admission = PeerAdmission(self._own, self._names)
        self.listener = Listener(launch.secret, self._admission, bind=local_host(control))

    def registration(self, register: Register, disks: tuple[str, ...]) -> WorkerRegistered:
        """Make the registration of this worker, which sees these disks with local versions."""
        address = msgpack.packb(tuple(self.listener.address))
        return WorkerRegistered(
            self._number, self._launch.launch, register.incarnation, address, os.getpid(), register.is_replaying,
            disks, register.worker_of_place,
        )  # fmt: skip

    @property
    def refused(self) -> dict[str, int]:
        """Counts of refused connections, by the name of the reason."""
        return {refusal.name: count for refusal, count in self.listener.refused.items()}

    def advance(self, incarnation: int) -> None:
        """Admit only peers of this incarnation from now on, each once."""
        self._own = self._own._replace(incarnation=incarnation)
        self._admission.advance(incarnation, self._names)

    def accept(self, heartbeats: Heartbeats) -> list[tuple[int, Admitted]]:
        """Return new data connections with their worker numbers. Add heartbeat connections to `heartbeats`."""
        data: list[tuple[int, Admitted]] = []
        for admitted in self.listener.accept():
            if admitted.purpose is Purpose.HEARTBEAT:
                heartbeats.add(admitted.sock, self._own, admitted.peer)
            else:
                data.append((int(admitted.peer.name.removeprefix("worker-")), admitted))
        return data

    def dial(self, peer: int, address: bytes, heartbeats: Heartbeats) -> tuple[socket.socket, Identity]:
        """Connect to a peer: first for heartbeats, then for data. Return the data connection.

        Raises
        ------
        ChannelError
            if the peer does not answer in time, or refuses.
        """
        host, port, host_token, unix_name = msgpack.unpackb(address)
        secret = self._launch.secret
        dial = (Address(host, port, host_token, unix_name), self._own, f"worker-{peer}")
        sock, identity = connect(
            *dial, Purpose.HEARTBEAT, self._launch.secret, timeout=CONNECT_SECONDS_MAX, waits=False
        )
        heartbeats.add(sock, self._own, identity)
        return connect(*dial, Purpose.DATA, secret, timeout=CONNECT_SECONDS_MAX, waits=False)


def local_host(control: ControlConnection) -> str:
    """Return the address by which the coordinator, and so every peer, reaches this host."""
    with socket.socket(fileno=os.dup(control.fileno())) as sock:
        return str(sock.getsockname()[0])
