"""The coordinator's endpoint: who counts as a worker's connection when a stage that is over still has workers."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest

from cutline.barrier_runtime.control_codec import decode_message, encode_message
from cutline.barrier_runtime.coordinator.endpoint import Endpoint
from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.barrier_runtime.reactor import Reactor
from cutline.barrier_runtime.tracing.chunks import TraceChunk, WorkerTrace
from cutline.barrier_runtime.worker import control_link
from cutline.barrier_runtime.worker.control_link import COORDINATOR, ControlLink, line_identity, worker_number
from cutline.channels.control import ControlConnection
from cutline.channels.dialer import connect
from cutline.channels.heartbeat import Heartbeats
from cutline.channels.identity import Identity, Purpose
from cutline.channels.sockets import Address
from cutline.snapshot.coordinator.control import Quit, Welcome, WorkerIdle, WorkerRegistered
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.subtask.limits import SubtaskLimits
from tests.leaks import LeakCheck

RUN, SECRET = "run", bytes(32)
#: Tokens of two stages of one submission.
STALE, NEWEST = "000001", "000002"
#: Milliseconds are enough; a test that passes does not wait for this.
DEADLINE_S = 20.0


class Service:
    """An endpoint whose loop the test turns, and what it was told."""

    def __init__(self) -> None:
        self.received: list[tuple[int, Any]] = []
        self.lost: list[tuple[int, str]] = []
        self.reactor = Reactor()
        self.endpoint = Endpoint(
            RUN,
            SECRET,
            "127.0.0.1",
            0,
            reactor=self.reactor,
            is_newest=lambda registered: registered.launch >= NEWEST,
            on_message=lambda worker, message: self.received.append((worker, message)),
            on_lost=lambda worker, reason: self.lost.append((worker, reason)),
        )
        self.endpoint.check_connections()
        assert self.endpoint.port is not None
        self.port = self.endpoint.port
        self._dialler = ThreadPoolExecutor(1)
        self._dialled: dict[ControlConnection, Identity] = {}

    def turn_until(self, what: str, condition: Callable[[], Any]) -> Any:
        """Turn the loop until `condition` gives something true, and return it."""
        end = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            assert time.monotonic() < end, f"still waiting for {what}"
            self.reactor.wait(0.01)
            self.endpoint.check_connections()
        return found

    def dial(self, worker: int) -> ControlConnection:
        """A control connection of that worker, by TCP; nothing is registered yet."""
        return self.dial_as(line_identity(RUN, worker))

    def dial_as(self, own: Identity) -> ControlConnection:
        """A control connection of whoever that is."""
        sock, peer = self._connect(own, Purpose.CONTROL)
        connection = ControlConnection(sock, own, peer)
        self._dialled[connection] = own
        return connection

    def beat(self, line: ControlConnection) -> socket.socket:
        """A heartbeat connection beside a control connection."""
        return self._connect(self._dialled[line], Purpose.HEARTBEAT)[0]

    def beat_alone(self) -> socket.socket:
        """A heartbeat connection of a worker that has no other."""
        return self._connect(line_identity(RUN, 0), Purpose.HEARTBEAT)[0]

    def _connect(self, own: Identity, purpose: Purpose) -> tuple[socket.socket, Identity]:
        dial = (Address("127.0.0.1", self.port, "", ""), own, COORDINATOR, purpose, SECRET)
        dialling = self._dialler.submit(connect, *dial, timeout=DEADLINE_S, waits=False)
        self.turn_until("the handshake", dialling.done)
        return dialling.result()

    def answers(self, connection: ControlConnection) -> list[Any]:
        """What the endpoint has said on a connection, once there is something."""
        return [decode_message(data) for data in self.turn_until("an answer", connection.receive)]

    def close(self) -> None:
        """Give everything back."""
        for connection in self._dialled:
            connection.close()
        self._dialler.shutdown()
        self.endpoint.close()
        self.reactor.close()


@pytest.fixture
def service(leak_check: LeakCheck) -> Iterator[Service]:
    """An endpoint on loopback."""
    made = Service()
    yield made
    made.close()


def test_a_worker_waits_while_no_descriptor_is_free(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepting fails for a while; the loop goes on by itself, without another event."""
    accept, attempts = socket.socket.accept, []

    def fail(sock: socket.socket) -> tuple[socket.socket, Any]:
        attempts.append(sock)
        if len(attempts) <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", fail)
    service.dial(0)
    assert len(attempts) > 2


def registration(launch: str) -> WorkerRegistered:
    """Worker 0 of a stage registers."""
    return WorkerRegistered(0, launch, 0, b"", 1)


def test_a_worker_of_a_stale_stage_does_not_throw_out_the_newer_one(service: Service) -> None:
    """PROTOCOL 6.4: it is told to quit, nothing of it is heard, not even its end, and its namesake stays."""
    newer, stale = service.dial(0), service.dial(0)
    newer.send(encode_message(registration(NEWEST)))
    service.turn_until("the registration", lambda: service.received)
    stale.send(encode_message(registration(STALE)))
    stale.send(encode_message(WorkerIdle(0, 1, True)))
    (answer,) = service.answers(stale)
    assert isinstance(answer, Quit)
    stale.close()
    newer.send(encode_message(WorkerIdle(0, 2, True)))
    service.turn_until("the newer one", lambda: len(service.received) > 1)
    assert service.received == [(0, registration(NEWEST)), (0, WorkerIdle(0, 2, True))]
    assert service.lost == []
    service.endpoint.send(0, Welcome(1, 1))
    assert service.answers(newer) == [Welcome(1, 1)]


def test_a_worker_that_connects_anew_takes_its_own_place(service: Service) -> None:
    """Of the same stage the newest connection counts: the former one is lost, and hung up."""
    former = service.dial(0)
    former.send(encode_message(registration(NEWEST)))
    service.turn_until("the registration", lambda: service.received)
    again = service.dial(0)
    again.send(encode_message(registration(NEWEST)))
    service.turn_until("the second registration", lambda: len(service.received) > 1)
    assert service.lost == [(0, "it connected anew")]
    service.endpoint.send(0, Welcome(1, 1))
    assert service.answers(again) == [Welcome(1, 1)]


def reset(connection: ControlConnection) -> None:
    """Hang up by a reset, as the kernel does for a process that is killed with bytes unread."""
    connection._frames._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_stale_worker_that_resets_its_line_breaks_nothing(service: Service) -> None:
    """Its registration is there, and so is the reset: the answer cannot be sent, which is nobody else's business."""
    stale = service.dial(0)
    stale.send(encode_message(registration(STALE)))
    reset(stale)
    newer = service.dial(0)
    newer.send(encode_message(registration(NEWEST)))
    service.turn_until("the registration", lambda: service.received)
    assert service.received == [(0, registration(NEWEST))]


def test_a_stale_workers_heartbeats_do_not_throw_out_the_newer_one(service: Service) -> None:
    """They come and end with its line; the worker that has its number now is lost when its own end."""
    newer = service.dial(0)
    newer_beat = service.beat(newer)
    newer.send(encode_message(registration(NEWEST)))
    service.turn_until("the registration", lambda: service.received)
    stale = service.dial(0)
    stale_beat = service.beat(stale)
    stale.send(encode_message(registration(STALE)))
    service.answers(stale)
    stale_beat.close()
    disconnected = service.turn_until("the end of the stale line", lambda: _is_disconnected(stale))
    assert disconnected and service.lost == []
    newer.send(encode_message(WorkerIdle(0, 2, True)))
    service.turn_until("the newer one", lambda: len(service.received) > 1)
    newer_beat.close()
    service.turn_until("its loss", lambda: service.lost)
    assert [worker for worker, _ in service.lost] == [0]


def _is_disconnected(connection: ControlConnection) -> bool:
    try:
        connection.receive()
    except ChannelError:
        return True
    return False


def test_a_life_of_the_endpoint_ends_for_everybody(service: Service) -> None:
    """Also for who was refused, or has not registered: they look for the next life at once."""
    registered, refused, silent = (service.dial(number) for number in (0, 0, 1))
    registered.send(encode_message(registration(NEWEST)))
    refused.send(encode_message(registration(STALE)))
    service.answers(refused)
    service.turn_until("the registration", lambda: service.received)
    service.endpoint.close()
    end = time.monotonic() + DEADLINE_S
    for connection in (registered, refused, silent):
        while not _is_disconnected(connection):
            assert time.monotonic() < end, "it is not hung up"


def test_heartbeats_without_a_line_are_hung_up(service: Service) -> None:
    """The control connection that they belonged to is gone, or never was."""
    alone = service.beat_alone()
    alone.settimeout(DEADLINE_S)
    assert alone.recv(1) == b""
    alone.close()


@pytest.mark.parametrize("name", ["worker", "worker-", "worker-x-1", "coordinator", "worker--1", "other-1-2"])
def test_who_has_no_workers_name_is_hung_up(service: Service, name: str) -> None:
    """Whoever holds the secret may call himself what he likes; he harms nobody."""
    with pytest.raises(ChannelError, match="no worker's name"):
        worker_number(name)
    stranger = service.dial_as(Identity(RUN, name, 0))
    service.turn_until("the end of it", lambda: _is_disconnected(stranger))
    test_a_worker_that_connects_anew_takes_its_own_place(service)


def test_a_lines_name_is_used_once(service: Service) -> None:
    """A second line of the same name is hung up, and the first stays."""
    name = line_identity(RUN, 0)
    first = service.dial_as(name)
    first.send(encode_message(registration(NEWEST)))
    service.turn_until("the registration", lambda: service.received)
    second = service.dial_as(name)
    service.turn_until("the end of the second", lambda: _is_disconnected(second))
    assert service.lost == []
    service.endpoint.send(0, Welcome(1, 1))
    assert service.answers(first) == [Welcome(1, 1)]


def _launch(service: Service) -> WorkerLaunch:
    """What a worker of the run is started with."""
    address = Address("127.0.0.1", service.port, "", "")
    return WorkerLaunch(RUN, NEWEST, address, SECRET, 1, b"", b"", SubtaskLimits(), False, 0, trace=True)


def test_heartbeats_that_end_late_leave_the_next_line(service: Service) -> None:
    """A busy worker learns late that the heartbeats of a lost line have ended. Its new line stays, with its own."""
    heartbeats, reactor = Heartbeats(lambda peer, reason: None), Reactor()
    link = ControlLink(_launch(service), 0, heartbeats, reactor)
    service.turn_until("the line", link.take_connection)
    before = link._beats_to
    assert before is not None
    link.lose("the coordinator is gone")
    service.turn_until("the next line", link.take_connection)
    now, connection = link._beats_to, link.connection
    assert now is not None and now == before
    link.lose_silent(before, "late")
    assert link.connection is connection
    link.lose_silent(now, "in time")
    assert link.connection is None
    service.turn_until("the last line", lambda: link._made)
    made = link._made[0]
    assert isinstance(made, tuple)
    link.lose_silent(made[1], "before it is taken")
    assert link.take_connection() is None
    service.turn_until("another line", link.take_connection)
    link.close()
    heartbeats.close()
    reactor.close()


def test_what_a_worker_sends_last_is_heard_whole(service: Service) -> None:
    """A worker that leaves writes all that waits, however much, before it hangs up; then the endpoint is deserted."""
    heartbeats, reactor = Heartbeats(lambda peer, reason: None), Reactor()
    link = ControlLink(_launch(service), 0, heartbeats, reactor)
    service.turn_until("the line", link.take_connection)
    last = WorkerTrace(0, (TraceChunk(Subtask("p"), 1, True, 1, bytes(16 * 1024 * 1024)),))
    link.send(registration(NEWEST))
    link.send(last)
    assert link.wants_write
    with ThreadPoolExecutor(1) as leaving:
        leaving.submit(link.close)
        service.turn_until("the end of the line", lambda: service.lost)
    assert service.received == [(0, registration(NEWEST)), (0, last)]
    assert service.endpoint.is_deserted
    heartbeats.close()
    reactor.close()


def test_a_worker_leaves_although_nobody_reads(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that is stuck holds a worker up for a while only."""
    monkeypatch.setattr(control_link, "FAREWELL_SECONDS_MAX", 0.05)
    heartbeats, reactor = Heartbeats(lambda peer, reason: None), Reactor()
    link = ControlLink(_launch(service), 0, heartbeats, reactor)
    service.turn_until("the line", link.take_connection)
    link.send(registration(NEWEST), WorkerTrace(0, (TraceChunk(Subtask("p"), 1, True, 1, bytes(16 * 1024 * 1024)),)))
    leaving = Thread(target=link.close, daemon=True)
    leaving.start()
    leaving.join(DEADLINE_S)
    assert not leaving.is_alive()
    heartbeats.close()
    reactor.close()
