"""The steps of the channel benchmark: streams and ping-pongs between two processes, over channels and plain sockets.

Both processes run the same list of steps. Each step has its own socket pair, of the kind that workers of one host use.
The module knows `channels` and `snapshot.channel`, and no runtime.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import cycle
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from benchmarks.keyed_rows import batches, bursts
from cutline.channels.connection import Connection
from cutline.channels.identity import Identity
from cutline.channels.wire import HEADER_BYTES
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask

#: The message of a ping-pong.
PING = ("key-00000", 1)
#: Of this many frames one is compared with the messages sent. The channel itself numbers all frames without a gap.
CHECKED_FRAMES = 16
#: Messages sent between two reads of the socket. Batches are sent one between two reads.
SLICE = 512
_PEER = Identity("benchmark", "peer", 1)
_THERE = ChannelId(Subtask("one"), Subtask("other"))
_BACK = ChannelId(Subtask("other"), Subtask("one"))


class Way(Enum):
    """The transport of a step."""

    CHANNEL = "channel"
    #: a plain socket with the bytes of the same frames
    BASELINE = "baseline"
    #: a plain socket with a checksum of each frame at both ends, which no channel can be faster than
    CHECKED = "checked"
    #: a plain ping-pong with each side busy for `BUSY_SECONDS` before it sends, and these seconds left out
    BUSY = "busy"


#: Transports of a stream, and of a ping-pong.
STREAM_WAYS = (Way.CHANNEL, Way.BASELINE, Way.CHECKED)
PING_PONG_WAYS = (Way.CHANNEL, Way.BASELINE, Way.BUSY)

#: seconds of work before each send, because a process that slept longer may wake more slowly
BUSY_SECONDS = 10e-6


@dataclass(frozen=True, slots=True)
class Step:
    """A measurement."""

    way: Way
    is_ping_pong: bool
    #: rows of a batch, or None for small messages
    rows_per_batch: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """The result of one side of a stream."""

    #: when the first byte was sent, or when the last was received, by the monotonic clock
    at: float
    messages: int = 0
    payload_bytes: int = 0


def messages_to_send(step: Step) -> list[Any]:
    """Return the messages, or batches, that a step sends again and again."""
    if step.rows_per_batch is None:
        return [message for burst in bursts() for message in burst]
    return batches("int64", step.rows_per_batch)[:16]


def frames_of(step: Step) -> list[bytes]:
    """Return the payloads of `messages_to_send`, as a channel sender fills them."""
    end, frames = ChannelSender(_THERE, Codec(), BackpressureFlag()), []
    _send(end, messages_to_send(step), step)
    end.seal()
    while end.buffer.has_data:
        frame = end.buffer.take()
        assert isinstance(frame, Frame)
        frames.append(bytes(frame.payload))
    return frames


def _send(end: ChannelSender, messages: list[Any], step: Step) -> None:
    if step.rows_per_batch is None:
        end.send_all(messages, are_tuples=True)
        return
    for batch in messages:
        end.send_batch(batch)


@cache
def ping_bytes() -> int:
    """Return the bytes of one message of a ping-pong on the wire."""
    return HEADER_BYTES + 1 + len(Codec().encode(list(PING)))


class Side:
    """An end of a link with a channel each way, and its loop."""

    def __init__(self, sock: socket.socket, *, is_first: bool) -> None:
        outgoing, incoming = (_THERE, _BACK) if is_first else (_BACK, _THERE)
        self.codec = Codec()
        self.backpressure = BackpressureFlag()
        self.sending = ChannelSender(outgoing, self.codec, self.backpressure)
        self.receiving = ChannelReceiver(incoming)
        self.link = Connection(sock, _PEER)
        self._incoming = 1 if is_first else 0
        self.link.attach_sending(1 - self._incoming, self.sending)
        self.link.attach_receiving(self._incoming)
        self._poll, self._awaited = select.poll(), select.POLLIN
        self._poll.register(self.link, self._awaited)

    def wait(self) -> None:
        """Sleep until the socket is readable, or writable while bytes wait to be written."""
        awaited = select.POLLIN | (select.POLLOUT if self.link.wants_write else 0)
        if awaited != self._awaited:
            self._awaited = awaited
            self._poll.modify(self.link, awaited)
        self._poll.poll()

    def receive(self) -> None:
        """Read the socket, and deliver its frames to the receiving end."""
        for _, item in self.link.receive():
            assert isinstance(item, Frame)
            self.receiving.deliver(item)

    def next_frame(self) -> Frame | None:
        """Remove and return the next frame, and give its credit back. Return None when there is no frame."""
        head = self.receiving.head
        assert head is None or isinstance(head, Frame)
        if head is not None:
            self.receiving.advance(head.count)
            self.link.free(self._incoming, self.receiving.take_freed_bytes())
        return head

    def drain(self) -> None:
        """Write all waiting bytes."""
        self.link.pump()
        while self.sending.buffer.has_data or self.link.wants_write:
            self.wait()
            self.receive()
            self.link.pump()


def send_stream(sock: socket.socket, step: Step) -> Streamed:
    """Send for the seconds of the step, then the end of the stream."""
    side, table = Side(sock, is_first=True), messages_to_send(step)
    size = SLICE if step.rows_per_batch is None else 1
    slices = cycle([table[at : at + size] for at in range(0, len(table), size)])
    began_at = time.monotonic()
    while time.monotonic() < began_at + step.seconds:
        if not side.backpressure.closed:
            _send(side.sending, next(slices), step)
        side.receive()
        side.link.pump()
        if side.backpressure.closed:
            side.wait()
    side.sending.send_end()
    side.drain()
    return Streamed(began_at)


def receive_stream(sock: socket.socket, step: Step) -> Streamed:
    """Receive and decode until the end of the stream.

    Raises
    ------
    RuntimeError
        if a message differs from the message sent.
    """
    side, table = Side(sock, is_first=False), messages_to_send(step)
    frames = received_bytes = 0
    while True:
        side.wait()
        side.receive()
        while (frame := side.next_frame()) is not None:
            if frame.is_control:
                return Streamed(time.monotonic(), frame.first - 1, received_bytes)
            messages = messages_of(frame, side.codec)
            received_bytes += len(frame.payload)
            if frames % CHECKED_FRAMES == 0:
                _check(frame, messages, table)
            frames += 1
        side.link.pump()


def _check(frame: Frame, messages: list[Any] | pa.RecordBatch, table: list[Any]) -> None:
    """Compare a frame with the messages sent. Batches are compared by rows, because they may share a frame."""
    if isinstance(messages, pa.RecordBatch):
        rows = pa.Table.from_batches(table)
        start = (frame.first - 1) % rows.num_rows
        expected = pa.concat_tables([rows, rows]).slice(start, frame.count)
        is_right = pa.Table.from_batches([messages]).equals(expected)
    else:
        is_right = messages == [table[(number - 1) % len(table)] for number in range(frame.first, frame.last + 1)]
    if not is_right:
        raise RuntimeError(f"channel: messages {frame.first} to {frame.last} are not those that were sent")


def send_bytes(sock: socket.socket, step: Step) -> Streamed:
    """Send over the plain socket with one `sendall` a frame."""
    frames, is_checked = cycle(frames_of(step)), step.way is Way.CHECKED
    began_at = time.monotonic()
    while time.monotonic() < began_at + step.seconds:
        frame = next(frames)
        if is_checked:
            xxh3_64_intdigest(frame)
        sock.sendall(frame)
    sock.shutdown(socket.SHUT_WR)
    return Streamed(began_at)


def receive_bytes(sock: socket.socket, step: Step) -> Streamed:
    """Receive from the plain socket into one buffer of the size of the largest frame."""
    lengths = [len(frame) for frame in frames_of(step)]
    buffer, is_checked, received = memoryview(bytearray(max(lengths))), step.way is Way.CHECKED, 0
    for length in cycle(lengths):
        count = sock.recv_into(buffer, *((length, socket.MSG_WAITALL) if is_checked else ()))
        if not count:
            break
        if is_checked:
            xxh3_64_intdigest(buffer[:length])
        received += count
    return Streamed(time.monotonic(), 0, received)


def ping(sock: socket.socket, step: Step) -> list[float]:
    """Send a message and wait until it is back, for the seconds of the step. Return the seconds of each round trip."""
    side, received = Side(sock, is_first=True), []
    until = time.monotonic() + step.seconds
    while (began_at := time.perf_counter()) and time.monotonic() < until:
        side.sending.send(PING)
        side.sending.seal()
        side.link.pump()
        answer = _await_message(side)
        received.append(time.perf_counter() - began_at)
        if answer != PING:
            raise RuntimeError(f"channel: {answer} came back for {PING}")
    side.sending.send_end()
    side.drain()
    return received


def pong(sock: socket.socket, step: Step) -> None:
    """Send back each message, until the end of the stream."""
    side = Side(sock, is_first=False)
    while (message := _await_message(side)) is not None:
        side.sending.send(message)
        side.sending.seal()
        side.link.pump()


def _await_message(side: Side) -> Any:
    while (frame := side.next_frame()) is None:
        side.wait()
        side.receive()
    return None if frame.is_control else messages_of(frame, side.codec)[0]


def ping_baseline(sock: socket.socket, step: Step) -> list[float]:
    """Send the bytes of a ping over the plain socket and back. Return the seconds of each round trip."""
    data, received, busy_seconds = bytes(ping_bytes()), [], 2 * BUSY_SECONDS if step.way is Way.BUSY else 0.0
    until = time.monotonic() + step.seconds
    while (began_at := time.perf_counter()) and time.monotonic() < until:
        _work(step)
        sock.sendall(data)
        sock.recv(len(data), socket.MSG_WAITALL)
        received.append(time.perf_counter() - began_at - busy_seconds)
    sock.shutdown(socket.SHUT_WR)
    return received


def pong_baseline(sock: socket.socket, step: Step) -> None:
    """Send back the bytes of each ping over the plain socket."""
    while data := sock.recv(ping_bytes(), socket.MSG_WAITALL):
        _work(step)
        sock.sendall(data)


def _work(step: Step) -> None:
    if step.way is Way.BUSY:
        until = time.perf_counter() + BUSY_SECONDS
        while time.perf_counter() < until:
            pass
