"""What frames mean survives the wire; what cannot be is refused."""

from __future__ import annotations

import pytest
from hypothesis import given

from channels.limits import FRAME_BYTES_MAX
from channels.wire import (
    WireFrame,
    WireType,
    credit_frame,
    credit_of,
    data_frame,
    frame_of,
    marker_frame,
    marker_of,
)
from snapshot.channel.frame import Frame, Marker, PayloadKind
from snapshot.errors import ChannelError
from tests.channels.wire_frames import FRAMES, MARKERS, U64


@given(FRAMES, MARKERS, U64)
def test_what_a_frame_means_survives(frame: Frame, marker: Marker, granted_bytes: int) -> None:
    """Frames, markers and grants are the same after the wire."""
    assert frame_of(data_frame(1, 1, frame)) == frame
    assert marker_of(marker_frame(1, 1, marker)) == marker
    assert credit_of(credit_frame(1, 1, granted_bytes)) == granted_bytes


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
