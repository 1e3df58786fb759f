"""Turn the frames of one channel receiver into calls of the node's hooks.

A node without `onBatch` receives the rows of a batch as dicts, one dict a call, or all in a list. For a node that only
has `onBatch`, the messages of a frame are gathered into a batch by the edge's schema. `ReadyInputs` holds only inputs
with something to process, because then the cost of a turn does not grow with empty inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, takewhile
from operator import length_hint
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.message_hash import ChannelHash, content_hashes
from cutline.snapshot.channel.object_frame import AnyFrame, ObjectFrame
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.plain_keys import PLAIN_KEYS, plain_key
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.undecodable import decoded_messages
from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import NodeError
from cutline.snapshot.failed_event import FailedBatch, FailedMessage
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import Node, defines
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.isolation import Isolation
from cutline.snapshot.subtask.observer import ObservedNode, Observer
from cutline.snapshot.subtask.user_code import calling
from cutline.snapshot.subtask.wave_gates import WaveGates
from cutline.snapshot.values.fitting import DoesNotFit, fit_rows


class ReadyInputs:
    """Order the ready inputs by round robin, because a busy input must not starve the rest.

    Parameters
    ----------
    inputs : iterable of InputProcessor
        All inputs of the subtask.
    """

    def __init__(self, inputs: Iterable[InputProcessor]) -> None:
        self._inputs = {each.end.channel: each for each in inputs}
        self.gates = WaveGates(each.end for each in self._inputs.values())
        #: {channel: input with something to process}, including held channels
        self._waiting = {channel: each for channel, each in self._inputs.items() if not each.end.drained}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[InputProcessor]:
        """Iterate over a copy of the ready inputs, in the order of their turns."""
        return iter(list(self._waiting.values()))

    def get(self, channel: ChannelId) -> InputProcessor | None:
        """Return the input of `channel` if the input is ready, else None."""
        return self._waiting.get(channel)

    def mark_ready(self, channel: ChannelId) -> None:
        """Add the input of `channel` at the end of the ready inputs. A ready input keeps its turn."""
        self._waiting.setdefault(channel, self._inputs[channel])

    def requeue(self, turn: InputProcessor) -> None:
        """Move the input to the end of the ready inputs after its turn. Remove a drained input."""
        channel = turn.end.channel
        del self._waiting[channel]
        if not turn.end.drained:
            self._waiting[channel] = turn


class InputProcessor:
    """Pass the messages of one channel to the node.

    Parameters
    ----------
    end : ChannelReceiver
    node : Node
    context : SubtaskContext
        `handle` sets `sender` and `key` before the node's hooks run.
    backpressure : BackpressureFlag
        While the flag is closed, no further message is handled.
    key_of : callable or None
        Returns the key of a message of a hash edge; None for edges without a key.
    schema : pyarrow.Schema or None
        Schema of the edge, or None if none was declared. Gathering messages needs a schema.
    isolation : Isolation or None
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
        isolation: Isolation | None,
        observer: Observer | None = None,
    ) -> None:
        self.end = end
        self._node = node if observer is None else ObservedNode(node, observer, end.channel)
        self._context = context
        self._backpressure = backpressure
        self._codec = codec
        #: returns the key of a message of a hash edge; None for edges without a key
        self.key_of = key_of
        #: hash of the messages that the node got, or None where nothing is compared
        self.hash: ChannelHash | None = None
        self._schema = schema
        #: messages of the channel that failed before, or None without such messages
        self.isolation = isolation
        self._observer = observer
        self._takes_lists = defines(node, "onMessages")
        self._takes_messages = self._takes_lists or defines(node, "onMessage")
        self._takes_batches = defines(node, "onBatch")
        #: the head frame, its decoded messages, and the number of the first of these, or None; kept because several
        #: slices may share one frame
        self._decoded: tuple[AnyFrame, list[Any] | pa.RecordBatch, int] | None = None
        #: number of messages passed to the hook together, or a list and its iterator, or None while a frame is decoded
        self._passed: int | tuple[list[Any], Iterator[Any]] | None = None

    def handle(self, frame: AnyFrame, limit: int) -> int:
        """Pass messages of the head frame to the node, until `limit`, the frame's end, or backpressure.

        Return the number of handled messages.

        Raises
        ------
        NodeError
            if the messages cannot be decoded, if the key function raises, or if the hook raises anything.
        """
        context = self._context
        context.sender = self.end.channel.source
        context.hooks.calls += 1
        has_rows = isinstance(frame, Frame) and frame.kind is PayloadKind.BATCH
        takes_batch = self._takes_batches and (has_rows or not self._takes_messages)
        self._passed = None
        hook = "onBatch" if takes_batch else "onMessages" if self._takes_lists else "onMessage"
        with calling(hook, self.end.channel.target, self._failed):
            isolation = self.isolation
            if isolation is not None and self._is_apart(isolation, frame):
                done = self._handle_piece(isolation, frame, limit)
            else:
                messages, first = self._messages(frame)
                start = self.end.processed + 1 - first
                if isinstance(messages, pa.RecordBatch):
                    if frame.stamps is not None:
                        messages = messages.slice(start, limit)  # of one epoch
                    elif start:
                        messages = messages.slice(start)
                    done = self._handle_rows(messages)
                    if self.hash is not None:
                        self.hash.add(messages)
                else:
                    ahead = None
                    if self.hash is not None:
                        ahead = self.hash.pack(messages, frame.last - self.end.processed)
                    keys = frame.keys if isinstance(frame, ObjectFrame) else None
                    if start or len(messages) > limit:
                        messages = messages[start : start + limit]
                        keys = None if keys is None else keys[start : start + limit]
                    done = self._handle_messages(messages, keys)
                    if self.hash is not None and ahead is not None:
                        self.hash.add_packed(ahead, done)
        self.end.advance(done)
        return done

    def takes_together(self, frame: AnyFrame) -> bool:
        """Return whether the node gets the messages of a frame by one call."""
        has_rows = isinstance(frame, Frame) and frame.kind is PayloadKind.BATCH
        return self._takes_lists or (self._takes_batches and (has_rows or not self._takes_messages))

    def handle_together(self, count: int) -> None:
        """Pass exactly `count` messages to the node by one call, whatever frames they are in. Called by a replay.

        Raises as `handle`.
        """
        context = self._context
        context.sender = self.end.channel.source
        context.hooks.calls += 1
        self._passed = None
        with calling("onMessages" if self._takes_lists else "onBatch", self.end.channel.target, self._failed):
            through = self.end.processed + count
            frames = takewhile(lambda frame: frame.first <= through, self.end.frames())
            parts = [part for frame in frames if len(part := self._part(frame, through))]
            assert self.hash is not None
            if isinstance(parts[0], pa.RecordBatch):
                batch = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
                self.hash.add(batch)
                self._handle_rows(batch)
            else:
                messages = list(chain.from_iterable(parts))
                self.hash.add(messages)  # before the call, because the node may change the messages
                self._handle_list(messages, None)
        context.sender = None
        while count:
            count -= self._advance(count)

    def drop(self, frame: AnyFrame, limit: int) -> int:
        """Count messages of the head frame without a call of the node. Called by a replay. Raises as `handle`."""
        with calling("a dropped message", self.end.channel.target):
            some = self._part(frame, self.end.processed + limit)
            if self._observer is not None:
                for each in some if isinstance(some, list) else [some]:
                    self._observed([each] if isinstance(some, list) else each)
            assert self.hash is not None
            self.hash.add(some)
        return self._advance(limit)

    def _handle_piece(self, isolation: Isolation, frame: AnyFrame, limit: int) -> int:
        """Pass messages up to the next suspects, or suspects, or set one message aside (PROTOCOL 6.6)."""
        number = self.end.processed + 1
        messages = isolation.messages(frame)
        start = number - frame.first
        is_whole = isinstance(messages, pa.RecordBatch) and self._takes_batches and frame.stamps is None
        stop = frame.count if is_whole else start + limit
        piece = isolation.piece(number, messages[start:stop])
        some = messages[start : start + piece.count]
        self._passed = piece.count
        if piece.error is not None:
            isolation.set_aside(self._observed(some), number, piece.error)
            return 1
        done = self._pass_piece(self._shaped(some, number))
        isolation.note_handled(piece)
        return done

    def _pass_piece(self, messages: list[Any] | pa.RecordBatch) -> int:
        """Pass messages to the node, and hash those that it took."""
        if isinstance(messages, pa.RecordBatch):
            done = self._handle_rows(messages)
            if self.hash is not None:
                self.hash.add(messages)
            return done
        ahead = None if self.hash is None else self.hash.pack(messages, len(messages))
        done = self._handle_messages(messages, None)
        if self.hash is not None and ahead is not None:
            self.hash.add_packed(ahead, done)
        return done

    def _observed(self, one: list[Any] | pa.RecordBatch) -> Any:
        """Return the message of a list of one, or the row of a batch as a dict, and report it as received."""
        observer = self._observer
        message = one.to_pylist()[0] if isinstance(one, pa.RecordBatch) else one[0]
        if observer is not None and isinstance(one, pa.RecordBatch):
            observer.rows_received(self.end.channel, one)
        elif observer is not None:
            observer.message_received(self.end.channel, message)
        return message

    def _failed(self) -> FailedMessage | FailedBatch | None:
        """Return the messages that the hook was called with, or None if the frame cannot be decoded."""
        if self._passed is None:
            return None
        first = last = self.end.processed + 1
        if isinstance(self._passed, int):
            last += self._passed - 1
        else:
            messages, rest = self._passed
            first = last = self.end.processed + len(messages) - length_hint(rest)
        if first < last:
            return FailedBatch(self.end.channel, first, last)
        frame = next(frame for frame in self.end.frames() if frame.last >= first)
        messages = decoded_messages(frame, self._codec)[first - frame.first :]  # anew, as they were before the hook
        return FailedMessage(self.end.channel, first, next(content_hashes(messages[:1], self._codec)))

    def _handle_rows(self, batch: pa.RecordBatch) -> int:
        self._context.key = None
        self._passed = rows = int(batch.num_rows)
        self._node.onBatch(batch, self._context)
        return rows

    def _handle_messages(self, messages: list[Any], keys: list[Any] | None) -> int:
        """Pass messages to the node, together or one by one. `keys` are the keys that the sender has read, or None."""
        if self._takes_lists:
            return self._handle_list(messages, keys)
        if self.key_of is None:
            return self._handle_each(messages)
        if keys is None:
            return self._handle_keyed(messages, self.key_of)
        return self._handle_with_keys(messages, keys)

    def _handle_list(self, messages: list[Any], keys: list[Any] | None) -> int:
        context, count = self._context, len(messages)
        self._passed = count
        if self.key_of is not None:
            context.keys = [self._key(message) for message in messages] if keys is None else keys[:]
        self._node.onMessages(messages[:], context)  # a copy, because a recording may hold the frame's own list
        context.keys = None
        return count

    def _key(self, message: Any) -> Any:
        assert self.key_of is not None
        try:
            return plain_key(self.key_of(message))
        except BaseException as error:  # because the key may be the user's own function
            raise NodeError(f"key of {self.end.channel}: {describe(error)}") from error

    def _handle_with_keys(self, messages: list[Any], keys: list[Any]) -> int:
        """Call `onMessage` for each message of a hash edge whose keys are known."""
        context, backpressure, on_message = self._context, self._backpressure, self._node.onMessage
        context.hooks.rest = rest = iter(messages)
        self._passed = (messages, rest)
        context.has_key = True
        for context.key, message in zip(keys, rest, strict=True):
            on_message(message, context)
            if backpressure.closed:
                break
        return len(messages) - length_hint(rest)

    def _handle_each(self, messages: list[Any]) -> int:
        """Call `onMessage` for each message. The iterator counts, because this loop is hot."""
        context, backpressure, on_message = self._context, self._backpressure, self._node.onMessage
        context.hooks.rest = rest = iter(messages)
        self._passed = (messages, rest)
        for message in rest:
            on_message(message, context)
            if backpressure.closed:
                break
        return len(messages) - length_hint(rest)

    def _handle_keyed(self, messages: list[Any], key_of: Callable[[Any], Any]) -> int:
        """Set `context.key` and call `onMessage` for each message of a hash edge."""
        context, backpressure, on_message = self._context, self._backpressure, self._node.onMessage
        context.hooks.rest = rest = iter(messages)
        self._passed = (messages, rest)
        context.has_key = True
        for message in rest:
            try:
                key = key_of(message)
                context.key = key if type(key) in PLAIN_KEYS else plain_key(key)
            except BaseException as error:  # because the key may be the user's own function
                raise NodeError(f"key of {self.end.channel}: {describe(error)}") from error
            on_message(message, context)
            if backpressure.closed:
                break
        return len(messages) - length_hint(rest)

    def _part(self, frame: AnyFrame, through: int) -> list[Any] | pa.RecordBatch:
        """Return the messages of a frame that are not processed, up to number `through`. May be none."""
        messages, first = self._messages(frame)
        return messages[max(0, self.end.processed + 1 - first) : max(0, through + 1 - first)]

    def _advance(self, limit: int) -> int:
        """Count up to `limit` messages of the head frame as processed. Return their number."""
        frame = self.end.head
        assert isinstance(frame, AnyFrame)
        count = min(limit, frame.last - self.end.processed)
        self.end.advance(count)
        return count

    def _is_apart(self, isolation: Isolation, frame: AnyFrame) -> bool:
        """Return whether messages of a frame are handled apart: some failed before, or cannot be decoded here."""
        if isolation.concerns(frame):
            return True
        try:
            self._messages(frame)
        except NotSerialisable:
            if not isolation.note_undecodable(frame, self.end.processed):
                raise
            return True
        return False

    def _messages(self, frame: AnyFrame) -> tuple[list[Any] | pa.RecordBatch, int]:
        """Return the messages of a frame, and the number of the first. Only messages to be processed are gathered."""
        if self._decoded is None or self._decoded[0] is not frame:
            messages, first = messages_of(frame, self._codec), frame.first
            self._passed = frame.first + frame.count - 1 - self.end.processed
            done = self.end.processed + 1 - first
            if done > 0 and not self._takes_messages and not isinstance(messages, pa.RecordBatch):
                messages, first = messages[done:], first + done  # because one that does not fit may be set aside
            self._decoded = (frame, self._shaped(messages, first), first)
        return self._decoded[1:]

    def _shaped(self, messages: list[Any] | pa.RecordBatch, first: int) -> list[Any] | pa.RecordBatch:
        """Convert decoded messages, numbered from `first` on, to the form that the node's hooks accept."""
        if isinstance(messages, pa.RecordBatch):
            if self._schema is not None and not messages.schema.equals(self._schema):
                # The sender checks the schema too. A restored batch, however, was sent by the graph of its snapshot.
                raise NodeError(
                    f"{self.end.channel}: a batch with the schema\n{messages.schema}\n"
                    f"came on an edge that has\n{self._schema}"
                )
            return messages if self._takes_batches else messages.to_pylist()
        return messages if self._takes_messages else self._gathered(messages, first)

    def _gathered(self, messages: list[Any], first: int) -> pa.RecordBatch:
        """Gather messages into one batch."""
        assert self._schema is not None  # because compiling the graph checks for a schema
        try:
            return fit_rows(messages, self._schema)
        except DoesNotFit as error:
            number = first + error.row
            self._passed = (messages[: number - self.end.processed], iter(()))  # so that this message alone has failed
            raise NodeError(f"{self.end.channel}: message {number} does not fit the edge's schema: {error}") from error
