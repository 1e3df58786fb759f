"""Large payloads of a Unix socket's frames, which go through shared memory: what the socket carries in their place.

Each direction has a ring, made when its first large payload is sent. A MEMORY frame announces it, and its descriptor
travels beside the bytes of the socket; from then on a SHARED frame stands for a DATA frame and says where its payload
lies. A payload for which the ring has no room goes by the socket, as all small ones do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

from channels.limits import SHARED_PAYLOAD_BYTES_MIN, SHARED_RING_BYTES
from channels.shared_ring import IncomingRing, OutgoingRing
from channels.wire import SharedPlace, WireFrame, WireType, memory_frame, memory_size_of, place_of, shared_frame
from snapshot.errors import ChannelError


class SharedPayloads:
    """Both directions of one connection."""

    def __init__(self) -> None:
        #: descriptors that are to travel beside the next bytes that are written
        self.descriptors: list[int] = []
        self._outgoing: OutgoingRing | None = None
        self._incoming: IncomingRing | None = None
        #: that came, of a MEMORY frame which has not come whole
        self._announced: list[int] = []

    def replace(self, frame: WireFrame) -> list[WireFrame]:
        """What is to be sent for `frame`: it, or where its payload is.

        Raises
        ------
        ChannelError
            if the system gives no memory.
        """
        fits = SHARED_PAYLOAD_BYTES_MIN <= len(frame.payload) <= SHARED_RING_BYTES
        if frame.type is not WireType.DATA or not fits:
            return [frame]
        announced: list[WireFrame] = []
        if self._outgoing is None:
            self._outgoing, announcement = self._open(frame)
            announced = [announcement]
        position = self._outgoing.put(frame.payload)
        if position is None:
            return [*announced, frame]
        place = SharedPlace(position, len(frame.payload), xxh3_64_intdigest(frame.payload))
        return [*announced, shared_frame(frame, place)]

    def resolve(self, frame: WireFrame) -> WireFrame | None:
        """The frame that was meant by one that came; None: it was about the memory itself.

        Raises
        ------
        ChannelError
            if the peer broke the protocol, or a payload is damaged.
        """
        if frame.type is WireType.MEMORY:
            if self._incoming is not None or len(self._announced) != 1:
                raise ChannelError("a MEMORY frame came without its memory, or a second time")
            self._incoming = IncomingRing(self._announced.pop(), memory_size_of(frame))
            return None
        if frame.type is not WireType.SHARED:
            return frame
        if self._incoming is None:
            raise ChannelError("a SHARED frame came, and no memory before it")
        return frame._replace(type=WireType.DATA, payload=self._incoming.take(*place_of(frame)))

    def close_sent(self) -> None:
        """The descriptors travel; the peer has its own of them."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def announce(self, descriptors: Iterable[int]) -> None:
        """These came beside bytes of the socket."""
        self._announced.extend(descriptors)

    def close(self) -> None:
        """Give all memory back. May be called again."""
        for ring in (self._outgoing, self._incoming):
            if ring is not None:
                ring.close()
        self._outgoing = self._incoming = None
        self.close_sent()
        while self._announced:
            os.close(self._announced.pop())

    def _open(self, frame: WireFrame) -> tuple[OutgoingRing, WireFrame]:
        """A ring, and what announces it."""
        try:
            ring = OutgoingRing()
        except OSError as error:
            raise ChannelError(f"no shared memory for large payloads: {error}; see `ulimit -n` and `free`") from error
        self.descriptors.append(ring.descriptor)
        return ring, memory_frame(frame, ring.size)
