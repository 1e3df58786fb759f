"""Links to test: two ends of one link, their channel ends, and a loop small enough to see through."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from cutline.channels.connection import Connection, Received
from cutline.channels.identity import Identity
from cutline.channels.in_process import InProcessConnection
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.stamps import OpenStamps
from cutline.snapshot.ids import ChannelId, Subtask

#: Small, so that tests fill it with little.
WINDOW_BYTES = 64 * 1024
ALICE = Identity("run", "alice", 3)
BOB = Identity("run", "bob", 3)

AnyConnection = Connection | InProcessConnection
Ends = tuple[AnyConnection, AnyConnection]
LinkMaker = Callable[[], AbstractContextManager[Ends]]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    return one, other


@contextmanager
def in_process_link() -> Iterator[Ends]:
    """Both ends are the one queue."""
    link = InProcessConnection(window_bytes=WINDOW_BYTES)
    yield link, link
    link.close()


@contextmanager
def _connected(pair: tuple[socket.socket, socket.socket]) -> Iterator[Ends]:
    alice = Connection(pair[0], BOB, window_bytes=WINDOW_BYTES)
    bob = Connection(pair[1], ALICE, window_bytes=WINDOW_BYTES)
    yield alice, bob
    alice.close()
    bob.close()


def tcp_link() -> AbstractContextManager[Ends]:
    """Two connections over TCP."""
    return _connected(tcp_pair())


def unix_link() -> AbstractContextManager[Ends]:
    """Two connections over a Unix socket."""
    return _connected(socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))


class Channel:
    """One channel over a link, from `sender` to `receiver`, with what has arrived and been processed."""

    def __init__(
        self, number: int, sender: AnyConnection, receiver: AnyConnection, stamps: OpenStamps | None = None
    ) -> None:
        self.number = number
        self.codec = Codec()
        name = ChannelId(Subtask("source", number), Subtask("target", number))
        self.sending = ChannelSender(name, self.codec, BackpressureFlag(), stamps=stamps)
        self.receiving = ChannelReceiver(name)
        self.processed: list[Any] = []
        self.markers: list[Marker] = []
        self.frames: list[AnyFrame] = []
        self._receiver = receiver
        sender.attach_sending(number, self.sending)
        receiver.attach_receiving(number)

    def take(self, item: AnyFrame | Marker) -> None:
        """What a worker's loop does with something that came."""
        if isinstance(item, Marker):
            self.receiving.deliver_marker(item)
            self.markers.append(item)
        else:
            self.receiving.deliver(item)
            self.frames.append(item)

    def process(self) -> None:
        """Process all that waits, and give the credit back."""
        while (head := self.receiving.head) is not None:
            if isinstance(head, Marker):
                self.receiving.pass_marker()
                continue
            messages = messages_of(head, self.codec)
            self.processed += messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages
            self.receiving.advance(head.count)
        self._receiver.free(self.number, self.receiving.take_freed_bytes())


def run(
    ends: Ends, channels: list[Channel], until: Callable[[], bool], processing: list[Channel] | None = None
) -> None:
    """Turn both loops until `until`; only the channels in `processing` (default: all) process what comes."""
    by_number = {channel.number: channel for channel in channels}
    while not until():
        for end in ends:
            end.pump()
            for number, item in end.receive():
                by_number[number].take(item)
        for channel in channels if processing is None else processing:
            channel.process()


def settle(ends: Ends, channels: list[Channel], processing: list[Channel] | None = None) -> None:
    """Turn both loops until neither side has anything to write nor anything comes."""
    quiet = 0
    by_number = {channel.number: channel for channel in channels}
    while quiet < 3:
        arrived = [received for end in ends for received in _turn(end)]
        for number, item in arrived:
            by_number[number].take(item)
        for channel in channels if processing is None else processing:
            channel.process()
        quiet = 0 if arrived or any(end.wants_write for end in ends) else quiet + 1


def _turn(end: AnyConnection) -> list[Received]:
    end.pump()
    if isinstance(end, Connection):
        select.select([end], [], [], 0.002)
    return list(end.receive())
