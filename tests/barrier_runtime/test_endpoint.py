"""The coordinator's endpoint: who counts as a worker's connection when a stage that is over still has workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from barrier_runtime.control_codec import decode_message, encode_message
from barrier_runtime.control_link import COORDINATOR
from barrier_runtime.endpoint import Endpoint
from barrier_runtime.reactor import Reactor
from channels.control import ControlConnection
from channels.dialer import connect
from channels.identity import Identity, Purpose
from channels.sockets import Address
from snapshot.coordinator.control import Quit, Welcome, WorkerIdle, WorkerRegistered
from tests.leaks import LeakCheck

RUN, SECRET = "run", bytes(32)
#: Tokens of two stages of one submission.
STALE, NEWEST = "000001", "000002"
#: Milliseconds are enough; a test that passes does not wait for this.
DEADLINE_S = 20.0


class Desk:
    """An endpoint whose loop the test turns, and what it was told."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Any]] = []
        self.lost: list[tuple[int, str]] = []
        self.reactor = Reactor()
        self.endpoint = Endpoint(
            RUN,
            SECRET,
            "127.0.0.1",
            0,
            reactor=self.reactor,
            is_newest=lambda registered: registered.launch >= NEWEST,
            on_message=lambda worker, message: self.heard.append((worker, message)),
            on_lost=lambda worker, reason: self.lost.append((worker, reason)),
        )
        self._dialler = ThreadPoolExecutor(1)
        self._dialled: list[ControlConnection] = []

    def turn_until(self, what: str, condition: Callable[[], Any]) -> Any:
        """Turn the loop until `condition` gives something true, and return it."""
        end = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            assert time.monotonic() < end, f"still waiting for {what}"
            self.reactor.wait(0.01)
            self.endpoint.look_around()
        return found

    def dial(self, worker: int) -> ControlConnection:
        """A control connection of that worker, by TCP; nothing is registered yet."""
        own, address = Identity(RUN, f"worker-{worker}", 0), Address("127.0.0.1", self.endpoint.port, "", "")
        dial = (address, own, COORDINATOR, Purpose.CONTROL, SECRET)
        dialling = self._dialler.submit(connect, *dial, timeout=DEADLINE_S, waits=False)
        self.turn_until("the handshake", dialling.done)
        self._dialled.append(ControlConnection(dialling.result()[0], own, dialling.result()[1]))
        return self._dialled[-1]

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
def desk(leak_check: LeakCheck) -> Iterator[Desk]:
    """An endpoint on loopback."""
    made = Desk()
    yield made
    made.close()


def registration(launch: str) -> WorkerRegistered:
    """Worker 0 of a stage registers."""
    return WorkerRegistered(0, launch, 0, b"", 1)


def test_a_worker_of_a_stale_stage_does_not_throw_out_the_newer_one(desk: Desk) -> None:
    """PROTOCOL 6.4: it is told to quit, nothing of it is heard, not even its end, and its namesake stays."""
    newer, stale = desk.dial(0), desk.dial(0)
    newer.send(encode_message(registration(NEWEST)))
    desk.turn_until("the registration", lambda: desk.heard)
    stale.send(encode_message(registration(STALE)))
    stale.send(encode_message(WorkerIdle(0, 1, True)))
    (answer,) = desk.answers(stale)
    assert isinstance(answer, Quit)
    stale.close()
    newer.send(encode_message(WorkerIdle(0, 2, True)))
    desk.turn_until("the newer one", lambda: len(desk.heard) > 1)
    assert desk.heard == [(0, registration(NEWEST)), (0, WorkerIdle(0, 2, True))]
    assert desk.lost == []
    desk.endpoint.send(0, Welcome(1, 1))
    assert desk.answers(newer) == [Welcome(1, 1)]


def test_a_worker_that_connects_anew_takes_its_own_place(desk: Desk) -> None:
    """Of the same stage the newest connection counts: the former one is lost, and hung up."""
    former = desk.dial(0)
    former.send(encode_message(registration(NEWEST)))
    desk.turn_until("the registration", lambda: desk.heard)
    again = desk.dial(0)
    again.send(encode_message(registration(NEWEST)))
    desk.turn_until("the second registration", lambda: len(desk.heard) > 1)
    assert desk.lost == [(0, "it connected anew")]
    desk.endpoint.send(0, Welcome(1, 1))
    assert desk.answers(again) == [Welcome(1, 1)]
