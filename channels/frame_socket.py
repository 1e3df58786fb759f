"""Frames over one authenticated, non-blocking socket: read whole, written gathered and in order.

Large payloads of a Unix socket's DATA frames go beside the socket, through `channels.shared_payloads`.

Every received frame must carry the incarnation that the peer proved. Knows no channels, no credit and no meaning of a
payload. After any error the socket is unusable.
"""

from __future__ import annotations

import socket
from array import array
from collections import deque
from dataclasses import dataclass
from itertools import islice

import msgspec

from cutline.channels.frame_reader import FrameReader
from cutline.channels.identity import Identity
from cutline.channels.limits import GATHERED_BUFFERS_MAX, JOINED_BYTES_MAX, SHARED_PAYLOAD_BYTES_MIN
from cutline.channels.shared_payloads import SharedPayloads
from cutline.channels.sockets import prepare
from cutline.channels.wire import (
    HEADER_BYTES,
    Caps,
    SharedPlace,
    WireFrame,
    WireType,
    data_frame,
    header,
    header_of,
    stamps_frame,
)
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.record_batches import new_memory
from cutline.snapshot.errors import ChannelError

#: Member of an enum in a global, because getting the member takes longer than making a frame.
_DATA = WireType.DATA

#: Bytes of descriptors beside one read: the memory's descriptor, and room for a second to detect that there are more.
_BESIDE_BYTES_MAX = socket.CMSG_SPACE(2 * array("i").itemsize)


@dataclass(slots=True)
class Traffic:
    """Counters of a link, payloads beside the socket included. Messages are counted in data frames only."""

    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0


class _Queued(msgspec.Struct, frozen=True, gc=False):
    """A frame that waits to be written."""

    channel: int
    buffers: list[bytes | memoryview]
    size: int


class FrameSocket:
    """Two streams of frames over one socket.

    Parameters
    ----------
    sock : socket
        Connected and authenticated. Owned by the `FrameSocket` from now on.
    peer : Identity
        The identity that the peer proved in the handshake.
    caps : mapping of WireType to int
        The frame types that may come, with the largest payload of each in bytes.
    """

    def __init__(self, sock: socket.socket, peer: Identity, caps: Caps) -> None:
        prepare(sock)
        self.peer = peer
        self.traffic = Traffic()
        #: bytes that were queued and not yet written
        self.queued_bytes = 0
        self._socket = sock
        self._reader = FrameReader(caps, peer.incarnation)
        #: error that the next read raises, because the kernel reports a loss only once; None without a loss
        self._loss: OSError | None = None
        self._queue: deque[_Queued] = deque()
        #: written bytes of the first queued frame; while it is half written, nothing may go before its rest
        self._head_written = 0
        self._shared = SharedPayloads() if WireType.SHARED in caps else None
        #: the peer's memory may come beside the next read; this side's memory goes beside the next write
        self._awaits_memory = self._sends_memory = False
        if self._shared is not None:
            self._awaits_memory, self._sends_memory = True, self._shared.descriptor is not None
            self.put(self._shared.announcement(peer.incarnation))

    def fileno(self) -> int:
        """Return the descriptor for selectors, or -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Drop the connection and everything that is queued. May be called again."""
        self._queue.clear()
        self.queued_bytes = 0
        self._sends_memory = False
        if self._shared is not None:
            self._shared.close()
        self._socket.close()

    def receive(self, bytes_max: int) -> list[WireFrame]:
        """Return the frames that have come, after reading about `bytes_max` bytes at most. Does not block.

        Raises
        ------
        ChannelError
            if the connection is lost, or the peer broke the protocol. Frames from before a loss are returned first.
        """
        frames: list[WireFrame] = []
        reader, taken = self._reader, 0
        try:
            while taken < bytes_max:
                space = reader.space
                count = self._read_beside(space) if self._awaits_memory else self._socket.recv_into(space)
                if not count:
                    raise self._loss or ConnectionError("it closed the connection")
                taken += count
                frames += reader.advance(count)
                if count < len(space):
                    break  # the kernel had no more
        except BlockingIOError:
            pass
        except OSError as error:
            if not frames:
                raise self._lost(error) from error
            self._loss = error
        except ChannelError as error:
            raise ChannelError(f"{self.peer}: {error}") from error
        self.traffic.bytes_in += taken
        self.traffic.frames_in += len(frames)
        return frames

    def allocate(self, size: int) -> memoryview:
        """Return memory for a payload of `size` bytes: shared memory if possible, which `put_data` need not copy."""
        room = None if self._shared is None else self._shared.allocate(size)
        return new_memory(size) if room is None else room

    def put(self, frame: WireFrame) -> None:
        """Queue a frame after all others."""
        self.traffic.frames_out += 1
        self._queue.append(self._queued(frame.channel, header_of(frame), frame.payload))

    def put_data(self, channel: int, frame: Frame) -> int:
        """Queue a channel's frame after all others. Return the bytes of its payload that go beside the socket."""
        size, incarnation = len(frame.payload), self.peer.incarnation
        if frame.stamps is not None:
            self.put(stamps_frame(channel, incarnation, frame.stamps))
        if size >= SHARED_PAYLOAD_BYTES_MIN:
            wire = data_frame(channel, incarnation, frame)
            sent = wire if self._shared is None else self._shared.replaced(wire)
            self.put(sent)
            size = 0 if sent is wire else size
            self.traffic.bytes_out += size
            return size
        self.traffic.frames_out += 1
        head = header(_DATA, frame.kind, channel, incarnation, frame.first, frame.count, frame.payload)
        self._queue.append(self._queued(channel, head, frame.payload))
        return 0

    def open_memory(self, frame: WireFrame) -> None:
        """Open the peer's memory, which a received MEMORY frame announces. From now on SHARED frames may come.

        Raises
        ------
        ChannelError
            if no memory came with the frame, the memory is unusable, or the frame is not the first.
        """
        assert self._shared is not None  # no MEMORY frame is admitted
        if not self._awaits_memory:
            raise ChannelError("a second MEMORY frame came")
        self._awaits_memory = False
        self._shared.open(frame)

    def fetch(self, place: SharedPlace) -> memoryview:
        """Return the payload of a received SHARED frame. Call once a frame, in the order of these frames.

        Raises
        ------
        ChannelError
            if the payload is missing or damaged.
        """
        assert self._shared is not None  # no SHARED frame is admitted
        payload = self._shared.fetch(place)
        self.traffic.bytes_in += place.length
        return payload

    def put_urgent(self, frame: WireFrame) -> None:
        """Queue a frame before others, but after a half-written frame and after all frames of its own channel."""
        position = len(self._queue)
        ahead = 1 if self._head_written else 0
        while position > ahead and self._queue[position - 1].channel != frame.channel:
            position -= 1
        self._queue.insert(position, self._queued(frame.channel, header_of(frame), frame.payload))
        self.traffic.frames_out += 1

    def flush(self) -> int:
        """Write as much as the socket takes, and return the bytes written. Does not block.

        Raises
        ------
        ChannelError
            if the connection is lost.
        """
        total = 0
        try:
            while self._queue:
                buffers = self._unwritten()
                count = self._write(buffers)
                total += count
                if count == self.queued_bytes:  # nearly always
                    self._queue.clear()
                    self.queued_bytes = self._head_written = 0
                    break
                self._forget(count)
                if count < sum(map(len, buffers)):
                    break  # the kernel's buffer is full
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._lost(error) from error
        self.traffic.bytes_out += total
        return total

    def _queued(self, channel: int, head: bytes, payload: bytes | memoryview) -> _Queued:
        size = HEADER_BYTES + len(payload)
        self.queued_bytes += size
        return _Queued(channel, [head + payload] if size <= JOINED_BYTES_MAX else [head, payload], size)

    def _unwritten(self) -> list[bytes | memoryview]:
        """Return the buffers of as many frames as one write takes."""
        if len(self._queue) == 1 and not self._head_written:
            return self._queue[0].buffers
        buffers = [buffer for queued in islice(self._queue, GATHERED_BUFFERS_MAX // 2) for buffer in queued.buffers]
        if skip := self._head_written:
            if skip >= len(buffers[0]):
                skip -= len(buffers.pop(0))
            buffers[0] = memoryview(buffers[0])[skip:]
        return buffers

    def _forget(self, count: int) -> None:
        self.queued_bytes -= count
        self._head_written += count
        while self._queue and self._head_written >= self._queue[0].size:
            self._head_written -= self._queue.popleft().size

    def _read_beside(self, space: memoryview) -> int:
        """Read bytes, and the descriptor of the peer's memory beside them."""
        assert self._shared is not None
        count, beside, flags, _ = self._socket.recvmsg_into([space], _BESIDE_BYTES_MAX, socket.MSG_CMSG_CLOEXEC)
        if beside or flags & socket.MSG_CTRUNC:
            descriptors = [descriptor for *_, data in beside for descriptor in array("i", data)]
            self._shared.take_descriptors(descriptors, are_all=not flags & socket.MSG_CTRUNC)
        return count

    def _write(self, buffers: list[bytes | memoryview]) -> int:
        if self._sends_memory:
            return self._write_beside(buffers)
        return self._socket.send(buffers[0]) if len(buffers) == 1 else self._socket.sendmsg(buffers)

    def _write_beside(self, buffers: list[bytes | memoryview]) -> int:
        """Write bytes, with the descriptor of this side's memory beside them."""
        assert self._shared is not None
        assert self._shared.descriptor is not None
        descriptors = array("i", [self._shared.descriptor])
        count = self._socket.sendmsg(buffers, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        self._shared.forget_descriptor()
        self._sends_memory = False
        return count

    def _lost(self, why: OSError) -> ChannelError:
        return ChannelError(f"the connection to {self.peer} is lost: {why}. The run rolls back to its last snapshot.")
