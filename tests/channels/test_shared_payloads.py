"""Large payloads over a Unix socket go beside it, in order with all else; a peer that lies about them is named."""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh3_64_intdigest

from cutline.channels.connection import Connection
from cutline.channels.limits import SHARED_MEMORY_BYTES, SHARED_PAYLOAD_BYTES_MIN, WRITE_BUFFER_BYTES
from cutline.channels.shared_memory import OutgoingMemory
from cutline.channels.wire import SharedPlace, WireFrame, data_frame, header_of, memory_frame, shared_frame
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.record_batches import JOINED_ROWS_MAX
from cutline.snapshot.errors import ChannelError
from tests.channels.links import ALICE, Channel, run, settle, tcp_pair, unix_link
from tests.channels.test_shared_memory import put
from tests.leaks import LeakCheck

LARGE = b"x" * SHARED_PAYLOAD_BYTES_MIN
FIRST = data_frame(0, ALICE.incarnation, Frame(1, 1, PayloadKind.VALUES, LARGE))
PLACE = SharedPlace(0, len(LARGE), xxh3_64_intdigest(LARGE))


def test_large_payloads_do_not_cross_the_socket(leak_check: LeakCheck) -> None:
    """Messages arrive, and are counted; of payloads from 64 KiB the socket carried little more than headers."""
    with unix_link() as ends:
        channel = Channel(0, *ends)
        sent = [bytes([n]) * (SHARED_PAYLOAD_BYTES_MIN - 100 + 40 * n) for n in range(8)]
        written = []
        for message in sent:
            channel.sending.send(message)
            channel.sending.seal()
            ends[0].pump()
            written.append(len(sock_peek(ends[1])))
            run(ends, [channel], lambda: channel.receiving.arrived == channel.sending.sent)
        assert channel.processed == sent
        assert [count < 1000 for count in written] == [len(m) + 6 >= 64 * 1024 for m in sent]
        outgoing, incoming = (end.traffic for end in ends)
        assert outgoing.bytes_out == incoming.bytes_in > sum(map(len, sent))
        assert outgoing.frames_out == incoming.frames_in == 1 + len(sent)  # one announces memory


def sock_peek(end: object) -> bytes:
    """What waits in the kernel."""
    peeked: bytes = end._frames._socket.recv(1 << 20, socket.MSG_PEEK)  # type: ignore[attr-defined]
    return peeked


def test_what_finds_no_room_goes_by_the_socket(leak_check: LeakCheck) -> None:
    """More than the memory holds, at one time and at once: all arrives, in order, both ways."""
    with unix_link() as ends:
        channels = [Channel(number, *(ends if number % 2 else ends[::-1])) for number in range(8)]
        sent = [[bytes([c, n]) * (SHARED_MEMORY_BYTES // 8) for n in range(6)] for c in range(8)]
        for channel, messages in zip(channels, sent, strict=True):
            for message in messages:
                channel.sending.send(message)
            channel.sending.send("small")
            channel.sending.seal()
        run(ends, channels, lambda: all(c.receiving.arrived == c.sending.sent for c in channels))
        settle(ends, channels)
        assert [channel.processed for channel in channels] == [[*messages, "small"] for messages in sent]


def test_a_payload_larger_than_the_memory_arrives(leak_check: LeakCheck) -> None:
    """It goes by the socket, and the ones around it do not."""
    with unix_link() as ends:
        channel = Channel(0, *ends)
        sent = [LARGE, bytes(SHARED_MEMORY_BYTES + 1), LARGE]
        for message in sent:
            channel.sending.send(message)
        channel.sending.seal()
        run(ends, [channel], lambda: channel.receiving.arrived == channel.sending.sent)
        assert channel.processed == sent


def rows(first: int) -> pa.RecordBatch:
    """A batch that fills a frame alone, and goes beside the socket."""
    return pa.record_batch({"value": np.arange(first, first + JOINED_ROWS_MAX)})


def test_a_large_batch_is_encoded_in_its_place(leak_check: LeakCheck) -> None:
    """Its rows are copied once by the sender, from the first batch on."""
    with unix_link() as ends:
        channel = Channel(0, *ends)
        for number in range(2):
            channel.sending.send_batch(rows(number))
            shared = ends[0]._frames._shared  # type: ignore[union-attr]
            assert shared is not None and shared._outgoing is not None
            made = list(shared._outgoing._places)
            ends[0].pump()
            assert shared._outgoing._places == made, "a payload was copied to another place"
        run(ends, [channel], lambda: channel.receiving.arrived == channel.sending.sent)
        assert channel.processed == [*rows(0).to_pylist(), *rows(1).to_pylist()]


def test_small_payloads_take_no_place(leak_check: LeakCheck) -> None:
    """They go by the socket, however many rows they hold."""
    with unix_link() as ends:
        channel = Channel(0, *ends)
        channel.sending.send_batch(pa.record_batch({"value": np.zeros(JOINED_ROWS_MAX, np.uint8)}))
        shared = ends[0]._frames._shared  # type: ignore[union-attr]
        assert shared is not None and shared._outgoing is not None and not shared._outgoing._places


def test_what_a_snapshot_holds_of_the_out_buffer_is_not_written_over(leak_check: LeakCheck) -> None:
    """It is captured by reference, and stored while its places would be used for what is sent next."""
    with unix_link() as ends:
        channel = Channel(0, *ends)
        for number in range(12):
            channel.sending.send_batch(rows(number))
        ends[0].pump()
        channel.sending.put_marker(1, 1, aligned=False)
        cut = channel.sending.buffer.settled(1)
        assert cut is not None and cut.frames, "nothing waited that a marker could overtake"
        run(ends, [channel], lambda: channel.receiving.arrived == channel.sending.sent)
        for number in range(12, 36):
            channel.sending.send_batch(rows(number))
            run(ends, [channel], lambda: channel.receiving.arrived == channel.sending.sent)
        written = cut.written // JOINED_ROWS_MAX
        assert [messages_of(frame, channel.codec) for frame in cut.frames] == [rows(n) for n in range(written, 12)]
        del cut


def test_after_its_end_a_link_gives_no_shared_memory(leak_check: LeakCheck) -> None:
    """A node that still sends while its worker rolls back makes none that nobody would close."""
    with unix_link() as ends:
        channel = Channel(0, *ends)
    channel.sending.send_batch(rows(0))
    assert channel.sending.waiting_bytes > SHARED_PAYLOAD_BYTES_MIN


def test_without_shared_memory_all_bytes_cross_the_socket(leak_check: LeakCheck) -> None:
    """No byte is counted before the socket takes it."""
    peer, own = tcp_pair()
    connection = Connection(own, ALICE)
    frames = connection._frames
    assert frames.put_data(0, Frame(1, 1, PayloadKind.VALUES, LARGE)) == 0
    assert frames.traffic.bytes_out == 0
    connection.close()
    peer.close()


def test_a_connection_that_is_dropped_leaves_nothing(leak_check: LeakCheck) -> None:
    """Neither memory nor descriptors, whether they had left or not."""
    with unix_link() as ends:
        channel = Channel(0, *ends)
        channel.sending.send(LARGE)
        channel.sending.seal()
        frames = ends[0]._frames  # type: ignore[union-attr]
        frames.put_data(0, Frame(1, 1, PayloadKind.VALUES, LARGE))
        assert frames._shared is not None and frames._shared.descriptor is not None
    with unix_link() as ends:
        channel = Channel(0, *ends)
        channel.sending.send(LARGE)
        channel.sending.seal()
        ends[0].pump()


@pytest.fixture
def raw(leak_check: LeakCheck) -> Iterator[tuple[socket.socket, Connection]]:
    """A peer that can say anything, and the connection that it speaks to, where channel 0 comes in."""
    peer, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    connection = Connection(own, ALICE)
    connection.attach_receiving(0)
    yield peer, connection
    connection.close()
    peer.close()


def send_line(peer: socket.socket, *frames: WireFrame, descriptors: tuple[int, ...] = ()) -> None:
    data = b"".join(header_of(frame) + bytes(frame.payload) for frame in frames)
    peer.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else [])


@pytest.fixture
def memory(leak_check: LeakCheck) -> Iterator[tuple[OutgoingMemory, WireFrame]]:
    """A memory that is empty, and what announces it."""
    memory = OutgoingMemory()
    yield memory, memory_frame(ALICE.incarnation, memory.size)
    os.close(memory.descriptor)
    memory.close()


Memory = tuple[OutgoingMemory, WireFrame]


def test_memory_may_come_in_pieces(raw: tuple[socket.socket, Connection], memory: Memory) -> None:
    """Its descriptor comes with the first byte, the frame perhaps later."""
    peer, connection = raw
    outgoing, announcement = memory
    assert put(outgoing, LARGE) == PLACE.start
    data = header_of(announcement) + bytes(announcement.payload)
    peer.sendmsg([data[:5]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [outgoing.descriptor]))])
    assert connection.receive() == []
    peer.sendall(data[5:])
    send_line(peer, shared_frame(FIRST, PLACE))
    assert connection.receive() == [(0, Frame(1, 1, PayloadKind.VALUES, LARGE))]


def test_a_place_without_memory_is_refused(raw: tuple[socket.socket, Connection]) -> None:
    """The frame that stands for a payload, before there is any memory."""
    peer, connection = raw
    send_line(peer, shared_frame(FIRST, PLACE))
    with pytest.raises(ChannelError, match=r"alice.*no memory before it"):
        connection.receive()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "without its memory"), (2, "2 descriptors came"), (5, "descriptors came.*ulimit -n")]
)
def test_memory_comes_alone(raw: tuple[socket.socket, Connection], memory: Memory, count: int, text: str) -> None:
    """One descriptor, not none and not two, and no more than there is room for."""
    peer, connection = raw
    outgoing, announcement = memory
    send_line(peer, announcement, descriptors=(outgoing.descriptor,) * count)
    with pytest.raises(ChannelError, match=f"alice.*{text}"):
        connection.receive()


def test_memory_comes_once(raw: tuple[socket.socket, Connection], memory: Memory) -> None:
    """A second one is refused; its descriptor is not taken."""
    peer, connection = raw
    outgoing, announcement = memory
    send_line(peer, announcement, descriptors=(outgoing.descriptor,))
    send_line(peer, announcement, descriptors=(outgoing.descriptor,))
    with pytest.raises(ChannelError, match=r"alice.*a second MEMORY frame came"):
        while True:
            connection.receive()


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (PLACE._replace(checksum=1), "checksum is wrong"),
        (PLACE._replace(length=SHARED_MEMORY_BYTES + 1), "of shared memory"),
        (PLACE._replace(start=SHARED_MEMORY_BYTES - 1), "of shared memory"),
        (PLACE._replace(start=2**64 - SHARED_MEMORY_BYTES), "of shared memory"),
    ],
)
def test_a_wrong_place_names_the_peer(
    raw: tuple[socket.socket, Connection], memory: Memory, place: SharedPlace, text: str
) -> None:
    """Damage, or a payload that is not in the memory."""
    peer, connection = raw
    outgoing, announcement = memory
    assert put(outgoing, LARGE) == PLACE.start
    send_line(peer, announcement, shared_frame(FIRST, place), descriptors=(outgoing.descriptor,))
    with pytest.raises(ChannelError, match=f"alice.*{text}"):
        connection.receive()


def test_no_payload_is_copied_beyond_the_credit(raw: tuple[socket.socket, Connection], memory: Memory) -> None:
    """A few bytes of the socket can name much: what the receiver has not granted is refused before it is taken."""
    peer, connection = raw
    outgoing, announcement = memory
    payload = bytes(SHARED_MEMORY_BYTES // 4)
    send_line(peer, announcement, descriptors=(outgoing.descriptor,))
    for number in range(1, 6):
        place = SharedPlace(put(outgoing, payload) or 0, len(payload), xxh3_64_intdigest(payload))
        frame = data_frame(0, ALICE.incarnation, Frame(number, 1, PayloadKind.VALUES, payload))
        send_line(peer, shared_frame(frame, place))
    with pytest.raises(ChannelError, match="credit"):
        while True:
            connection.receive()


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), AttributeError("memfd_create")], ids=str)
def test_without_memory_all_goes_by_the_socket(
    leak_check: LeakCheck, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """A system that gives none is no reason to fail; each side says it, once."""

    def none(name: str, flags: int) -> int:
        raise error

    monkeypatch.setattr(os, "memfd_create", none)
    with unix_link() as ends:
        channel = Channel(0, *ends)
        for _ in range(3):
            channel.sending.send(LARGE)
            channel.sending.seal()
        run(ends, [channel], lambda: channel.receiving.arrived == channel.sending.sent)
        assert channel.processed == [LARGE] * 3
    said = f"no shared memory, so large payloads go by the socket, which is slower: {error}"
    assert [record.message for record in caplog.records] == [said] * 2


def test_little_is_taken_before_the_first_byte_leaves(leak_check: LeakCheck) -> None:
    """What goes beside the socket counts like what goes through it: a marker waits behind as little."""
    with unix_link() as ends:
        channels = [Channel(number, *ends) for number in range(8)]
        for channel in channels:
            for _ in range(2):
                channel.sending.send(LARGE)
                channel.sending.seal()
        frames = ends[0]._frames  # type: ignore[union-attr]
        taken: list[int] = []
        flush = frames.flush

        def noted() -> int:
            taken.append(frames.traffic.bytes_out)
            return flush()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "flush", noted)
            ends[0].pump()
        assert taken[0] < WRITE_BUFFER_BYTES + 2 * len(LARGE)
        run(ends, channels, lambda: all(c.receiving.arrived == c.sending.sent for c in channels))


def test_nothing_is_shared_over_tcp(leak_check: LeakCheck) -> None:
    """There both frames have no business."""
    for frame in (memory_frame(ALICE.incarnation, SHARED_MEMORY_BYTES), shared_frame(FIRST, PLACE)):
        peer, own = tcp_pair()
        connection = Connection(own, ALICE)
        peer.sendall(header_of(frame) + bytes(frame.payload))
        with pytest.raises(ChannelError, match="has no business"):
            while True:
                connection.receive()
        connection.close()
        peer.close()
