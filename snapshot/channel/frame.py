"""Frames of numbered messages, and the markers between them.

A frame holds messages ``first .. first + count - 1``, already encoded: it is taken by reference by
out-buffers, in-queues and recorded channel state, so that what a handler does to a message is never seen
by a snapshot (PROTOCOL 1.6). How a frame looks on a socket is `channels.wire`'s business.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

#: Encoded data, taken by reference.
Buffer = bytes | memoryview


class PayloadKind(IntEnum):
    """Encoding of a frame's payload. Stored in snapshots and sent on sockets, so never renumber."""

    VALUES = 0  #: a MessagePack array, one element a message
    TUPLES = 1  #: the same, where every message was a tuple (MessagePack itself knows only arrays)
    BATCH = 2  #: one Arrow IPC stream of record batches, one row a message
    END = 3  #: end of stream: one numbered message without a value (PROTOCOL 5.1)
    FLAT = 4  #: as TUPLES, where no tuple holds a list or a tuple: every array in it is one of them


class Frame(msgspec.Struct, frozen=True, gc=False):  # made in a quarter of a named tuple's time
    """Messages ``first .. last`` of one channel, encoded. ``count`` is at least 1."""

    first: int
    count: int
    kind: PayloadKind
    payload: Buffer

    @property
    def last(self) -> int:
        """Number of the last message in the frame."""
        return self.first + self.count - 1


class Marker(NamedTuple):
    """Separates, on one channel, what was sent before the sender's cut from what was sent after it.

    ``written`` is **w** of PROTOCOL 1: the number of the last message that is ahead of the marker on the
    channel. ``min_snapshot_id`` is the lowest snapshot id that is still running (PROTOCOL 3.4). An ``aligned`` marker
    kept its place among the messages; any other has overtaken what waited in the sender's out-buffer.
    """

    snapshot_id: int
    min_snapshot_id: int
    written: int
    aligned: bool
