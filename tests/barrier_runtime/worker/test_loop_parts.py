"""The small parts of the loops: the clock, what wakes a loop, how long turns took."""

from __future__ import annotations

import socket
import threading
import time

from cutline.barrier_runtime import clock
from cutline.barrier_runtime.reactor import Reactor
from cutline.barrier_runtime.worker.meter import AdaptiveBatchLimit


def test_the_clock_never_goes_back() -> None:
    """It is the epoch, moved on by the monotonic clock."""
    times = [clock.now() for _ in range(1000)]
    assert times == sorted(times)


def test_the_time_of_turns_is_taken_once() -> None:
    """Each report tells what came since the one before."""
    part = AdaptiveBatchLimit()
    part.record(0.5)
    part.record(0.25)
    assert (part.take_seconds(), part.take_seconds()) == (0.75, 0.0)


def test_a_loop_is_woken_by_another_thread() -> None:
    """`wait` returns long before its time when `wake` is called, and sleeps again afterwards."""
    reactor, sleeps = Reactor(), threading.Event()
    woken: list[float] = []

    def loop() -> None:
        began = time.monotonic()
        sleeps.set()
        reactor.wait(60.0)
        woken.append(time.monotonic() - began)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    sleeps.wait()
    reactor.wake()
    thread.join(20.0)
    assert woken, "the loop still sleeps"
    began = time.monotonic()
    reactor.wait(0.05)
    assert time.monotonic() - began >= 0.04, "one wake ended two waits"
    reactor.close()
    reactor.wake()  # ignored, because the loop has ended


class _Pipe:
    """One end of a socket pair that may want to write."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.wants_write = False

    def fileno(self) -> int:
        return self.sock.fileno()


def test_a_writer_is_called_exactly_while_it_wants_to_write() -> None:
    """A writable socket is always ready, so it is asked for only while something waits."""
    near, far = socket.socketpair()
    with near, far:
        reactor, pipe, calls = Reactor(), _Pipe(near), []
        reactor.add_writer(pipe, lambda: calls.append(1))
        reactor.wait(0.0)
        assert not calls
        pipe.wants_write = True
        reactor.wait(60.0)
        assert len(calls) == 1
        pipe.wants_write = False
        reactor.wait(0.0)
        assert len(calls) == 1
        reactor.remove(pipe)
        reactor.remove(pipe)
        reactor.close()


def test_what_a_call_back_removed_is_not_called_any_more() -> None:
    """Two are ready at once; the first removes and closes the second."""
    pairs = [socket.socketpair() for _ in range(2)]
    reactor, calls = Reactor(), []

    def act(number: int) -> None:
        calls.append(number)
        for near, _ in pairs:
            reactor.remove(near)

    for number, (near, far) in enumerate(pairs):
        far.send(b"x")
        reactor.add(near, lambda number=number: act(number))  # type: ignore[misc]
    reactor.wait(60.0)
    assert len(calls) == 1
    reactor.close()
    for near, far in pairs:
        near.close()
        far.close()
