"""Limits on the page's connections, so that idle peers without a token take neither the page nor the driver's files.

A connection is *waiting* until `Access` admits a request of it. Waiting connections are few and short-lived, because
their peers have proved nothing. An admitted connection stays admitted, and uvicorn ends it when it is idle.
::

    accepted -> waiting --admit--> admitted -> closed
                   |
                   +-- REQUEST_SECONDS are over, or WAITING_MAX newer connections wait --> aborted
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

#: Admitted connections at one time. A browser holds a few, so more are no person.
ADMITTED_MAX = 100

#: Connections that wait. Beyond this number the oldest is aborted. A request arrives within milliseconds, so under a
#: flood the oldest is a stranger.
WAITING_MAX = 64

#: Seconds that a connection may wait for an admitted request. Received bytes do not extend the time, because a peer
#: that sends a byte a second would hold the connection for ever.
REQUEST_SECONDS = 10.0

#: Connections that one turn of the event loop accepts, which bounds the descriptors beyond `WAITING_MAX`.
ACCEPTS_PER_TURN = 32

#: Connections that the kernel queues. A full queue would delay the owner by a second, because TCP then sends again.
_LISTEN_BACKLOG = 4096

#: Seconds between two log lines about the same trouble of the event loop.
_LOG_SECONDS = 60.0

#: Key of the callable in an ASGI scope's state that admits the request's connection.
ADMIT = "admit"

_logger = logging.getLogger("cutline.page")

#: Logger of the protocol. Warnings are dropped, because any stranger can send thousands of malformed requests.
_http_logger = _logger.getChild("http")
_http_logger.setLevel(logging.ERROR)


class ConnectionTable:
    """Counts the page's connections and aborts those that wait too long. Used on the event loop's thread only."""

    def __init__(self) -> None:
        #: {waiting connection: timer that aborts the connection}, oldest first
        self._waiting: dict[PageConnection, asyncio.TimerHandle] = {}
        self._admitted: set[PageConnection] = set()

    def open(self, connection: PageConnection) -> None:
        """Let a connection wait."""
        if len(self._waiting) >= WAITING_MAX:
            self._abort(next(iter(self._waiting)))
        self._waiting[connection] = connection.loop.call_later(REQUEST_SECONDS, self._abort, connection)

    def admit(self, connection: PageConnection) -> bool:
        """Admit a connection. Return False when `ADMITTED_MAX` connections are admitted."""
        if connection in self._waiting and len(self._admitted) < ADMITTED_MAX:
            self._waiting.pop(connection).cancel()
            self._admitted.add(connection)
        return connection in self._admitted

    def lose(self, connection: PageConnection) -> None:
        """Forget a connection that has ended."""
        self._admitted.discard(connection)
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _abort(self, connection: PageConnection) -> None:
        self.lose(connection)
        connection.transport.abort()  # because `close` would wait for a peer that does not read


class PageConnection(H11Protocol):
    """One connection of the page: uvicorn's protocol, entered in a `ConnectionTable`."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        table: ConnectionTable,
    ) -> None:
        super().__init__(config, server_state, {**app_state, ADMIT: partial(table.admit, self)}, _loop)
        self.logger = _http_logger
        self._table = table

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class
        """Enter the connection."""
        super().connection_made(transport)
        self._table.open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._table.lose(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer malformed bytes, or abort where the protocol has no place for another answer."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # because uvicorn's second answer would raise, and log a traceback each time
        else:
            super().send_400_response(msg)


class PageServerLoop(uvicorn.Server):
    """uvicorn's server with few accepts in a turn, a long queue in the kernel, and `LoopErrors`."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve."""
        asyncio.get_running_loop().set_exception_handler(LoopErrors())
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(_LISTEN_BACKLOG)  # because asyncio has set the queue's length to its accepts in a turn

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the server. Abort what is left after its farewell, because a peer that does not read holds its socket."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in this turn of the loop the sockets are closed


class LoopErrors:
    """Handler of an event loop's errors: logs an error at once, and the same error once a minute with its count.

    asyncio reports each failed `accept` by itself, which without free descriptors is some thousand lines a second.

    Parameters
    ----------
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: {message: (time of its last line, reports since that line)}
        self._logged: dict[str, tuple[float, int]] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log the error, unless the same error was logged within the last minute."""
        message, error = str(context["message"]), context.get("exception")
        text = f"{message}: {error}"
        now = self._clock()
        at, dropped = self._logged.get(text, (float("-inf"), 0))
        if now < at + _LOG_SECONDS:
            self._logged[text] = (at, dropped + 1)
            return
        self._logged[text] = (now, 0)
        _logger.error("the page: %s (%d times more since the last line)", text, dropped, exc_info=error)
