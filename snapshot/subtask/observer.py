"""Define the observer of one subtask, the only way to note the actions of its machine and its channel ends.

A subtask receives its observer at construction, or never. A subtask without an observer has no cost for a message,
because senders and nodes are wrapped only where there is an observer. The trace of a real run, the simulator's
history, the probe and the explorer's log are observers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Buffer, Marker
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import Context, Node

Inputs = Mapping[ChannelId, ChannelReceiver]
Outputs = Mapping[ChannelId, ChannelSender]


class Observer:
    """Base class whose methods do nothing. Overriding methods must not send, change a message, or raise."""

    def attached(self, node: Node, inputs: Inputs, outputs: Outputs) -> None:
        """Called when the machine was made. The channel ends have the numbers of the restored channels."""

    def restoring(self) -> None:
        """Called before the node restores its state or starts fresh."""

    def restored(self) -> None:
        """Called when the node was restored and opened."""

    def hook_begins(self, hook: str) -> None:
        """Called before the hook ``open``, ``poll`` or ``onTimer``."""

    def hook_ended(self, hook: str) -> None:
        """Called when the hook has returned."""

    def marker_arrived(self, channel: ChannelId, marker: Marker) -> None:
        """Called when a marker arrived from a link, before the marker is processed."""

    def marker_sent(self, channel: ChannelId, marker: Marker) -> None:
        """Called when the link has taken a marker. Until then the marker could be moved or dropped."""

    def cut(self, snapshot_id: int) -> None:
        """Called before the state is captured."""

    def captured(self, snapshot_id: int, state: Sequence[Buffer]) -> None:
        """Called when the state was captured and encoded."""

    def committed(self, snapshot_id: int) -> None:
        """Called when output prepared for the snapshot was committed."""

    def published(self, snapshot_id: int) -> None:
        """Called when the subtask has handled the publication of the snapshot."""

    def message_sending(self, channel: ChannelId, message: Any) -> Any:
        """Called before a message is sent. Return the value for `message_sent`.

        `message_sent` must not read the message itself, because the receiver owns a sent message.
        """

    def message_sent(self, channel: ChannelId, kept: Any) -> None:
        """Called when the message was numbered. Not called for a refused message."""

    def rows_sending(self, channel: ChannelId, batch: pa.RecordBatch) -> Any:
        """Called before a batch is sent. Return the value for `rows_sent`."""

    def rows_sent(self, channel: ChannelId, kept: Any) -> None:
        """Called when the rows of the batch were numbered."""

    def end_sent(self, channel: ChannelId) -> None:
        """Called when the end of the stream was numbered."""

    def message_received(self, channel: ChannelId, message: Any) -> None:
        """Called before the node handles a message."""

    def rows_received(self, channel: ChannelId, batch: pa.RecordBatch) -> None:
        """Called before the node handles the rows of a batch."""

    def end_received(self, channel: ChannelId) -> None:
        """Called before the end of the stream is processed."""


class ObservedSender:
    """A channel sender for `OutputEdge` that reports each message to an observer."""

    def __init__(self, end: ChannelSender, observer: Observer) -> None:
        self.end = end
        self._observer = observer

    def send(self, message: Any) -> None:
        """See `ChannelSender.send`."""
        channel, observer = self.end.channel, self._observer
        kept = observer.message_sending(channel, message)
        self.end.send(message)
        observer.message_sent(channel, kept)

    def send_all(self, messages: list[Any], *, are_tuples: bool, keys: list[Any] | None = None) -> None:
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
    """A node for `InputProcessor` that reports messages of one channel. The wrapped node's attributes do not change."""

    def __init__(self, node: Node, observer: Observer, channel: ChannelId) -> None:
        self._node = node
        self._observer = observer
        self._channel = channel

    def onMessage(self, message: Any, context: Context) -> None:
        """Report the message, then call the node's `onMessage`."""
        self._observer.message_received(self._channel, message)
        self._node.onMessage(message, context)

    def onMessages(self, messages: list[Any], context: Context) -> None:
        """Report each message, then call the node's `onMessages`."""
        for message in messages:
            self._observer.message_received(self._channel, message)
        self._node.onMessages(messages, context)

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Report the rows, then call the node's `onBatch`."""
        self._observer.rows_received(self._channel, batch)
        self._node.onBatch(batch, context)


class JoinedObserver(Observer):
    """Several observers of one subtask, called in order."""

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
