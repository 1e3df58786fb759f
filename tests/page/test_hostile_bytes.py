"""Bytes to the page's port: no bytes kill the server, hang it, leak a descriptor or reach the log."""

from __future__ import annotations

import random
import socket
from urllib.parse import urlsplit

import pytest

from cutline import Page
from tests.hostile_bytes import end, hostile, send_in_pieces
from tests.page.asking import ask
from tests.page.conftest import ShowPage
from tests.page.reports import pipeline, report
from tests.run_size import scaled

#: A hang is a failure, long before the limit of other tests.
pytestmark = pytest.mark.timeout(90)

CASES = scaled(800)

#: Parts of requests: each place of a request takes one of these.
_METHODS = ("GET", "HEAD", "POST", "PUT", "OPTIONS", "CONNECT", "get", "G\0T", "")
_TARGETS = (
    *("/", "/runs/orders", "/runs/none", "/api/runs", "/api/runs/orders", "/api/runs/orders/snapshot", "/metrics"),
    *(
        "/static/page.css",
        "/static/../app.py",
        "//evil/",
        "*",
        "http://[",
        "http://x/",
        "/%",
        "/%ff%00",
        "/runs/%ed%a0%80",
    ),
    *(
        "/?token=a+token",
        "/runs/orders?token=a+token&x=%ff",
        "/?token=%ed%a0%80",
        "/?token=" + "x" * 9000,
        "/" + "a" * 70_000,
    ),
)
_HOSTS = (
    "localhost",
    "127.0.0.1:1",
    "[",
    "[::1",
    "]",
    "localhost:x",
    "localhost:99999999",
    "a b",
    "\xff",
    "x" * 9000,
    "",
)
_HEADERS = (
    *("Authorization: Bearer a token", "Authorization: Bearer \xff", "Authorization:", "Cookie: cutline=\xff; ;=;a"),
    *("Origin: http://[", "Origin: null", "Origin: http://localhost", "Sec-Fetch-Site: \xff", "X-Cutline-Request: 1"),
    *("Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5, 6"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Expect: 100-continue", "Connection: close"),
    *(
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Upgrade: h2c",
        "Accept: \xff;q=x",
        "Accept: application/openmetrics-text",
    ),
    *("Accept: text/plain;version=;escaping=x", "no colon", ": no name", "A: " + "b" * 20_000, "X: \0", " folded"),
)
_BODIES = ("", "hello", "5\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\n", "-1\r\n", "x\r\n")


def _request(rng: random.Random) -> bytes:
    """A request whose parts are each usual or odd."""
    method = "GET" if rng.randrange(2) else rng.choice(_METHODS)
    version = "HTTP/1.1" if rng.randrange(8) else rng.choice(("HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "HTTP/1.1 "))
    hosts = ["localhost"] if rng.randrange(2) else rng.choices(_HOSTS, k=rng.randrange(3))
    headers = [f"Host: {host}" for host in hosts] + rng.choices(_HEADERS, k=rng.randrange(4))
    head = "\r\n".join([f"{method} {rng.choice(_TARGETS)} {version}".rstrip(), *headers])
    return f"{head}\r\n\r\n{rng.choice(_BODIES)}".encode("latin-1")


def _read(sock: socket.socket, rng: random.Random) -> None:
    """Read an answer, part of an answer, or nothing."""
    sock.settimeout(0.02)
    try:
        for _ in range(rng.randrange(3)):
            sock.recv(rng.choice((1, 100, 100_000)))
    except OSError:
        pass  # nothing came, or the server has ended the connection


@pytest.mark.parametrize("settings", [Page(port=0), Page(port=0, token="a token")], ids=["open", "guarded"])
def test_no_bytes_harm_the_page(settings: Page, show: ShowPage, caplog: pytest.LogCaptureFixture) -> None:
    """The owner is served between all of them, and not a line is logged."""
    rng = random.Random(2525)
    page = show(settings)
    page.see(report(pipeline(), 1))
    place = urlsplit(page.address)
    open_ones: list[socket.socket] = []
    for case in range(CASES):
        sock = socket.create_connection((place.hostname, place.port), timeout=30)
        requests = [_request(rng) for _ in range(rng.randint(1, 3))]
        data = b"".join(requests) if rng.randrange(3) else hostile(rng, requests)
        send_in_pieces(rng, sock, data, lambda sock=sock: _read(sock, rng))  # type: ignore[misc]
        open_ones.append(sock)
        if rng.randrange(4):
            end(rng, open_ones.pop(rng.randrange(len(open_ones))))
        if case % 25 == 0:
            assert ask(page.address, "/api/runs", Authorization="Bearer a token").status == 200, case
    for sock in open_ones:
        sock.close()
    assert ask(page.address, "/api/runs/orders", Authorization="Bearer a token").json["isActive"]
    page.close()  # what is left of a connection or a thread afterwards fails the fixture's check of leaks
    assert [(record.name, record.getMessage()) for record in caplog.records if record.levelname != "DEBUG"] == []
