"""Raw clients who should not be let in, and where a process listens."""

from __future__ import annotations

import os
import pickle
import random
import re
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

from cutline.channels.handshake import NONCE_BYTES
from cutline.channels.limits import PENDING_HANDSHAKES_MAX
from cutline.channels.sockets import Address
from cutline.channels.wire import WireFrame, WireType, header_of

#: A refusal takes milliseconds, or the handshake's deadline; a test that passes does not wait for this.
TIMEOUT_S = 30.0
_LISTEN = "0A"


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def listening_port(pid: int) -> int:
    """The TCP port that a process listens on."""
    inodes = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    sockets = {match.group(1) for target in inodes if (match := re.fullmatch(r"socket:\[(\d+)\]", target))}
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN and fields[9] in sockets:
            return int(fields[1].rpartition(":")[2], 16)
    raise AssertionError(f"process {pid} listens on no port")


def send_and_await_close(address: Address, *messages: bytes) -> bytes:
    """Send, each after an answer to the one before; returns all that came until the other side hung up."""
    answers = b""
    with socket.create_connection((address.host, address.port), timeout=TIMEOUT_S) as sock:
        try:
            for message in messages[:-1]:
                sock.sendall(message)
                answers += sock.recv(65536)
            sock.sendall(messages[-1])
            while data := sock.recv(65536):
                answers += data
        except (ConnectionResetError, BrokenPipeError):
            pass  # it hung up with bytes of ours unread
    return answers


def send_garbage(address: Address, bomb: bytes) -> int:
    """What does not speak the protocol; returns how many connections that took."""
    chance = random.Random(0)
    lying = header_of(WireFrame(WireType.HELLO, 0, 0, b"x" * 60))
    prefix = lying[:32] + struct.pack("!I", 0xFFFF_FFFF)
    garbage = [
        chance.randbytes(4096),
        bomb,
        b"GET / HTTP/1.1\r\n\r\n" + b"x" * 64,
        prefix + lying[36:],  # an honest header whose length was raised
        _frame(WireType.DATA, bomb),
        _frame(WireType.CONTROL, bomb),
        _frame(WireType.HELLO, bytes(1024 * 1024)),
    ]
    for message in garbage:
        assert send_and_await_close(address, message) == b"", "a stranger got an answer"
    return len(garbage)


def prove_with_bomb(address: Address, bomb: bytes) -> None:
    """Go as far into the handshake as one can without the secret, then send the bomb where the claims would be."""
    hello = _frame(WireType.HELLO, bytes(NONCE_BYTES))
    answers = send_and_await_close(address, hello, _frame(WireType.PROOF, bytes(32) + bomb))
    assert len(answers) == len(_frame(WireType.CHALLENGE, bytes(NONCE_BYTES))), "more than a challenge came back"


def crowd(address: Address, count: int) -> None:
    """Open connections and say nothing on them; leave when those were dropped that are beyond what a listener keeps."""
    where = (address.host, address.port)
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(where, timeout=TIMEOUT_S)) for _ in range(count)]
        for sock in opened[: count - PENDING_HANDSHAKES_MAX]:
            assert sock.recv(1) == b"", "a stranger got an answer"


def dawdle(address: Address) -> None:
    """Begin a greeting and never end it, until the other side hangs up."""
    assert send_and_await_close(address, _frame(WireType.HELLO, bytes(NONCE_BYTES))[:20]) == b""


def bomb_at(path: Path) -> bytes:
    """The bytes of a `Bomb`."""
    return pickle.dumps(Bomb(path))


def _frame(type_: WireType, payload: bytes) -> bytes:
    return header_of(WireFrame(type_, 0, 0, payload)) + payload
