"""One web server for all runs of this driver with the same settings, on a thread of its own.

It starts with the first run and ends with the last, or with the process; runs that have ended stay to be seen for as
long as it lives.
"""

from __future__ import annotations

import atexit
import errno
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import uvicorn

from barrier_runtime.page.access import Access
from barrier_runtime.page.app import make_app
from barrier_runtime.page.commands import Actions
from barrier_runtime.page.connections import ACCEPTS_PER_TURN, ConnectionTable, PageConnection, PageServerLoop
from barrier_runtime.page.run_view import RunView
from barrier_runtime.page.settings import Page
from snapshot.errors import RunFailed
from snapshot.plan.topology import Topology

#: Ports that are tried from the wanted one on; as many drivers on one machine are somebody's mistake.
PORTS_TRIED = 32

#: Runs that have ended and can still be looked at.
ENDED_RUNS_MAX = 20

#: Seconds that connections have to end when the server does.
_FAREWELL_SECONDS = 1

#: Seconds in which a server that was told to end has ended.
_CLOSE_SECONDS_MAX = 5.0

_TOKEN_BYTES = 16

_logger = logging.getLogger("cutline.page")

#: Guards `_open`, and the start and the end of servers: who comes while one ends gets its port.
_lock = threading.Lock()
_open: dict[Page, PageServer] = {}


class PageServer:
    """Serves the page. Got by `open_page`, given back by `close_page`.

    Parameters
    ----------
    settings : Page

    Raises
    ------
    RunFailed
        if it cannot listen there.
    """

    def __init__(self, settings: Page) -> None:
        self.is_closing = False
        #: runs that are on, and submissions that are not runs yet
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
            access_log=False,  # it would hold tokens
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPTS_PER_TURN,
            timeout_graceful_shutdown=_FAREWELL_SECONDS,
        )
        self._server = PageServerLoop(config)
        self._thread = threading.Thread(target=self._serve, name="cutline-page", daemon=True)
        self._thread.start()

    def address(self, key: str = "") -> str:
        """Of a run's page, or of the list of runs; with the token, if it was made here."""
        host = socket.gethostname() if self.settings.host in ("0.0.0.0", "::") else self.settings.host  # noqa: S104
        name = f"[{host}]" if ":" in host else host
        path = f"/runs/{quote(key)}" if key else "/"
        # A token that the user chose is known to who may know it; one that was made here is known to nobody.
        token = f"?token={self._token}" if self._token is not None and self.settings.token is None else ""
        return f"http://{name}:{self.port}{path}{token}"

    def show(self, name: str, topology: Topology, actions: Actions) -> RunPage:
        """Show a run from now on; another one of its name, in another store, may be on."""
        with self._lock:
            key, number = name, 1
            while key in self._views and not self._views[key].has_ended:
                number += 1
                key = f"{name}~{number}"
            self._views.pop(key, None)
            view = self._views[key] = RunView(key, topology, actions)
            ended = [each for each, old in self._views.items() if old.has_ended]
            for each in ended[:-ENDED_RUNS_MAX]:
                del self._views[each]
            return RunPage(self, view)

    def views(self) -> dict[str, RunView]:
        """By key, in the order of submission."""
        with self._lock:
            return dict(self._views)

    def close(self) -> None:
        """End it, and wait for that."""
        self.is_closing = True
        self._server.should_exit = True
        self._thread.join(_CLOSE_SECONDS_MAX)

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            # A run does not end for its page.
            _logger.exception("the page is not served any more")
        finally:
            self._socket.close()


class RunPage:
    """One run's place on the page, and its share in the server. For the run's monitor, which it never fails."""

    def __init__(self, server: PageServer, view: RunView) -> None:
        self.address = server.address(view.key)
        self._server = server
        self._view = view

    def see(self, report: Mapping[str, Any]) -> None:
        """Show a progress report, which must not change any more."""
        self._show(partial(self._view.see, report))

    def end(self, status: Mapping[str, Any], error: Exception | None, invariants: Mapping[str, Any]) -> None:
        """Show how it ended: its last status, or what its supervisor failed with."""
        self._show(partial(self._view.end, status, error, invariants))

    def close(self) -> None:
        """Give back the share in the server; blocks until that has ended, if this was the last."""
        close_page(self._server)

    def _show(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            # Whoever awaits the run must not wait for ever because a page cannot be drawn.
            _logger.exception("the page cannot show run %s", self._view.key)


def open_page(settings: Page) -> PageServer:
    """The server for these settings, started if there is none. `close_page` must follow, once.

    Raises
    ------
    RunFailed
        if it cannot listen there.
    """
    with _lock:
        server = _open.get(settings)
        if server is None:
            server = _open[settings] = PageServer(settings)
        server.users += 1
        return server


def close_page(server: PageServer) -> None:
    """Give it back; the last one ends it, which may block for seconds while browsers say goodbye."""
    with _lock:
        server.users -= 1
        if server.users == 0:
            _open.pop(server.settings, None)  # gone already, where the process ends
            server.close()


@atexit.register
def _close_all() -> None:
    """Let browsers have the last document of what has ended before the process is gone."""
    with _lock:
        for server in _open.values():
            server.close()
        _open.clear()


def _listen(settings: Page) -> socket.socket:
    """The wanted port, or the next free one up."""
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
