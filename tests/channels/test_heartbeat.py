"""Heartbeats: the silent are found, the busy are not, whichever way the line is cut."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from cutline.channels.heartbeat import Heartbeats
from cutline.channels.identity import Identity
from cutline.channels.limits import HEARTBEAT_DEADLINE_SECONDS, HEARTBEAT_INTERVAL_SECONDS
from cutline.channels.wire import HEADER_BYTES, WireFrame, WireType, header_of
from tests.channels.links import ALICE, BOB, tcp_pair
from tests.leaks import LeakCheck

INTERVAL, DEADLINE = 0.02, 0.5
#: Long enough for a slow machine; a test that passes does not wait for it.
TIMEOUT = 20.0

Lost = queue.SimpleQueue[tuple[Identity, str]]


class Proxy:
    """Between two sockets; each way can be cut without either end being told."""

    def __init__(self) -> None:
        self.left, self._left = tcp_pair()
        self.right, self._right = tcp_pair()
        self.passes = {"to_left": True, "to_right": True}
        self._threads = [
            threading.Thread(target=self._pass, args=(self._left, self._right, "to_right")),
            threading.Thread(target=self._pass, args=(self._right, self._left, "to_left")),
        ]
        for thread in self._threads:
            thread.start()

    def _pass(self, source: socket.socket, target: socket.socket, way: str) -> None:
        try:
            while data := source.recv(4096):
                if self.passes[way]:
                    target.sendall(data)
        except ConnectionError:
            pass  # An end that closes with a beat unread resets the line: a close like any other.
        _shut(target, socket.SHUT_WR)

    def close(self) -> None:
        for sock in (self._left, self._right):
            _shut(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._left.close()
        self._right.close()


def _shut(sock: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # The peer closed it first.
        sock.shutdown(how)


class Pair:
    """Alice and Bob, who listen for each other through a proxy."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self.proxy = Proxy()
        self.lost_by_alice: Lost = queue.SimpleQueue()
        self.lost_by_bob: Lost = queue.SimpleQueue()
        self.alice = Heartbeats(lambda *lost: self.lost_by_alice.put(lost), interval=INTERVAL, deadline=deadline)
        self.bob = Heartbeats(lambda *lost: self.lost_by_bob.put(lost), interval=INTERVAL, deadline=deadline)
        self.alice.add(self.proxy.left, ALICE, BOB)
        self.bob.add(self.proxy.right, BOB, ALICE)

    def close(self) -> None:
        self.alice.close()
        self.bob.close()
        self.proxy.close()


@pytest.fixture
def pair(leak_check: LeakCheck) -> Iterator[Pair]:
    """Two processes' worth of heartbeats."""
    pair = Pair()
    yield pair
    pair.close()


def test_a_one_way_drop_is_found_by_the_one_who_hears_nothing(pair: Pair) -> None:
    """TCP tells the receiver of a half-open connection nothing."""
    pair.proxy.passes["to_right"] = False
    assert pair.lost_by_bob.get(timeout=TIMEOUT) == (ALICE, f"no sign of life for {DEADLINE:g} s")


def test_both_find_a_cut_both_ways(pair: Pair) -> None:
    """Each names the other."""
    pair.proxy.passes.update(to_left=False, to_right=False)
    assert pair.lost_by_alice.get(timeout=TIMEOUT)[0] == BOB
    assert pair.lost_by_bob.get(timeout=TIMEOUT)[0] == ALICE


def test_a_closed_connection_is_found_at_once(leak_check: LeakCheck) -> None:
    """A process that ends closes its sockets: its peer hears that, long before any deadline."""
    pair = Pair(deadline=100 * TIMEOUT)
    pair.alice.close()
    peer, why = pair.lost_by_bob.get(timeout=TIMEOUT)
    assert peer == ALICE
    assert "closed the connection" in why
    pair.close()


def test_a_busy_process_is_not_dead(pair: Pair) -> None:
    """The main thread works for twice the deadline without once giving a hand: nobody is lost."""
    end = threading.Event()
    threading.Timer(2 * DEADLINE, end.set).start()
    numbers = 0
    while not end.is_set():
        numbers += sum(range(1000))
    assert pair.lost_by_alice.empty()
    assert pair.lost_by_bob.empty()


def test_who_is_removed_is_not_lost(pair: Pair) -> None:
    """A peer that was told to go is forgotten; the other end sees that the connection is closed."""
    pair.alice.remove("bob")
    pair.alice.remove("nobody")
    assert pair.lost_by_bob.get(timeout=TIMEOUT)[0] == ALICE
    assert pair.lost_by_alice.empty()


class Paused:
    """One peer of a process that pauses whenever the test says so. The peer's end of the line is `other`."""

    #: powers of two, so that sums of silences are exact
    INTERVAL, DEADLINE = 1 / 64, 0.5

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._now = 0.0
        self._readings = threading.Semaphore(0)
        self.own, self.other = tcp_pair()
        self.other.settimeout(TIMEOUT)
        self.lost: Lost = queue.SimpleQueue()
        self.heartbeats = Heartbeats(
            lambda *it: self.lost.put(it), interval=self.INTERVAL, deadline=self.DEADLINE, clock=self._clock
        )
        for _ in range(4):  # the fourth reading follows the first turn of the loop, which would beat a second time
            assert self._readings.acquire(timeout=TIMEOUT)
        self.heartbeats.add(self.own, BOB, ALICE)
        assert self._has_beaten()

    def _clock(self) -> float:
        self._readings.release()
        with self._held:
            return self._now

    def _has_beaten(self) -> bool:
        """Await the next heartbeat. Return False when the connection is closed instead."""
        try:
            return len(self.other.recv(HEADER_BYTES, socket.MSG_WAITALL)) == HEADER_BYTES
        except ConnectionResetError:
            return False

    def pauses(self, *, sends: bytes = b"", seconds: float = 3600.0) -> bool:
        """Pause, for an hour by default, in which the peer sends. Return False if the peer is then counted as lost."""
        with self._held:
            self.other.sendall(sends)
            self._now += seconds
        return self._has_beaten()

    def close(self) -> None:
        self.heartbeats.close()
        self.other.close()


def test_a_pause_of_this_process_kills_nobody(leak_check: LeakCheck) -> None:
    """A pause counts as two intervals. So 16 pauses are the deadline, and the 17th passes it."""
    paused = Paused()
    assert [paused.pauses() for _ in range(17)] == 16 * [True] + [False]
    assert paused.lost.get(timeout=TIMEOUT)[0] == ALICE
    paused.close()


def test_the_deadline_is_far_above_a_pause() -> None:
    """A pause counts as two intervals, so even several pauses in a row are no death."""
    assert HEARTBEAT_DEADLINE_SECONDS >= 20 * HEARTBEAT_INTERVAL_SECONDS


def test_a_beat_during_a_pause_counts_first(leak_check: LeakCheck) -> None:
    """At the deadline, the heartbeat that came during the next pause is read before the peer is judged."""
    paused = Paused()
    beat = header_of(WireFrame(WireType.HEARTBEAT, 0, ALICE.incarnation, b""))
    assert all(paused.pauses() for _ in range(16))
    assert paused.pauses(sends=beat)
    assert [paused.pauses() for _ in range(16)] == 15 * [True] + [False]
    paused.close()


def test_a_time_without_a_pause_counts_once(leak_check: LeakCheck) -> None:
    """Eight intervals count as eight. So 12 pauses of two intervals are the deadline, and the 13th passes it."""
    paused = Paused()
    assert all(paused.pauses(seconds=Paused.INTERVAL) for _ in range(8))
    assert [paused.pauses() for _ in range(13)] == 12 * [True] + [False]
    paused.close()


def test_a_part_of_a_beat_is_no_sign_of_life(leak_check: LeakCheck) -> None:
    """At the deadline, half a heartbeat comes. The peer is lost all the same."""
    paused = Paused()
    beat = header_of(WireFrame(WireType.HEARTBEAT, 0, ALICE.incarnation, b""))
    assert all(paused.pauses() for _ in range(16))
    assert not paused.pauses(sends=beat[: HEADER_BYTES // 2])
    paused.close()


def test_every_peer_is_judged_by_itself(leak_check: LeakCheck) -> None:
    """One silent peer among others: it alone is lost, once."""
    lost: Lost = queue.SimpleQueue()
    bob = Heartbeats(lambda *it: lost.put(it), interval=INTERVAL, deadline=DEADLINE)
    silent_own, silent_other = tcp_pair()
    live_own, live_other = tcp_pair()
    carol = Identity("run", "carol", 3)
    bob.add(silent_own, BOB, ALICE)
    bob.add(live_own, BOB, carol)
    live = Heartbeats(lambda *it: None, interval=INTERVAL, deadline=DEADLINE)
    live.add(live_other, carol, BOB)
    assert lost.get(timeout=TIMEOUT)[0] == ALICE
    bob.close()
    live.close()
    silent_other.close()
    assert lost.empty()
