"""Memory that two workers of one host share. The sender encodes payloads into it, and the receiver copies them out.

The kernel of a Unix socket copies a payload twice, into small buffers, and wakes the receiver for each. Shared memory
needs only the receiver's copy, because the payload is encoded right into its place. The socket's frames say where a
payload lies. Only the number of payloads that the receiver has taken goes through the memory itself.

::

    0         taken: payloads that the receiver has taken, ever (8 bytes, written by the receiver alone)
    one page  places, each where its sender found room

No lock. The sender reuses a place when nothing refers to it any more and its payload was read or never sent. `taken`
shows which payloads were read. A snapshot may refer to a waiting payload until the payload is stored. The receiver
raises `taken` after it has compared the checksum of its copy, which depends on every byte that was read.
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

from cutline.channels.limits import SHARED_MEMORY_BYTES
from cutline.snapshot.channel.record_batches import new_memory
from cutline.snapshot.errors import ChannelError

#: Bytes for `taken` alone, so that the receiver can map the places without the right to write.
_COUNTER_BYTES = mmap.PAGESIZE

#: Alignment of places in bytes, as of Arrow's own memory.
_ALIGNMENT_BYTES = 64


def _seals() -> int:
    """Return the seals that keep the memory's size, because a process that reads missing memory is killed."""
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@dataclass(eq=False, slots=True)
class _Place:
    start: int
    stop: int
    #: weak reference to its bytes, dead when nothing in this process refers to them
    room: weakref.ref[npt.NDArray[np.uint8]]
    #: number of payloads sent before its own payload; None before that is sent
    sent_before: int | None = None

    def is_in_use(self, taken: int) -> bool:
        """Return whether this process, or the peer after `taken` payloads, still uses the place."""
        return self.room() is not None or (self.sent_before is not None and self.sent_before >= taken)


class OutgoingMemory:
    """Sender's side of shared memory, which makes the memory.

    Parameters
    ----------
    size : int
        Bytes; a multiple of the page size.

    Raises
    ------
    OSError
        if the system gives no memory.
    """

    def __init__(self, size: int = SHARED_MEMORY_BYTES) -> None:
        #: descriptor by which the receiver opens the memory; closed by the caller that passes it on
        self.descriptor = os.memfd_create("cutline-payloads", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, _COUNTER_BYTES + size)  # pages take memory once they are written to
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _seals())
            mapped = memoryview(mmap.mmap(self.descriptor, _COUNTER_BYTES + size))
        except OSError:
            os.close(self.descriptor)
            raise
        self.size = size
        self._taken = mapped[:8].cast("Q")
        self._bytes = np.frombuffer(mapped[_COUNTER_BYTES:], np.uint8)
        self._sent = 0
        #: places in order of `start`
        self._places: list[_Place] = []

    def allocate(self, length: int) -> memoryview | None:
        """Return a place to write a payload to, for `send`, or None if no room is long enough now.

        The place is free again once nothing refers to it. The first fit is taken, because recently used memory is warm,
        and the rest is never touched.
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
        room = self._bytes[start : start + length]  # an object of its own, so that a weak reference shows its end
        stop = start + length + -length % _ALIGNMENT_BYTES
        self._places.insert(index, _Place(start, stop, weakref.ref(room)))
        return room.data

    def send(self, payload: bytes | memoryview) -> int | None:
        """Return the offset of a payload in the memory, and count the payload as sent. None if it is elsewhere.

        The caller must send the place to the peer next.
        """
        if isinstance(payload, memoryview):
            room: object = payload.obj
            for place in self._places:
                if place.room() is room and place.sent_before is None:
                    place.sent_before = self._sent
                    self._sent += 1
                    return place.start
        return None

    def close(self) -> None:
        """Release the memory. It is unmapped when nothing else refers to it, such as a snapshot being stored."""
        self._places.clear()
        self._taken.release()
        self._bytes = np.empty(0, np.uint8)


class IncomingMemory:
    """Receiver's side of shared memory.

    Parameters
    ----------
    descriptor : int
        The descriptor that came from the sender. Closed here.
    size : int
        Bytes that the sender announced.

    Raises
    ------
    ChannelError
        if the descriptor is no sealed memory of this size.
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
        """Return a copy of the payload at `start`, and give its place back.

        Raises
        ------
        ChannelError
            if the payload is not inside the memory, or has another checksum.
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
        """Unmap the memory."""
        self._taken.release()
        self._bytes.release()
        self._counter.close()
        self._mapped.close()
