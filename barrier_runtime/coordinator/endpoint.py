"""The coordinator's TCP endpoint: control connections of workers, and their heartbeats. No decisions.

Runs on the coordinator's one loop thread, except for heartbeats, whose thread only queues.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from barrier_runtime.control_codec import decode_message, encode_message
from barrier_runtime.reactor import Reactor
from barrier_runtime.worker.control_link import COORDINATOR, worker_number
from channels.admission import EndpointAdmission
from channels.control import ControlConnection
from channels.heartbeat import Heartbeats
from channels.identity import Identity, Purpose
from channels.listener import Admitted, Listener
from snapshot.coordinator.control import CoordinatorMessage, Quit, WorkerRegistered
from snapshot.errors import ChannelError

#: Told of a message: worker number, message.
OnMessage = Callable[[int, Any], None]
#: Told that a worker is gone: worker number, reason.
OnLost = Callable[[int, str], None]

_logger = logging.getLogger("cutline.coordinator")


class Endpoint:
    """The coordinator's end of all control connections.

    Parameters
    ----------
    run : str
    secret : bytes
        Of the run.
    host : str
    port : int
        Fixed: a coordinator that Ray restarts binds the same one.
    reactor : Reactor
        The loop's; woken by the heartbeat thread.
    is_newest : callable
        Whether a registration is of the newest stage that is known, or of a newer one.
    """

    def __init__(
        self,
        run: str,
        secret: bytes,
        host: str,
        port: int,
        *,
        reactor: Reactor,
        is_newest: Callable[[WorkerRegistered], bool],
        on_message: OnMessage,
        on_lost: OnLost,
    ) -> None:
        self._own = Identity(run, COORDINATOR, 0)
        self._listener = Listener(secret, EndpointAdmission(self._own), bind=host, port=port)
        self._reactor = reactor
        self._is_newest = is_newest
        self._on_message = on_message
        self._on_lost = on_lost
        #: {name of a line: its control connection}; all that are open, also before they register or if they are refused
        self._lines: dict[str, ControlConnection] = {}
        #: {worker: the connection that it has registered on last}
        self._workers: dict[int, ControlConnection] = {}
        self._silent: deque[tuple[Identity, str]] = deque()
        self._heartbeats = Heartbeats(self._note_silence)
        reactor.add(self._listener, self._accept)

    @property
    def port(self) -> int:
        """Return the address of the listener."""
        return self._listener.address.port

    @property
    def refused(self) -> dict[str, int]:
        """Why and how often connections were refused."""
        return {refusal.name: count for refusal, count in self._listener.refused.items()}

    @property
    def is_deserted(self) -> bool:
        """Return whether no worker is connected, and all messages of former workers are read."""
        return not self._workers

    def send(self, worker: int, message: CoordinatorMessage) -> None:
        """Send, if the worker is connected; otherwise its loss is reported anyway."""
        connection = self._workers.get(worker)
        if connection is not None:
            self._send(connection, message)

    def check_connections(self) -> None:
        """Act on heartbeats that stopped, and on handshakes that take too long. Called by the loop when it wakes."""
        while self._silent:
            identity, reason = self._silent.popleft()
            connection = self._lines.get(identity.name)
            if connection is not None:
                self._lose(connection, reason)
        if self._listener.pending_count:
            self._accept()

    def close(self) -> None:
        """Hang up on everybody."""
        self._heartbeats.close()
        for connection in self._lines.values():
            connection.close()
        self._listener.close()

    def _note_silence(self, identity: Identity, reason: str) -> None:
        self._silent.append((identity, reason))
        self._reactor.wake()

    def _accept(self) -> None:
        for admitted in self._listener.accept():
            if admitted.purpose is Purpose.HEARTBEAT:
                self._add_heartbeats(admitted)
            else:
                self._add_line(admitted)

    def _add_heartbeats(self, admitted: Admitted) -> None:
        # A worker dials the control connection first: where there is none of the name, it is gone already.
        if admitted.peer.name in self._lines:
            self._heartbeats.add(admitted.sock, self._own, admitted.peer)
        else:
            admitted.sock.close()

    def _add_line(self, admitted: Admitted) -> None:
        name = admitted.peer.name
        try:
            number = worker_number(name)
            if name in self._lines:
                raise ChannelError(f"{name} is connected already, and no line has another's name")
        except ChannelError as error:
            _logger.warning("run %s: hung up: %s", self._own.run, error)
            admitted.sock.close()
            return
        connection = ControlConnection(admitted.sock, self._own, admitted.peer)
        self._lines[name] = connection
        self._reactor.add_writer(connection, lambda: self._serve(number, connection))

    def _serve(self, number: int, connection: ControlConnection) -> None:
        try:
            connection.pump()
            messages = [decode_message(data) for data in connection.receive()]
        except ChannelError as error:
            self._lose(connection, str(error))
            return
        for message in messages:
            if isinstance(message, WorkerRegistered) and not self._is_newest(message):
                # PROTOCOL 6.4: it must not throw out the worker of the newer stage that has its number.
                self._send(connection, Quit("its stage is over: a newer one has taken its place"))
                return
            if isinstance(message, WorkerRegistered):
                self._replace(number, connection)
            if self._workers.get(number) is connection:
                self._on_message(number, message)

    def _replace(self, number: int, connection: ControlConnection) -> None:
        former = self._workers.get(number)
        self._workers[number] = connection
        if former is not None and former is not connection:
            self._disconnect(former)
            self._on_lost(number, "it connected anew")

    def _send(self, connection: ControlConnection, message: CoordinatorMessage) -> None:
        try:
            connection.send(encode_message(message))
        except ChannelError as error:
            self._lose(connection, str(error))

    def _lose(self, connection: ControlConnection, reason: str) -> None:
        """Hang up; if a worker is registered on it, that is lost too."""
        self._disconnect(connection)
        number = worker_number(connection.peer.name)
        if self._workers.get(number) is connection:
            del self._workers[number]
            self._on_lost(number, reason)

    def _disconnect(self, connection: ControlConnection) -> None:
        name = connection.peer.name
        if self._lines.get(name) is connection:
            del self._lines[name]
            self._heartbeats.remove(name)
        self._reactor.remove(connection)
        connection.close()
