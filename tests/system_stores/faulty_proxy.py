"""An HTTP proxy in front of a store, which fails when it is told to."""

from __future__ import annotations

import http.client
import threading
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

#: What belongs to one connection and not to the message.
_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


class Mode(Enum):
    """What it does with a request."""

    PASS = auto()
    #: answer 503
    REFUSE = auto()
    #: give no answer until the mode is another
    HANG = auto()


class FaultyProxy:
    """Forwards to `endpoint`; used as a context manager.

    Parameters
    ----------
    endpoint : str
        URL of the store.
    """

    def __init__(self, endpoint: str) -> None:
        self.failed = 0
        self._store = urlsplit(endpoint).netloc
        self._mode = Mode.PASS
        self._changed = threading.Condition()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            # HTTP/1.0 closes the connection after each answer, so none outlives a test in a client's pool.
            protocol_version = "HTTP/1.0"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.serve(self, body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        """Its own URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def mode(self) -> Mode:
        """What it does now."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        with self._changed:
            self._mode, self.failed = mode, 0
            self._changed.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.mode = Mode.PASS
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """One request, on a thread of its own."""
        with self._changed:
            if self._mode is not Mode.PASS:
                self.failed += 1
            self._changed.wait_for(lambda: self._mode is not Mode.HANG)
            refuses = self._mode is Mode.REFUSE
        if refuses:
            _answer(handler, 503, [], b"")
            return
        connection = http.client.HTTPConnection(self._store)
        try:
            connection.request(handler.command, handler.path, body, dict(handler.headers))
            response = connection.getresponse()
            length = response.headers.get("Content-Length", "0") if handler.command == "HEAD" else None
            _answer(handler, response.status, response.getheaders(), response.read(), length)
        finally:
            connection.close()


def _answer(
    handler: BaseHTTPRequestHandler,
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
    length: str | None = None,
) -> None:
    try:
        handler.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                handler.send_header(name, value)
        handler.send_header("Content-Length", length or str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
    except OSError:
        handler.close_connection = True  # whoever asked has given up
