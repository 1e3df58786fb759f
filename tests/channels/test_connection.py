"""One data connection: what it does with peers that break the protocol or vanish, and where markers go."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import msgspec
import pytest

from cutline.channels.connection import Connection, Received
from cutline.channels.frame_reader import FrameReader
from cutline.channels.limits import (
    CREDIT_WINDOW_BYTES,
    READ_AHEAD_BYTES,
    SHARED_MEMORY_BYTES,
    SHARED_PAYLOAD_BYTES_MIN,
    WINDOW_FRAMES,
    WRITE_BUFFER_BYTES,
)
from cutline.channels.wire import (
    LOCAL_DATA_CAPS,
    WireFrame,
    WireType,
    credit_frame,
    data_frame,
    header_of,
    marker_frame,
    stamps_frame,
)
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import FRAME_BYTES_TARGET, ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.channel.output_buffer import FULL_CHANNELS, BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask
from tests.channels.links import ALICE, BOB, WINDOW_BYTES, Channel, tcp_pair, unix_link
from tests.leaks import LeakCheck

INCARNATION = ALICE.incarnation


@pytest.fixture
def raw(leak_check: LeakCheck) -> Iterator[tuple[socket.socket, Connection]]:
    """A peer that can say anything, and the connection that it speaks to, where channel 0 comes in."""
    peer, own = tcp_pair()
    connection = Connection(own, ALICE, window_bytes=WINDOW_BYTES)
    connection.attach_receiving(0)
    yield peer, connection
    connection.close()
    peer.close()


def send_line(peer: socket.socket, *frames: WireFrame) -> None:
    for frame in frames:
        peer.sendall(header_of(frame) + bytes(frame.payload))


def receive_line(connection: Connection, count: int = 1) -> list[Received]:
    """What comes, once so much has come: loopback may deliver in pieces."""
    received: list[Received] = []
    while len(received) < count:
        received += connection.receive()
    return received


def values(first: int, payload: bytes = b"\x91\x01") -> Frame:
    return Frame(first, 1, PayloadKind.VALUES, payload)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (data_frame(0, INCARNATION - 1, values(1)), "a frame of incarnation 2 came"),
        (data_frame(0, INCARNATION + 1, values(1)), "a frame of incarnation 4 came"),
        (data_frame(7, INCARNATION, values(1)), "channel 7: a DATA frame came for a channel that does not come"),
        (marker_frame(7, INCARNATION, Marker(1, 1, 0, False)), "channel 7: a MARKER frame"),
        (credit_frame(0, INCARNATION, 5), "channel 0: credit came for a channel that does not leave"),
        (WireFrame(WireType.CONTROL, 0, INCARNATION, b"x"), "has no business"),
        (WireFrame(WireType.MARKER, 0, INCARNATION, b"x"), "where 26 are due"),
        (WireFrame(WireType.DATA, 0, INCARNATION, b"x"), "a data frame with first=0"),
    ],
)
def test_what_breaks_the_protocol_names_the_peer(
    raw: tuple[socket.socket, Connection], frame: WireFrame, text: str
) -> None:
    """Stale incarnation, unknown channel, foreign type, impossible numbers: an error that says who and what."""
    peer, connection = raw
    send_line(peer, frame)
    with pytest.raises(ChannelError, match="alice") as caught:
        receive_line(connection)
    assert text in str(caught.value)


def test_a_sender_without_credit_is_found_out(raw: tuple[socket.socket, Connection]) -> None:
    """Memory is bounded also against a peer that ignores the credit it has."""
    peer, connection = raw
    large = [data_frame(0, INCARNATION, values(number, bytes(WINDOW_BYTES))) for number in range(1, WINDOW_FRAMES + 1)]
    send_line(peer, *large, data_frame(0, INCARNATION, values(WINDOW_FRAMES + 1)))
    with pytest.raises(ChannelError, match="channel 0: a frame came without credit"):
        receive_line(connection, WINDOW_FRAMES + 2)


def test_the_credit_of_one_of_many_channels_is_whole_bytes(raw: tuple[socket.socket, Connection]) -> None:
    """A third of the window, rounded down as the sender does, may be held, and not one frame more."""
    peer, connection = raw
    connection.attach_receiving(1, siblings=3 * FULL_CHANNELS)
    share = WINDOW_BYTES // 3
    sizes = [share // 4] * 4 + [share % 4, 1]
    frames = [data_frame(1, INCARNATION, values(number, bytes(size))) for number, size in enumerate(sizes, 1)]
    send_line(peer, *frames)
    with pytest.raises(ChannelError, match=f"channel 1: .*credit: {share:,} of {share:,} bytes are taken"):
        receive_line(connection, len(sizes))


@pytest.mark.parametrize(("first", "what"), [(1, "a repeat"), (3, "a gap")])
def test_gaps_and_repeats_are_errors(raw: tuple[socket.socket, Connection], first: int, what: str) -> None:
    """The connection hands over what came; the receiving end refuses what does not follow, and repairs nothing."""
    peer, connection = raw
    end = ChannelReceiver(ChannelId(Subtask("a"), Subtask("b")))
    send_line(peer, data_frame(0, INCARNATION, values(1)), data_frame(0, INCARNATION, values(first)))
    frames = [item for _, item in receive_line(connection, 2) if isinstance(item, Frame)]
    end.deliver(frames[0])
    with pytest.raises(ChannelError, match=what):
        end.deliver(frames[1])


def test_stamps_are_of_the_next_frame_of_their_channel(raw: tuple[socket.socket, Connection]) -> None:
    """Frames of other channels, and markers, may come between."""
    peer, connection = raw
    connection.attach_receiving(1)
    marker = Marker(1, 1, 0, True)
    between = [data_frame(1, INCARNATION, values(1)), marker_frame(0, INCARNATION, marker)]
    send_line(peer, stamps_frame(0, INCARNATION, ((4, 1),)), *between, data_frame(0, INCARNATION, values(1)))
    send_line(peer, data_frame(0, INCARNATION, values(2)))
    stamped = msgspec.structs.replace(values(1), stamps=((4, 1),))
    assert receive_line(connection, 4) == [(1, values(1)), (0, marker), (0, stamped), (0, values(2))]


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([stamps_frame(7, INCARNATION, ((1, 1),))], "channel 7: a STAMPS frame came for a channel that does not come"),
        ([WireFrame(WireType.STAMPS, 0, INCARNATION, b"x")], "channel 0: a STAMPS frame without stamps"),
        (
            [stamps_frame(0, INCARNATION, ((1, 2),)), data_frame(0, INCARNATION, values(1))],
            "channel 0: epochs of 2 messages came for 1",
        ),
    ],
)
def test_stamps_that_fit_no_frame_are_errors(
    raw: tuple[socket.socket, Connection], frames: list[WireFrame], text: str
) -> None:
    """Of a channel that does not come, damaged, or for another number of messages: never guessed."""
    peer, connection = raw
    send_line(peer, *frames)
    with pytest.raises(ChannelError, match="alice") as caught:
        receive_line(connection, 2)
    assert text in str(caught.value)


def test_losing_the_peer_is_an_error_after_what_it_said(raw: tuple[socket.socket, Connection]) -> None:
    """What came whole is handed over first; then the loss is an error that names the peer."""
    peer, connection = raw
    send_line(peer, data_frame(0, INCARNATION, values(1)))
    peer.close()
    assert receive_line(connection) == [(0, values(1))]
    with pytest.raises(ChannelError, match=r"connection to alice .* is lost"):
        receive_line(connection)


def test_what_the_system_says_of_a_loss_is_kept_for_later() -> None:
    """It says once that the peer reset the connection, and may do so behind a frame that came whole."""
    peer, own = socket.socketpair()
    connection = Connection(own, ALICE)
    connection.attach_receiving(0)
    connection.pump()  # what the peer has not read when it closes makes it a reset
    frame = values(1, bytes(READ_AHEAD_BYTES))  # read to its last byte, so that one more read is tried
    send_line(peer, data_frame(0, INCARNATION, frame))
    peer.close()
    assert receive_line(connection) == [(0, frame)]
    with pytest.raises(ChannelError, match=r"is lost: .*reset by peer"):
        receive_line(connection)
    connection.close()


def test_losing_the_peer_while_writing_is_an_error(raw: tuple[socket.socket, Connection]) -> None:
    """A reset is found by the writer too."""
    peer, connection = raw
    channel = Channel(1, connection, connection)
    peer.close()

    def write_on() -> None:
        while True:
            channel.sending.send(b"x")
            channel.sending.seal()
            connection.pump()

    with pytest.raises(ChannelError, match=r"connection to alice .* is lost"):
        write_on()


def drain(sock: socket.socket, connection: Connection, count: int) -> list[WireFrame]:
    """The next `count` frames at the other end but the one that announces memory, while the connection writes on."""
    reader = FrameReader(LOCAL_DATA_CAPS, INCARNATION)
    frames: list[WireFrame] = []
    sock.setblocking(False)
    while len(frames) < count:
        connection.pump()
        try:
            come = reader.advance(sock.recv_into(reader.space))
        except BlockingIOError:
            continue
        frames += [frame for frame in come if frame.type is not WireType.MEMORY]
    return frames


def test_a_marker_goes_right_behind_a_half_written_frame() -> None:
    """PROTOCOL 1.1: behind the frame that is partly written, ahead of what waits, in the write buffer too."""
    own, peer = socket.socketpair()
    connection = Connection(own, ALICE, window_bytes=16 * WRITE_BUFFER_BYTES)
    large, small, late = (Channel(number, connection, connection) for number in range(3))
    for size in (SHARED_MEMORY_BYTES + 1, 1):
        large.sending.send(bytes(size))
        large.sending.seal()
    small.sending.send("behind")
    small.sending.seal()
    connection.pump()
    assert large.sending.buffer.written == 1, "the large frame was meant to be half written, and nothing behind it"
    for channel in (large, late):
        channel.sending.put_marker(1, 1, aligned=False)
    order = [(frame.type, frame.channel) for frame in drain(peer, connection, 5)]
    assert order[0] == (WireType.DATA, 0)
    assert sorted(order[1:3]) == [(WireType.MARKER, 0), (WireType.MARKER, 2)]
    assert sorted(order[3:]) == [(WireType.DATA, 0), (WireType.DATA, 1)]
    connection.close()
    peer.close()


def test_a_marker_stays_behind_its_own_channels_frame_in_the_write_buffer() -> None:
    """A frame in the write buffer counts as written: the marker's w covers it, and comes after it."""
    own, peer = socket.socketpair()
    connection = Connection(own, ALICE, window_bytes=16 * WRITE_BUFFER_BYTES)
    blocking, other, last = (Channel(number, connection, connection) for number in range(3))
    blocking.sending.send(bytes(SHARED_PAYLOAD_BYTES_MIN - 4096))
    blocking.sending.seal()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for channel in (other, last):
        channel.sending.send("in the write buffer")
        channel.sending.seal()
    connection.pump()
    assert (other.sending.buffer.written, last.sending.buffer.written) == (1, 1)
    other.sending.put_marker(1, 1, aligned=False)
    order = [(frame.type, frame.channel) for frame in drain(peer, connection, 4)]
    assert order == [(WireType.DATA, 0), (WireType.DATA, 1), (WireType.MARKER, 1), (WireType.DATA, 2)]
    connection.close()
    peer.close()


def test_counters_count_what_crossed() -> None:
    """Frames, bytes and messages, the same at both ends."""
    with unix_link() as (alice, bob):
        assert isinstance(alice, Connection)
        channel = Channel(0, alice, bob)
        for number in range(5):
            channel.sending.send(number)
        channel.sending.seal()
        while not channel.processed:
            alice.pump()
            for _, item in bob.receive():
                channel.take(item)
            channel.process()
        assert (alice.traffic.messages_out, bob.traffic.messages_in) == (5, 5)
        assert (alice.traffic.frames_out, bob.traffic.frames_in) == (2, 2)  # one announces memory
        assert alice.traffic.bytes_out == bob.traffic.bytes_in > 0


def test_nothing_is_sent_without_work() -> None:
    """Once its memory is announced a connection with nothing to say wants nothing, and does not keep the loop awake."""
    with unix_link() as (alice, bob):
        channel = Channel(0, alice, bob)
        alice.pump()
        announced = alice.traffic.bytes_out
        alice.pump()
        assert not alice.wants_write
        assert alice.traffic.bytes_out == announced
        channel.sending.send("open frame")
        assert not alice.wants_write


@pytest.mark.parametrize("pair", [tcp_pair, socket.socketpair])
def test_a_receiver_of_many_channels_has_less_room_for_each(
    pair: Callable[[], tuple[socket.socket, socket.socket]], leak_check: LeakCheck
) -> None:
    """Both ends reckon with the same window, a sixteenth of one channel's; credit for it comes back."""
    one, other = pair()
    sender, receiver = Connection(one, BOB), Connection(other, ALICE)
    backpressure = BackpressureFlag()
    end = ChannelSender(ChannelId(Subtask("a"), Subtask("b")), Codec(), backpressure, siblings=32)
    sender.attach_sending(0, end, siblings=32)
    receiver.attach_receiving(0, siblings=32)
    for _ in range(3):
        while not backpressure.closed:
            end.send("x" * 99)
            sender.pump()
        held = 0
        while receiver.traffic.messages_in < sender.traffic.messages_out:
            held += sum(len(item.payload) for _, item in receiver.receive() if isinstance(item, Frame))
        assert CREDIT_WINDOW_BYTES // 16 <= held < CREDIT_WINDOW_BYTES // 16 + FRAME_BYTES_TARGET // 16 + 200
        receiver.free(0, held)
        receiver.pump()
        while not sender.wants_write:
            sender.receive()
        sender.pump()
    sender.close()
    receiver.close()
