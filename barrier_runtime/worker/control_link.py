"""A worker's line to the coordinator: registers, survives the coordinator's loss, never blocks the data.

While the coordinator is away, what was to be told is dropped, except what a new life of it needs and the
registration repeats: a pending snapshot is aborted by the new life anyway (PROTOCOL 7.5).
"""

from __future__ import annotations

import logging
import secrets
import select
import threading
import time
from collections import deque
from typing import Any

from barrier_runtime.control_codec import Message, decode_message, encode_message
from barrier_runtime.launch import WorkerLaunch
from barrier_runtime.reactor import Reactor
from channels.control import ControlConnection
from channels.dialer import connect
from channels.heartbeat import Heartbeats
from channels.identity import Identity, Purpose
from snapshot.errors import ChannelError

#: How the coordinator is called in handshakes.
COORDINATOR = "coordinator"

#: Seconds without a coordinator after which a worker leaves: Ray brings one back in about a second, and a
#: driver that is gone must not leave workers behind.
COORDINATOR_SECONDS_MAX = 60.0

#: Seconds that a worker which leaves may take to tell what it has to tell. A few megabytes at most; a coordinator that
#: reads nothing does not keep a stage from its end.
FAREWELL_SECONDS_MAX = 2.0

_TAG_BYTES = 8

_logger = logging.getLogger("cutline.worker")


def line_identity(run: str, worker: int) -> Identity:
    """Identity of a worker on its control connection and on the connection of its heartbeats.

    No two lines have the same name: heartbeats count for the control connection that bears theirs, and say nothing
    about another process, of another stage, that has the same number.
    """
    return Identity(run, f"worker-{worker}-{secrets.token_hex(_TAG_BYTES)}", 0)


def worker_number(name: str) -> int:
    """The number in a name that `line_identity` made.

    Raises
    ------
    ChannelError
        if the name is not the coordinator's, because every holder of the secret may choose a name.
    """
    prefix, _, rest = name.partition("-")
    number, _, _ = rest.partition("-")
    if prefix != "worker" or not number.isdecimal():
        raise ChannelError(f"{name!r} is no worker's name")
    return int(number)


class ControlLink:
    """The control connection of one worker, made anew in the background whenever it is lost.

    Parameters
    ----------
    launch : WorkerLaunch
    worker : int
    heartbeats : Heartbeats
        Also beats to the coordinator.
    reactor : Reactor
        The worker's; woken when a connection is there. The taker registers the connection with it.
    """

    def __init__(self, launch: WorkerLaunch, worker: int, heartbeats: Heartbeats, reactor: Reactor) -> None:
        self.connection: ControlConnection | None = None
        self._launch = launch
        self._worker = worker
        self._heartbeats = heartbeats
        self._reactor = reactor
        #: what the connecting thread has brought: a connection, or the error that ends all trying
        self._made: deque[ControlConnection | ChannelError] = deque()
        self._connect()

    def take_connection(self) -> ControlConnection | None:
        """A connection that was just made, and that a registration has to go over first; None: nothing new.

        Raises
        ------
        ChannelError
            if the coordinator stayed away too long, or refuses this worker.
        """
        if not self._made:
            return None
        made = self._made.popleft()
        if isinstance(made, ChannelError):
            raise made
        self.connection = made
        return made

    def send(self, *messages: Message) -> None:
        """Send messages to the coordinator, if it is connected. Messages of one call arrive together."""
        if self.connection is None:
            return
        try:
            self.connection.send(*map(encode_message, messages))
        except ChannelError as error:
            self.lose(str(error))

    @property
    def wants_write(self) -> bool:
        """Something waits until the coordinator reads."""
        return self.connection is not None and self.connection.wants_write

    @property
    def is_free(self) -> bool:
        """There is a coordinator, and nothing waits for it."""
        return self.connection is not None and not self.connection.wants_write

    def pump(self) -> None:
        """Write what waits."""
        if self.connection is not None and self.connection.wants_write:
            try:
                self.connection.pump()
            except ChannelError as error:
                self.lose(str(error))

    def receive(self) -> list[Any]:
        """The control messages that have come."""
        if self.connection is None:
            return []
        try:
            return [decode_message(data) for data in self.connection.receive()]
        except ChannelError as error:
            self.lose(str(error))
            return []

    def lose(self, reason: str) -> None:
        """Give the connection up and look for the coordinator again."""
        if self.connection is None:
            return
        _logger.warning("the coordinator is lost (%s); data goes on, looking for it again", reason)
        self._reactor.remove(self.connection)
        self.connection.close()
        self.connection = None
        self._connect()

    def close(self) -> None:
        """Write what waits and hang up. Blocks while the coordinator reads, `FAREWELL_SECONDS_MAX` at most."""
        self.pump()
        deadline = time.monotonic() + FAREWELL_SECONDS_MAX
        while self.connection is not None and self.wants_write and (left := deadline - time.monotonic()) > 0:
            select.select([], [self.connection], [], left)
            self.pump()
        if self.connection is not None:
            self.connection.close()

    def _connect(self) -> None:
        threading.Thread(target=self._connect_now, name="cutline-control", daemon=True).start()

    def _connect_now(self) -> None:
        launch = self._launch
        made: ControlConnection | ChannelError
        try:
            own = line_identity(launch.run, self._worker)
            dial = (launch.coordinator, own, COORDINATOR)
            sock, peer = connect(*dial, Purpose.CONTROL, launch.secret, timeout=COORDINATOR_SECONDS_MAX, waits=True)
            made = ControlConnection(sock, own, peer)
            sock, peer = connect(*dial, Purpose.HEARTBEAT, launch.secret, timeout=COORDINATOR_SECONDS_MAX, waits=True)
            self._heartbeats.add(sock, own, peer)
        except ChannelError as error:
            made = error
        self._made.append(made)
        self._reactor.wake()
