"""Bytes to the coordinator's endpoint: whatever a line sends, the loop goes on, and other workers keep their lines."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, get_args

import msgpack
import pytest

from cutline.barrier_runtime.control_codec import encode_message
from cutline.barrier_runtime.progress import WorkerProgress
from cutline.barrier_runtime.tracing.chunks import WorkerTrace
from cutline.barrier_runtime.worker.control_link import line_identity
from cutline.channels.identity import Purpose
from cutline.channels.wire import WireFrame, WireType, header_of
from cutline.snapshot.coordinator.control import Welcome, WorkerIdle, WorkerMessage
from tests.barrier_runtime.coordinator.test_endpoint import NEWEST, RUN, STALE, Service, registration, service
from tests.hostile_bytes import end, hostile, send_in_pieces
from tests.run_size import scaled

__all__ = ["service"]

#: A hang is a failure, long before the limit of other tests.
pytestmark = pytest.mark.timeout(60)

CASES = scaled(300)


def _control(payload: bytes) -> bytes:
    return header_of(WireFrame(WireType.CONTROL, 0, 0, payload)) + payload


def _message(rng: random.Random) -> bytes:
    """A control message of any number, with fields of any type, or a valid one that was changed."""
    valid = [encode_message(each) for each in (registration(NEWEST), registration(STALE), WorkerIdle(1, 1, True))]
    if rng.randrange(2):
        return hostile(rng, valid)
    fields = [_field(rng) for _ in range(rng.randrange(7))]
    packed: bytes = msgpack.packb([rng.randrange(-3, 45), *fields])
    return packed


def _field(rng: random.Random, depth: int = 0) -> Any:
    if depth < 4 and rng.randrange(4) == 0:
        return [rng.randrange(-3, 45), *(_field(rng, depth + 1) for _ in range(rng.randrange(5)))]
    if depth < 4 and rng.randrange(8) == 0:
        return {1: _field(rng, depth + 1), "x": _field(rng, depth + 1)}
    return rng.choice(
        [None, True, 0, 1, -1, 2**63, 0.5, float("nan"), "", "a[1]", NEWEST, b"", b"\xff", msgpack.ExtType(1, b"")]
    )


@pytest.mark.parametrize("purpose", [Purpose.CONTROL, Purpose.HEARTBEAT])
def test_no_bytes_harm_the_endpoint(service: Service, purpose: Purpose) -> None:
    """Each of a worker's messages is passed on or ends its line; the good worker is heard and answered throughout."""
    rng = random.Random(25)
    good = service.dial(0)
    good.send(encode_message(registration(NEWEST)))
    service.turn_until("the registration", lambda: service.received)
    for case in range(CASES):
        line, _ = service._connect(line_identity(RUN, 1), Purpose.CONTROL)
        lines = [line]
        if purpose is Purpose.HEARTBEAT:
            lines.append(service._connect(line_identity(RUN, 1), purpose)[0])
        if rng.randrange(3):
            line.sendall(_control(encode_message(registration(NEWEST))))
            service.reactor.wait(0.01)
        data = _control(_message(rng)) if rng.randrange(3) else hostile(rng, [_control(_message(rng))])
        send_in_pieces(rng, lines[-1], data, lambda: service.reactor.wait(0))
        for each in reversed(lines):
            end(rng, each)
        service.reactor.wait(0.001)
        service.endpoint.check_connections()
        if case % 20 == 0:
            message, answer = WorkerIdle(0, case, True), Welcome(case, 1)
            good.send(encode_message(message))
            service.turn_until("the good worker", partial(service.received.__contains__, (0, message)))
            service.endpoint.send(0, answer)
            assert service.answers(good) == [answer]
    service.turn_until("the end of all lines", lambda: len(service.endpoint._lines) == 1)
    sent_by_workers = {*get_args(WorkerMessage), WorkerProgress, WorkerTrace}
    assert {type(message) for _, message in service.received} <= sent_by_workers
    assert [worker for worker, _ in service.lost if worker == 0] == []
