"""Large buffers are stored beside a serialised value, so that a state of gigabytes is copied at most once.

Owns the layout, and the decision which buffers are copied: all but bytes, once. An array or an Arrow buffer may lie
over memory that is still written to, even if it is marked read-only. Must not know how values are encoded. ::
    a value without large buffers         MessagePack, unchanged
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

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.kept_memory import KeptMemory

#: Bytes below which a buffer stays inside the value, because an entry of its own would cost more.
LARGE_BYTES = 64 * 1024

_MAGIC = b"\xc1"
_COUNT = struct.Struct(">I")
_LENGTH = struct.Struct(">Q")


class OutOfBandBuffers:
    """The large buffers of one value, gathered during encoding. Copies are made in `memory`."""

    def __init__(self, memory: KeptMemory) -> None:
        self.memory = memory
        #: [chunks of buffer 0, chunks of buffer 1, ...]
        self._buffers: list[list[Buffer]] = []

    def add(self, *chunks: Buffer) -> int:
        """Add a buffer by reference and return its number. Nobody else may write to the memory of `chunks`."""
        self._buffers.append(list(chunks))
        return len(self._buffers) - 1

    def lift(self, buffer: pickle.PickleBuffer) -> bool:
        """Serve as pickle's buffer callback (PEP 574). Return False to take the buffer out of the pickle."""
        raw = buffer.raw()
        if raw.nbytes < LARGE_BYTES:
            return True
        self.add(raw if isinstance(raw.obj, bytes) else self.memory.copy(raw))
        return False

    @property
    def count(self) -> int:
        """Number of buffers added so far."""
        return len(self._buffers)

    def truncate(self, count: int) -> None:
        """Drop all buffers but the first `count`."""
        del self._buffers[count:]

    def join(self, value: bytes) -> tuple[Buffer, ...]:
        """Return the pieces to store: the table, the encoded value, and its buffers."""
        if not self._buffers:
            return (value,)
        sizes = [sum(memoryview(chunk).nbytes for chunk in chunks) for chunks in self._buffers]
        table = b"".join(_LENGTH.pack(size) for size in (len(value), *sizes))
        flat = (chunk for chunks in self._buffers for chunk in chunks)
        return (_MAGIC + _COUNT.pack(len(sizes)) + table, value, *flat)


def split_buffers(data: Buffer) -> tuple[memoryview, Sequence[memoryview]]:
    """Return the encoded value and its buffers, without a copy.

    Raises
    ------
    ValueError
        if the lengths in the table do not fit `data`.
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
    """Return a writable copy of `view`."""
    return np.frombuffer(view, np.uint8).copy().data
