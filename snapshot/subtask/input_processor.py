"""One input of a subtask: turns the frames of its receiving end into calls of the node's hooks.

Where a batch meets a node that only has `onMessage`, its rows go in one by one, as dicts. Where messages meet a node
that only has `onBatch`, those of a frame are gathered to a batch by the edge's schema. Inputs that have something to
process are kept apart, because then the cost of a turn does not grow with inputs that have nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any

import pyarrow as pa

from snapshot.channel.channel_receiver import ChannelReceiver
from snapshot.channel.frame import Frame
from snapshot.channel.frame_codec import messages_of
from snapshot.channel.output_buffer import BackpressureFlag
from snapshot.channel.serialization import Codec
from snapshot.errors import NodeError
from snapshot.ids import ChannelId
from snapshot.node import Node, defines
from snapshot.subtask.context import SubtaskContext
from snapshot.subtask.observer import ObservedNode, Observer


class ReadyInputs:
    """Round robin, so that a busy input does not starve the others.

    Parameters
    ----------
    inputs : iterable of InputProcessor
        All that there are.
    """

    def __init__(self, inputs: Iterable[InputProcessor]) -> None:
        self._inputs = {each.end.channel: each for each in inputs}
        #: held or not
        self._waiting = {channel: each for channel, each in self._inputs.items() if not each.end.drained}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[InputProcessor]:
        """Those that wait now, whose turn is first ahead."""
        return iter(list(self._waiting.values()))

    def get(self, channel: ChannelId) -> InputProcessor | None:
        """The input, if something waits there."""
        return self._waiting.get(channel)

    def mark_ready(self, channel: ChannelId) -> None:
        """Something has come: it waits its turn, unless it has one already."""
        self._waiting.setdefault(channel, self._inputs[channel])

    def requeue(self, turn: InputProcessor) -> None:
        """It had its turn, and waits for the next one if anything is left."""
        channel = turn.end.channel
        del self._waiting[channel]
        if not turn.end.drained:
            self._waiting[channel] = turn


class InputProcessor:
    """Feeds one channel to the node.

    Parameters
    ----------
    end : ChannelReceiver
    node : Node
    context : SubtaskContext
        Its `sender` and `key` are set before each call.
    backpressure : BackpressureFlag
        No further message is handled once it is closed.
    key_of : callable or None
        The key of a message behind a hash edge.
    schema : pyarrow.Schema or None
        Of the edge; needed to gather messages.
    observer : Observer, optional
    """

    def __init__(
        self,
        end: ChannelReceiver,
        node: Node,
        context: SubtaskContext,
        backpressure: BackpressureFlag,
        codec: Codec,
        *,
        key_of: Callable[[Any], Any] | None,
        schema: pa.Schema | None,
        observer: Observer | None = None,
    ) -> None:
        self.end = end
        self._node = node if observer is None else ObservedNode(node, observer, end.channel)
        self._context = context
        self._backpressure = backpressure
        self._codec = codec
        self._key_of = key_of
        self._schema = schema
        self._takes_messages = defines(node, "onMessage")
        self._takes_batches = defines(node, "onBatch")
        #: the head frame and its decoded messages, so that a slice that stops inside it decodes it once
        self._decoded: tuple[Frame, list[Any] | pa.RecordBatch] | None = None

    def handle(self, frame: Frame, limit: int) -> int:
        """Give messages of the head frame to the node until `limit`, its end, or the gate closes.

        Returns the number of messages handled. Whatever a hook raises passes through: the caller knows the subtask.
        """
        context = self._context
        context.sender = self.end.channel.source
        messages = self._messages(frame)
        start = self.end.processed + 1 - frame.first
        if isinstance(messages, pa.RecordBatch):
            rest = messages.slice(start) if start else messages
            context.key = None
            self._node.onBatch(rest, context)
            self.end.advance(rest.num_rows)
            return int(rest.num_rows)
        some = messages if not start and len(messages) <= limit else messages[start : start + limit]
        done = self._handle_each(some) if self._key_of is None else self._handle_keyed(some, self._key_of)
        self.end.advance(done)
        return done

    def _handle_each(self, messages: list[Any]) -> int:
        """The hot loop: one call of `onMessage` a message. The iterator counts, not we."""
        context, backpressure, on_message = self._context, self._backpressure, self._node.onMessage
        rest = iter(messages)
        for message in rest:
            on_message(message, context)
            if backpressure.closed:
                break
        return len(messages) - length_hint(rest)

    def _handle_keyed(self, messages: list[Any], key_of: Callable[[Any], Any]) -> int:
        """The same, behind a hash edge."""
        context, backpressure, on_message = self._context, self._backpressure, self._node.onMessage
        rest = iter(messages)
        for message in rest:
            context.key = key_of(message)
            on_message(message, context)
            if backpressure.closed:
                break
        return len(messages) - length_hint(rest)

    def _messages(self, frame: Frame) -> list[Any] | pa.RecordBatch:
        if self._decoded is None or self._decoded[0] is not frame:
            self._decoded = (frame, self._shaped(messages_of(frame, self._codec)))
        return self._decoded[1]

    def _shaped(self, messages: list[Any] | pa.RecordBatch) -> list[Any] | pa.RecordBatch:
        """As the node takes them."""
        if isinstance(messages, pa.RecordBatch):
            if self._schema is not None and not messages.schema.equals(self._schema):
                # The sender checks it too; but a restored batch was sent by the graph of its snapshot.
                raise NodeError(
                    f"{self.end.channel}: a batch with the schema\n{messages.schema}\n"
                    f"came on an edge that has\n{self._schema}"
                )
            return messages if self._takes_batches else messages.to_pylist()
        return messages if self._takes_messages else self._gathered(messages)

    def _gathered(self, messages: list[Any]) -> pa.RecordBatch:
        """Messages as one batch; each must have the columns of the schema, and no others, which would be lost."""
        assert self._schema is not None  # the graph is not built without it
        names = self._schema.names
        try:
            columns = [pa.array([m[field.name] for m in messages], field.type) for field in self._schema]
            if sum(map(len, messages)) != len(messages) * len(names):
                stranger = next(message for message in messages if len(message) != len(names))
                raise TypeError(f"a message has {list(stranger)} where the columns are {names}")
        except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
            raise NodeError(
                f"{self.end.channel}: messages do not fit the edge's schema:\n{self._schema}\n"
                f"{type(error).__name__}: {error}"
            ) from error
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
