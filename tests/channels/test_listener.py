"""The listener and those who connect to it: peers get through, strangers cost nothing and see nothing."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import resource
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from cutline.channels.admission import Admission, EndpointAdmission, PeerAdmission
from cutline.channels.control import ControlConnection
from cutline.channels.dialer import connect
from cutline.channels.handshake import HandshakeFailed
from cutline.channels.identity import Identity, Purpose, Refusal
from cutline.channels.limits import ACCEPT_PAUSE_SECONDS, PENDING_HANDSHAKES_MAX
from cutline.channels.listener import Admitted, Listener
from cutline.channels.sockets import Address, host_token, unix_path
from cutline.channels.wire import WireFrame, WireType, header_of
from cutline.snapshot.errors import ChannelError
from tests.leaks import LeakCheck

SECRET = b"s" * 32
ALICE = Identity("run", "alice", 3)
BOB = Identity("run", "bob", 3)
#: Long enough for a slow machine; a test that passes does not wait for it.
TIMEOUT = 20.0


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bob:
    """A listener, turned until something has happened."""

    def __init__(self, admission: Admission) -> None:
        self.clock = Clock()
        #: threads of other tests in this process
        self.foreign = set(threading.enumerate())
        self.listener = Listener(SECRET, admission, bind="127.0.0.1", clock=self.clock)
        self.admitted: list[Admitted] = []
        self.workers = ThreadPoolExecutor(4)

    def turn(self, until: Callable[[], bool]) -> None:
        while not until():
            self.admitted += self.listener.accept()

    def dial(
        self,
        identity: Identity = ALICE,
        *,
        address: Address | None = None,
        server: str = "bob",
        secret: bytes = SECRET,
        purpose: Purpose = Purpose.DATA,
        timeout: float = TIMEOUT,
    ) -> Future[tuple[socket.socket, Identity]]:
        """Connect in another thread, and turn the listener until that is over."""
        target = address or self.listener.address
        dialing = self.workers.submit(connect, target, identity, server, purpose, secret, timeout=timeout, waits=True)
        self.turn(dialing.done)
        return dialing

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.address.port))

    def close(self) -> None:
        self.workers.shutdown()
        for admitted in self.admitted:
            admitted.sock.close()
        self.listener.close()


@pytest.fixture
def bob(leak_check: LeakCheck) -> Iterator[Bob]:
    """A worker's listener that expects alice."""
    bob = Bob(PeerAdmission(BOB, ["alice"]))
    yield bob
    bob.close()


def over_tcp(address: Address) -> Address:
    """As a peer on another host sees it."""
    return address._replace(host_token="elsewhere")


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_peer_gets_through(bob: Bob, family: socket.AddressFamily) -> None:
    """By Unix socket on one host, by TCP from elsewhere; both sides know whom they have."""
    address = bob.listener.address
    sock, server = bob.dial(address=address if family == socket.AF_UNIX else over_tcp(address)).result()
    [admitted] = bob.admitted
    assert sock.family == admitted.sock.family == family
    assert (server, admitted.peer, admitted.purpose) == (BOB, ALICE, Purpose.DATA)
    sock.sendall(b"first bytes")
    assert admitted.sock.recv(99) == b"first bytes"
    sock.close()


@pytest.mark.parametrize(
    ("identity", "server", "refusal"),
    [
        (ALICE._replace(run="other"), "bob", Refusal.WRONG_RUN),
        (ALICE, "carol", Refusal.WRONG_NAME),
        (ALICE._replace(incarnation=2), "bob", Refusal.STALE_INCARNATION),
        (ALICE._replace(name="mallory"), "bob", Refusal.UNKNOWN_PEER),
    ],
)
def test_who_does_not_belong_is_told_why(bob: Bob, identity: Identity, server: str, refusal: Refusal) -> None:
    """The client gets the reason at once, and it is counted."""
    with pytest.raises(HandshakeFailed, match=refusal.name):
        bob.dial(identity, server=server).result()
    assert bob.listener.refused == {refusal: 1}
    assert bob.admitted == []


def test_a_second_connection_is_refused(bob: Bob) -> None:
    """The first one is not touched by it."""
    sock, _ = bob.dial().result()
    with pytest.raises(HandshakeFailed, match="DUPLICATE"):
        bob.dial().result()
    sock.sendall(b"alive")
    assert bob.admitted[0].sock.recv(99) == b"alive"
    sock.close()


def test_a_wrong_secret_is_refused_and_named(bob: Bob) -> None:
    """The client learns that it was turned away without a verdict."""
    with pytest.raises(ChannelError, match="is the run's secret the same there"):
        bob.dial(secret=b"x" * 32, timeout=0.2).result()
    assert bob.listener.refused[Refusal.UNAUTHENTICATED] >= 1
    assert bob.admitted == []


def test_who_is_ahead_waits_for_the_listener(bob: Bob) -> None:
    """A peer that has rolled back already tries again until this side has too."""
    assert isinstance(bob.listener.admission, PeerAdmission)
    args = (bob.listener.address, ALICE._replace(incarnation=4), "bob", Purpose.DATA, SECRET)
    dialing = bob.workers.submit(connect, *args, timeout=TIMEOUT, waits=True)
    bob.turn(lambda: bob.listener.refused[Refusal.NOT_YET] >= 1)
    bob.listener.admission.advance(4, ["alice"])
    bob.turn(dialing.done)
    sock, server = dialing.result()
    assert server.incarnation == 4
    sock.close()


def test_nobody_there_is_a_named_error(leak_check: LeakCheck) -> None:
    """The error says who, where and for how long."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ChannelError, match=rf"alice .* could not reach bob at 127.0.0.1:{port} in 0.1 s"):
        connect(
            Address("127.0.0.1", port, "elsewhere", ""), ALICE, "bob", Purpose.DATA, SECRET, timeout=0.1, waits=True
        )


def test_who_was_there_before_is_not_waited_for(leak_check: LeakCheck) -> None:
    """A peer that listened and does not any more is dead: its place is taken at another address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ChannelError, match="nobody listens there any more"):
        connect(
            Address("127.0.0.1", port, "elsewhere", ""), ALICE, "bob", Purpose.DATA, SECRET, timeout=60.0, waits=False
        )


def test_a_server_that_never_answers_is_given_up(leak_check: LeakCheck) -> None:
    """The deadline also holds in the middle of a handshake."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1], "elsewhere", "")
        with pytest.raises(ChannelError, match="timed out"):
            connect(address, ALICE, "bob", Purpose.DATA, SECRET, timeout=0.2, waits=True)


def test_a_full_queue_of_the_same_host_is_given_up(leak_check: LeakCheck) -> None:
    """The deadline also holds ahead of a handshake: the kernel would let a dialer wait without an end."""
    address = Address("127.0.0.1", 1, host_token(), f"cutline-full-{os.getpid()}")
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as waiting:
        full.bind(unix_path(address))
        full.listen(0)
        waiting.connect(unix_path(address))
        with pytest.raises(ChannelError, match="could not reach bob"):
            connect(address, ALICE, "bob", Purpose.DATA, SECRET, timeout=0.2, waits=True)


def test_another_program_at_the_address_does_not_hold_a_dialer(
    leak_check: LeakCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts and never answers; once it is gone, the listener that takes its port is reached."""
    monkeypatch.setattr("cutline.channels.dialer.HANDSHAKE_DEADLINE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        port = silent.getsockname()[1]
        address = Address("127.0.0.1", port, "elsewhere", "")
        dialing = pool.submit(connect, address, ALICE, "bob", Purpose.DATA, SECRET, timeout=TIMEOUT, waits=True)
        kept = [silent.accept()[0] for _ in range(2)]
        silent.close()
        listener = Listener(SECRET, PeerAdmission(BOB, ["alice"]), bind="127.0.0.1", port=port)
        admitted: list[Admitted] = []
        while not dialing.done():
            admitted += listener.accept()
        for sock in (*kept, dialing.result()[0], *(each.sock for each in admitted)):
            sock.close()
        listener.close()


class Bomb:
    """Unpickled, it would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def hello(payload: bytes) -> bytes:
    return header_of(WireFrame(WireType.HELLO, 0, 0, payload)) + payload


def test_noise_is_refused_and_nothing_is_unpickled(bob: Bob, tmp_path: Path) -> None:
    """Random bytes, a pickle bomb bare and framed, a lying length, a data frame: closed, counted, without effect."""
    bomb = pickle.dumps(Bomb(tmp_path / "fired"))
    lying = struct.pack("!4sBBBxIQQII", b"CUTL", 1, 1, 0, 0, 0, 0, 0, 2**32 - 1) + bytes(12)
    data = header_of(WireFrame(WireType.DATA, 0, 3, b"x", 0, 1, 1)) + b"x"
    attacks = [os.urandom(500), bomb.ljust(500, b"."), hello(bomb[:32]) + hello(bomb), lying, data, hello(b"short")]
    for number, attack in enumerate(attacks, 1):
        with bob.raw() as sock:
            sock.sendall(attack)
            bob.turn(lambda number=number: bob.listener.refused.total() == number)  # type: ignore[misc]
    assert bob.listener.refused == {Refusal.MALFORMED: len(attacks)}
    assert not (tmp_path / "fired").exists()
    bob.dial().result()[0].close()


def test_a_slow_handshake_ends_at_its_deadline(bob: Bob) -> None:
    """Slowloris: a byte now and then does not move the deadline."""
    with bob.raw() as sock:
        for byte in hello(bytes(32))[:8]:
            sock.send(bytes([byte]))
            bob.turn(lambda: bob.listener.pending_count == 1)
            bob.clock.now += 0.6
        bob.turn(lambda: bob.listener.pending_count == 1)
        bob.clock.now += 0.6
        bob.turn(lambda: bob.listener.pending_count == 0)
    assert bob.listener.refused == {Refusal.TOO_SLOW: 1}


def test_idle_strangers_do_not_keep_a_peer_out(bob: Bob) -> None:
    """Far more of them than places: the oldest go, a peer gets through at once, places stay bounded."""
    strangers = [bob.raw() for _ in range(3 * PENDING_HANDSHAKES_MAX)]
    bob.turn(lambda: bob.listener.refused[Refusal.CROWDED_OUT] >= 2 * PENDING_HANDSHAKES_MAX)
    assert bob.listener.pending_count <= PENDING_HANDSHAKES_MAX
    bob.dial(address=over_tcp(bob.listener.address)).result()[0].close()
    for stranger in strangers:
        stranger.close()


def test_ten_thousand_connects(bob: Bob) -> None:
    """A flood of connections that say nothing and go leaves nothing behind, and a peer gets through after it."""
    address = ("127.0.0.1", bob.listener.address.port)

    def flood() -> None:
        for _ in range(2_500):
            with socket.create_connection(address) as sock:
                # A reset: thousands of sockets in TIME_WAIT would only test the kernel.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    floods = [bob.workers.submit(flood) for _ in range(4)]
    bob.turn(lambda: all(f.done() for f in floods))
    for flooded in floods:
        flooded.result()
    bob.turn(lambda: bob.listener.pending_count == 0)
    bob.dial().result()[0].close()


def test_control_messages_cross(leak_check: LeakCheck) -> None:
    """A worker of any incarnation reaches the coordinator, and bytes of any size go both ways in order."""
    endpoint = Bob(EndpointAdmission(BOB))
    alice = ALICE._replace(incarnation=0)
    sock, server = endpoint.dial(alice, purpose=Purpose.CONTROL).result()
    worker = ControlConnection(sock, alice, server)
    [admitted] = endpoint.admitted
    coordinator = ControlConnection(admitted.sock, BOB, admitted.peer)
    messages = [b"", b"register", os.urandom(3_000_000), b"last"]
    for one, other in ((worker, coordinator), (coordinator, worker)):
        received: list[bytes] = []
        for message in messages:
            one.send(message)
        while len(received) < len(messages):
            one.pump()
            received += other.receive()
        assert received == messages
        assert not one.wants_write
    worker.close()
    with pytest.raises(ChannelError, match="is lost"):
        coordinator.receive()
    coordinator.close()
    endpoint.close()


def test_a_control_peer_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch, leak_check: LeakCheck) -> None:
    """What waits for it is bounded."""
    monkeypatch.setattr("cutline.channels.control.CONTROL_BACKLOG_BYTES_MAX", 4_000_000)
    own, other = socket.socketpair()
    connection = ControlConnection(own, BOB, ALICE)
    with pytest.raises(ChannelError, match=r"alice .* does not read"):
        deque(map(connection.send, [bytes(1_000_000)] * 100))
    connection.close()
    other.close()


def test_the_port_can_be_chosen(leak_check: LeakCheck) -> None:
    """A listener that starts again binds the port that its predecessor had, also right after connections."""
    first = Bob(EndpointAdmission(BOB))
    port = first.listener.address.port
    sock, _ = first.dial(purpose=Purpose.CONTROL, address=over_tcp(first.listener.address)).result()
    first.close()
    sock.close()
    second = Listener(SECRET, EndpointAdmission(BOB), bind="127.0.0.1", port=port)
    assert second.address.port == port
    second.close()


def test_no_thread_is_needed(bob: Bob) -> None:
    """The listener itself starts none: it is driven by the loop that owns it."""
    own = set(threading.enumerate()) - bob.foreign
    assert not [thread for thread in own if thread.name.startswith("cutline")]


def is_ready(bob: Bob) -> bool:
    """Whether a loop would call the listener at once."""
    return bool(select.select([bob.listener], [], [], 0.0)[0])


#: Errors of accept(2) after which the connection still waits, so that the listening socket stays readable.
STAYS = ("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM")
#: Errors of accept(2) that a second attempt may repeat, though the connection is gone.
MAY_STAY = (
    "EPERM",
    "EPROTO",
    "ENETDOWN",
    "ENOPROTOOPT",
    "EHOSTDOWN",
    "ENONET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "EINVAL",
)


@pytest.mark.parametrize("name", STAYS + MAY_STAY)
def test_a_listener_that_cannot_accept_pauses(bob: Bob, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error is met once a pause, the loop sleeps in between, and the peer in the queue gets through afterwards."""
    attempts = []

    def fail(sock: socket.socket) -> tuple[socket.socket, object]:
        attempts.append(sock)
        raise OSError(getattr(errno, name), name)

    dialing = bob.workers.submit(
        connect, bob.listener.address, ALICE, "bob", Purpose.DATA, SECRET, timeout=TIMEOUT, waits=True
    )
    select.select([bob.listener], [], [], TIMEOUT)
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", fail)
        for pauses in range(1, 4):
            for _ in range(100):
                assert bob.listener.accept() == []
            assert len(attempts) == pauses
            assert not is_ready(bob)
            assert bob.listener.has_deadline
            bob.clock.now += ACCEPT_PAUSE_SECONDS
    bob.turn(dialing.done)
    dialing.result()[0].close()
    assert not bob.listener.has_deadline


@pytest.mark.parametrize("error", [BlockingIOError, InterruptedError, ConnectionAbortedError])
def test_a_connection_that_is_gone_does_not_pause(
    bob: Bob, error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger that connects and goes keeps no peer waiting."""
    with bob.raw() as stranger, monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", lambda sock: (_ for _ in ()).throw(error()))
        select.select([bob.listener], [], [], TIMEOUT)
        bob.listener.accept()
        assert is_ready(bob)
        assert not bob.listener.has_deadline
        stranger.close()
    bob.dial().result()[0].close()


def test_no_free_descriptor_is_said_once(bob: Bob, caplog: pytest.LogCaptureFixture) -> None:
    """The process is at its real limit: the loop sleeps, one line is logged, and the peer gets through later."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    stranger = bob.raw()
    select.select([bob.listener], [], [], TIMEOUT)
    filled: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/proc/self/fd")), before[1]))
        with contextlib.suppress(OSError):
            while True:
                filled.append(os.dup(stranger.fileno()))
        with caplog.at_level(logging.WARNING, "cutline.channels"):
            for _ in range(3):
                bob.listener.accept()
                assert bob.listener.has_deadline
                assert bob.listener.pending_count == 0
                bob.clock.now += ACCEPT_PAUSE_SECONDS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in filled:
            os.close(descriptor)
    [record] = caplog.records
    assert "Too many open files" in record.getMessage()
    stranger.close()
    bob.dial().result()[0].close()
