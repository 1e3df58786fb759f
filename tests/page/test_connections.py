"""Idle, slow and crowding peers without a token: none keeps the owner out, takes descriptors or floods the log."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import psutil
import pytest

from benchmarks.live import wait_for
from cutline import Page
from cutline.barrier_runtime.page import app, connections, server
from cutline.barrier_runtime.page.connections import LoopErrors
from tests.leaks import LeakCheck
from tests.page.asking import ask, events
from tests.page.conftest import ShowPage
from tests.page.reports import pipeline, report

GUARDED = Page(port=0, token="a token")
OWNER = {"Authorization": "Bearer a token"}
#: Long enough that no connection of a test is aborted because of its age.
_NEVER_SECONDS = 1000.0


@pytest.fixture
def sockets(leak_check: LeakCheck) -> Iterator[ExitStack]:
    """Closes the sockets of the test's peers."""
    with ExitStack() as stack:
        yield stack


def _connect(address: str, sockets: ExitStack) -> socket.socket:
    place = urlsplit(address)
    return sockets.enter_context(socket.create_connection((place.hostname, place.port), timeout=30))


def _closed(peers: list[socket.socket]) -> list[socket.socket]:
    """Those of `peers` whose connection the server has ended."""
    found = []
    for peer in peers:
        poll = select.poll()
        poll.register(peer, select.POLLIN)
        if poll.poll(0):
            try:
                data = peer.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                found.append(peer)
    return found


def test_a_crowd_of_idle_peers_loses_its_oldest(
    show: ShowPage, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only WAITING_MAX wait at a time, the newest ones; the owner is served among them."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", _NEVER_SECONDS)
    address = show(GUARDED).address
    idle = [_connect(address, sockets) for _ in range(3 * connections.WAITING_MAX)]
    old, new = idle[: -connections.WAITING_MAX], idle[-connections.WAITING_MAX :]
    wait_for("the oldest to be aborted", lambda: len(_closed(old)) == len(old))
    assert _closed(new) == []
    for _ in range(5):
        assert ask(address, "/api/runs", **OWNER).status == 200
    assert 0 < len(_closed(new)) <= 5  # one for each new connection at most


@pytest.mark.parametrize("request_head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_peer_that_sends_a_byte_now_and_then_is_aborted(
    request_head: bytes, show: ShowPage, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for a request is counted from the connection's start, and a wrong token does not extend it."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    address = show(GUARDED).address
    slow, refused = _connect(address, sockets), _connect(address, sockets)
    slow.sendall(request_head)
    began = time.monotonic()

    def has_ended() -> bool:
        for peer, data in ((slow, b"X"), (refused, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")):
            try:
                peer.sendall(data)
            except OSError:
                continue
        return len(_closed([slow, refused])) == 2

    wait_for("both to be aborted", has_ended)
    assert time.monotonic() - began >= 0.4


def test_a_peer_that_does_not_read_is_aborted(
    show: ShowPage, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals that nobody reads do not hold their connection."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
    address = show(GUARDED).address
    peer = _connect(address, sockets)
    peer.setblocking(False)
    requests = b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % (b"x" * 60_000) * 10  # the refusal names the host

    def is_reset() -> bool:
        try:
            peer.send(requests)
        except BlockingIOError:
            pass
        except OSError:
            return True
        return False

    wait_for("the connection to be aborted", is_reset)


def test_a_reader_with_the_token_outlives_the_deadline(show: ShowPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An admitted stream goes on, however long it lasts and however many strangers come."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    page = show(Page(port=0))
    page.see(report(pipeline(), 1))
    stream = events(page.address, "/api/runs/orders/events")
    first = next(stream)
    with ExitStack() as stack:
        idle = [_connect(page.address, stack) for _ in range(2 * connections.WAITING_MAX)]
        wait_for("the strangers to be aborted", lambda: len(_closed(idle)) == len(idle))
    page.end(report(pipeline(), 2, outcome="finished"), None, {})
    *_, last, end = stream
    assert (
        first is not None and first["isActive"] and last is not None and last["outcome"] == "finished" and end is None
    )


def test_more_readers_than_are_served_are_refused_by_name(
    show: ShowPage, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence and no log line; a reader that leaves makes room."""
    monkeypatch.setattr(connections, "ADMITTED_MAX", 3)
    address = show(Page(port=0)).address
    readers = [_connect(address, sockets) for _ in range(3)]
    for reader in readers:
        reader.sendall(b"GET /api/runs/orders/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    answer = ask(address, "/api/runs")
    assert answer.status == 503 and "close some windows" in answer.text
    readers.pop().close()
    wait_for("room", lambda: ask(address, "/api/runs").status == 200)


def test_the_end_of_the_server_ends_streams_behind_their_last_byte(show: ShowPage, sockets: ExitStack) -> None:
    """The reader of a run that has not ended gets a whole answer, not a broken one."""
    page = show(Page(port=0))
    reader = _connect(page.address, sockets)
    reader.sendall(b"GET /api/runs/orders/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = reader.recv(1 << 16)
    page.close()
    while data := reader.recv(1 << 16):
        received += data
    assert received.startswith(b"HTTP/1.1 200 ") and received.endswith(b"\r\n0\r\n\r\n")


def test_an_answer_under_way_does_not_hold_the_end(
    show: ShowPage, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends after its farewell, and ends the connection of an answer that has not ended until then."""
    monkeypatch.setattr(server, "_FAREWELL_SECONDS", 0.1)
    monkeypatch.setattr(app, "_POLL_SECONDS", _NEVER_SECONDS)  # so that the stream does not see that the server ends
    page = show(Page(port=0))
    reader = _connect(page.address, sockets)
    reader.sendall(b"GET /api/runs/orders/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reader.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    page.close()
    assert "cutline-page" not in [thread.name for thread in threading.enumerate()]
    wait_for("the end of the connection", lambda: _closed([reader]))


def test_an_answer_that_nobody_reads_ends_with_the_server(
    show: ShowPage, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is still there, and its connection is closed with all that waits in it."""
    monkeypatch.setattr(server, "_FAREWELL_SECONDS", 0.1)
    page = show(Page(port=0))
    page.see(report(pipeline(), 1, reason="x" * 32_000_000))
    reader = _connect(page.address, sockets)
    port = reader.getsockname()[1]
    reader.sendall(b"GET /api/runs/orders HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reader.recv(12) == b"HTTP/1.1 200"
    page.close()
    ends = [each for each in psutil.Process().net_connections("tcp") if each.raddr and each.raddr.port == port]
    assert ends == [], "the server's end is open"


def test_malformed_requests_are_not_logged(show: ShowPage, caplog: pytest.LogCaptureFixture) -> None:
    """Any stranger can send them, as many as they like."""
    address = show(GUARDED).address
    for data in (b"\0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"):
        with ExitStack() as stack:
            peer = _connect(address, stack)
            peer.sendall(data)
            assert peer.recv(1 << 16).startswith(b"HTTP/1.1 4")
    assert [(record.name, record.getMessage()) for record in caplog.records if record.levelname != "DEBUG"] == []


def test_errors_of_the_loop_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A process without descriptors hears once of each, then of how many there were."""
    times = iter((0.0, 0.1, 59.9, 59.9, 60.0))
    handler = LoopErrors(lambda: next(times))
    loop = asyncio.new_event_loop()
    full = {"message": "accept", "exception": OSError(errno.EMFILE, os.strerror(errno.EMFILE))}
    for each in (full, full, full, {"message": "another error"}, full):
        handler(loop, each)
    loop.close()
    assert [record.getMessage() for record in caplog.records] == [
        "the page: accept: [Errno 24] Too many open files (0 times more since the last line)",
        "the page: another error: None (0 times more since the last line)",
        "the page: accept: [Errno 24] Too many open files (2 times more since the last line)",
    ]
