"""What every link does, as one function over a link maker."""

from __future__ import annotations

import pyarrow as pa

from cutline.channels.limits import LOCAL_FRAMES, SHARED_PAYLOAD_BYTES_MIN, WINDOW_FRAMES
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.stamps import OpenStamps
from tests.channels.links import WINDOW_BYTES, Channel, LinkMaker, run, settle


def check_link(link_maker: LinkMaker) -> None:
    """All of the contract; a new kind of link calls this and needs no test of its own for it."""
    for check in (
        check_order,
        check_both_ways,
        check_by_value,
        check_credit_bounds_what_waits,
        check_large_batch_leaves,
        check_room_is_given_ahead,
        check_full_channel_holds_no_other,
        check_marker_overtakes_without_credit,
        check_aligned_marker_keeps_its_place,
        check_end_of_stream,
        check_stamps,
    ):
        check(link_maker)


def check_order(link_maker: LinkMaker) -> None:
    """Messages of many sizes and kinds on several channels arrive whole, once, and in order."""
    with link_maker() as ends:
        channels = [Channel(number, *ends) for number in range(3)]
        sent = [[(n, "x" * (n * 97 % 5000)) if n % 7 else n for n in range(400 + 10 * c)] for c in range(3)]
        for channel, messages in zip(channels, sent, strict=True):
            for message in messages:
                channel.sending.send(message)
            channel.sending.seal()
        run(
            ends,
            channels,
            lambda: all(not c.sending.buffer.has_data and c.receiving.arrived == c.sending.sent for c in channels),
        )
        assert [channel.processed for channel in channels] == sent
        for channel in channels:
            channel.sending.validate()
            channel.receiving.validate()


def check_both_ways(link_maker: LinkMaker) -> None:
    """A link carries channels in both directions."""
    with link_maker() as (left, right):
        there, back = Channel(0, left, right), Channel(1, right, left)
        there.sending.send("ping")
        back.sending.send("pong")
        there.sending.seal()
        back.sending.seal()
        run((left, right), [there, back], lambda: bool(there.processed and back.processed))
        assert (there.processed, back.processed) == (["ping"], ["pong"])


def check_by_value(link_maker: LinkMaker) -> None:
    """What the sender does to a message after it is sent is not seen (DESIGN 6)."""
    with link_maker() as ends:
        channel = Channel(0, *ends)
        message = [1, [2]]
        channel.sending.send(message)
        message[1] = "changed"
        channel.sending.seal()
        run(ends, [channel], lambda: bool(channel.processed))
        assert channel.processed == [[1, [2]]]


def check_credit_bounds_what_waits(link_maker: LinkMaker) -> None:
    """A receiver that processes nothing holds one window and one frame, and gets the rest when it does."""
    with link_maker() as ends:
        channel = Channel(0, *ends)
        frame_bytes = WINDOW_BYTES // 8
        for _ in range(32):
            channel.sending.send(b"x" * frame_bytes)
            channel.sending.seal()
        settle(ends, [channel], processing=[])
        waiting = sum(frame.size for frame in channel.frames)
        assert WINDOW_BYTES <= waiting < WINDOW_BYTES + 2 * frame_bytes
        run(ends, [channel], lambda: len(channel.processed) == 32)


def check_large_batch_leaves(link_maker: LinkMaker) -> None:
    """Batches larger than the window leave, a few of them (within a worker one), and the channel goes on after them."""
    with link_maker() as ends:
        channel = Channel(0, *ends)
        rows, room = WINDOW_BYTES, LOCAL_FRAMES if ends[0] is ends[1] else WINDOW_FRAMES
        for _ in range(room + 1):
            channel.sending.send_batch(pa.record_batch({"n": pa.array(range(rows), pa.int64())}))
            channel.sending.seal()
        channel.sending.send("after")
        channel.sending.seal()
        settle(ends, [channel], processing=[])
        assert [frame.count for frame in channel.frames] == [rows] * room
        total = rows * (room + 1)
        run(ends, [channel], lambda: len(channel.processed) == total + 1)
        assert channel.processed[total - 1 :] == [{"n": rows - 1}, "after"]


def check_room_is_given_ahead(link_maker: LinkMaker) -> None:
    """A replay that needs more messages by one call than the window has room for gets them (PROTOCOL 12.10)."""
    with link_maker() as ends:
        channel = Channel(0, *ends)
        for _ in range(4 * WINDOW_FRAMES):
            channel.sending.send(b"x" * WINDOW_BYTES)
            channel.sending.send(b"x" * WINDOW_BYTES)
            channel.sending.seal()
        settle(ends, [channel], processing=[])
        channel.receiving.advance(1)  # and now the call needs all others
        arrived = 0
        while channel.receiving.arrived > arrived:
            arrived = channel.receiving.arrived
            channel.receiving.free_ahead()
            ends[1].free(0, channel.receiving.take_freed_bytes())
            settle(ends, [channel], processing=[])
        assert channel.receiving.arrived == 8 * WINDOW_FRAMES
        run(ends, [channel], lambda: channel.receiving.drained)


def check_full_channel_holds_no_other(link_maker: LinkMaker) -> None:
    """While one channel has no credit, another one moves many windows."""
    with link_maker() as ends:
        full, free = Channel(0, *ends), Channel(1, *ends)
        for channel in (full, free):
            for _ in range(100):
                channel.sending.send(b"x" * (WINDOW_BYTES // 4))
                channel.sending.seal()
        run(ends, [full, free], lambda: len(free.processed) == 100, processing=[free])
        assert full.processed == []
        assert full.receiving.arrived < 10


def check_marker_overtakes_without_credit(link_maker: LinkMaker) -> None:
    """A marker passes what waits at the sender of a full channel, and says w truly (PROTOCOL 1.1, 1.5)."""
    with link_maker() as ends:
        channel = Channel(0, *ends)
        for _ in range(32):
            channel.sending.send(b"x" * (WINDOW_BYTES // 8))
            channel.sending.seal()
        settle(ends, [channel], processing=[])
        arrived = channel.receiving.arrived
        channel.sending.put_marker(1, 1, aligned=False)
        channel.sending.put_marker(2, 1, aligned=False)
        run(ends, [channel], lambda: len(channel.markers) == 2, processing=[])
        assert channel.markers == [Marker(1, 1, arrived, False), Marker(2, 1, arrived, False)]
        run(ends, [channel], lambda: len(channel.processed) == 32)


def check_aligned_marker_keeps_its_place(link_maker: LinkMaker) -> None:
    """An aligned marker comes between the messages that it was put between."""
    with link_maker() as ends:
        channel = Channel(0, *ends)
        channel.sending.send("before")
        channel.sending.put_marker(1, 1, aligned=True)
        channel.sending.send("after")
        channel.sending.seal()
        settle(ends, [channel], processing=[])
        assert channel.markers == [Marker(1, 1, 1, True)]
        assert channel.receiving.arrived == 2


def check_end_of_stream(link_maker: LinkMaker) -> None:
    """The end of a stream is a numbered message (PROTOCOL 5.1, end of stream)."""
    with link_maker() as ends:
        channel = Channel(0, *ends)
        channel.sending.send("last")
        channel.sending.send_end()
        run(ends, [channel], lambda: channel.receiving.processed == 2)
        assert channel.processed == ["last"]


def check_stamps(link_maker: LinkMaker) -> None:
    """Frames have the stamps of their messages: small frames, large ones beside the socket, batches and ends."""
    with link_maker() as ends:
        stamped, plain = Channel(0, *ends, OpenStamps(0)), Channel(1, *ends)
        sizes = (1, SHARED_PAYLOAD_BYTES_MIN + 1, 10, 1)
        for number in range(12):
            stamped.sending.stamp(number // 3)
            stamped.sending.send((number, "x" * sizes[number % 4]))
            plain.sending.send(number)
            if number % 2:
                stamped.sending.seal()
                plain.sending.seal()
        stamped.sending.stamp(9)
        stamped.sending.send(pa.RecordBatch.from_pydict({"a": [1, 2, 3]}))
        stamped.sending.send_end()
        last = stamped.sending.sent
        run(ends, [stamped, plain], lambda: stamped.receiving.arrived == last and len(plain.processed) == 12)
        found = [stamp for frame in stamped.frames for stamp, count in frame.stamps or () for _ in range(count)]
        assert found == [*(number // 3 for number in range(12)), *[9] * (last - 12)]
        assert all(sum(count for _, count in frame.stamps or ()) == frame.count for frame in stamped.frames)
        assert all(frame.stamps is None for frame in plain.frames)
