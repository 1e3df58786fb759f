"""Frames as bytes: whatever goes in comes out, however it is cut up, and damage or lies are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.limits import FRAME_BYTES_MAX
from channels.wire import (
    CONTROL_CAPS,
    DATA_CAPS,
    HEADER_BYTES,
    FrameReader,
    WireFrame,
    WireType,
    credit_frame,
    credit_of,
    data_frame,
    frame_of,
    header_of,
    marker_frame,
    marker_of,
)
from snapshot.channel.frame import Frame, Marker, PayloadKind
from snapshot.errors import ChannelError

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
FRAMES = st.builds(
    Frame, st.integers(1, 2**63), st.integers(1, 2**32 - 1), st.sampled_from(PayloadKind), st.binary(max_size=300)
)
MARKERS = st.builds(Marker, U64, U64, U64, st.booleans())
WIRE_FRAMES = st.one_of(
    st.builds(data_frame, U32, U64, FRAMES),
    st.builds(marker_frame, U32, U64, MARKERS),
    st.builds(credit_frame, U32, U64, U64),
)


def encode(frame: WireFrame) -> bytes:
    return header_of(frame) + bytes(frame.payload)


def read(reader: FrameReader, data: bytes, step: int) -> list[WireFrame]:
    """All frames of `data`, fed `step` bytes at a time."""
    frames = []
    view = memoryview(data)
    while view:
        space = reader.space()
        count = min(len(space), len(view), step)
        space[:count] = view[:count]
        reader.advance(count)
        view = view[count:]
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    return frames


@given(st.lists(WIRE_FRAMES, max_size=8), st.integers(1, 700), st.integers(HEADER_BYTES, 600))
def test_round_trip(frames: list[WireFrame], step: int, read_ahead_bytes: int) -> None:
    """Frames come out equal whatever the pieces and the read-ahead buffer."""
    reader = FrameReader(DATA_CAPS, read_ahead_bytes=read_ahead_bytes)
    assert read(reader, b"".join(map(encode, frames)), step) == frames


def test_byte_by_byte() -> None:
    """No frame is lost or early when each byte comes alone."""
    frames = [data_frame(1, 2, Frame(7, 3, PayloadKind.VALUES, b"abc")), credit_frame(1, 2, 5)]
    data = b"".join(map(encode, frames))
    reader = FrameReader(DATA_CAPS)
    seen = [len(read(reader, data[n : n + 1], 1)) for n in range(len(data))]
    assert [n for n, count in enumerate(seen, 1) if count] == [HEADER_BYTES + 3, len(data)]


@given(FRAMES, MARKERS, U64)
def test_what_a_frame_means_survives(frame: Frame, marker: Marker, granted_bytes: int) -> None:
    """Frames, markers and grants are the same after the wire."""
    assert frame_of(data_frame(1, 1, frame)) == frame
    assert marker_of(marker_frame(1, 1, marker)) == marker
    assert credit_of(credit_frame(1, 1, granted_bytes)) == granted_bytes


def test_a_large_payload_is_read_into_place() -> None:
    """Beyond the read-ahead buffer the reader offers the payload's own memory, so the socket copies straight to it."""
    frame = data_frame(0, 0, Frame(1, 1, PayloadKind.BATCH, bytes(1_000_000)))
    reader = FrameReader(DATA_CAPS, read_ahead_bytes=4096)
    read(reader, encode(frame)[:4096], 4096)
    assert len(reader.space()) == 1_000_000 - (4096 - HEADER_BYTES)


def test_a_small_payload_holds_no_other_memory() -> None:
    """A frame that waits in a queue does not keep the read-ahead buffer alive."""
    [frame] = read(FrameReader(DATA_CAPS), encode(data_frame(0, 0, Frame(1, 1, PayloadKind.VALUES, b"abc"))), 99)
    assert type(frame.payload) is bytes


def test_never_reads_beyond_a_frame_when_told_so() -> None:
    """With a read-ahead of one header, all that was read belongs to the frames returned."""
    data = encode(credit_frame(1, 1, 1)) + b"the next owner's"
    reader = FrameReader(DATA_CAPS, read_ahead_bytes=HEADER_BYTES)
    position = 0
    while reader.next_frame() is None:
        space = reader.space()
        space[:] = data[position : position + len(space)]
        reader.advance(len(space))
        position += len(space)
    assert data[position:] == b"the next owner's"


def test_every_flipped_bit_is_found() -> None:
    """Header or payload, whichever bit: an error, never another frame, and never a wait for bytes that do not come."""
    data = encode(data_frame(1, 2, Frame(7, 3, PayloadKind.VALUES, b"abc")))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ChannelError):
            read(FrameReader(DATA_CAPS), bytes(flipped), len(flipped))


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (WireFrame(WireType.CONTROL, 0, 0, b"x"), "no business"),
        (WireFrame(WireType.MARKER, 0, 0, b"x" * 26), "claims 26 bytes"),
    ],
)
def test_what_is_not_admitted_is_refused(frame: WireFrame, text: str) -> None:
    """A type of another connection, or a payload longer than its type may be."""
    with pytest.raises(ChannelError, match=text):
        read(FrameReader(DATA_CAPS), encode(frame), 999)


def test_a_lying_length_is_refused_before_anything_is_allocated() -> None:
    """The header alone is enough to be refused, though its checks are right."""
    frame = data_frame(0, 0, Frame(1, 1, PayloadKind.VALUES, bytes(101)))
    with pytest.raises(ChannelError, match="claims 101 bytes; at most 100"):
        read(FrameReader({WireType.DATA: 100}), header_of(frame), 999)


def test_another_version_is_named() -> None:
    """A peer of another version is told from noise."""
    data = bytearray(encode(credit_frame(0, 0, 1)))
    data[4] = 9
    with pytest.raises(ChannelError, match="version 9"):
        read(FrameReader(DATA_CAPS), bytes(data), 999)


@given(st.binary(min_size=HEADER_BYTES, max_size=500).filter(lambda data: data[:4] != b"CUTL"))
def test_noise_is_refused(data: bytes) -> None:
    """Random bytes are no frame."""
    with pytest.raises(ChannelError):
        read(FrameReader(CONTROL_CAPS), data, 999)


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
