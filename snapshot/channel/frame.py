"""Frames of numbered messages, and the markers between them: the contents of a channel.

A frame holds the encoded messages ``first .. first + count - 1``. Out-buffers, in-queues and recorded channel state
hold frames by reference. Messages are encoded, so no snapshot sees a handler's changes to them (PROTOCOL 1.6).
`snapshot.channel.object_frame` has the frames inside one worker, and `channels.wire` the layout on a socket.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from cutline.snapshot.channel.stamps import StampRuns

#: Encoded data, held by reference.
Buffer = bytes | memoryview


class PayloadKind(IntEnum):
    """Encoding of a frame's payload. Stored in snapshots and sent on sockets: never renumber."""

    VALUES = 0  #: a MessagePack array, one element a message
    TUPLES = 1  #: as VALUES, where every message was a tuple (MessagePack itself knows only arrays)
    BATCH = 2  #: one Arrow IPC stream of record batches, one row a message
    CONTROL = 3  #: a statement in place of messages: a frame with one number (`snapshot.channel.control_frames`)
    FLAT = 4  #: as TUPLES, where no tuple holds a list or a tuple, so every inner array is a message


_CONTROL = PayloadKind.CONTROL


class Frame(msgspec.Struct, frozen=True, gc=False):  # made in a quarter of a named tuple's time
    """Encoded messages ``first .. last`` of one channel. ``count`` is at least 1."""

    first: int
    count: int
    kind: PayloadKind
    payload: Buffer
    #: epochs of the messages, or None where messages have none
    stamps: StampRuns | None = None

    @property
    def last(self) -> int:
        """Number of the last message in the frame."""
        return self.first + self.count - 1

    @property
    def is_control(self) -> bool:
        """The frame has a statement in place of messages."""
        return self.kind is _CONTROL

    @property
    def size(self) -> int:
        """Bytes for credit, buffers and limits."""
        return len(self.payload)


class Marker(NamedTuple):
    """Separates, on one channel, the messages sent before the sender's cut from the messages sent after the cut.

    ``written`` is **w** of PROTOCOL 1: the number of the last message before the marker on the channel.
    ``min_snapshot_id`` is the lowest snapshot id that still runs (PROTOCOL 3.4). An ``aligned`` marker kept its
    place among the messages. Any other marker has overtaken the frames that waited in the sender's out-buffer.
    """

    snapshot_id: int
    min_snapshot_id: int
    written: int
    aligned: bool
    #: the snapshot has all messages that ever come on the channel (PROTOCOL 13.15, negotiated clocks)
    is_final: bool = False
