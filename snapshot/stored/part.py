"""One stored piece of a snapshot, and the handle that says where it is.

Owns the bytes of a part. Must not know where parts are stored, nor how states and messages are encoded. A
part says in its own header where it came from, so that a swapped file is found as surely as a flipped bit.

::

    envelope                                          (snapshot.envelope; covers all that follows)
    4     length of the header in bytes
          header: [kind, run, incarnation, snapshot_id, subtask, channel]    MessagePack
          body

    body of a STATE part      whatever the subtask encoded
    body of a channel's part  4 bytes: length of the table
                              table: [[first, count, kind, length], ...]     MessagePack, one row a frame
                              payloads, in that order
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import msgpack

from snapshot.channel.frame import Buffer, Frame, PayloadKind
from snapshot.errors import SnapshotCorrupt
from snapshot.ids import ChannelId, Subtask
from snapshot.stored import keys
from snapshot.stored.envelope import pack_plain, seal, seal_of, unpack_plain, unseal
from snapshot.stored.keys import StoredArray, StoredMap

PART_MAGIC = b"CLPT"

_LENGTH = struct.Struct(">I")


class PartKind(IntEnum):
    """Content of a part. Stored, so never renumber."""

    STATE = 0  #: the state of a subtask
    RECEIVED = 1  #: of a channel: what waited at its receiver, messages (p, w] of PROTOCOL 1
    SENT = 2  #: of a channel: what the marker overtook at its sender, messages (w, S]


@dataclass(frozen=True, slots=True)
class Handle:
    """Place, size and checksum of one part. Sent from worker to coordinator, and stored in the manifest."""

    kind: PartKind
    run: str
    incarnation: int
    snapshot_id: int  #: the snapshot that the part was made for; a later one may reuse it (PROTOCOL 10)
    subtask: Subtask  #: who made it; for a channel's part its receiver or its sender
    channel: ChannelId | None  #: None for a state
    first: int  #: number of the first message held; 0 for a state
    last: int  #: number of the last message held; 0 for a state
    size: int  #: bytes of the whole part, envelope and header included
    checksum: bytes  #: as in the part's envelope
    path: str | None  #: of the file that holds it, with other parts of the same snapshot; or None
    inline: bytes | None  #: the whole part itself when it travels, or None
    offset: int = 0  #: where in the file it begins

    def __post_init__(self) -> None:
        if (self.path is None) == (self.inline is None):
            raise ValueError("a part is either stored or inline")
        if (self.channel is None) != (self.kind is PartKind.STATE):
            raise ValueError("a part holds either a state or what was on a channel")

    @property
    def name(self) -> str:
        """Return the name of the part in errors."""
        what = f"{self.kind.name.lower()} part of {self.channel or self.subtask}, snapshot {self.snapshot_id}"
        return f"inline {what}" if self.path is None else f"{self.path} ({what}; offsets from byte {self.offset:,})"


@dataclass(frozen=True, slots=True)
class Part:
    """An encoded part that is not stored yet. ``inline`` or ``stored`` makes its handle."""

    handle: Handle  #: as if inline and empty: its origin, numbers, size and checksum count
    buffers: tuple[Buffer, ...]  #: envelope, header, then the body's own buffers by reference

    def inline(self) -> Handle:
        """The handle that carries the part in itself; copies the body once."""
        return replace(self.handle, inline=b"".join(self.buffers))

    def stored(self, path: str, offset: int) -> Handle:
        """The handle of the part stored in the file at `path`, from byte `offset` on."""
        return replace(self.handle, path=path, offset=offset, inline=None)


def state_part(run: str, incarnation: int, snapshot_id: int, subtask: Subtask, body: Sequence[Buffer]) -> Part:
    """Encode the state of `subtask`; `body` is taken by reference."""
    return _part(PartKind.STATE, run, incarnation, snapshot_id, subtask, None, (0, 0), body)


def channel_part(
    kind: PartKind, run: str, incarnation: int, snapshot_id: int, channel: ChannelId, frames: Sequence[Frame]
) -> Part:
    """Encode the messages that `channel` held at one end; payloads are taken by reference.

    The part's numbers are those of the frames, after looking into each: the certificate is made of what is
    stored, not of what was meant to be (PROTOCOL 2).

    Raises
    ------
    SnapshotCorrupt
        if there is no frame, or the frames leave a gap, overlap, or do not hold what they say.
    """
    assert kind is not PartKind.STATE
    problem = _frames_problem(frames)
    if problem:
        raise SnapshotCorrupt(f"{kind.name.lower()} part of {channel}, snapshot {snapshot_id}: {problem}")
    subtask = channel.target if kind is PartKind.RECEIVED else channel.source
    numbers = (frames[0].first, frames[-1].last)
    return _part(kind, run, incarnation, snapshot_id, subtask, channel, numbers, encode_frames(frames))


def decode_part(handle: Handle, data: Buffer) -> memoryview:
    """The body of a part, without a copy, when all of `data` is proved to be what `handle` says.

    Parameters
    ----------
    handle : Handle
        From the manifest.
    data : bytes or memoryview
        The stored bytes, or ``handle.inline``.

    Raises
    ------
    SnapshotCorrupt
        naming the file, the offset and what is wrong: length, checksum, or an origin that is not the handle's.
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
    if unpack_plain(header, handle.name) != _origin(handle):
        raise SnapshotCorrupt(f"{handle.name}: offset 34: the part says that it came from elsewhere: {bytes(header)!r}")
    return body


def encode_frames(frames: Iterable[Frame]) -> list[Buffer]:
    """The body of a channel's part; payloads are taken by reference."""
    payloads = [frame.payload for frame in frames]
    rows = [(frame.first, frame.count, int(frame.kind), memoryview(frame.payload).nbytes) for frame in frames]
    table = pack_plain(rows)
    return [_LENGTH.pack(len(table)), table, *payloads]


def decode_frames(handle: Handle, body: memoryview) -> list[Frame]:
    """The frames of a channel's part, payloads without a copy.

    Raises
    ------
    SnapshotCorrupt
        if the frames leave a gap, overlap, do not hold what they say, or are not those of `handle`.
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


#: For the manifest. The oldest manifests have no offsets, because each part had a file of its own.
HANDLE = StoredMap(
    Handle,
    keys.HANDLE,
    write={"kind": int, "subtask": SUBTASK.write, "channel": _write_channel},
    read={"kind": PartKind, "subtask": SUBTASK.read, "channel": _read_channel},
)


def _part(
    kind: PartKind,
    run: str,
    incarnation: int,
    snapshot_id: int,
    subtask: Subtask,
    channel: ChannelId | None,
    numbers: tuple[int, int],
    body: Sequence[Buffer],
) -> Part:
    first, last = numbers
    handle = Handle(kind, run, incarnation, snapshot_id, subtask, channel, first, last, 0, b"", None, b"")
    header = pack_plain(_origin(handle))
    buffers = seal(PART_MAGIC, [_LENGTH.pack(len(header)), header, *body])
    size = sum(memoryview(buffer).nbytes for buffer in buffers)
    return Part(replace(handle, size=size, checksum=seal_of(buffers[0])), tuple(buffers))


def _origin(handle: Handle) -> list[Any]:
    """Return the header of the part of `handle`."""
    stored = HANDLE.write(handle)
    return [stored[keys.HANDLE[field]] for field in keys.ORIGIN]


def _split(content: memoryview, name: str) -> tuple[memoryview, memoryview]:
    """Split `content` into its header, whose length comes first, and the rest."""
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
        if held not in (frame.count, None):
            return f"the frame from {frame.first} says {frame.count} messages and holds {held}"
        expected = frame.last + 1
    return None


def _messages_held(frame: Frame) -> int | None:
    """Return the count in the payload, or None for a batch, whose rows are counted when it is decoded."""
    match frame.kind:
        case PayloadKind.VALUES | PayloadKind.TUPLES | PayloadKind.FLAT:
            unpacker = msgpack.Unpacker()
            unpacker.feed(bytes(frame.payload[:5]))  # no array header is longer
            try:
                return int(unpacker.read_array_header())
            except (ValueError, msgpack.UnpackException):
                return -1
        case PayloadKind.END:
            return 1 if len(frame.payload) == 0 else -1
        case PayloadKind.BATCH:
            return None
