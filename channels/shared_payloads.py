"""Large payloads of a Unix socket's frames, which go through shared memory: what the socket carries in their place.

Each direction has a ring, made when its first large payload is sent. A MEMORY frame announces it, and its descriptor
travels beside the bytes of the socket; from then on a SHARED frame stands for a DATA frame and says where its payload
lies. A payload for which the ring has no room goes by the socket, as all small ones do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from channels.limits import SHARED_RING_BYTES
from channels.shared_ring import IncomingRing, OutgoingRing
from channels.wire import SharedPlace, WireFrame, WireType, memory_frame, memory_size_of, shared_frame
from snapshot.errors import ChannelError

_logger = logging.getLogger("cutline.channels")


class SharedPayloads:
    """Both directions of one connection."""

    def __init__(self) -> None:
        #: the descriptor that is to travel beside the next bytes that are written
        self.descriptor: int | None = None
        self._outgoing: OutgoingRing | None = None
        self._incoming: IncomingRing | None = None
        #: the system gave no memory: all goes by the socket
        self._has_none = False
        #: that came, of a MEMORY frame which has not come whole
        self._announced: int | None = None

    def replace(self, frame: WireFrame) -> list[WireFrame]:
        """What is to be sent for `frame`, a large one: it, or where its payload is."""
        if frame.type is not WireType.DATA or len(frame.payload) > SHARED_RING_BYTES or self._has_none:
            return [frame]
        announced: list[WireFrame] = []
        if self._outgoing is None:
            self._outgoing = self._make()
            if self._outgoing is None:
                return [frame]
            announced = [memory_frame(frame, self._outgoing.size)]
        position = self._outgoing.put(frame.payload)
        if position is None:
            return [*announced, frame]
        place = SharedPlace(position, len(frame.payload), xxh3_64_intdigest(frame.payload))
        return [*announced, shared_frame(frame, place)]

    def forget_descriptor(self) -> None:
        """It travels; the peer has its own."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def announce(self, descriptors: Sequence[int]) -> None:
        """These came beside bytes of the socket.

        Raises
        ------
        ChannelError
            if they are more than the one of the memory; they are closed.
        """
        if len(descriptors) == 1 and self._announced is None and self._incoming is None:
            self._announced = descriptors[0]
            return
        for descriptor in descriptors:
            os.close(descriptor)
        raise ChannelError(f"{len(descriptors)} descriptors came, where one is due, once")

    def open(self, frame: WireFrame) -> None:
        """A MEMORY frame came.

        Raises
        ------
        ChannelError
            if its memory did not, or it is of no use.
        """
        if self._announced is None:
            raise ChannelError("a MEMORY frame came without its memory")
        descriptor, self._announced = self._announced, None
        self._incoming = IncomingRing(descriptor, memory_size_of(frame))

    def fetch(self, place: SharedPlace) -> memoryview:
        """The payload that a SHARED frame stands for.

        Raises
        ------
        ChannelError
            if it is not there, or damaged.
        """
        if self._incoming is None:
            raise ChannelError("a SHARED frame came, and no memory before it")
        return self._incoming.take(*place)

    def close(self) -> None:
        """Give all memory back. May be called again."""
        for ring in (self._outgoing, self._incoming):
            if ring is not None:
                ring.close()
        self._outgoing = self._incoming = None
        self.forget_descriptor()
        if self._announced is not None:
            os.close(self._announced)
            self._announced = None

    def _make(self) -> OutgoingRing | None:
        try:
            ring = OutgoingRing()
        except (OSError, AttributeError) as error:  # AttributeError: a Python that was built for an old C library
            self._has_none = True
            _logger.warning("no shared memory, so large payloads go by the socket, which is slower: %s", error)
            return None
        self.descriptor = ring.descriptor
        return ring
