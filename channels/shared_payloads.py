"""Large payloads of a Unix socket's frames go through shared memory. The socket carries their places.

Each direction has a memory. Its descriptor travels beside the first bytes of the socket, and a MEMORY frame goes before
all data. Then a SHARED frame replaces a DATA frame and says where its payload lies. A payload that finds no room
goes by the socket, as all small payloads do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from cutline.channels.limits import SHARED_MEMORY_BYTES, SHARED_PAYLOAD_BYTES_MIN
from cutline.channels.shared_memory import IncomingMemory, OutgoingMemory
from cutline.channels.wire import SharedPlace, WireFrame, memory_frame, memory_size_of, shared_frame
from cutline.snapshot.errors import ChannelError

_logger = logging.getLogger("cutline.channels")


class SharedPayloads:
    """Shared memories of both directions of one connection."""

    def __init__(self) -> None:
        #: descriptor to send beside the first written bytes; None after that, or without memory
        self.descriptor: int | None = None
        #: memory for sending; None if the system gave none, or after `close`, so that all payloads go by the socket
        self._outgoing = self._make()
        self._incoming: IncomingMemory | None = None
        #: descriptor of the peer's memory, until its MEMORY frame has come whole; else None
        self._descriptor_taken: int | None = None

    def announcement(self, incarnation: int) -> WireFrame:
        """Return the MEMORY frame, which goes before all data."""
        return memory_frame(incarnation, 0 if self._outgoing is None else self._outgoing.size)

    def allocate(self, size: int) -> memoryview | None:
        """Return shared memory for a payload of `size` bytes, so that sending need not copy. None: use other memory."""
        if self._outgoing is None or not SHARED_PAYLOAD_BYTES_MIN <= size <= SHARED_MEMORY_BYTES:
            return None
        return self._outgoing.allocate(size)

    def replaced(self, frame: WireFrame) -> WireFrame:
        """Return the frame to send for `frame`, a large DATA frame: a SHARED frame, or `frame` if there is no room."""
        start = self._place(frame.payload)
        if start is None:
            return frame
        return shared_frame(frame, SharedPlace(start, len(frame.payload), xxh3_64_intdigest(frame.payload)))

    def forget_descriptor(self) -> None:
        """Close the descriptor after sending it, because the peer has its own."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def take_descriptors(self, descriptors: Sequence[int], *, are_all: bool) -> None:
        """Take descriptors that came beside bytes of the socket. `are_all` is False if some were lost.

        The descriptor of the peer's memory must come alone, and once.

        Raises
        ------
        ChannelError
            if other descriptors came. They are closed.
        """
        if len(descriptors) == 1 and are_all and self._descriptor_taken is None:
            self._descriptor_taken = descriptors[0]
            return
        for descriptor in descriptors:
            os.close(descriptor)
        advice = "" if are_all else " (too many open files? see `ulimit -n`)"
        raise ChannelError(f"{len(descriptors)} descriptors came, where one is due, once{advice}")

    def open(self, frame: WireFrame) -> None:
        """Open the memory that a received MEMORY frame announces.

        Raises
        ------
        ChannelError
            if no memory came with the frame, or the memory is unusable.
        """
        size = memory_size_of(frame)
        if not size and self._descriptor_taken is None:
            return
        if self._descriptor_taken is None:
            raise ChannelError("a MEMORY frame came without its memory")
        descriptor, self._descriptor_taken = self._descriptor_taken, None
        self._incoming = IncomingMemory(descriptor, size)

    def fetch(self, place: SharedPlace) -> memoryview:
        """Return the payload of a SHARED frame.

        Raises
        ------
        ChannelError
            if the payload is missing or damaged.
        """
        if self._incoming is None:
            raise ChannelError("a SHARED frame came, and no memory before it")
        return self._incoming.take(*place)

    def close(self) -> None:
        """Give all memory back, as soon as nothing refers to it. May be called again."""
        for memory in (self._outgoing, self._incoming):
            if memory is not None:
                memory.close()
        self._outgoing = self._incoming = None
        self.forget_descriptor()
        if self._descriptor_taken is not None:
            os.close(self._descriptor_taken)
            self._descriptor_taken = None

    def _place(self, payload: bytes | memoryview) -> int | None:
        """Return the offset of a payload in shared memory, copied there if needed. None if there is no room."""
        if self._outgoing is None:
            return None
        start = self._outgoing.send(payload)
        if start is None and (room := self.allocate(len(payload))) is not None:
            room[:] = memoryview(payload).cast("B")
            start = self._outgoing.send(room)
        return start

    def _make(self) -> OutgoingMemory | None:
        try:
            memory = OutgoingMemory()
        except (OSError, AttributeError) as error:  # AttributeError: a Python that was built for an old C library
            _logger.warning("no shared memory, so large payloads go by the socket, which is slower: %s", error)
            return None
        self.descriptor = memory.descriptor
        return memory
