"""Memory that two workers of one host share: payloads are made in it by the sender, the receiver copies them out.

A Unix socket's kernel copies a payload twice, into small buffers, and wakes the receiver for each. Here the one copy
is the receiver's, where the payload was encoded right into its place. Who reads learns from the socket where a payload
lies; the only word that goes through the memory itself is how many the receiver is done with.

::

    0         taken: payloads that the receiver is done with, ever (8 bytes, written by it alone)
    one page  places, each where its sender found room for it

No lock: the sender uses a place again when `taken` says that its payload was read, or it was never sent, and when
nothing refers to it any more, for a snapshot may hold what waited there until it is stored. The receiver raises `taken`
when it has compared the checksum of its copy, which depends on every byte that was read.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from channels.limits import SHARED_MEMORY_BYTES
from snapshot.channel.record_batches import new_memory
from snapshot.errors import ChannelError

#: What `taken` has for itself, so that the receiver can map the places without the right to write.
_COUNTER_BYTES = mmap.PAGESIZE

#: A place begins at a multiple of this, as Arrow's own memory does.
_ALIGNMENT_BYTES = 64


def _seals() -> int:
    """The memory keeps its size: who reads what is no more there is killed."""
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@dataclass(eq=False, slots=True)
class _Place:
    start: int
    stop: int
    #: its bytes, as long as something here refers to them
    room: weakref.ref[npt.NDArray[np.uint8]]
    #: payloads that were sent before its own; None while that was not
    sent_before: int | None = None

    def is_in_use(self, taken: int) -> bool:
        """Here, or by the peer, which is done with so many payloads."""
        return self.room() is not None or (self.sent_before is not None and self.sent_before >= taken)


class OutgoingMemory:
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

    def __init__(self, size: int = SHARED_MEMORY_BYTES) -> None:
        #: descriptor by which the receiver opens the memory; closed after it was sent
        self.descriptor = os.memfd_create("cutline-payloads", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, _COUNTER_BYTES + size)  # pages are there once they are written to
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _seals())
            mapped = memoryview(mmap.mmap(self.descriptor, _COUNTER_BYTES + size))
        except OSError:
            os.close(self.descriptor)
            raise
        self.size = size
        self._taken = mapped[:8].cast("Q")
        self._bytes = np.frombuffer(mapped[_COUNTER_BYTES:], np.uint8)
        self._sent = 0
        #: by `start`
        self._places: list[_Place] = []

    def allocate(self, length: int) -> memoryview | None:
        """A place to write a payload to, for `send`; None if none is so long now. Free again once it is let go of.

        The first one that fits: memory that was used last is warm, and the rest is never reached.
        """
        taken = self._taken[0]
        self._places = [place for place in self._places if place.is_in_use(taken)]
        start = index = 0
        for place in self._places:
            if start + length <= place.start:
                break
            start = place.stop
            index += 1
        if start + length > self.size:
            return None
        room = self._bytes[start : start + length]  # an object of its own, whose end is seen
        stop = start + length + -length % _ALIGNMENT_BYTES
        self._places.insert(index, _Place(start, stop, weakref.ref(room)))
        return room.data

    def send(self, payload: bytes | memoryview) -> int | None:
        """Return the place of a payload that is sent to the peer next, or None if the payload lies elsewhere."""
        if isinstance(payload, memoryview):
            room: object = payload.obj
            for place in self._places:
                if place.room() is room and place.sent_before is None:
                    place.sent_before = self._sent
                    self._sent += 1
                    return place.start
        return None

    def close(self) -> None:
        """Let go of it. It is unmapped when nothing else refers to it, such as a snapshot that is being stored."""
        self._places.clear()
        self._taken.release()
        self._bytes = np.empty(0, np.uint8)


class IncomingMemory:
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
            if not 0 < size <= SHARED_MEMORY_BYTES or os.fstat(descriptor).st_size != _COUNTER_BYTES + size:
                raise ChannelError(f"shared memory that is said to hold {size:,} bytes, and has another size")
            self._counter = mmap.mmap(descriptor, _COUNTER_BYTES)
            self._mapped = mmap.mmap(descriptor, size, prot=mmap.PROT_READ, offset=_COUNTER_BYTES)
        except (OSError, ValueError) as error:
            raise ChannelError(f"shared memory of {size:,} bytes cannot be opened: {error}") from error
        finally:
            os.close(descriptor)
        self._taken = memoryview(self._counter).cast("Q")
        self._bytes = memoryview(self._mapped)

    def take(self, start: int, length: int, checksum: int) -> memoryview:
        """Copy the payload at `start` out, and give its place back.

        Raises
        ------
        ChannelError
            if it is not in the memory, or not what the sender summed up.
        """
        size = len(self._bytes)
        if start + length > size:
            raise ChannelError(f"a payload of {length:,} bytes at {start:,} of {size:,} bytes of shared memory")
        payload = new_memory(length)
        payload[:] = self._bytes[start : start + length]
        if xxh3_64_intdigest(payload) != checksum:
            raise ChannelError("a shared payload's checksum is wrong: it was damaged on the way")
        self._taken[0] += 1
        return payload.toreadonly()

    def close(self) -> None:
        """Unmap it."""
        self._taken.release()
        self._bytes.release()
        self._counter.close()
        self._mapped.close()
