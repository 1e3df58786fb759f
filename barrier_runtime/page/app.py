"""Routes of the page, which turn requests into answers. The routes use no sockets and no threads.

::

    GET  /                          the list of runs
    GET  /runs/NAME                 one run
    GET  /static/FILE               scripts, styles and images of both pages
    GET  /api/runs                  {"runs": [summary, ...]}
    GET  /api/runs/NAME             the whole document
    GET  /api/runs/NAME/events      server-sent events: the whole document, then documents with the changes
    POST /api/runs/NAME/snapshot    request a snapshot; ?pinned=true, ?timeout=SECONDS
    POST /api/runs/NAME/stop        request a last snapshot and the end of the run; ?timeout=SECONDS
    POST /api/runs/NAME/stop-now    request the end of the run without a snapshot
    POST /api/runs/NAME/rescale     go on at another parallelism: ?parallelism=NODE=NUMBER,..., ?timeout=SECONDS
    POST /api/runs/NAME/pin         pin a snapshot: ?snapshotId=ID; likewise unpin and delete
    GET  /metrics                   Prometheus, or OpenMetrics for clients that accept OpenMetrics
    GET  anything else              404, with a link to the list

All files, the project's and the vendored ones, come from this package.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import cache
from html import escape
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Protocol

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from cutline.barrier_runtime.page.commands import Kind, parse_arguments
from cutline.barrier_runtime.page.metrics import metrics_registry
from cutline.barrier_runtime.page.run_view import RunView

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: Beginnings of the addresses that programs request, and people do not.
_FOR_PROGRAMS = ("/api/", "/static/")


@cache
def _contents() -> dict[str, bytes]:
    """Return the content of all files by name, read once. A request never becomes a path of the file system."""
    folder = files(__package__) / "static"
    found = {file.name: file for file in folder.iterdir() if file.is_file()}
    found |= {f"vendor/{file.name}": file for file in (folder / "vendor").iterdir()}
    return {name: file.read_bytes() for name, file in found.items()}


def asset(name: str) -> Response:
    """Return the response with one file of the page.

    Raises
    ------
    HTTPException
        if no file has that name.
    """
    content = _contents().get(name)
    if content is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no file {name!r}\n")
    suffix = name[name.rindex(".") :] if "." in name else ""
    media_type = _TYPES.get(suffix, "text/plain; charset=utf-8")
    return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})


#: seconds between two documents to a browser, because a person reads no faster; on a small machine the browser's
#: drawing takes processor time from the workers
UPDATE_SECONDS = 1.0

#: seconds between two checks for a new document
_POLL_SECONDS = 0.1

#: seconds without a document after which a comment line is sent, because only sending shows that a connection is lost
_ALIVE_SECONDS = 5.0


class Shown(Protocol):
    """The runs that the page shows."""

    @property
    def is_closing(self) -> bool:
        """Whether streams must end."""

    def views(self) -> dict[str, RunView]:
        """Return the views by key, in the order of submission."""


def make_app(shown: Shown) -> Starlette:
    """Return the application without access control, which `Access` adds."""
    answers = _Answers(shown)
    return Starlette(
        routes=[
            _get("/", answers.list_page),
            _get("/runs/{name}", answers.run_page),
            _get("/static/{path:path}", answers.static),
            _get("/api/runs", answers.list_runs),
            _get("/api/runs/{name}", answers.one_run),
            _get("/api/runs/{name}/events", answers.events),
            Route("/api/runs/{name}/{kind}", answers.command, methods=["POST"]),
            _get("/metrics", answers.metrics),
        ],
        exception_handlers={HTTPStatus.NOT_FOUND: answers.missing},
    )


class _Answers:
    """Answers to requests: a method for each address."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._registry = metrics_registry(shown.views)

    async def list_page(self, request: Request) -> Response:
        return asset("runs.html")

    async def run_page(self, request: Request) -> Response:
        self._view(request)
        return asset("run.html")

    async def missing(self, request: Request, error: Exception) -> Response:
        """Answer an unknown address with a page that leads back to the list, and programs with plain text."""
        assert isinstance(error, HTTPException)
        if request.scope["path"].startswith(_FOR_PROGRAMS):
            return PlainTextResponse(error.detail, error.status_code, error.headers)
        content = bytes(asset("missing.html").body).replace(b"REASON", escape(error.detail.strip()).encode())
        return Response(content, error.status_code, media_type=_TYPES[".html"])

    async def static(self, request: Request) -> Response:
        return asset(request.path_params["path"])

    async def list_runs(self, request: Request) -> Response:
        return _json({"runs": [view.summary() for view in self._shown.views().values()]})

    async def one_run(self, request: Request) -> Response:
        return _json(self._view(request).document())

    async def events(self, request: Request) -> Response:
        stream = _events(self._view(request), self._shown)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def command(self, request: Request) -> Response:
        view, kind = self._view(request), request.path_params["kind"]
        if kind not in [each.value for each in Kind]:
            known = ", ".join(each.value for each in Kind)
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no command {kind!r}; there are {known}\n")
        try:
            arguments = parse_arguments(Kind(kind), request.query_params)
        except ValueError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"{error}\n") from error
        number = view.command(Kind(kind), arguments)
        if number is None:
            raise HTTPException(HTTPStatus.CONFLICT, "the same command still waits; try again when it is done\n")
        return _json({"command": number}, HTTPStatus.ACCEPTED)

    async def metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), media_type=content_type)

    def _view(self, request: Request) -> RunView:
        name = request.path_params["name"]
        view = self._shown.views().get(name)
        if view is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no run {name!r} here\n")
        return view


def _get(path: str, answer: Callable[[Request], Any]) -> Route:
    return Route(path, answer, methods=["GET"])


def _json(content: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(_encoded(content), status, {"cache-control": "no-store"}, "application/json")


def _encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


async def _events(view: RunView, shown: Shown) -> AsyncIterator[bytes]:
    """Yield documents until the run or the server ends. A run that ends adds its last document and an event ``end``."""
    version, sent_at = 0, float("-inf")
    while True:
        # Read before the document, because a document that precedes the end of run or server must still be sent.
        now, has_ended, is_closing = time.monotonic(), view.has_ended, shown.is_closing
        if view.version != version and (now >= sent_at + UPDATE_SECONDS or has_ended):
            document = view.document(version)
            version, sent_at = document["version"], now
            yield b"data: " + _encoded(document) + b"\n\n"
        elif now >= sent_at + _ALIVE_SECONDS:
            sent_at = now
            yield b":\n\n"
        if has_ended:
            yield b"event: end\ndata:\n\n"
        if has_ended or is_closing:
            return
        await asyncio.sleep(_POLL_SECONDS)
