"""Bytes that a hostile peer sends to a port: seeded, random or made from a valid conversation."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Callable, Sequence

#: Numbers at which lengths and counts break.
_EXTREMES = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)

_RANDOM_BYTES_MAX = 600

#: One in so many cases is random bytes, without any structure.
_RANDOM_PART = 8


def hostile(rng: random.Random, valid: Sequence[bytes]) -> bytes:
    """Return random bytes, or a conversation of pieces of `valid` that was changed in one to three places."""
    if rng.randrange(_RANDOM_PART) == 0:
        return rng.randbytes(rng.randrange(_RANDOM_BYTES_MAX))
    data = b"".join(rng.choices(valid, k=rng.randint(1, 3)))
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(_CHANGES)(rng, data)
    return data


def _truncated(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flipped(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _with_extreme(rng: random.Random, data: bytes) -> bytes:
    """Write an extreme number over 1, 2, 4 or 8 bytes."""
    size, form = rng.choice(((1, "!B"), (2, "!H"), (4, "!I"), (8, "!Q")))
    at = rng.randrange(len(data) + 1)
    return data[:at] + struct.pack(form, rng.choice(_EXTREMES) % 2 ** (8 * size)) + data[at + size :]


def _inserted(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randrange(40)) + data[at:]


def _removed(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randrange(40) :]


def _repeated(rng: random.Random, data: bytes) -> bytes:
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:end] * rng.randint(1, 4) + data[end:]


_CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(_truncated, _flipped, _with_extreme),
    *(_inserted, _removed, _repeated),
)


def send_in_pieces(rng: random.Random, sock: socket.socket, data: bytes, between: Callable[[], object]) -> None:
    """Send bytes in up to three pieces, with a call of `between` after each, as long as the peer takes them."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(3)))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        try:
            sock.sendall(data[start:end])
        except OSError:
            return  # the server has ended the connection
        between()


def end(rng: random.Random, sock: socket.socket) -> None:
    """Close a socket, at times by a reset, and at times only its sending side first."""
    match rng.randrange(3):
        case 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        case 1:
            with contextlib.suppress(OSError):  # the server has ended the connection
                sock.shutdown(socket.SHUT_WR)
    sock.close()
