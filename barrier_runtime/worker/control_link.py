"""The control connection of a worker to the coordinator. Survives the coordinator's loss, and never blocks the data.

Messages to an absent coordinator are dropped. The registration repeats what a new coordinator instance needs. Other
messages are not needed, because the new instance aborts every pending snapshot (PROTOCOL 7.5, restart).
"""

from __future__ import annotations

import logging
import secrets
import select
import threading
import time
from collections import deque
from typing import Any

from cutline.barrier_runtime.control_codec import FROM_COORDINATOR, Message, decode_message, encode_message
from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.barrier_runtime.reactor import Reactor
from cutline.channels.control import ControlConnection
from cutline.channels.dialer import connect
from cutline.channels.heartbeat import Heartbeats
from cutline.channels.identity import Identity, Purpose
from cutline.snapshot.errors import ChannelError

#: name of the coordinator in handshakes
COORDINATOR = "coordinator"

#: Seconds without a coordinator after which a worker leaves. Ray restarts a coordinator in about a second. The limit
#: exists because a driver that is gone must not leave workers behind.
COORDINATOR_SECONDS_MAX = 60.0

#: Seconds that a leaving worker may take to send its last messages, which are a few megabytes at most. The limit exists
#: because a coordinator that reads nothing must not keep a stage from its end.
FAREWELL_SECONDS_MAX = 2.0

_TAG_BYTES = 8

_logger = logging.getLogger("cutline.worker")


def line_identity(run: str, worker: int) -> Identity:
    """Make the identity of a worker on one control connection and on its heartbeat connection.

    Each call makes a new name, because heartbeats count only for the control connection of the same name. A process of
    another stage may have the same worker number.
    """
    return Identity(run, f"worker-{worker}-{secrets.token_hex(_TAG_BYTES)}", 0)


def worker_number(name: str) -> int:
    """Return the worker number in a name that `line_identity` made.

    Raises
    ------
    ChannelError
        if `name` has another form. The form is checked, because any holder of the run's secret chooses its own name.
    """
    prefix, _, rest = name.partition("-")
    number, _, _ = rest.partition("-")
    if prefix != "worker" or not number.isdecimal():
        raise ChannelError(f"{name!r} is no worker's name")
    return int(number)


class ControlLink:
    """The control connection of one worker. A lost connection is replaced in the background.

    Parameters
    ----------
    launch : WorkerLaunch
    worker : int
    heartbeats : Heartbeats
        The worker's heartbeats, which beat to the coordinator too.
    reactor : Reactor
        The worker's reactor, woken when a connection is made. The caller of `take_connection` adds the connection.
    """

    def __init__(self, launch: WorkerLaunch, worker: int, heartbeats: Heartbeats, reactor: Reactor) -> None:
        self.connection: ControlConnection | None = None
        self._launch = launch
        self._worker = worker
        self._heartbeats = heartbeats
        self._reactor = reactor
        #: results of the connecting thread: a connection and the peer of its heartbeats, or the error after which no
        #: attempt follows
        self._made: deque[tuple[ControlConnection, Identity] | ChannelError] = deque()
        #: peer of the heartbeats of `connection`, the very object, because all coordinator instances are equal
        self._beats_to: Identity | None = None
        #: peer whose heartbeats have ended, of another connection: one that is gone, or one that is not taken yet
        self._silent: Identity | None = None
        self._connect()

    def take_connection(self) -> ControlConnection | None:
        """Return a new connection, or None when none was made. Send a registration over a new connection first.

        Raises
        ------
        ChannelError
            if the coordinator was absent for too long, or refuses this worker.
        """
        if not self._made:
            return None
        made = self._made.popleft()
        if isinstance(made, ChannelError):
            raise made
        self.connection, self._beats_to = made
        if self._beats_to is self._silent:
            self.lose("its heartbeats have ended")
        return self.connection

    def send(self, *messages: Message) -> None:
        """Send messages to the coordinator together. Drop the messages while the coordinator is absent."""
        if self.connection is None:
            return
        try:
            self.connection.send(*map(encode_message, messages))
        except ChannelError as error:
            self.lose(str(error))

    @property
    def wants_write(self) -> bool:
        """True when unsent bytes wait until the coordinator reads."""
        return self.connection is not None and self.connection.wants_write

    @property
    def is_free(self) -> bool:
        """True when the coordinator is connected and no bytes wait to be sent."""
        return self.connection is not None and not self.connection.wants_write

    def pump(self) -> None:
        """Write waiting bytes to the connection, without blocking."""
        if self.connection is not None and self.connection.wants_write:
            try:
                self.connection.pump()
            except ChannelError as error:
                self.lose(str(error))

    def receive(self) -> list[Any]:
        """Return the control messages received since the last call."""
        if self.connection is None:
            return []
        try:
            return [decode_message(data, FROM_COORDINATOR) for data in self.connection.receive()]
        except ChannelError as error:
            self.lose(str(error))
            return []

    def lose_silent(self, peer: Identity, reason: str) -> None:
        """Lose the connection whose heartbeats go to `peer`. A later connection stays."""
        if peer is self._beats_to:
            self.lose(reason)
        else:
            self._silent = peer

    def lose(self, reason: str) -> None:
        """Close the connection and connect to the coordinator again in the background."""
        if self.connection is None:
            return
        _logger.warning("the coordinator is lost (%s); data goes on, looking for it again", reason)
        self._reactor.remove(self.connection)
        self.connection.close()
        self.connection = self._beats_to = None
        self._heartbeats.remove(COORDINATOR)
        self._connect()

    def close(self) -> None:
        """Write waiting bytes and close the connection. Blocks for at most `FAREWELL_SECONDS_MAX` seconds."""
        self.pump()
        deadline = time.monotonic() + FAREWELL_SECONDS_MAX
        while self.connection is not None and self.wants_write and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()  # because select() takes no descriptor above 1023
            poll.register(self.connection, select.POLLOUT)
            poll.poll(left * 1000)
            self.pump()
        if self.connection is not None:
            self.connection.close()

    def _connect(self) -> None:
        threading.Thread(target=self._connect_now, name="cutline-control", daemon=True).start()

    def _connect_now(self) -> None:
        launch = self._launch
        made: tuple[ControlConnection, Identity] | ChannelError
        try:
            own = line_identity(launch.run, self._worker)
            dial = (launch.coordinator, own, COORDINATOR)
            sock, peer = connect(*dial, Purpose.CONTROL, launch.secret, timeout=COORDINATOR_SECONDS_MAX, waits=True)
            connection = ControlConnection(sock, own, peer)
            sock, peer = connect(*dial, Purpose.HEARTBEAT, launch.secret, timeout=COORDINATOR_SECONDS_MAX, waits=True)
            self._heartbeats.add(sock, own, peer)
            made = connection, peer
        except ChannelError as error:
            made = error
        self._made.append(made)
        self._reactor.wake()
