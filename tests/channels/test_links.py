"""The three kinds of links obey one contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.channels.conformance import check_link
from tests.channels.links import WINDOW_BYTES, Channel, LinkMaker, in_process_link, settle, tcp_link, unix_link


@pytest.mark.parametrize("link_maker", [in_process_link, unix_link, tcp_link])
def test_link_conforms(link_maker: LinkMaker) -> None:
    """Order, by value, bounded, no channel holds another, markers pass."""
    check_link(link_maker)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "seal", "marker", "aligned", "pump", "receive", "process"]),
        st.integers(0, 2),
        st.integers(0, 2 * WINDOW_BYTES),
    ),
    max_size=60,
)


@pytest.mark.parametrize("link_maker", [in_process_link, unix_link])
@given(steps=STEPS)
def test_any_order_of_work_keeps_every_channel_exact(link_maker: LinkMaker, steps: list[tuple[str, int, int]]) -> None:
    """Whenever anybody sends, marks, pumps, reads or processes: all arrives once, in order, each marker's w is true.

    The receiving end itself refuses a gap, a repeat, and a marker whose w is not what has arrived.
    """
    with link_maker() as ends:
        channels = [Channel(number, *ends) for number in range(3)]
        for snapshot_id, (step, number, size) in enumerate(steps, 1):
            channel = channels[number]
            match step:
                case "send":
                    channel.sending.send((snapshot_id, bytes(size)))
                case "seal":
                    channel.sending.seal()
                case "marker" | "aligned":
                    channel.sending.put_marker(snapshot_id, 1, aligned=step == "aligned")
                case "pump":
                    ends[0].pump()
                case "receive":
                    for number, item in ends[1].receive():
                        channels[number].take(item)
                case "process":
                    channel.process()
        for channel in channels:
            channel.sending.seal()
        settle(ends, channels)
        sent = sum(step == "send" for step, _, _ in steps)
        assert (ends[0].traffic.messages_out, ends[1].traffic.messages_in) == (sent, sent)
        assert ends[0].traffic.frames_out == ends[1].traffic.frames_in
        assert ends[0].traffic.bytes_out == ends[1].traffic.bytes_in
        for number, channel in enumerate(channels):
            expected = [n for n, (step, to, _) in enumerate(steps, 1) if step == "send" and to == number]
            markers = [n for n, (step, to, _) in enumerate(steps, 1) if step in ("marker", "aligned") and to == number]
            assert [message[0] for message in channel.processed] == expected
            assert sorted(marker.snapshot_id for marker in channel.markers) == markers
            channel.sending.validate()
            channel.receiving.validate()
