"""A ring of memory that two workers of one host share: the sender puts payloads in, the receiver copies them out.

A payload is copied twice, by the processes themselves, where a Unix socket's kernel copies it twice, into small
buffers, and wakes the receiver for each. Who reads learns from the socket where a payload lies; the only word that
goes through the memory itself is how far the receiver is.

::

    0         taken: bytes of the ring that the receiver is done with, ever (8 bytes, written by it alone)
    one page  the ring; position p is at p modulo its size, and no payload goes around its end

No lock: the sender writes only where `taken` says that nobody reads, and the receiver raises `taken` when it has
compared the checksum of its copy, which depends on every byte that was read.
"""

from __future__ import annotations

import fcntl
import mmap
import os

import numpy as np
from xxhash import xxh3_64_intdigest

from channels.limits import SHARED_RING_BYTES
from snapshot.errors import ChannelError

#: What `taken` has for itself, so that the receiver can map the ring without the right to write.
_COUNTER_BYTES = mmap.PAGESIZE

#: No run gets that far; the sum of a position and a length is a number of 64 bits.
_POSITION_MAX = 2**63


def _seals() -> int:
    """The memory keeps its size: who reads what is no more there is killed."""
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class OutgoingRing:
    """The sender's side, which makes the memory.

    Parameters
    ----------
    size : int
        Bytes; a multiple of the page size.

    Raises
    ------
    OSError
        if the system gives none.
    """

    def __init__(self, size: int = SHARED_RING_BYTES) -> None:
        #: what the receiver opens the memory by; closed by whoever passes it on
        self.descriptor = os.memfd_create("cutline-payloads", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, _COUNTER_BYTES + size)  # pages are there once they are written to
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _seals())
            self._mapped = mmap.mmap(self.descriptor, _COUNTER_BYTES + size)
        except OSError:
            os.close(self.descriptor)
            raise
        self.size = size
        self._taken = memoryview(self._mapped)[:8].cast("Q")
        self._ring = memoryview(self._mapped)[_COUNTER_BYTES:]
        #: where the next payload may begin
        self._head = 0
        #: nothing waited below it, when the ring was last begun anew
        self._floor = 0

    def put(self, payload: bytes | memoryview) -> int | None:
        """Copy a payload in, and return its position; None if there is no room for it now."""
        length, begin = len(payload), self._head
        to_end = -begin % self.size
        if self._taken[0] == begin:
            begin += to_end  # nothing waits: begin anew, where memory is warm and no page is reached for the first time
            self._floor = begin
        elif to_end < length:
            begin += to_end
        if begin + length > max(self._taken[0], self._floor) + self.size:
            return None
        start = begin % self.size
        self._ring[start : start + length] = memoryview(payload).cast("B")
        self._head = begin + length
        return begin

    def close(self) -> None:
        """Unmap it. The memory is gone when the receiver has, too."""
        self._taken.release()
        self._ring.release()
        self._mapped.close()


class IncomingRing:
    """The receiver's side.

    Parameters
    ----------
    descriptor : int
        As it came from the sender; closed here.
    size : int
        As the sender says.

    Raises
    ------
    ChannelError
        if it is no memory of this size, for good.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        try:
            if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _seals() != _seals():
                raise ChannelError("shared memory that its sender could take away again")
            if not 0 < size <= SHARED_RING_BYTES or os.fstat(descriptor).st_size != _COUNTER_BYTES + size:
                raise ChannelError(f"shared memory that is said to hold {size:,} bytes, and has another size")
            self._counter = mmap.mmap(descriptor, _COUNTER_BYTES)
            self._mapped = mmap.mmap(descriptor, size, prot=mmap.PROT_READ, offset=_COUNTER_BYTES)
        except (OSError, ValueError) as error:
            raise ChannelError(f"shared memory of {size:,} bytes cannot be opened: {error}") from error
        finally:
            os.close(descriptor)
        self._size = size
        self._end = 0  #: of what was taken last
        self._taken = memoryview(self._counter).cast("Q")
        self._ring = memoryview(self._mapped)

    def take(self, position: int, length: int, checksum: int) -> memoryview:
        """Copy the payload at `position` out, and give its place back.

        Raises
        ------
        ChannelError
            if it is not in the ring, or not what the sender summed up.
        """
        start = position % self._size
        if not self._end <= position < _POSITION_MAX or start + length > self._size:
            raise ChannelError(
                f"a payload of {length:,} bytes at {position:,} of {self._size:,} bytes of shared memory"
            )
        payload = np.empty(length, np.uint8).data
        payload[:] = self._ring[start : start + length]
        if xxh3_64_intdigest(payload) != checksum:
            raise ChannelError("a shared payload's checksum is wrong: it was damaged on the way")
        self._taken[0] = self._end = position + length
        return payload.toreadonly()

    def close(self) -> None:
        """Unmap it."""
        self._taken.release()
        self._ring.release()
        self._counter.close()
        self._mapped.close()
