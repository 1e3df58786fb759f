"""Access control of the page: which requests may read the page, and which may send commands.

* **Host.** On loopback the ``Host`` header must name loopback. A foreign page whose name was made to point here
  (DNS rebinding) is refused.
* **Token.** When the page has a token, every request must show the token as a cookie or as ``Authorization: Bearer``.
  A read request may show ``?token=`` once. The answer sets the cookie and redirects to the address without the token.
* **Commands.** A request that changes a run needs the header ``X-Cutline-Request`` and must not come from another
  origin. A browser lets a foreign page send that header only after a preflight request, which is refused here.
"""

from __future__ import annotations

import hmac
import ipaddress
from http import HTTPStatus
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cutline.barrier_runtime.page.connections import ADMIT, ADMITTED_MAX

#: name of the header that every command has, with any value
COMMAND_HEADER = "x-cutline-request"

#: headers of every answer: the page loads only its own files, and no page may frame this page, because a click in a
#: foreign frame must not become a command
_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}

_READING = ("GET", "HEAD")


class Access:
    """Check each request before `app` answers it. An ASGI middleware.

    Parameters
    ----------
    app : ASGIApp
    token : str or None
        Token that every request must show, or None when no token is needed.
    is_loopback : bool
        Whether the server listens on loopback. The ``Host`` header must then name loopback.
    cookie : str
        Name of the cookie. The name contains the port, because browsers share cookies among the ports of a host.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, is_loopback: bool, cookie: str) -> None:
        self._app = app
        self._token = token
        self._is_loopback = is_loopback
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to `app`, or answer the request with a refusal or a redirect."""
        assert scope["type"] == "http"  # because the server has WebSockets and lifespan events switched off

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        request = Request(scope)
        answer = self._answer(request) or self._refuse_crowd(request) or self._app
        await answer(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if self._is_loopback and not _is_loopback_name(host):
            return _refusal(HTTPStatus.BAD_REQUEST, f"this page is not called {host!r}: open it by its printed address")
        if self._token is not None:
            shown = request.query_params.get("token")
            if shown is not None and request.method in _READING and self._is_token(shown):
                return self._welcome(request, shown)
            if not self._is_known(request):
                return _refusal(
                    HTTPStatus.UNAUTHORIZED,
                    "this page needs its token: open the address that was printed when the run was submitted, "
                    "or send 'Authorization: Bearer TOKEN'",
                )
        if request.method not in _READING and not _is_own_command(request, host):
            return _refusal(
                HTTPStatus.FORBIDDEN,
                f"a command needs the header {COMMAND_HEADER}, and must come from this page or from no page",
            )
        return None

    def _refuse_crowd(self, request: Request) -> Response | None:
        """Admit the request's connection, or refuse the request because too many are in progress."""
        if request.scope["state"][ADMIT]():
            return None
        return _refusal(
            HTTPStatus.SERVICE_UNAVAILABLE, f"this page serves {ADMITTED_MAX} connections at a time: close some windows"
        )

    def _is_known(self, request: Request) -> bool:
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(credentials.strip()):
            return True
        return self._is_token(request.cookies.get(self._cookie, ""))

    def _is_token(self, shown: str) -> bool:
        return self._token is not None and hmac.compare_digest(shown.encode(), self._token.encode())

    def _welcome(self, request: Request, token: str) -> Response:
        """Set the cookie and redirect to the address without the token, for address bar, history and bookmarks."""
        # Parsed from the scope, because a URL with an odd `Host` raises.
        rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        path = "/" + quote(request.scope["path"].lstrip("/"))  # because two slashes would name another host
        response = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), HTTPStatus.SEE_OTHER)
        # Not "strict", because the first visit may follow a link in a notebook.
        response.set_cookie(self._cookie, token, httponly=True, samesite="lax")
        return response


def _is_own_command(request: Request, host: str) -> bool:
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return False
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    return COMMAND_HEADER in request.headers


def _is_loopback_name(host: str) -> bool:
    """Return whether `host` names loopback. Every port is accepted, because a tunnel has a port of its own."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _refusal(status: HTTPStatus, text: str) -> Response:
    headers = {"www-authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else None
    return PlainTextResponse(f"{text}\n", status, headers)
