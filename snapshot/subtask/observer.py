"""The observer of one subtask: the only way to note what its machine and its channel ends do.

Given at construction, or not at all. A subtask without an observer takes the short ways and pays nothing for each
message: senders and nodes are wrapped only where there is an observer. The trace of a real run, the simulator's
history, the probe and the explorer's log are observers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from snapshot.channel.channel_receiver import ChannelReceiver
from snapshot.channel.channel_sender import ChannelSender
from snapshot.channel.frame import Buffer, Marker
from snapshot.ids import ChannelId
from snapshot.node import Context, Node

Inputs = Mapping[ChannelId, ChannelReceiver]
Outputs = Mapping[ChannelId, ChannelSender]


class Observer:
    """Notes nothing; override what is of interest. No method may send, change a message, or raise."""

    def attached(self, node: Node, inputs: Inputs, outputs: Outputs) -> None:
        """The machine was made; its channel ends have the numbers of the restored channels."""

    def restoring(self) -> None:
        """The node is about to take its state over, or to begin afresh."""

    def restored(self) -> None:
        """The node was restored and opened."""

    def hook_begins(self, hook: str) -> None:
        """``open``, ``poll`` or ``onTimer`` is about to be called."""

    def hook_ended(self, hook: str) -> None:
        """The hook returned."""

    def marker_arrived(self, channel: ChannelId, marker: Marker) -> None:
        """A marker came off a link, and is about to be acted upon."""

    def marker_sent(self, channel: ChannelId, marker: Marker) -> None:
        """A marker was taken for the link; until then it could be moved or dropped."""

    def cut(self, snapshot_id: int) -> None:
        """The state is about to be captured."""

    def captured(self, snapshot_id: int, state: Sequence[Buffer]) -> None:
        """The state was captured and encoded."""

    def committed(self, snapshot_id: int) -> None:
        """Output that was prepared for the snapshot was committed."""

    def published(self, snapshot_id: int) -> None:
        """The publication of the snapshot was handled."""

    def message_sending(self, channel: ChannelId, message: Any) -> Any:
        """A message is about to be sent. What is returned goes to `message_sent`, because the receiver owns it then."""

    def message_sent(self, channel: ChannelId, kept: Any) -> None:
        """The message was numbered. Not called where it was refused."""

    def rows_sending(self, channel: ChannelId, batch: pa.RecordBatch) -> Any:
        """A batch is about to be sent; likewise."""

    def rows_sent(self, channel: ChannelId, kept: Any) -> None:
        """Its rows were numbered."""

    def end_sent(self, channel: ChannelId) -> None:
        """The end of the stream was numbered."""

    def message_received(self, channel: ChannelId, message: Any) -> None:
        """The node is about to handle a message."""

    def rows_received(self, channel: ChannelId, batch: pa.RecordBatch) -> None:
        """The node is about to handle the rows of a batch."""

    def end_received(self, channel: ChannelId) -> None:
        """The end of the stream is about to be processed."""


class ObservedSender:
    """A sending end whose messages are observed, one by one; for `OutputEdge`."""

    def __init__(self, end: ChannelSender, observer: Observer) -> None:
        self.end = end
        self._observer = observer

    def send(self, message: Any) -> None:
        """See `ChannelSender.send`."""
        channel, observer = self.end.channel, self._observer
        kept = observer.message_sending(channel, message)
        self.end.send(message)
        observer.message_sent(channel, kept)

    def send_all(self, messages: list[Any], *, are_tuples: bool) -> None:
        """See `ChannelSender.send_all`."""
        for message in messages:
            self.send(message)

    def send_batch(self, batch: pa.RecordBatch) -> None:
        """See `ChannelSender.send_batch`."""
        channel, observer = self.end.channel, self._observer
        kept = observer.rows_sending(channel, batch)
        self.end.send_batch(batch)
        observer.rows_sent(channel, kept)

    def forbid(self, why: str) -> None:
        """See `ChannelSender.forbid`."""
        self.end.forbid(why)


class ObservedNode(Node):
    """A node whose messages from one channel are observed; for `InputProcessor`. The node's own attributes stay."""

    def __init__(self, node: Node, observer: Observer, channel: ChannelId) -> None:
        self._node = node
        self._observer = observer
        self._channel = channel

    def onMessage(self, message: Any, context: Context) -> None:
        """Observe, then handle."""
        self._observer.message_received(self._channel, message)
        self._node.onMessage(message, context)

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Observe, then handle."""
        self._observer.rows_received(self._channel, batch)
        self._node.onBatch(batch, context)


class JoinedObserver(Observer):
    """Several observers of one subtask, asked in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def message_sending(self, channel: ChannelId, message: Any) -> Any:
        return [each.message_sending(channel, message) for each in self._observers]

    def message_sent(self, channel: ChannelId, kept: Any) -> None:
        for each, own in zip(self._observers, kept, strict=True):
            each.message_sent(channel, own)

    def rows_sending(self, channel: ChannelId, batch: pa.RecordBatch) -> Any:
        return [each.rows_sending(channel, batch) for each in self._observers]

    def rows_sent(self, channel: ChannelId, kept: Any) -> None:
        for each, own in zip(self._observers, kept, strict=True):
            each.rows_sent(channel, own)


def _forwarding(name: str) -> Any:
    def forward(self: JoinedObserver, *args: Any) -> None:
        for each in self._observers:
            getattr(each, name)(*args)

    return forward


for _name in [name for name in vars(Observer) if not name.startswith("_") and name not in vars(JoinedObserver)]:
    setattr(JoinedObserver, _name, _forwarding(_name))
