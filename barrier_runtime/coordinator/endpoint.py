"""The coordinator's TCP endpoint: control connections of workers, and their heartbeats. Makes no decisions.

Runs on the coordinator's loop thread. The heartbeat thread only queues.

The endpoint binds in the loop and tries again, because an error in the actor's constructor would end the run for good.
When another program keeps the wanted port, the endpoint takes another port. The supervisor then submits the stage again
with the new address.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from cutline.barrier_runtime.control_codec import FROM_WORKER, decode_message, encode_message
from cutline.barrier_runtime.reactor import Reactor
from cutline.barrier_runtime.worker.control_link import COORDINATOR, worker_number
from cutline.channels.admission import EndpointAdmission
from cutline.channels.control import ControlConnection
from cutline.channels.heartbeat import Heartbeats
from cutline.channels.identity import Identity, Purpose
from cutline.channels.listener import Admitted, Listener
from cutline.snapshot.coordinator.control import CoordinatorMessage, Quit, WorkerRegistered
from cutline.snapshot.errors import ChannelError

#: called with a received message: worker number, message
OnMessage = Callable[[int, Any], None]
#: called when a worker is lost: worker number, reason
OnLost = Callable[[int, str], None]

#: Seconds to wait for the wanted port. Workers go on without a coordinator meanwhile, and know only this port.
PORT_SECONDS_MAX = 10.0

#: Seconds after which an address without any free port is given up. Workers wait for a coordinator for 60 s.
LISTEN_SECONDS_MAX = 30.0

_logger = logging.getLogger("cutline.coordinator")


class Endpoint:
    """The listener and the connections of the coordinator.

    Parameters
    ----------
    run : str
    secret : bytes
        Secret of the run.
    host : str
    port : int
        Wanted port. A coordinator that Ray restarts wants the same port.
    reactor : Reactor
        The reactor of the loop, woken by the heartbeat thread.
    is_newest : callable
        Return True if a registration is of the newest known stage, or of a newer stage.
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
        self._secret = secret
        self._host = host
        self._wanted_port = port
        #: None until `check_connections` has bound the listener
        self._listener: Listener | None = None
        self._began = time.monotonic()
        #: True when a failed attempt to bind was logged
        self._has_warned = False
        self._reactor = reactor
        self._is_newest = is_newest
        self._on_message = on_message
        self._on_lost = on_lost
        #: {name of the peer: control connection}; all open connections, registered or not
        self._lines: dict[str, ControlConnection] = {}
        #: {worker: the control connection of its last registration}
        self._workers: dict[int, ControlConnection] = {}
        self._silent: deque[tuple[Identity, str]] = deque()
        self._heartbeats = Heartbeats(self._note_silence)

    @property
    def port(self) -> int | None:
        """The port of the listener, or None before it is bound."""
        return None if self._listener is None else self._listener.address.port

    @property
    def refused(self) -> dict[str, int]:
        """Counts of refused connections, by the name of the reason."""
        if self._listener is None:
            return {}
        return {refusal.name: count for refusal, count in self._listener.refused.copy().items()}

    @property
    def is_deserted(self) -> bool:
        """True when no worker is registered, and all messages of former workers are read."""
        return not self._workers

    def send(self, worker: int, message: CoordinatorMessage) -> None:
        """Send a message to a worker. Drop the message if the worker is absent, because its loss is reported anyway."""
        connection = self._workers.get(worker)
        if connection is not None:
            self._send(connection, message)

    def check_connections(self) -> None:
        """Bind, handle stopped heartbeats, and check deadlines of the listener. Call at each wake of the loop.

        Raises
        ------
        ChannelError
            if no port of the host can be bound for `LISTEN_SECONDS_MAX`.
        """
        if self._listener is None:
            self._bind()
        while self._silent:
            identity, reason = self._silent.popleft()
            connection = self._lines.get(identity.name)
            if connection is not None:
                self._lose(connection, reason)
        if self._listener is not None and self._listener.has_deadline:
            self._accept()

    def close(self) -> None:
        """Close the listener and all connections."""
        self._heartbeats.close()
        for connection in self._lines.values():
            connection.close()
        if self._listener is not None:
            self._listener.close()

    def _bind(self) -> None:
        elapsed = time.monotonic() - self._began
        port = self._wanted_port if elapsed < PORT_SECONDS_MAX else 0
        try:
            self._listener = Listener(self._secret, EndpointAdmission(self._own), bind=self._host, port=port)
        except OSError as error:
            if elapsed >= LISTEN_SECONDS_MAX:
                raise ChannelError(f"the coordinator cannot listen on {self._host}: {error}") from error
            if not self._has_warned:
                self._has_warned = True
                _logger.warning("run %s: cannot listen on %s:%d yet: %s", self._own.run, self._host, port, error)
            return
        self._reactor.add(self._listener, self._accept)

    def _note_silence(self, identity: Identity, reason: str) -> None:
        self._silent.append((identity, reason))
        self._reactor.wake()

    def _accept(self) -> None:
        assert self._listener is not None
        for admitted in self._listener.accept():
            if admitted.purpose is Purpose.HEARTBEAT:
                self._add_heartbeats(admitted)
            else:
                self._add_line(admitted)

    def _add_heartbeats(self, admitted: Admitted) -> None:
        # A worker dials its control connection first. Without a connection of that name, the worker is gone already.
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
            messages = [decode_message(data, FROM_WORKER) for data in connection.receive()]
        except ChannelError as error:
            self._lose(connection, str(error))
            return
        for message in messages:
            if isinstance(message, WorkerRegistered) and not self._is_newest(message):
                # PROTOCOL 6.4: an old worker must not replace the worker of the newer stage with the same number.
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
        """Close a connection. Report the worker that is registered on the connection as lost."""
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
