"""A part is one stored piece of a snapshot. A handle says where the part is.

Owns the bytes of a part. Must not know where parts are stored, nor how states and messages are encoded. The header of a
part holds the part's origin, so that a swapped file is found as surely as a flipped bit.

::

    envelope                                          (snapshot.stored.envelope; covers all that follows)
    4     length of the header in bytes
          header: [kind, run, incarnation, snapshot_id, subtask, channel]    MessagePack
                  of a ROWS or OWN part also groups, first, last: the key groups and the generations
          body

    body of a STATE part      the encoded state of the subtask
    body of a channel's part  4 bytes: length of the table
                              table: [[first, count, kind, length], ...]     MessagePack, one row a frame
                              payloads, in that order
    body of a ROWS part       rows of keyed state: a piece of a segment
    body of an OWN part       the encoded own state of the subtask, whole or as a delta
    body of a STEPS part      steps of the log of the subtask
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import msgpack

from cutline.snapshot.channel.control_frames import stored_problem
from cutline.snapshot.channel.frame import Buffer, Frame, PayloadKind
from cutline.snapshot.channel.record_batches import count_rows
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.envelope import PART_MAGIC, pack_plain, seal, seal_of, unpack_plain, unseal
from cutline.snapshot.stored.keys import StoredArray, StoredMap

_LENGTH = struct.Struct(">I")


class PartKind(IntEnum):
    """Content of a part. Stored: never renumber."""

    STATE = 0  #: the state of a subtask
    RECEIVED = 1  #: messages of a channel that waited at its receiver: (p, w] of PROTOCOL 1
    SENT = 2  #: messages of a channel that the marker overtook at its sender: (w, S]
    ROWS = 3  #: rows of a subtask's keyed state: a piece of a segment
    OWN = 4  #: own state of a subtask, whole or as a delta
    STEPS = 5  #: determinants of a subtask: steps of its log

    @property
    def is_of_channel(self) -> bool:
        """Whether the part holds messages."""
        return self in (PartKind.RECEIVED, PartKind.SENT)

    @property
    def is_listed(self) -> bool:
        """Whether the part belongs to a list, so that later snapshots list the part again."""
        return self in (PartKind.ROWS, PartKind.OWN, PartKind.STEPS)


@dataclass(frozen=True, slots=True)
class Handle:
    """Place and proof of one part. Travels from worker to coordinator and into the manifest."""

    kind: PartKind
    run: str
    incarnation: int
    snapshot_id: int  #: snapshot that the part was made for; a later snapshot may reuse the part (PROTOCOL 10)
    subtask: Subtask  #: subtask that made the part; for a channel's part its receiver or its sender
    channel: ChannelId | None  #: channel of the messages, or None for a part without messages
    first: int  #: number of the first message, or first generation of a part of a list; 0 for a state or a base
    last: int  #: number of the last message, or last generation of a part of a list; 0 for a state
    size: int  #: bytes of the whole part, envelope and header included
    checksum: bytes  #: checksum in the part's envelope
    path: str | None  #: path of the file that holds this part and others of the same snapshot; None: inline
    inline: bytes | None  #: the whole part, or None if the part is in a file
    offset: int = 0  #: byte of the file at which the part begins
    groups: tuple[int, int] | None = None  #: key groups [lo, hi) of a ROWS part; None for any other part
    rows: int | None = None  #: rows of a ROWS part, for human readers; None for any other part

    def __post_init__(self) -> None:
        if (self.path is None) == (self.inline is None):
            raise ValueError("a part is either stored or inline")
        if (self.channel is None) == self.kind.is_of_channel:
            raise ValueError("a part holds either a state or what was on a channel")
        for found in (self.groups, self.rows):
            if (found is None) == (self.kind is PartKind.ROWS):
                raise ValueError("a part has key groups and a number of rows exactly if it holds rows")
        if self.groups is not None and not 0 <= self.groups[0] < self.groups[1]:
            raise ValueError(f"a part of no key groups: {self.groups}")
        if self.kind.is_listed and not 0 <= self.first <= self.last:
            raise ValueError(f"a part of no generations: {self.first} to {self.last}")

    @property
    def name(self) -> str:
        """Name of the part in errors."""
        what = f"{self.kind.name.lower()} part of {self.channel or self.subtask}, "
        if self.groups is not None:
            what += f"key groups {self.groups[0]} to {self.groups[1] - 1}, "
        if self.kind.is_listed:
            what += f"generations {self.first} to {self.last}, "
        what += f"snapshot {self.snapshot_id}"
        return f"inline {what}" if self.path is None else f"{self.path} ({what}; offsets from byte {self.offset:,})"


@dataclass(frozen=True, slots=True)
class Part:
    """An encoded part that is not stored yet. `inline` or `stored` makes its handle."""

    handle: Handle  #: inline and empty; origin, numbers, size and checksum are final
    buffers: tuple[Buffer, ...]  #: envelope, header, then the buffers of the body by reference

    def inline(self) -> Handle:
        """Return the handle that holds the part itself. Copies the body once."""
        return replace(self.handle, inline=b"".join(self.buffers))

    def stored(self, path: str, offset: int) -> Handle:
        """Return the handle of the part stored in the file at `path`, from byte `offset` on."""
        return replace(self.handle, path=path, offset=offset, inline=None)


def state_part(run: str, incarnation: int, snapshot_id: int, subtask: Subtask, body: Sequence[Buffer]) -> Part:
    """Encode the state of `subtask`. `body` is taken by reference."""
    return _part(PartKind.STATE, (run, incarnation, snapshot_id), subtask, (0, 0), body)


def rows_part(
    run: str,
    incarnation: int,
    snapshot_id: int,
    subtask: Subtask,
    generations: tuple[int, int],
    groups: tuple[int, int],
    body: Sequence[Buffer],
    rows: int,
) -> Part:
    """Encode a piece of a segment of `subtask`. `body` is taken by reference.

    Parameters
    ----------
    snapshot_id : int
        Snapshot whose capture or compaction made the segment. Later snapshots list the piece again.
    generations : tuple of int
        First and last generation of the segment. The first generation of a base is 0.
    groups : tuple of int
        Key groups [lo, hi) of the piece.
    rows : int
        Number of rows in the piece, for human readers.
    """
    return _part(PartKind.ROWS, (run, incarnation, snapshot_id), subtask, generations, body, groups=groups, rows=rows)


def own_part(
    run: str, incarnation: int, snapshot_id: int, subtask: Subtask, generations: tuple[int, int], body: Sequence[Buffer]
) -> Part:
    """Encode own state of `subtask`: the whole state if the first generation is 0, else a delta.

    `body` is taken by reference.
    """
    return _part(PartKind.OWN, (run, incarnation, snapshot_id), subtask, generations, body)


def steps_part(
    run: str, incarnation: int, snapshot_id: int, subtask: Subtask, generations: tuple[int, int], body: Sequence[Buffer]
) -> Part:
    """Encode steps of `subtask`: from the beginning of its log if the first generation is 0.

    `body` is taken by reference.
    """
    return _part(PartKind.STEPS, (run, incarnation, snapshot_id), subtask, generations, body)


def channel_part(
    kind: PartKind, run: str, incarnation: int, snapshot_id: int, channel: ChannelId, frames: Sequence[Frame]
) -> Part:
    """Encode the messages that `channel` held at one end. Payloads are taken by reference.

    The numbers of the part are read from the frames after each payload is checked, because the certificate must
    describe the stored messages (PROTOCOL 2).

    Raises
    ------
    SnapshotCorrupt
        if there is no frame, or the frames leave a gap, overlap, or do not hold the messages that they announce.
    """
    assert kind.is_of_channel
    problem = _frames_problem(frames)
    if problem:
        raise SnapshotCorrupt(f"{kind.name.lower()} part of {channel}, snapshot {snapshot_id}: {problem}")
    subtask = channel.target if kind is PartKind.RECEIVED else channel.source
    numbers = (frames[0].first, frames[-1].last)
    return _part(kind, (run, incarnation, snapshot_id), subtask, numbers, encode_frames(frames), channel=channel)


def decode_part(handle: Handle, data: Buffer) -> memoryview:
    """Check that all of `data` is the part of `handle`, and return the part's body without a copy.

    Parameters
    ----------
    handle : Handle
        From the manifest.
    data : bytes or memoryview
        The stored bytes, or ``handle.inline``.

    Raises
    ------
    SnapshotCorrupt
        if length, checksum or origin are not the handle's. The message names file, offset and fault.
    RestoreRefused
        if the part is of a format version that this Cutline does not read.
    """
    view = memoryview(data).cast("B")
    if view.nbytes != handle.size:
        raise SnapshotCorrupt(f"{handle.name}: ends at offset {view.nbytes}, but the manifest says {handle.size}")
    content = unseal(PART_MAGIC, view, handle.name)
    if seal_of(view) != handle.checksum:
        raise SnapshotCorrupt(f"{handle.name}: offset 14: a whole part, but not the one that the manifest lists")
    header, body = _split(content, handle.name)
    if unpack_plain(header, handle.name) != _header(handle):
        raise SnapshotCorrupt(f"{handle.name}: offset 34: the part says that it came from elsewhere: {bytes(header)!r}")
    return body


def encode_frames(frames: Iterable[Frame]) -> list[Buffer]:
    """Return the body of a channel's part. Payloads are taken by reference."""
    payloads = [frame.payload for frame in frames]
    rows = [(frame.first, frame.count, int(frame.kind), memoryview(frame.payload).nbytes) for frame in frames]
    table = pack_plain(rows)
    return [_LENGTH.pack(len(table)), table, *payloads]


def decode_frames(handle: Handle, body: memoryview) -> list[Frame]:
    """Return the frames of a channel's part. Payloads are not copied.

    Raises
    ------
    SnapshotCorrupt
        if the frames leave a gap, overlap, do not hold the messages that they announce, or are not those of `handle`.
    """
    table, payloads = _split(body, handle.name)
    frames: list[Frame] = []
    offset = 0
    try:
        for first, count, kind, length in unpack_plain(table, handle.name):  # type: ignore[attr-defined]
            payload = payloads[offset : offset + length]
            frames.append(Frame(first=first, count=count, kind=PayloadKind(kind), payload=payload))
            offset += length
    except (TypeError, ValueError) as error:
        raise SnapshotCorrupt(f"{handle.name}: its table of frames cannot be read: {error}") from error
    problem = _frames_problem(frames)
    if problem is None and offset != payloads.nbytes:
        problem = f"payloads of {payloads.nbytes} bytes, but the table lists {offset}"
    if problem is None and (frames[0].first, frames[-1].last) != (handle.first, handle.last):
        problem = (
            f"messages {frames[0].first} to {frames[-1].last}, but the manifest says {handle.first} to {handle.last}"
        )
    if problem:
        raise SnapshotCorrupt(f"{handle.name}: {problem}")
    return frames


SUBTASK = StoredArray(Subtask, keys.SUBTASK)

CHANNEL = StoredArray(
    ChannelId,
    keys.CHANNEL,
    write={"source": SUBTASK.write, "target": SUBTASK.write},
    read={"source": SUBTASK.read, "target": SUBTASK.read},
)


def _write_channel(channel: ChannelId | None) -> list[Any] | None:
    return None if channel is None else CHANNEL.write(channel)


def _read_channel(stored: Any) -> ChannelId | None:
    return None if stored is None else CHANNEL.read(stored)


def read_groups(stored: Any) -> tuple[int, int]:
    """Return the stored key groups [lo, hi)."""
    lo, hi = stored
    return lo, hi


#: Stored form of handles in the manifest.
HANDLE = StoredMap(
    Handle,
    keys.HANDLE,
    write={"kind": int, "subtask": SUBTASK.write, "channel": _write_channel, "groups": list},
    read={"kind": PartKind, "subtask": SUBTASK.read, "channel": _read_channel, "groups": read_groups},
)


def _part(
    kind: PartKind,
    origin: tuple[str, int, int],
    subtask: Subtask,
    numbers: tuple[int, int],
    body: Sequence[Buffer],
    *,
    channel: ChannelId | None = None,
    groups: tuple[int, int] | None = None,
    rows: int | None = None,
) -> Part:
    """Encode a part. `origin` is run, incarnation and snapshot id."""
    handle = Handle(kind, *origin, subtask, channel, *numbers, 0, b"", None, b"", groups=groups, rows=rows)
    header = pack_plain(_header(handle))
    buffers = seal(PART_MAGIC, [_LENGTH.pack(len(header)), header, *body])
    size = sum(memoryview(buffer).nbytes for buffer in buffers)
    return Part(replace(handle, size=size, checksum=seal_of(buffers[0])), tuple(buffers))


def _header(handle: Handle) -> list[Any]:
    """Return the header of the part of `handle`. Generations are in it, because a swapped piece must be found."""
    stored = HANDLE.write(handle)
    order = keys.ORIGIN_OF_LISTED if handle.kind.is_listed else keys.ORIGIN
    return [stored.get(keys.HANDLE[field]) for field in order]


def _split(content: memoryview, name: str) -> tuple[memoryview, memoryview]:
    """Split `content` into the piece that its leading length announces, and the rest."""
    if content.nbytes < _LENGTH.size or content.nbytes - _LENGTH.size < _LENGTH.unpack_from(content)[0]:
        raise SnapshotCorrupt(f"{name}: {content.nbytes} bytes are too few for what they announce")
    end = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    return content[_LENGTH.size : end], content[end:]


def _frames_problem(frames: Sequence[Frame]) -> str | None:
    if not frames:
        return "no frame, and an empty part is never stored"
    expected = frames[0].first
    for frame in frames:
        if frame.first != expected or frame.count < 1:
            return f"a frame of {frame.count} messages from {frame.first} where {expected} was due"
        held = _messages_held(frame)
        if held != frame.count:
            return f"the frame from {frame.first} says {frame.count} messages and holds {held}"
        if frame.is_control and (problem := stored_problem(frame)):
            return problem
        expected = frame.last + 1
    return None


def _messages_held(frame: Frame) -> int:
    """Count the messages by the payload's own header, and the rows of a batch by its stream. -1 if there is neither."""
    match frame.kind:
        case PayloadKind.VALUES | PayloadKind.TUPLES | PayloadKind.FLAT:
            unpacker = msgpack.Unpacker()
            unpacker.feed(bytes(frame.payload[:5]))  # the longest array header
            try:
                return int(unpacker.read_array_header())
            except (ValueError, msgpack.UnpackException):
                return -1
        case PayloadKind.CONTROL:
            return 1
        case PayloadKind.BATCH:
            return count_rows(frame.payload)
