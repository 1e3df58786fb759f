"""Changes of a node's own state, as the body of an OWN part: a whole state, or what changed since the last capture.

Owns the bytes of the body. Must not know how states are encoded. The steps of a log are stored alike, in STEPS parts.
The first step of a log is a whole one. ::

    4     length of the table
          table: [[whole, length], ...]       MessagePack, one row a change
          encoded changes, in that order
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored.envelope import pack_plain, unpack_plain

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class OwnChange:
    """The encoded result of `snapshotState` or of `snapshotDelta`, or a step of a log."""

    #: whether the change is the whole state, or begins the log, so that no earlier change is needed
    is_whole: bool
    body: tuple[Buffer, ...]

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(memoryview(buffer).nbytes for buffer in self.body)


def encode_changes(changes: Sequence[OwnChange]) -> list[Buffer]:
    """Return the body of a part that holds `changes`, oldest first. Bodies are taken by reference."""
    table = pack_plain([(change.is_whole, change.size) for change in changes])
    return [_LENGTH.pack(len(table)), table, *(buffer for change in changes for buffer in change.body)]


def decode_changes(body: memoryview, name: str) -> list[tuple[bool, memoryview]]:
    """Return (is whole, encoded change) of each change, oldest first, without copies.

    Raises
    ------
    SnapshotCorrupt
        if the body is not what `encode_changes` returned. `name` names the part.
    """
    try:
        (length,) = _LENGTH.unpack_from(body)
        start = _LENGTH.size + length
        table = unpack_plain(body[_LENGTH.size : start], name)
        rows = [(bool(is_whole), int(size)) for is_whole, size in table]  # type: ignore[attr-defined]
    except (struct.error, TypeError, ValueError) as error:
        raise SnapshotCorrupt(f"{name}: its table of changes cannot be read: {error}") from error
    ends = list(accumulate((size for _, size in rows), initial=start))
    if not rows or ends[-1] != body.nbytes:
        raise SnapshotCorrupt(f"{name}: {len(rows)} changes that end at offset {ends[-1]} of {body.nbytes}")
    return [(is_whole, body[begin : begin + size]) for (is_whole, size), begin in zip(rows, ends, strict=False)]
