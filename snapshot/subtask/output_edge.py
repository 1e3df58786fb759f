"""Send the messages of one subtask along one edge of the graph.

`OutputEdge` applies the chained functions, calls the partitioner, and passes each message to a `ChannelSender`. The
path of a message is chosen once, when the edge is made, because sending is a hot path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.partitioning import EVERY, HashPartitioner, Partitioner, Shares
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.error_text import headline
from cutline.snapshot.errors import NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.declarations import Transform
from cutline.snapshot.subtask.observer import ObservedSender
from cutline.snapshot.subtask.transforms import chained

#: rows of a batch; larger batches are sent in parts, because a part of this size fits the CPU cache. A marker waits for
#: the rest of a half-written part: a fraction of a millisecond.
BATCH_ROWS_MAX: Final = 64 * 1024

_RecordBatch = pa.RecordBatch


class OutputEdge:
    """The edge from one subtask to all subtasks of `target` to which `source` has a channel.

    Parameters
    ----------
    source : Subtask
    target : str
        Name of the target node.
    ends : mapping of int to ChannelSender or ObservedSender
        {index of the target subtask: channel sender}.
    partitioner : Partitioner
        Chooses among the indexes of `ends`.
    transforms : sequence of Transform
        ``map``, ``flatMap`` and ``filter`` of a stream, applied here, in the sending subtask.
    schema : pyarrow.Schema or None
        Schema of every batch on this edge, or None if none was declared.
    """

    def __init__(
        self,
        source: Subtask,
        target: str,
        ends: Mapping[int, ChannelSender | ObservedSender],
        partitioner: Partitioner,
        transforms: Sequence[Transform],
        schema: pa.Schema | None,
    ) -> None:
        self.source = source
        self.target = target
        self.ends = ends
        self.partitioner = partitioner
        self.schema = schema
        self.transforms = tuple(transforms)
        self._choose = partitioner.choose
        self._forbidden = ""
        #: function that sends a message along this edge
        self.emit: Callable[[Any], None] = self._transformed if transforms else self._partition
        self._transform = chained(transforms, f"{source}->{target}", self._partition)

    def forbid(self, why: str) -> None:
        """Refuse every message with the error text `why`. An empty `why` accepts messages again."""
        self._forbidden = why
        for end in self.ends.values():
            end.forbid(why)

    def emit_to(self, message: Any, index: int) -> None:
        """Send to the subtask that the node chose. Chained functions do not apply to a directed message."""
        if index not in self.ends:
            raise NodeError(f"{self.source}: there is no channel to {Subtask(self.target, index)}")
        self._put(index, message)

    def emit_all(self, messages: list[Any]) -> None:
        """Send many messages along this edge, with a few calls in all."""
        kinds = set(map(type, messages))
        shares = None if self.transforms or _RecordBatch in kinds else self._shares(messages)
        if shares is None:
            for message in messages:
                self.emit(message)
            return
        for index, share, keys in shares:
            try:
                self.ends[index].send_all(share, are_tuples=kinds == {tuple}, keys=keys)
            except NotSerialisable as error:
                raise self._refused(index, error) from error

    def _shares(self, messages: list[Any]) -> Shares | None:
        try:
            return self.partitioner.share(messages)
        except BaseException:  # noqa: BLE001  # because `emit` raises it again, and names the message
            return None

    def _transformed(self, message: Any) -> None:
        """Send what the chained functions make of a message, or of each row of a batch as a dict."""
        for each in message.to_pylist() if isinstance(message, _RecordBatch) else (message,):
            self._transform(each)

    def _partition(self, message: Any) -> None:
        """Send a message to its chosen target. Most messages of keyed streams use `direct_send` instead."""
        if type(message) is _RecordBatch:
            self._partition_batch(message)
            return
        try:
            index = self._choose(message)
        except BaseException as error:  # because the key may be the user's own function
            raise self._no_key(message, error) from error
        if index == EVERY:
            for target in self.ends:
                self._put(target, message)
            return
        try:
            self.ends[index].send(message)
        except NotSerialisable as error:
            raise self._refused(index, error) from error

    def _partition_batch(self, batch: pa.RecordBatch) -> None:
        if self.schema is not None and not batch.schema.equals(self.schema):
            raise NodeError(
                f"{self.source}->{self.target}: a batch with the schema\n{batch.schema}\n"
                f"was sent on an edge that has\n{self.schema}"
            )
        for start in range(0, batch.num_rows, BATCH_ROWS_MAX):
            self._partition_rows(batch.slice(start, BATCH_ROWS_MAX))

    def _partition_rows(self, batch: pa.RecordBatch) -> None:
        try:
            parts = self.partitioner.split(batch)
        except BaseException as error:  # because the key may be the user's own function
            raise self._no_key(batch, error) from error
        for index, part in parts:
            self._put(index, part)

    def _no_key(self, message: Any, error: BaseException) -> NodeError:
        if self._forbidden:  # the reason that the message has whatever its key is
            return NodeError(f"{self.source}: {self._forbidden}")
        what = "key of " if isinstance(self.partitioner, HashPartitioner) else ""
        return NodeError(
            f"{what}{self.source}->{self.target}: a {type(message).__qualname__} cannot be spread: {headline(error)}"
        )

    def _put(self, index: int, message: Any) -> None:
        end = self.ends[index]
        try:
            if type(message) is _RecordBatch:
                end.send_batch(message)
            else:
                end.send(message)
        except NotSerialisable as error:
            raise self._refused(index, error) from error

    def _refused(self, index: int, error: NotSerialisable) -> NodeError:
        return NodeError(f"{ChannelId(self.source, Subtask(self.target, index))}: {error}")
