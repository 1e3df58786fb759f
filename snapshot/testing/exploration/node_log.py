"""Log what the node of one subtask really sent and handled, and where it was at each cut.

Observes messages only. Must not read the core's numbers, because these are checked against the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import Node
from cutline.snapshot.subtask.observer import Inputs, Observer, Outputs
from cutline.snapshot.testing.payload import pack, pack_rows

#: Packed end of a stream. The end is a message like others (PROTOCOL 5.1, end of stream), and no payload is empty.
END_OF_STREAM = b""

#: (channel, its messages in order, packed)
Log = tuple[tuple[ChannelId, tuple[bytes, ...]], ...]


@dataclass(frozen=True, slots=True)
class LoggedCut:
    """The messages that one subtask had sent and handled at a cut."""

    sent: Log
    handled: Log
    #: ids of the snapshots that the subtask had cut before, in this incarnation
    earlier: tuple[int, ...]


NOWHERE = LoggedCut((), (), ())


class NodeLog(Observer):
    """Log of one subtask in one incarnation.

    Parameters
    ----------
    before : LoggedCut
        The cut where the incarnation begins.
    codec : Codec
    """

    def __init__(self, before: LoggedCut, codec: Codec) -> None:
        self._codec = codec
        self._before = before
        #: {output channel: the messages sent}
        self.sent: dict[ChannelId, list[bytes]] = {}
        #: {input channel: the messages handled}
        self.handled: dict[ChannelId, list[bytes]] = {}
        #: ids of the snapshots that were cut, in that order
        self.cuts: list[int] = []
        #: {snapshot_id: its cut}, until the cut is taken
        self._cuts: dict[int, LoggedCut] = {}

    def take_cut(self, snapshot_id: int) -> LoggedCut:
        """Return the cut of a snapshot, and forget the cut."""
        return self._cuts.pop(snapshot_id)

    def discard_below(self, min_snapshot_id: int) -> None:
        """Forget cuts below `min_snapshot_id`, because nothing needs them any more."""
        self._cuts = {snapshot_id: cut for snapshot_id, cut in self._cuts.items() if snapshot_id >= min_snapshot_id}

    def attached(self, node: Node, inputs: Inputs, outputs: Outputs) -> None:
        self.sent = {channel: [] for channel in outputs}
        self.handled = {channel: [] for channel in inputs}
        self.sent.update((channel, list(messages)) for channel, messages in self._before.sent)
        self.handled.update((channel, list(messages)) for channel, messages in self._before.handled)

    def message_sending(self, channel: ChannelId, message: Any) -> bytes:
        return pack(message, self._codec)

    def message_sent(self, channel: ChannelId, kept: bytes) -> None:
        self.sent[channel].append(kept)

    def rows_sending(self, channel: ChannelId, batch: pa.RecordBatch) -> Sequence[bytes]:
        return pack_rows(batch, self._codec)

    def rows_sent(self, channel: ChannelId, kept: Sequence[bytes]) -> None:
        self.sent[channel].extend(kept)

    def end_sent(self, channel: ChannelId) -> None:
        self.sent[channel].append(END_OF_STREAM)

    def message_received(self, channel: ChannelId, message: Any) -> None:
        self.handled[channel].append(pack(message, self._codec))

    def rows_received(self, channel: ChannelId, batch: pa.RecordBatch) -> None:
        self.handled[channel].extend(pack_rows(batch, self._codec))

    def end_received(self, channel: ChannelId) -> None:
        self.handled[channel].append(END_OF_STREAM)

    def cut(self, snapshot_id: int) -> None:
        self._cuts[snapshot_id] = self._cut()
        self.cuts.append(snapshot_id)

    def _cut(self) -> LoggedCut:
        sent = tuple((channel, tuple(log)) for channel, log in self.sent.items())
        handled = tuple((channel, tuple(log)) for channel, log in self.handled.items())
        return LoggedCut(sent, handled, tuple(self.cuts))
