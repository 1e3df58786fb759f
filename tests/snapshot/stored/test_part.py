"""Parts: what is written comes back, and nothing else is ever taken for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

import msgpack
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.record_batches import OpenBatches
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.envelope import ENVELOPE_BYTES, seal, unseal
from cutline.snapshot.stored.part import (
    HANDLE,
    Handle,
    PartKind,
    channel_part,
    decode_frames,
    decode_part,
    own_part,
    rows_part,
    state_part,
)
from tests.snapshot import sample

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def stored(handle: Handle) -> bytes:
    """The bytes of an inline part."""
    assert handle.inline is not None
    return handle.inline


@given(NAMES, st.integers(0, 2**40), st.integers(0, 2**60), NAMES, st.lists(st.binary(max_size=50), max_size=4))
def test_state_comes_back(run: str, incarnation: int, snapshot_id: int, node: str, body: list[bytes]) -> None:
    """Any state, in any number of buffers, under any names, is read back as it was."""
    handle = state_part(run, incarnation, snapshot_id, Subtask(node, 3), body).inline()
    assert bytes(decode_part(handle, stored(handle))) == b"".join(body)
    assert (handle.first, handle.last, handle.size) == (0, 0, len(stored(handle)))
    assert HANDLE.read(msgpack.unpackb(msgpack.packb(HANDLE.write(handle)))) == handle


ORIGIN = (sample.RUN, sample.INCARNATION, sample.SNAPSHOT_ID, sample.P)

#: A piece, the same with other key groups, other generations or a single one, and own state of each.
LISTED = (
    rows_part(*ORIGIN, (1, 3), (5, 9), [b"rows"], 1),
    rows_part(*ORIGIN, (1, 3), (5, 8), [b"rows"], 1),
    rows_part(*ORIGIN, (1, 3), (4, 9), [b"rows"], 1),
    rows_part(*ORIGIN, (0, 3), (5, 9), [b"rows"], 1),
    rows_part(*ORIGIN, (1, 2), (5, 9), [b"rows"], 1),
    own_part(*ORIGIN, (1, 3), [b"rows"]),
    own_part(*ORIGIN, (1, 2), [b"rows"]),
    own_part(*ORIGIN, (2, 3), [b"rows"]),
)


@given(st.lists(st.binary(max_size=50), max_size=4), st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 32_767))
def test_parts_of_lists_come_back(body: list[bytes], first: int, more: int, lo: int) -> None:
    """Any body, generations and key groups; the handle says them."""
    generations = (first, first + more)
    handle = rows_part(*ORIGIN, generations, (lo, 32_768), body, 1).inline()
    assert (handle.kind, handle.first, handle.last, handle.groups) == (PartKind.ROWS, *generations, (lo, 32_768))
    delta = own_part(*ORIGIN, generations, body).inline()
    assert (delta.kind, delta.first, delta.last, delta.groups) == (PartKind.OWN, *generations, None)
    for each in (handle, delta):
        assert bytes(decode_part(each, stored(each))) == b"".join(body)
        assert HANDLE.read(msgpack.unpackb(msgpack.packb(HANDLE.write(each)))) == each


def test_large_bodies_are_not_copied() -> None:
    """A state's buffers are in the part by reference."""
    body = bytes(1_000_000)
    assert any(buffer is body for buffer in state_part("r", 1, 1, sample.P, [body]).buffers)
    assert any(buffer is body for buffer in rows_part(*ORIGIN, (1, 1), (0, 1), [body], 1).buffers)


def test_frames_come_back() -> None:
    """Frames of all kinds come back with their numbers, which the handle has from the frames."""
    frames = [
        sample.values(3, "a", "b"),
        sample.tuples(5, (1, 2)),
        sample.batch(6, 4),
        sample.flat(10, (1, "a"), ()),
        Frame(12, 1, PayloadKind.CONTROL, b""),
    ]
    handle = channel_part(PartKind.SENT, "r", 1, 1, sample.PQ, frames).stored("parts/x", 5)
    part = channel_part(PartKind.SENT, "r", 1, 1, sample.PQ, frames)
    assert (handle.first, handle.last, handle.subtask) == (3, 12, sample.P)
    again = decode_frames(handle, decode_part(handle, b"".join(part.buffers)))
    whole, expected = ([structs.replace(f, payload=bytes(f.payload)) for f in each] for each in (again, frames))
    assert whole == expected


def _two_batches() -> Frame:
    """A frame of three rows in two batches."""
    batches = OpenBatches(pa.schema([("x", pa.int64())]))
    batches.add(pa.record_batch({"x": [1, 2]}))
    batches.add(pa.record_batch({"x": [3]}))
    return batches.frame(1)


ROWS = _two_batches()


def test_rows_of_batches_are_counted() -> None:
    """Those that share a frame too."""
    part = channel_part(PartKind.SENT, "r", 1, 1, sample.PQ, [ROWS])
    assert (part.handle.first, part.handle.last) == (1, 3)


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([], "no frame"),
        ([sample.values(1, "a"), sample.values(3, "b")], "from 3 where 2 was due"),
        ([sample.values(1, "a", "b"), sample.values(2, "b")], "from 2 where 3 was due"),
        ([structs.replace(sample.values(1, "a"), count=0)], "of 0 messages"),
        ([structs.replace(sample.values(1, "a"), count=2)], "says 2 messages and holds 1"),
        ([structs.replace(sample.values(1, *range(20)), count=19)], "says 19 messages and holds 20"),
        ([structs.replace(sample.flat(1, (1,)), count=2)], "says 2 messages and holds 1"),
        ([Frame(1, 1, PayloadKind.VALUES, b"\xc0")], "holds -1"),
        ([Frame(1, 2, PayloadKind.CONTROL, b"")], "says 2 messages and holds 1"),
        (sample.UNKNOWN_STATEMENT, "message 8 is a control frame with an unknown payload"),
        ([structs.replace(ROWS, count=2)], "says 2 messages and holds 3"),
        ([structs.replace(ROWS, count=4)], "says 4 messages and holds 3"),
        ([Frame(1, 3, PayloadKind.BATCH, b"no stream")], "says 3 messages and holds -1"),
    ],
)
def test_wrong_frames_are_refused(frames: Sequence[Frame], says: str) -> None:
    """A part is never made of frames that leave a gap, overlap, or do not hold what they say."""
    with pytest.raises(SnapshotCorrupt, match=says):
        channel_part(PartKind.RECEIVED, "r", 1, 1, sample.PQ, frames)


@pytest.mark.parametrize("number", range(len(sample.parts()) + len(LISTED)))
def test_every_flipped_bit_and_every_length_is_found(number: int) -> None:
    """Any single flipped bit, any truncation and any addition is SnapshotCorrupt and names the part."""
    handle = (*sample.parts(), *LISTED)[number].inline()
    data = stored(handle)
    damaged = [data[:length] for length in range(len(data))] + [data + b"\0"]
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        damaged.append(bytes(flipped))
    for each in damaged:
        with pytest.raises(SnapshotCorrupt, match=rf"snapshot {sample.SNAPSHOT_ID}.*offset"):
            decode_part(handle, each)


def test_swapped_parts_are_found() -> None:
    """A whole part in another one's place is found, also when size and checksum would fit."""
    for one, other in itertools.permutations((*sample.parts(), *LISTED), 2):
        bytes_of_other = b"".join(other.buffers)
        with pytest.raises(SnapshotCorrupt):
            decode_part(one.inline(), bytes_of_other)
        swapped = replace(one.inline(), size=other.handle.size, checksum=other.handle.checksum)
        with pytest.raises(SnapshotCorrupt, match="came from elsewhere"):
            decode_part(swapped, bytes_of_other)


@pytest.mark.parametrize(
    "origin",
    [
        {"run": "other"},
        {"incarnation": 8},
        {"snapshot_id": 1},
        {"subtask": Subtask("P", 1)},
        {"kind": PartKind.RECEIVED},
        {"channel": ChannelId(sample.P, Subtask("Q", 1))},
    ],
)
def test_origin_is_checked(origin: dict[str, object]) -> None:
    """Every field of the origin counts."""
    handle = sample.parts()[2].inline()
    assert handle.kind is PartKind.SENT
    with pytest.raises(SnapshotCorrupt, match="came from elsewhere"):
        decode_part(replace(handle, **origin), stored(handle))  # type: ignore[arg-type]


@pytest.mark.parametrize("origin", [{"groups": (5, 10)}, {"groups": (6, 9)}, {"first": 0}, {"last": 4}])
def test_key_groups_and_generations_are_part_of_the_origin(origin: dict[str, object]) -> None:
    """A piece that the manifest lists for other key groups or generations is another piece."""
    handle = LISTED[0].inline()
    with pytest.raises(SnapshotCorrupt, match=r"rows part of P\[0\], key groups .*came from elsewhere"):
        decode_part(replace(handle, **origin), stored(handle))  # type: ignore[arg-type]


def test_an_unreadable_table_of_frames_is_named() -> None:
    """The error says whose table it is."""
    handle = channel_part(PartKind.RECEIVED, "r", 1, 1, sample.PQ, [ROWS]).handle
    for table, says in ((b"\xc1", "no MessagePack value"), (b"\x01", "its table of frames cannot be read")):
        with pytest.raises(SnapshotCorrupt, match=f"{re.escape(handle.name)}: .*{says}"):
            decode_frames(handle, memoryview(len(table).to_bytes(4, "big") + table))


def test_numbers_of_the_handle_are_checked() -> None:
    """The messages stored must be those that the manifest says."""
    handle = sample.parts()[2].inline()
    body = decode_part(handle, stored(handle))
    with pytest.raises(SnapshotCorrupt, match="messages 6 to 8, but the manifest says 6 to 9"):
        decode_frames(replace(handle, last=9), body)


@given(st.binary(max_size=200))
def test_no_bytes_are_a_channel_part_by_chance(body: bytes) -> None:
    """Sealed nonsense in a channel's part is named, never another error."""
    handle = sample.parts()[2].inline()
    with pytest.raises(SnapshotCorrupt):
        decode_frames(handle, memoryview(body))


def of_version(version: int, magic: bytes) -> bytes:
    """A whole record of a format."""
    record = bytearray(b"".join(seal(magic, [b"x"])))
    record[4:6] = version.to_bytes(2, "big")
    record[14:ENVELOPE_BYTES] = xxhash.xxh3_128_digest(bytes(record[:14]) + b"x")
    return bytes(record)


@pytest.mark.parametrize(
    ("magic", "version", "reads"),
    [
        *((b"TEST", 0, 1), (b"TEST", 2, 1), (b"CLCL", 2, 1)),
        *((magic, version, 2) for magic in (b"CLPT", b"CLMF") for version in (0, 1, 3)),
    ],
)
def test_another_version_is_named(magic: bytes, version: int, reads: int) -> None:
    """A whole record of another format is no damage: the error says which version it has, and which is read."""
    assert bytes(unseal(magic, of_version(reads, magic), "file")) == b"x"
    with pytest.raises(SnapshotCorrupt, match="no such record"):
        unseal(b"ELSE", of_version(version, magic), "file")
    damaged = bytearray(of_version(version, magic))
    damaged[4:6] = reads.to_bytes(2, "big")
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        unseal(magic, bytes(damaged), "file")
    with pytest.raises(RestoreRefused, match=f"file: format version {version}, but this Cutline reads {reads};"):
        unseal(magic, of_version(version, magic), "file")


@pytest.mark.parametrize(
    "change", [{"path": "x"}, {"inline": None}, {"channel": sample.PQ}, {"groups": (0, 1)}, {"rows": 1}]
)
def test_impossible_handles_are_refused(change: dict[str, object]) -> None:
    """A handle is stored or inline, has a channel if it is of one, and key groups and a number if it holds rows."""
    with pytest.raises(ValueError, match="a part"):
        replace(sample.parts()[0].inline(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        *({"groups": groups} for groups in (None, (3, 3), (4, 3), (-1, 3))),
        *({"first": 4}, {"first": -1}, {"channel": sample.PQ}, {"rows": None}),
    ],
)
def test_impossible_pieces_are_refused(change: dict[str, object]) -> None:
    """A piece has key groups and generations, each in order, and a number of rows."""
    with pytest.raises(ValueError, match="a part"):
        replace(LISTED[0].inline(), **change)  # type: ignore[arg-type]
