"""The limit of keyed messages: the same codec, one socket a process, the same sum, and nothing else."""

from __future__ import annotations

import socket
import struct
import time
from itertools import chain

import msgpack

from benchmarks.keyed_rows import Message, bursts, require_equal, sums_of_bursts
from benchmarks.processes import at_one_time
from benchmarks.timed_run import MARGIN_SECONDS

#: Bursts in one frame: about what a sending end seals.
_FRAME_BURSTS = 16
_LENGTH = struct.Struct("!I")


def bare_messages_per_second(processes: int, seconds: float) -> float:
    """Each process encodes for the next one in the ring, decodes what comes and adds it up.

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
    """One process; returns when it began and ended, and the messages that it took."""
    table = bursts()
    frames = [list(chain(*table[at : at + _FRAME_BURSTS])) for at in range(0, len(table), _FRAME_BURSTS)]
    packer = msgpack.Packer()
    sums: dict[str, int] = {}
    began_at = time.monotonic()
    rounds = messages = 0
    # Every process sends one frame and takes one frame in a round, so all agree on the number but for the last.
    while time.monotonic() < began_at + seconds:
        data = packer.pack(frames[rounds % len(frames)])
        to_next.sendall(_LENGTH.pack(len(data)) + data)
        taken = _take(from_previous, sums)
        if not taken:
            break
        messages += taken
        rounds += 1
    to_next.shutdown(socket.SHUT_WR)
    while taken := _take(from_previous, sums):
        messages += taken
        rounds += 1
    ended_at = time.monotonic()
    require_equal("bare loop", sums, sums_of_bursts([rounds * _FRAME_BURSTS]))
    return began_at, ended_at, messages


def _take(sock: socket.socket, sums: dict[str, int]) -> int:
    header = sock.recv(_LENGTH.size, socket.MSG_WAITALL)
    if not header:
        return 0
    messages: list[Message] = msgpack.unpackb(sock.recv(_LENGTH.unpack(header)[0], socket.MSG_WAITALL))
    for key, value in messages:
        sums[key] = sums.get(key, 0) + value
    return len(messages)
