"""What the node of one subtask really sent and handled, written beside the machine; and where it was at each cut.

Hears the node's own hooks and what its context passes on. Never looks at the core's numbers, so that these can be
held against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from snapshot.channel.receiving_end import ReceivingEnd
from snapshot.channel.serialization import Codec
from snapshot.ids import ChannelId
from snapshot.node import Context, Node, defines
from snapshot.subtask.assembly import SubtaskParts
from snapshot.testing.payload import pack, pack_rows

#: The end of a stream: a message like others (PROTOCOL 5.1), and no payload is empty.
END_OF_STREAM = b""

#: (channel, its messages in order, packed)
Log = tuple[tuple[ChannelId, tuple[bytes, ...]], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """How far one subtask was at a cut."""

    sent: Log
    handled: Log
    #: snapshots that it had cut before, in this life
    earlier: tuple[int, ...]


NOWHERE = Point((), (), ())


class Ledger:
    """Of one subtask, in one life.

    Parameters
    ----------
    parts : SubtaskParts
        Not yet in use. Its node and its sending ends are made to be heard: these very instances.
    before : Point
        Where the life begins.
    """

    def __init__(self, parts: SubtaskParts, before: Point) -> None:
        self._codec = Codec()
        self._sent: dict[ChannelId, list[bytes]] = {channel: [] for channel in parts.outputs}
        self._handled: dict[ChannelId, list[bytes]] = {each.end.channel: [] for each in parts.inputs}
        self._sent.update((channel, list(messages)) for channel, messages in before.sent)
        self._handled.update((channel, list(messages)) for channel, messages in before.handled)
        #: snapshots that were cut, in that order
        self.cuts: list[int] = []
        #: {snapshot_id: where its cut was}, until it is handed out
        self._points: dict[int, Point] = {}
        for channel, end in parts.outputs.items():
            self._hear_sending(end, self._sent[channel])
        self._hear_node(parts.node, parts)

    @property
    def sent(self) -> Mapping[ChannelId, list[bytes]]:
        """By output channel."""
        return self._sent

    @property
    def handled(self) -> Mapping[ChannelId, list[bytes]]:
        """By input channel."""
        return self._handled

    def take_point(self, snapshot_id: int) -> Point:
        """Where the cut was; it can be had once."""
        return self._points.pop(snapshot_id)

    def settle(self, floor: int) -> None:
        """Cuts below `floor` will not be asked for."""
        self._points = {snapshot_id: point for snapshot_id, point in self._points.items() if snapshot_id >= floor}

    def note_end(self, end: ReceivingEnd) -> None:
        """An event of the node is over: if it was the end of this channel, it was handled."""
        log = self._handled[end.channel]
        if end.ended and END_OF_STREAM not in log:
            log.append(END_OF_STREAM)

    def _point(self) -> Point:
        sent = tuple((channel, tuple(log)) for channel, log in self._sent.items())
        handled = tuple((channel, tuple(log)) for channel, log in self._handled.items())
        return Point(sent, handled, tuple(self.cuts))

    def _hear_sending(self, end: Any, log: list[bytes]) -> None:
        send, send_batch, send_end, codec = end.send, end.send_batch, end.send_end, self._codec

        def heard(message: Any) -> None:
            packed = pack(message, codec)
            send(message)
            log.append(packed)

        def heard_batch(batch: pa.RecordBatch) -> None:
            send_batch(batch)
            log.extend(pack_rows(batch, codec))

        def heard_end() -> None:
            send_end()
            log.append(END_OF_STREAM)

        end.send, end.send_batch, end.send_end = heard, heard_batch, heard_end
        end.is_heard = True

    def _hear_node(self, node: Node, parts: SubtaskParts) -> None:
        """By a class of its own for this instance: its attributes are the user's, who may store all of them."""
        kind, codec = type(node), self._codec

        def log() -> list[bytes]:
            assert parts.context.sender is not None
            return self._handled[ChannelId(parts.context.sender, parts.subtask)]

        def heard(node: Node, message: Any, context: Context) -> None:
            log().append(pack(message, codec))
            kind.onMessage(node, message, context)

        def heard_batch(node: Node, batch: pa.RecordBatch, context: Context) -> None:
            log().extend(pack_rows(batch, codec))
            kind.onBatch(node, batch, context)

        def heard_cut(node: Node, snapshot_id: int, timestamp: float) -> Any:
            self._points[snapshot_id] = self._point()
            self.cuts.append(snapshot_id)
            return kind.snapshotState(node, snapshot_id, timestamp)

        hooks: dict[str, Any] = {"snapshotState": heard_cut}
        if defines(node, "onMessage"):
            hooks["onMessage"] = heard
        if defines(node, "onBatch"):
            hooks["onBatch"] = heard_batch
        names = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        metaclass: Any = type(kind)
        node.__class__ = metaclass(kind.__name__, (kind,), names | hooks)
