"""Large buffers beside a serialised value instead of inside it, so that a state of gigabytes is copied once at most.

Owns the layout, and what is copied: all but bytes, once. An array, and an Arrow buffer, may lie over memory that
somebody still writes to, whatever it says of itself. Must not know how values are encoded. ::

    a value without large buffers         MessagePack, as ever
    a value with them                     C1 (which begins no MessagePack value)
                                          4 bytes: number of buffers n
                                          8 bytes each: length of the value, of each buffer
                                          the value, then the buffers
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from snapshot.channel.frame import Buffer
from snapshot.channel.kept_memory import KeptMemory

#: Below this a buffer is not worth an entry of its own.
LARGE_BYTES = 64 * 1024

_MAGIC = b"\xc1"
_COUNT = struct.Struct(">I")
_LENGTH = struct.Struct(">Q")


class OutOfBandBuffers:
    """The large buffers of one value, gathered while it is encoded; copies of them are made in `memory`."""

    def __init__(self, memory: KeptMemory) -> None:
        self.memory = memory
        #: for each buffer what it is made of
        self._buffers: list[list[Buffer]] = []

    def add(self, *chunks: Buffer) -> int:
        """Keep memory that nobody else writes to, by reference; returns its number."""
        self._buffers.append(list(chunks))
        return len(self._buffers) - 1

    def lift(self, buffer: pickle.PickleBuffer) -> bool:
        """Pickle's callback (PEP 574): False takes a buffer out of the pickle."""
        raw = buffer.raw()
        if raw.nbytes < LARGE_BYTES:
            return True
        self.add(raw if isinstance(raw.obj, bytes) else self.memory.copy(raw))
        return False

    @property
    def count(self) -> int:
        """Buffers so far."""
        return len(self._buffers)

    def join(self, value: bytes) -> tuple[Buffer, ...]:
        """The encoded value together with its buffers, as what is to be stored."""
        if not self._buffers:
            return (value,)
        sizes = [sum(memoryview(chunk).nbytes for chunk in chunks) for chunks in self._buffers]
        table = b"".join(_LENGTH.pack(size) for size in (len(value), *sizes))
        flat = (chunk for chunks in self._buffers for chunk in chunks)
        return (_MAGIC + _COUNT.pack(len(sizes)) + table, value, *flat)


def split_buffers(data: Buffer) -> tuple[memoryview, Sequence[memoryview]]:
    """The encoded value, and its buffers, without a copy.

    Raises
    ------
    ValueError
        if the lengths do not fit.
    """
    view = memoryview(data).cast("B")
    if view[:1] != _MAGIC:
        return view, ()
    at = len(_MAGIC) + _COUNT.size
    (count,) = _COUNT.unpack_from(view, len(_MAGIC))
    sizes = [_LENGTH.unpack_from(view, at + number * _LENGTH.size)[0] for number in range(count + 1)]
    at += _LENGTH.size * (count + 1)
    if at + sum(sizes) != view.nbytes:
        raise ValueError(f"a value of {view.nbytes} bytes, where its table says {at + sum(sizes)}")
    pieces = []
    for size in sizes:
        pieces.append(view[at : at + size])
        at += size
    return pieces[0], pieces[1:]


def writable(view: memoryview) -> Any:
    """A copy that its new owner may change."""
    return np.frombuffer(view, np.uint8).copy().data
