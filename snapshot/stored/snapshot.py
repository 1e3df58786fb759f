"""Published snapshot as users read it: opened lazily, checked when read.

Owns the decoding of node states and channel states from parts. Must not know where parts are stored: a function that
the caller gives reads the bytes of a handle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, total_ordering
from typing import Any

import pyarrow as pa

from snapshot.channel.frame import Buffer, Frame, PayloadKind
from snapshot.channel.frame_codec import messages_of
from snapshot.channel.pickles import NotSerialisable
from snapshot.channel.serialization import Codec
from snapshot.errors import GraphError, RestoreRefused, SnapshotCorrupt
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.certificate import ReceivedEntry, SentEntry, problems
from snapshot.stored.manifest import Manifest
from snapshot.stored.node_state import NodeState
from snapshot.stored.part import Handle, PartKind, decode_frames, decode_part
from snapshot.stored.topology_record import topology_of_record


@total_ordering
class Snapshot:
    """A consistent global state of a run. The library makes the instances. Snapshots sort by id.

    Parameters
    ----------
    manifest : Manifest
    read : callable
        Returns the bytes of a stored part that is not inline. Raises SnapshotCorrupt if they are missing.
    codec : Codec
        A safe codec refuses states and messages that need pickle.

    Raises
    ------
    SnapshotCorrupt
        if the manifest contradicts itself, because its certificate does not hold.
    """

    def __init__(self, manifest: Manifest, read: Callable[[Handle], Buffer], codec: Codec) -> None:
        self.manifest = manifest
        self._read = read
        self._codec = codec
        self._topology = _topology_of(manifest)
        found = problems(self.channels, self._topology.subtasks, manifest.records, manifest.incarnation)
        if found:
            raise SnapshotCorrupt(f"{self}: its manifest is no exact cut: {'; '.join(found)}")

    @property
    def id(self) -> int:
        """Number of the snapshot; ascends within a run."""
        return self.manifest.snapshot_id

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.manifest.run

    @property
    def timestamp(self) -> float:
        """Seconds since the epoch at the trigger; information only."""
        return self.manifest.timestamp

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(handle.size for record in self.manifest.records for handle in record.handles)

    @property
    def pinned(self) -> bool:
        """Retention never removes the snapshot."""
        return self.manifest.pinned

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the graph's nodes."""
        return tuple(node.name for node in self._topology.nodes)

    @property
    def channels(self) -> tuple[ChannelId, ...]:
        """All channels of the run."""
        return self._topology.channels

    def node(self, node: str | Subtask) -> NodeSnapshot:
        """Return the recorded state of a node, or of one of its subtasks.

        Raises
        ------
        GraphError
            if the graph has no such node or subtask.
        """
        handles = [self._records[subtask].state for subtask in self._subtasks(node)]
        return NodeSnapshot(str(node), handles, self._open_state)

    def channel(self, source: str | Subtask, target: str | Subtask) -> ChannelSnapshot:
        """Return the recorded state of a channel.

        Raises
        ------
        GraphError
            if there is no such channel, or there are several. In the second case give subtasks instead of nodes.
        """
        sources, targets = self._subtasks(source), self._subtasks(target)
        found = [channel for channel in self.channels if channel.source in sources and channel.target in targets]
        if len(found) != 1:
            what = f"{len(found)} channels from {source} to {target}"
            advice = f"name one by its subtasks, as {found[0]}" if found else f"the graph's edges are {self._edges()}"
            raise GraphError(f"{self}: {what}; {advice}")
        return self._channel(found[0])

    def verify(self) -> None:
        """Read every part and check every byte. Runs no user code.

        Raises
        ------
        SnapshotCorrupt
            if a part is missing or damaged. The message names file, offset and fault.
        RestoreRefused
            if a part is of a format version that this Cutline does not read.
        """
        for record in self.manifest.records:
            for handle in record.handles:
                body = self._open(handle)
                if handle.kind is not PartKind.STATE:
                    decode_frames(handle, body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.manifest == other.manifest

    def __lt__(self, other: Snapshot) -> bool:
        return (self.id, self.run) < (other.id, other.run)

    def __hash__(self) -> int:
        return hash((self.run, self.id))

    def __repr__(self) -> str:
        return f"<snapshot {self.id} of run {self.run!r}>"

    def _repr_html_(self) -> str:
        """Return the drawn snapshot, for notebooks. Reads small parts only."""
        from snapshot.drawing.snapshot_card import card_of_snapshot  # the drawing room imports this module

        return card_of_snapshot(self)

    @cached_property
    def _records(self) -> dict[Subtask, Any]:
        return {record.subtask: record for record in self.manifest.records}

    def _subtasks(self, node: str | Subtask) -> list[Subtask]:
        name = node.node if isinstance(node, Subtask) else node
        found = [subtask for subtask in self._topology.subtasks if subtask.node == name]
        if not found:
            raise GraphError(f"{self}: no node {name!r}; the graph's nodes are {', '.join(self.nodes)}")
        if isinstance(node, str):
            return found
        if node not in found:
            raise GraphError(f"{self}: no {node}; node {name!r} has {len(found)} subtasks, counted from 0")
        return [node]

    def _edges(self) -> str:
        return ", ".join(str(edge) for edge in self._topology.edges)

    def _channel(self, channel: ChannelId) -> ChannelSnapshot:
        receiver, sender = self._records[channel.target], self._records[channel.source]
        received = next(entry for entry in receiver.received if entry.channel == channel)
        sent = next(entry for entry in sender.sent if entry.channel == channel)
        # PROTOCOL 1.3: the receiver's part, then the sender's.
        handles = [
            handle
            for record, kind in ((receiver, PartKind.RECEIVED), (sender, PartKind.SENT))
            for handle in record.handles
            if handle.kind is kind and handle.channel == channel
        ]
        return ChannelSnapshot(received, sent, lambda: [part for handle in handles for part in self._messages(handle)])

    def _open(self, handle: Handle) -> memoryview:
        return decode_part(handle, self._read(handle) if handle.path is not None else handle.inline or b"")

    def _open_state(self, handle: Handle) -> Any:
        return NodeState.decode(self._open(handle), self._codec).state

    def _messages(self, handle: Handle) -> list[list[Any] | pa.RecordBatch]:
        frames = decode_frames(handle, self._open(handle))
        return [self._decode(handle, frame) for frame in frames if frame.kind is not PayloadKind.END]

    def _decode(self, handle: Handle, frame: Frame) -> list[Any] | pa.RecordBatch:
        try:
            return messages_of(frame, self._codec)
        except NotSerialisable as error:
            raise RestoreRefused(f"{handle.name}: messages from {frame.first} cannot be read here: {error}") from error


class NodeSnapshot:
    """The recorded state of a node's subtasks."""

    def __init__(self, name: str, handles: list[Handle], open_state: Callable[[Handle], Any]) -> None:
        self._name = name
        self._handles = handles
        self._open_state = open_state

    @property
    def state(self) -> Any:
        """State that ``snapshotState`` returned. Decoded anew each time.

        Raises
        ------
        GraphError
            if the node has several subtasks.
        """
        if len(self._handles) != 1:
            advice = f"take .states, or ask for node(Subtask({self._name!r}, 0))"
            raise GraphError(f"node {self._name!r} has {len(self._handles)} subtasks: {advice}")
        return self._open_state(self._handles[0])

    @property
    def states(self) -> list[Any]:
        """States of all subtasks, by index. Decoded anew each time."""
        return [self._open_state(handle) for handle in self._handles]

    def __repr__(self) -> str:
        return f"<state of {self._name}, {sum(handle.size for handle in self._handles)} bytes>"


class ChannelSnapshot:
    """Messages of a channel that were sent before the sender's cut and not processed before the receiver's cut."""

    def __init__(
        self, received: ReceivedEntry, sent: SentEntry, parts: Callable[[], list[list[Any] | pa.RecordBatch]]
    ) -> None:
        self._received = received
        self._sent = sent
        self._parts = parts

    @property
    def sent(self) -> int:
        """Number of the last message that was sent before the sender's cut."""
        return self._sent.sent

    @property
    def processed(self) -> int:
        """Number of the last message that was processed before the receiver's cut."""
        return self._received.processed

    @property
    def messages(self) -> list[Any]:
        """All messages in order. Rows of batches are dicts, and the end of the stream is left out."""
        messages: list[Any] = []
        for part in self._parts():
            messages += part.to_pylist() if isinstance(part, pa.RecordBatch) else part
        return messages

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The record batches among the messages, in order."""
        return [part for part in self._parts() if isinstance(part, pa.RecordBatch)]

    def __repr__(self) -> str:
        waiting = self.sent - self.processed
        return f"<{self._sent.channel}: {waiting} messages in flight, {self.processed} processed of {self.sent} sent>"


def _topology_of(manifest: Manifest) -> Topology:
    try:
        return topology_of_record(manifest.topology)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotCorrupt(
            f"snapshot {manifest.snapshot_id} of run {manifest.run!r}: its topology cannot be read: {error!r}"
        ) from error
