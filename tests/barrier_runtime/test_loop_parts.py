"""The small parts of the loops: when to say that a worker is idle, what is due, what wakes a loop, what turns took."""

from __future__ import annotations

import socket
import threading

from barrier_runtime import clock
from barrier_runtime.deadlines import REQUEST_SECONDS_MAX, Deadlines
from barrier_runtime.idleness import IDLE_SECONDS, Idleness
from barrier_runtime.reactor import Reactor
from barrier_runtime.turn_slice import TurnSlice
from snapshot.ids import Subtask

A = Subtask("a")


def test_idleness_is_said_once_and_only_after_a_while() -> None:
    """A pause shorter than `IDLE_SECONDS` is nobody's business."""
    idleness = Idleness()
    assert idleness.look(True, 0.0) is None
    assert idleness.due_at() == IDLE_SECONDS
    assert idleness.look(True, IDLE_SECONDS) is True
    assert idleness.look(True, 9.0) is None
    assert idleness.due_at() is None


def test_waking_up_is_said_only_if_idleness_was() -> None:
    """The coordinator hears of changes, not of every pause."""
    idleness = Idleness()
    idleness.look(True, 0.0)
    assert idleness.look(False, 0.001) is None
    idleness.look(True, 1.0)
    idleness.look(True, 2.0)
    assert idleness.look(False, 3.0) is False
    idleness.look(True, 4.0)
    idleness.forget()
    assert idleness.look(True, 5.0) is None


def test_deadlines_are_taken_once_in_the_order_in_which_they_began() -> None:
    """What is settled or answered in time never comes up."""
    deadlines = Deadlines()
    deadlines.align(7, A, 2.0)
    deadlines.align(8, A, 2.0)
    deadlines.align(9, A, 5.0)
    deadlines.ask(A, 1.0)
    assert deadlines.next_at() == 2.0
    assert deadlines.take_alignments(2.0) == [(7, A), (8, A)]
    assert deadlines.take_alignments(2.0) == []
    deadlines.settle(10)
    assert deadlines.take_requests(1.0 + REQUEST_SECONDS_MAX) == [A]
    deadlines.ask(A, 1.0)
    deadlines.answer(A)
    assert deadlines.next_at() is None


def test_the_clock_never_goes_back() -> None:
    """It is the epoch, moved on by the monotonic clock."""
    times = [clock.now() for _ in range(1000)]
    assert times == sorted(times)


def test_the_time_of_turns_is_taken_once() -> None:
    """Each report tells what came since the one before."""
    part = TurnSlice()
    part.took(0.5)
    part.took(0.25)
    assert (part.take_seconds(), part.take_seconds()) == (0.75, 0.0)


def test_a_loop_is_woken_by_another_thread() -> None:
    """`wait` returns long before its time when `wake` is called."""
    reactor = Reactor()
    thread = threading.Thread(target=reactor.wake)
    thread.start()
    reactor.wait(60.0)
    thread.join()
    reactor.close()
    reactor.wake()  # nobody is left to be woken


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
