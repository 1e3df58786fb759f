"""The baseline of keyed messages: MessagePack, one socket a process, and a sum by key, without a runtime.

The loop encodes and decodes whole bursts in one call each. The loop does not split by key, and adds up in place.
"""

from __future__ import annotations

import socket
import struct
import time
from itertools import chain

import msgpack

from benchmarks.keyed_rows import Message, bursts, require_equal, sums_of_bursts
from benchmarks.processes import at_one_time
from benchmarks.run_size import MARGIN_SECONDS

#: Bursts in one frame, which is then about as large as the frames of a channel.
_FRAME_BURSTS = 16
_LENGTH = struct.Struct("!I")


def baseline_messages_per_second(processes: int, seconds: float) -> float:
    """Measure messages per second of a ring of processes that encode, send, receive, decode and add up.

    Raises
    ------
    RuntimeError
        if the sums are wrong.
    """
    pairs = [socket.socketpair() for _ in range(processes)]
    calls = [(loop, (pairs[i][0], pairs[i - 1][1], seconds)) for i in range(processes)]
    answers: list[tuple[float, float, int]] = at_one_time(calls, seconds + MARGIN_SECONDS)
    began_at, ended_at = min(began for began, *_ in answers), max(ended for _, ended, _ in answers)
    return sum(messages for *_, messages in answers) / (ended_at - began_at)


def loop(to_next: socket.socket, from_previous: socket.socket, seconds: float) -> tuple[float, float, int]:
    """Run one process of the ring. Return when the process began and ended, and the number of messages received."""
    table = bursts()
    frames = [list(chain(*table[at : at + _FRAME_BURSTS])) for at in range(0, len(table), _FRAME_BURSTS)]
    packer = msgpack.Packer()
    sums: dict[str, int] = {}
    began_at = time.monotonic()
    rounds = messages = 0
    # Every process sends and receives one frame in a round. So the processes agree on all rounds but the last.
    while time.monotonic() < began_at + seconds:
        data = packer.pack(frames[rounds % len(frames)])
        to_next.sendall(_LENGTH.pack(len(data)) + data)
        received = _receive(from_previous, sums)
        if not received:
            break
        messages += received
        rounds += 1
    to_next.shutdown(socket.SHUT_WR)
    while received := _receive(from_previous, sums):
        messages += received
        rounds += 1
    ended_at = time.monotonic()
    require_equal("baseline loop", sums, sums_of_bursts([rounds * _FRAME_BURSTS]))
    return began_at, ended_at, messages


def _receive(sock: socket.socket, sums: dict[str, int]) -> int:
    header = sock.recv(_LENGTH.size, socket.MSG_WAITALL)
    if not header:
        return 0
    messages: list[Message] = msgpack.unpackb(sock.recv(_LENGTH.unpack(header)[0], socket.MSG_WAITALL))
    for key, value in messages:
        sums[key] = sums.get(key, 0) + value
    return len(messages)
