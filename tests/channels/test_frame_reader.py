"""Frames of a stream: whatever goes in comes out, however it is cut up, and damage or lies are found."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from cutline.channels.frame_reader import FrameReader
from cutline.channels.wire import (
    CONTROL_CAPS,
    DATA_CAPS,
    HEADER_BYTES,
    WireFrame,
    WireType,
    credit_frame,
    data_frame,
    header_of,
)
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.errors import ChannelError
from tests.channels.wire_frames import INCARNATION, WIRE_FRAMES


def encode(frame: WireFrame) -> bytes:
    return header_of(frame) + bytes(frame.payload)


def read(reader: FrameReader, data: bytes, step: int) -> list[WireFrame]:
    """All frames of `data`, fed `step` bytes at a time."""
    frames = []
    view = memoryview(data)
    while view:
        count = min(len(reader.space), len(view), step)
        reader.space[:count] = view[:count]
        frames += reader.advance(count)
        view = view[count:]
    return frames


@given(st.lists(WIRE_FRAMES, max_size=8), st.integers(1, 700), st.integers(HEADER_BYTES, 600))
def test_round_trip(frames: list[WireFrame], step: int, read_ahead_bytes: int) -> None:
    """Frames come out equal whatever the pieces and the read-ahead buffer."""
    reader = FrameReader(DATA_CAPS, INCARNATION, read_ahead_bytes=read_ahead_bytes)
    assert read(reader, b"".join(map(encode, frames)), step) == frames


def test_byte_by_byte() -> None:
    """No frame is lost or early when each byte comes alone."""
    frames = [data_frame(1, 2, Frame(7, 3, PayloadKind.VALUES, b"abc")), credit_frame(1, 2, 5)]
    data = b"".join(map(encode, frames))
    reader = FrameReader(DATA_CAPS, 2)
    seen = [len(read(reader, data[n : n + 1], 1)) for n in range(len(data))]
    assert [n for n, count in enumerate(seen, 1) if count] == [HEADER_BYTES + 3, len(data)]


def test_a_large_payload_is_read_into_place() -> None:
    """Beyond the read-ahead buffer the reader offers the payload's own memory, so the socket copies straight to it."""
    frame = data_frame(0, 0, Frame(1, 1, PayloadKind.BATCH, bytes(1_000_000)))
    reader = FrameReader(DATA_CAPS, read_ahead_bytes=4096)
    read(reader, encode(frame)[:4096], 4096)
    assert len(reader.space) == 1_000_000 - (4096 - HEADER_BYTES)


def test_a_small_payload_holds_no_other_memory() -> None:
    """A frame that waits in a queue does not keep the read-ahead buffer alive."""
    [frame] = read(FrameReader(DATA_CAPS), encode(data_frame(0, 0, Frame(1, 1, PayloadKind.VALUES, b"abc"))), 99)
    assert type(frame.payload) is bytes


def test_never_reads_beyond_a_frame_when_told_so() -> None:
    """With a read-ahead of one header, all that was read belongs to the frames returned."""
    data = encode(credit_frame(1, 1, 1)) + b"the next owner's"
    reader = FrameReader(DATA_CAPS, 1, read_ahead_bytes=HEADER_BYTES)
    frames: list[WireFrame] = []
    position = 0
    while not frames:
        count = len(reader.space)
        reader.space[:] = data[position : position + count]
        frames = reader.advance(count)
        position += count
    assert data[position:] == b"the next owner's"


def test_every_flipped_bit_is_found() -> None:
    """Whichever bit, however it comes: an error, never another frame, and never a wait for bytes that do not come."""
    data = encode(data_frame(1, 2, Frame(7, 3, PayloadKind.VALUES, b"abc")))
    for bit, step in product(range(8 * len(data)), (1, len(data))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ChannelError):
            read(FrameReader(DATA_CAPS, 2), bytes(flipped), step)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (WireFrame(WireType.CONTROL, 0, 0, b"x"), "no business"),
        (WireFrame(WireType.MARKER, 0, 0, b"x" * 27), "claims 27 bytes"),
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


def test_the_byte_that_is_zero_is_looked_at() -> None:
    """A peer that means something by it is not misunderstood, though its checks are right."""
    data = bytearray(header_of(credit_frame(0, 0, 1)))
    data[7] = 1
    data[36:40] = xxh3_64_digest(bytes(data[:36]))[4:]
    with pytest.raises(ChannelError, match="does not speak this protocol"):
        read(FrameReader(DATA_CAPS), bytes(data), 999)


@pytest.mark.parametrize("incarnation", [2, 4])
def test_another_incarnation_is_refused(incarnation: int) -> None:
    """Before or after the one that the peer proved: what it says is of another attempt."""
    with pytest.raises(ChannelError, match=f"a frame of incarnation {incarnation} came"):
        read(FrameReader(DATA_CAPS, 3), encode(credit_frame(0, incarnation, 1)), 999)


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
