"""Determinants of a subtask: each choice that a replay must repeat, in order, as the subtask made it.

Owns the entries and their bytes. Must not know who makes the choices, nor how a replay repeats them. The determinants
from one cut to the next are a *step*. A step ends with its `Cut`. A log is a list of steps, oldest first::

    At(now) Opened At(now) Started | At(now) Took(0, 3) Took(1, 2) Cut(7) | Took(0, 9) Cut(8) | ...

The order of messages is logged, and not fixed by a rule, because a fixed order deadlocks where channels are bounded
(Johnson and Zwaenepoel 1987, "Sender-Based Message Logging", log the order of receipt for the same reason).
"""

from __future__ import annotations

from typing import Any

import msgspec

from cutline.snapshot.errors import SnapshotCorrupt


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """A determinant."""


class At(Entry, frozen=True, tag=0):
    """`Context.now` had another value from here on."""

    now: float


class Opened(Entry, frozen=True, tag=1):
    """`Node.open` of a fresh node was called."""

    run: str  #: run that began the log, which seeds the random numbers in a fork too


class Started(Entry, frozen=True, tag=2):
    """`Node.onStart` was called, or would have been."""


class Took(Entry, frozen=True, tag=3):
    """Messages of an input were handled one by one, the end of its stream among them."""

    input: int  #: place of the channel among the subtask's inputs
    count: int


class TookTogether(Entry, frozen=True, tag=4):
    """Messages of an input were handled by one call of `onMessages` or `onBatch`."""

    input: int
    count: int


class Fired(Entry, frozen=True, tag=5):
    """A timer fired."""

    at: float
    key: bytes | None  #: encoded key, or None for a timer without a key


class Read(Entry, frozen=True, tag=6):
    """A source read a partition from where it was up to `stop`."""

    partition: str
    stop: bytes  #: encoded offset


class Exhausted(Entry, frozen=True, tag=7):
    """A source returned END."""


class Published(Entry, frozen=True, tag=8):
    """`Node.onPublished` was called."""

    snapshot_id: int


class Cut(Entry, frozen=True, tag=9):
    """A snapshot cut the subtask here."""

    snapshot_id: int
    #: numbers of the last messages sent, by output channel
    sent: tuple[int, ...]
    #: numbers of the last messages processed, by input channel
    processed: tuple[int, ...]
    #: hashes of the messages processed since the last cut, by input channel, a hash for each block
    hashes: tuple[tuple[bytes, ...], ...]
    #: (name, hash) of each part of the subtask's state, or None where states are not hashed
    states: tuple[tuple[str, bytes], ...] | None = None


class Compacted(Entry, frozen=True, tag=10):
    """A source sent messages that stand for a partition up to `stop`, or some of them."""

    partition: str
    stop: bytes  #: encoded offset
    messages: bytes  #: encoded list


class Began(Entry, frozen=True, tag=11):
    """A log of compacted input begins with these numbers, and not with 0, so that its cut has those of the log before.

    First in its log.
    """

    #: numbers of the last messages before, by output channel
    sent: tuple[int, ...]
    #: numbers of the last messages before, by input channel
    processed: tuple[int, ...]


_Entries = At | Opened | Started | Took | TookTogether | Fired | Read | Exhausted | Published | Cut | Compacted | Began

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Entries])


def encode_step(entries: list[Entry]) -> bytes:
    """Return the bytes of a step."""
    return _encoder.encode(entries)


def beginning_of(step: bytes | memoryview, name: str) -> Began | None:
    """Return the numbers with which a log begins, from its first step; None: with 0. Raises as `decode_step`."""
    first = decode_step(step, name)[0]
    return first if isinstance(first, Began) else None


def decode_step(data: bytes | memoryview, name: str) -> list[Any]:
    """Return the entries of a step.

    Raises
    ------
    SnapshotCorrupt
        if the bytes are no step. `name` names its part.
    """
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise SnapshotCorrupt(f"{name}: its determinants cannot be read: {error}") from error
