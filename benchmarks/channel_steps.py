"""What the two processes of the channel benchmark do in turn: streams and ping-pongs, over channels and bare sockets.

Both go through the same list of steps; each step has a socket pair of its own, of the kind that workers of one host
use. Knows the code of `channels` and of `snapshot.channel`, and nothing of a runtime.
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
from channels.connection import Connection
from channels.identity import Identity
from channels.wire import HEADER_BYTES
from snapshot.channel.frame import Frame, Marker, PayloadKind
from snapshot.channel.frame_codec import messages_of
from snapshot.channel.gate import Gate
from snapshot.channel.receiving_end import ReceivingEnd
from snapshot.channel.sending_end import SendingEnd
from snapshot.channel.serialization import Codec
from snapshot.ids import ChannelId, Subtask

#: The message of a ping-pong.
PING = ("key-00000", 1)
#: Every so many frames one is compared whole with what was sent; all are counted, and numbered without a gap.
CHECKED_FRAMES = 16
#: Messages between two looks at the socket; of batches, one.
SLICE = 512
_PEER = Identity("benchmark", "peer", 1)
_THERE = ChannelId(Subtask("one"), Subtask("other"))
_BACK = ChannelId(Subtask("other"), Subtask("one"))


class Way(Enum):
    """What is measured."""

    CHANNEL = "channel"
    BARE = "bare"  #: the bytes of the same frames over the bare socket
    CHECKED = "checked"  #: the same, with the checksum of each frame at both ends: what no channel can be faster than
    BUSY = "busy"  #: the bare ping-pong, with each side busy for `BUSY_SECONDS` before it sends; that time left out


#: What is measured of a stream, and of a ping-pong.
STREAM_WAYS = (Way.CHANNEL, Way.BARE, Way.CHECKED)
PING_PONG_WAYS = (Way.CHANNEL, Way.BARE, Way.BUSY)

#: A little work. Whoever sleeps so long may be woken more slowly than one that only just fell asleep.
BUSY_SECONDS = 10e-6


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement."""

    way: Way
    is_ping_pong: bool
    #: None: small messages
    rows_per_batch: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """One side of a stream: when the first byte was sent, or when the last had been taken."""

    at: float
    messages: int = 0
    payload_bytes: int = 0


def what_is_sent(step: Step) -> list[Any]:
    """Messages, or batches, that are sent again and again."""
    if step.rows_per_batch is None:
        return [message for burst in bursts() for message in burst]
    return batches("int64", step.rows_per_batch)[:16]


def frames_of(step: Step) -> list[bytes]:
    """The payloads of `what_is_sent`, as a sending end fills them."""
    end, frames = SendingEnd(_THERE, Codec(), Gate()), []
    _send(end, what_is_sent(step), step)
    end.seal()
    while end.has_data:
        frame = end.take()
        assert isinstance(frame, Frame)
        frames.append(bytes(frame.payload))
    return frames


def _send(end: SendingEnd, messages: list[Any], step: Step) -> None:
    if step.rows_per_batch is None:
        end.send_all(messages, are_tuples=True)
        return
    for batch in messages:
        end.send_batch(batch)


@cache
def ping_bytes() -> int:
    """What one message of a ping-pong is on the wire."""
    return HEADER_BYTES + 1 + len(Codec().encode(list(PING)))


class Side:
    """One end of a link with a channel each way, and the loop around it."""

    def __init__(self, sock: socket.socket, *, is_first: bool) -> None:
        outgoing, incoming = (_THERE, _BACK) if is_first else (_BACK, _THERE)
        self.codec = Codec()
        self.gate = Gate()
        self.sending = SendingEnd(outgoing, self.codec, self.gate)
        self.receiving = ReceivingEnd(incoming)
        self.link = Connection(sock, _PEER)
        self._incoming = 1 if is_first else 0
        self.link.attach_sending(1 - self._incoming, self.sending)
        self.link.attach_receiving(self._incoming)
        self._poll, self._awaited = select.poll(), select.POLLIN
        self._poll.register(self.link, self._awaited)

    def wait(self) -> None:
        """Sleep until the socket is readable, or writable while something waits to be written."""
        awaited = select.POLLIN | (select.POLLOUT if self.link.wants_write else 0)
        if awaited != self._awaited:
            self._awaited = awaited
            self._poll.modify(self.link, awaited)
        self._poll.poll()

    def receive(self) -> None:
        """Take what came."""
        for _, item in self.link.receive():
            assert isinstance(item, Frame)
            self.receiving.deliver(item)

    def next_frame(self) -> Frame | None:
        """The next frame that came, taken as processed: its credit is given back."""
        head = self.receiving.head
        assert not isinstance(head, Marker)
        if head is not None:
            self.receiving.advance(head.count)
            self.link.free(self._incoming, self.receiving.take_freed_bytes())
        return head

    def drain(self) -> None:
        """Write all that waits."""
        self.link.pump()
        while self.sending.has_data or self.link.wants_write:
            self.wait()
            self.receive()
            self.link.pump()


def send_stream(sock: socket.socket, step: Step) -> Streamed:
    """Send for so many seconds, then the end."""
    side, table = Side(sock, is_first=True), what_is_sent(step)
    size = SLICE if step.rows_per_batch is None else 1
    slices = cycle([table[at : at + size] for at in range(0, len(table), size)])
    began_at = time.monotonic()
    while time.monotonic() < began_at + step.seconds:
        if not side.gate.closed:
            _send(side.sending, next(slices), step)
        side.receive()
        side.link.pump()
        if side.gate.closed:
            side.wait()
    side.sending.send_end()
    side.drain()
    return Streamed(began_at)


def take_stream(sock: socket.socket, step: Step) -> Streamed:
    """Decode all that comes until the end.

    Raises
    ------
    RuntimeError
        if something else comes than was sent.
    """
    side, table = Side(sock, is_first=False), what_is_sent(step)
    frames = taken_bytes = 0
    while True:
        side.wait()
        side.receive()
        while (frame := side.next_frame()) is not None:
            if frame.kind is PayloadKind.END:
                return Streamed(time.monotonic(), frame.first - 1, taken_bytes)
            messages = messages_of(frame, side.codec)
            taken_bytes += len(frame.payload)
            if frames % CHECKED_FRAMES == 0:
                _check(frame, messages, table)
            frames += 1
        side.link.pump()


def _check(frame: Frame, messages: list[Any] | pa.RecordBatch, table: list[Any]) -> None:
    """Batches may share a frame, so of them the rows count."""
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
    """The bare socket: one `sendall` a frame."""
    frames, is_checked = cycle(frames_of(step)), step.way is Way.CHECKED
    began_at = time.monotonic()
    while time.monotonic() < began_at + step.seconds:
        frame = next(frames)
        if is_checked:
            xxh3_64_intdigest(frame)
        sock.sendall(frame)
    sock.shutdown(socket.SHUT_WR)
    return Streamed(began_at)


def take_bytes(sock: socket.socket, step: Step) -> Streamed:
    """The bare socket: everything into one buffer of the largest frame's size, again and again."""
    lengths = [len(frame) for frame in frames_of(step)]
    buffer, is_checked, taken = memoryview(bytearray(max(lengths))), step.way is Way.CHECKED, 0
    for length in cycle(lengths):
        count = sock.recv_into(buffer, *((length, socket.MSG_WAITALL) if is_checked else ()))
        if not count:
            break
        if is_checked:
            xxh3_64_intdigest(buffer[:length])
        taken += count
    return Streamed(time.monotonic(), 0, taken)


def ping(sock: socket.socket, step: Step) -> list[float]:
    """Send one message and wait until it is back, for so many seconds; returns seconds of each round trip."""
    side, taken = Side(sock, is_first=True), []
    until = time.monotonic() + step.seconds
    while (began_at := time.perf_counter()) and time.monotonic() < until:
        side.sending.send(PING)
        side.sending.seal()
        side.link.pump()
        answer = _await_message(side)
        taken.append(time.perf_counter() - began_at)
        if answer != PING:
            raise RuntimeError(f"channel: {answer} came back for {PING}")
    side.sending.send_end()
    side.drain()
    return taken


def pong(sock: socket.socket, step: Step) -> None:
    """Send back what comes, until the end."""
    side = Side(sock, is_first=False)
    while (message := _await_message(side)) is not None:
        side.sending.send(message)
        side.sending.seal()
        side.link.pump()


def _await_message(side: Side) -> Any:
    while (frame := side.next_frame()) is None:
        side.wait()
        side.receive()
    return None if frame.kind is PayloadKind.END else messages_of(frame, side.codec)[0]


def ping_bare(sock: socket.socket, step: Step) -> list[float]:
    """The bare socket: as many bytes there and back."""
    data, taken, busy_seconds = bytes(ping_bytes()), [], 2 * BUSY_SECONDS if step.way is Way.BUSY else 0.0
    until = time.monotonic() + step.seconds
    while (began_at := time.perf_counter()) and time.monotonic() < until:
        _work(step)
        sock.sendall(data)
        sock.recv(len(data), socket.MSG_WAITALL)
        taken.append(time.perf_counter() - began_at - busy_seconds)
    sock.shutdown(socket.SHUT_WR)
    return taken


def pong_bare(sock: socket.socket, step: Step) -> None:
    """The bare socket: send back what comes."""
    while data := sock.recv(ping_bytes(), socket.MSG_WAITALL):
        _work(step)
        sock.sendall(data)


def _work(step: Step) -> None:
    if step.way is Way.BUSY:
        until = time.perf_counter() + BUSY_SECONDS
        while time.perf_counter() < until:
            pass
