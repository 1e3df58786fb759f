"""What frames mean survives the wire; what cannot be is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.channels.limits import FRAME_BYTES_MAX
from cutline.channels.wire import (
    WireFrame,
    WireType,
    credit_frame,
    credit_of,
    data_frame,
    frame_of,
    header_of,
    marker_frame,
    marker_of,
    stamps_frame,
    stamps_of,
)
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.channel.stamps import StampRuns
from cutline.snapshot.errors import ChannelError
from tests.channels.wire_frames import FRAMES, MARKERS, U32, U64


@given(FRAMES, MARKERS, U64)
def test_what_a_frame_means_survives(frame: Frame, marker: Marker, granted_bytes: int) -> None:
    """Frames, markers and grants are the same after the wire."""
    assert frame_of(data_frame(1, 1, frame)) == frame
    assert marker_of(marker_frame(1, 1, marker)) == marker
    assert credit_of(credit_frame(1, 1, granted_bytes)) == granted_bytes


def test_a_frame_begins_with_the_name_and_the_version() -> None:
    """They are the first bytes that a peer of another version reads."""
    assert header_of(credit_frame(1, 1, 5))[:5] == b"CUTL\x01"


@pytest.mark.parametrize("wire", [(0, 1, 0), (1, 0, 0), (1, 1, 9)])
def test_impossible_numbers_are_refused(wire: tuple[int, int, int]) -> None:
    """Messages are numbered from 1, a frame holds at least one, and a kind must be known."""
    first, count, kind = wire
    with pytest.raises(ChannelError, match="a data frame with"):
        frame_of(WireFrame(WireType.DATA, 0, 0, b"", kind, first, count))


def test_a_frame_too_large_is_refused_at_send() -> None:
    """The sender says so itself, instead of being cut off by the receiver."""
    payload = memoryview(bytearray(FRAME_BYTES_MAX + 1))
    with pytest.raises(ChannelError, match="Send smaller"):
        data_frame(0, 0, Frame(1, 1, PayloadKind.BATCH, payload))


STAMP = st.integers(-(2**63), 2**63 - 1) | st.tuples(st.text(max_size=5), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(STAMP, U32)).map(tuple))
def test_stamps_survive(stamps: StampRuns) -> None:
    """Epochs and positions, in their order."""
    wire = stamps_frame(7, 3, stamps)
    assert (wire.type, wire.channel, wire.incarnation) == (WireType.STAMPS, 7, 3)
    assert stamps_of(wire) == stamps


@given(st.binary(max_size=40))
def test_damaged_stamps_are_refused_or_are_stamps(payload: bytes) -> None:
    """Whatever comes: runs of stamps and numbers, or an error of the channel."""
    try:
        stamps = stamps_of(WireFrame(WireType.STAMPS, 7, 3, payload))
    except ChannelError:
        return
    assert all(type(count) is int for _, count in stamps)


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x91\x91\x01", b"\x91\x92\xa1a\x01", b"\x91\x92\x01\x01\x01"])
def test_what_is_no_stamps_is_refused(payload: bytes) -> None:
    """Nothing, a number, a run without a count, a stamp that is text, more than one value."""
    with pytest.raises(ChannelError, match="a STAMPS frame without stamps"):
        stamps_of(WireFrame(WireType.STAMPS, 7, 3, payload))
