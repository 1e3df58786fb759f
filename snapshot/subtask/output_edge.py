"""One outgoing edge at one subtask: from the message that a node sends to the channel that it takes.

Applies the edge's chained functions, asks the partitioner, and hands over to the `ChannelSender`. This is the
hot path of sending, so the way is chosen once, when the edge is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from snapshot.channel.channel_sender import ChannelSender
from snapshot.channel.extensions import NotSerialisable
from snapshot.channel.partitioning import EVERY, Partitioner, Shares
from snapshot.errors import NodeError
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.declarations import Transform, transformed
from snapshot.subtask.observer import ObservedSender

#: Rows of a larger batch leave in parts of so many: a part fits the cache while it is spread and encoded, and a marker
#: waits behind a half-written one for a fraction of a millisecond.
BATCH_ROWS_MAX: Final = 64 * 1024

_RecordBatch = pa.RecordBatch


class OutputEdge:
    """The edge from one subtask to all subtasks of `target` that it has a channel to.

    Parameters
    ----------
    source : Subtask
    target : str
        Name of the node at the other end.
    ends : mapping of int to ChannelSender or ObservedSender
        By the target subtask's index.
    partitioner : Partitioner
        Chooses among the indexes of `ends`.
    transforms : sequence of Transform
        ``map``, ``flatMap`` and ``filter`` of a stream, applied here, in the sending subtask.
    schema : pyarrow.Schema or None
        What every batch on this edge must have, if it was declared.
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
        #: sends a message along this edge
        self.emit: Callable[[Any], None] = self._transformed if transforms else self._partition

    def forbid(self, why: str) -> None:
        """Refuse whatever is sent, with these words, until they are ""."""
        for end in self.ends.values():
            end.forbid(why)

    def emit_to(self, message: Any, index: int) -> None:
        """Send to the subtask that the node named itself; chained functions do not apply to a directed message."""
        if index not in self.ends:
            raise NodeError(f"{self.source}: there is no channel to {Subtask(self.target, index)}")
        self._put(index, message)

    def emit_all(self, messages: list[Any]) -> None:
        """`emit` each of them, with a few calls for all."""
        kinds = set(map(type, messages))
        shares = None if self.transforms or _RecordBatch in kinds else self._shares(messages)
        if shares is None:
            for message in messages:
                self.emit(message)
            return
        for index, share in shares:
            try:
                self.ends[index].send_all(share, are_tuples=kinds == {tuple})
            except NotSerialisable as error:
                raise self._refused(index, error) from error

    def _shares(self, messages: list[Any]) -> Shares | None:
        try:
            return self.partitioner.share(messages)
        except Exception:  # noqa: BLE001  # one by one meets it again, and says of which message
            return None

    def _transformed(self, message: Any) -> None:
        for result in transformed(self.transforms, message):
            self._partition(result)

    def _partition(self, message: Any) -> None:
        """Choose a target for a message, and send it; keyed streams mostly take `direct_send` instead."""
        if type(message) is _RecordBatch:
            self._partition_batch(message)
            return
        try:
            index = self._choose(message)
        except Exception as error:  # the key may be the user's own function, which may raise anything
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
        except Exception as error:  # as above
            raise self._no_key(batch, error) from error
        for index, part in parts:
            self._put(index, part)

    def _no_key(self, message: Any, error: Exception) -> NodeError:
        return NodeError(
            f"{self.source}->{self.target}: a {type(message).__qualname__} cannot be spread: "
            f"{type(error).__name__}: {error}"
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
