"""The web server of the page, shared by all runs of this driver with the same settings, on a thread of its own.

The server starts with the first run, and ends with the last run or with the process. Until then the server also shows
runs that have ended.
"""

from __future__ import annotations

import atexit
import errno
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import uvicorn

from cutline.barrier_runtime.page.access import Access
from cutline.barrier_runtime.page.app import make_app
from cutline.barrier_runtime.page.commands import Actions
from cutline.barrier_runtime.page.connections import ACCEPTS_PER_TURN, ConnectionTable, PageConnection, PageServerLoop
from cutline.barrier_runtime.page.run_view import RunView
from cutline.barrier_runtime.page.settings import Page
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.plan.topology import Topology

#: ports that are tried, upward from the configured port; so many drivers on one machine are probably a mistake
PORTS_TRIED = 32

#: newest runs that are still shown after their end
ENDED_RUNS_MAX = 20

#: seconds that connections have to close when the server ends
_FAREWELL_SECONDS = 1

#: seconds that `PageServer.close` waits for the server's thread to end
_CLOSE_SECONDS_MAX = 5.0

_TOKEN_BYTES = 16

_logger = logging.getLogger("cutline.page")

#: guards `_open`, and the start and the end of servers, so that a new server can take the port of a server that ends
_lock = threading.Lock()
_open: dict[Page, PageServer] = {}


class PageServer:
    """Serve the page. `open_page` returns a server, and `close_page` releases the server.

    Parameters
    ----------
    settings : Page

    Raises
    ------
    RunFailed
        if the server cannot listen on the configured address.
    """

    def __init__(self, settings: Page) -> None:
        self.is_closing = False
        #: number of active runs, and of submissions that are not runs yet
        self.users = 0
        self.settings = settings
        self._token = settings.token
        if self._token is None and not settings.is_loopback:
            self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._socket = _listen(settings)
        self.port = int(self._socket.getsockname()[1])
        self._lock = threading.Lock()
        self._views: dict[str, RunView] = {}
        app = Access(make_app(self), token=self._token, is_loopback=settings.is_loopback, cookie=f"cutline-{self.port}")
        config = uvicorn.Config(
            app,
            http=partial(PageConnection, table=ConnectionTable()),  # type: ignore[arg-type]  # makes a protocol
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,  # because an access log would contain tokens
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPTS_PER_TURN,
            timeout_graceful_shutdown=_FAREWELL_SECONDS,
        )
        self._server = PageServerLoop(config)
        self._thread = threading.Thread(target=self._serve, name="cutline-page", daemon=True)
        self._thread.start()

    def address(self, key: str = "") -> str:
        """Return the address of a run's page or, without `key`, of the list of runs. Add a token that was made here."""
        host = socket.gethostname() if self.settings.host in ("0.0.0.0", "::") else self.settings.host  # noqa: S104
        name = f"[{host}]" if ":" in host else host
        path = f"/runs/{quote(key)}" if key else "/"
        # A token that was made here must be shown, because nobody knows such a token. A user's own token stays secret.
        token = f"?token={self._token}" if self._token is not None and self.settings.token is None else ""
        return f"http://{name}:{self.port}{path}{token}"

    def show(self, name: str, topology: Topology, actions: Actions, pinned: Sequence[int] = ()) -> RunPage:
        """Show a run from now on. Number its key while a run of the same name, in another store, is active."""
        with self._lock:
            key, number = name, 1
            while key in self._views and not self._views[key].has_ended:
                number += 1
                key = f"{name}~{number}"
            self._views.pop(key, None)
            view = self._views[key] = RunView(key, topology, actions, pinned)
            ended = [each for each, old in self._views.items() if old.has_ended]
            for each in ended[:-ENDED_RUNS_MAX]:
                del self._views[each]
            return RunPage(self, view)

    def views(self) -> dict[str, RunView]:
        """Return the views by key, in the order of submission."""
        with self._lock:
            return dict(self._views)

    def close(self) -> None:
        """End the server. Block until its thread has ended, or for at most `_CLOSE_SECONDS_MAX`."""
        self.is_closing = True
        self._server.should_exit = True
        self._thread.join(_CLOSE_SECONDS_MAX)

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            # Logged and not raised, because a run must not end when its page fails.
            _logger.exception("the page is not served any more")
        finally:
            self._socket.close()


class RunPage:
    """A run's entry on the page, and its share in the server. Methods for the run's monitor raise no errors."""

    def __init__(self, server: PageServer, view: RunView) -> None:
        self.address = server.address(view.key)
        self._server = server
        self._view = view

    def see(self, report: Mapping[str, Any]) -> None:
        """Show a progress report. The caller must not change the report any more."""
        self._show(partial(self._view.see, report))

    def end(self, status: Mapping[str, Any], error: Exception | None, invariants: Mapping[str, Any]) -> None:
        """Show how the run ended: its last status, or the error of its supervisor."""
        self._show(partial(self._view.end, status, error, invariants))

    def show_graph(self, topology: Topology) -> None:
        """Show the graph of a run that was rescaled."""
        self._show(partial(self._view.show_graph, topology))

    def note_unpinned(self, snapshot_id: int) -> None:
        """Show that a snapshot is not pinned any more."""
        self._show(partial(self._view.note_unpinned, snapshot_id))

    def close(self) -> None:
        """Release the share in the server. Block until the server has ended when this was the last share."""
        close_page(self._server)

    def _show(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            # Logged and not raised, because an error in the monitor would let callers that await the run wait forever.
            _logger.exception("the page cannot show run %s", self._view.key)


def open_page(settings: Page) -> PageServer:
    """Return the server for these settings, and start the server when none runs. `close_page` must follow, once.

    Raises
    ------
    RunFailed
        if the server cannot listen on the configured address.
    """
    with _lock:
        server = _open.get(settings)
        if server is None:
            server = _open[settings] = PageServer(settings)
        server.users += 1
        return server


def close_page(server: PageServer) -> None:
    """Release a share in `server`. Releasing the last share ends the server, and may block while connections close."""
    with _lock:
        server.users -= 1
        if server.users == 0:
            _open.pop(server.settings, None)  # `_close_all` has removed the key when the process ends
            server.close()


@atexit.register
def _close_all() -> None:
    """Close all servers, so that browsers receive the last documents of ended runs before the process ends."""
    with _lock:
        for server in _open.values():
            server.close()
        _open.clear()


def _listen(settings: Page) -> socket.socket:
    """Return a socket that listens on the configured port, or on the next free port above."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    ports = range(settings.port, min(settings.port + PORTS_TRIED, 65536)) if settings.port else [0]
    for port in ports:
        try:
            return socket.create_server((settings.host, port), family=family, backlog=ACCEPTS_PER_TURN)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise RunFailed(f"the page cannot listen on {settings.host} port {port}: {error}") from error
    raise RunFailed(
        f"the page cannot listen on {settings.host}: ports {ports[0]} to {ports[-1]} are taken; "
        "give BarrierRuntime(page=Page(port=0)), or page=False"
    )
