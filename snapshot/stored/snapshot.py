"""Published snapshot as users read it: opened lazily, checked when read.

Owns the decoding of node states and channel states from parts. Must not know where parts are stored: a function that
the caller gives reads the bytes of a handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, total_ordering
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.frame import Buffer, Frame
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import GraphError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord, problems
from cutline.snapshot.stored.keyed_state import keyed_state, stored_rows
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.stored.part import Handle, PartKind, decode_frames, decode_part
from cutline.snapshot.stored.topology_record import topology_of_record


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
    backend : StateBackend, optional
        Backend that stores the snapshot, or None for a snapshot that is not stored.

    Raises
    ------
    SnapshotCorrupt
        if the manifest contradicts itself, because its certificate does not hold.
    """

    def __init__(
        self,
        manifest: Manifest,
        read: Callable[[Handle], Buffer],
        codec: Codec,
        *,
        backend: StateBackend | None = None,
    ) -> None:
        self.manifest = manifest
        self.codec = codec
        self.backend = backend
        self._read = read
        self._topology = _topology_of(manifest)
        found = problems(
            self.channels,
            self._topology.subtasks,
            manifest.records,
            manifest.incarnation,
            run=manifest.run,
            key_groups=self._topology.key_groups,
            former_names=self._topology.former_names,
        )
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
        """Bytes of all parts, those that older snapshots have too."""
        return sum(handle.size for record in self.manifest.records for handle in record.all_handles)

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
        return NodeSnapshot(str(node), self.records(node), self.read_part, self.codec)

    def channel(self, source: str | Subtask, target: str | Subtask) -> ChannelSnapshot:
        """Return the recorded state of a channel.

        Raises
        ------
        GraphError
            if there is no such channel, or there are several. In the second case give subtasks instead of nodes.
        """
        found = self.channels_between(source, target)
        if len(found) != 1:
            what = f"{len(found)} channels from {source} to {target}"
            raise GraphError(f"{self}: {what}; name one by its subtasks, as {found[0]}")
        return self._channel(found[0])

    def channels_between(self, source: str | Subtask, target: str | Subtask) -> list[ChannelId]:
        """Return the channels of an edge, or those of the given subtasks.

        Raises
        ------
        GraphError
            if there is no such channel.
        """
        sources, targets = self._subtasks(source), self._subtasks(target)
        found = [channel for channel in self.channels if channel.source in sources and channel.target in targets]
        if not found:
            what = f"0 channels from {source} to {target}"
            raise GraphError(f"{self}: {what}; the graph's edges are {self._edges()}")
        return found

    def records(self, node: str | Subtask) -> list[SubtaskRecord]:
        """Return the records of a node's subtasks, by index. Raises GraphError if the graph has no such node."""
        return [self._records[each] for each in self._subtasks(node)]

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
            for handle in record.all_handles:
                body = self.read_part(handle)
                if handle.kind.is_of_channel:
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
        from cutline.snapshot.drawing.snapshot_card import card_of_snapshot  # the drawing room imports this module

        return card_of_snapshot(self)

    @cached_property
    def _records(self) -> dict[Subtask, SubtaskRecord]:
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
        return ChannelSnapshot(
            received,
            sent,
            lambda: [self.messages_of(channel, frame) for frame in self.frames_of(channel) if not frame.is_control],
        )

    def frames_of(self, channel: ChannelId) -> list[Frame]:
        """Return the frames of a channel's messages in flight: the receiver's part, then the sender's (PROTOCOL 1.3).

        Raises
        ------
        SnapshotCorrupt
            if a part is missing or damaged.
        """
        ends = ((self._records[channel.target], PartKind.RECEIVED), (self._records[channel.source], PartKind.SENT))
        handles = [
            handle
            for record, kind in ends
            for handle in record.handles
            if handle.kind is kind and handle.channel == channel
        ]
        return [frame for handle in handles for frame in decode_frames(handle, self.read_part(handle))]

    def messages_of(self, channel: ChannelId, frame: Frame) -> list[Any] | pa.RecordBatch:
        """Return the messages of a frame of `frames_of`, or its record batch.

        Raises
        ------
        RestoreRefused
            if a message cannot be decoded here.
        """
        try:
            return messages_of(frame, self.codec)
        except NotSerialisable as error:
            where = f"{self}: {channel}: messages from {frame.first}"
            raise RestoreRefused(f"{where} cannot be read here: {error}") from error

    def read_part(self, handle: Handle) -> memoryview:
        """Return the body of a part of this snapshot after checking every byte. Raises SnapshotCorrupt if damaged."""
        return decode_part(handle, self._read(handle) if handle.path is not None else handle.inline or b"")


class NodeSnapshot:
    """The recorded state of a node's subtasks."""

    def __init__(
        self, name: str, records: Sequence[SubtaskRecord], read: Callable[[Handle], memoryview], codec: Codec
    ) -> None:
        self._name = name
        self._records = records
        self._read = read
        self._codec = codec

    @property
    def state(self) -> Any:
        """State that ``snapshotState`` returned. Decoded anew each time.

        Raises
        ------
        GraphError
            if the node has several subtasks, or keeps its state in deltas.
        """
        if len(self._records) != 1:
            advice = f"take .states, or ask for node(Subtask({self._name!r}, 0))"
            raise GraphError(f"node {self._name!r} has {len(self._records)} subtasks: {advice}")
        return self._state(self._records[0])

    @property
    def states(self) -> list[Any]:
        """States of all subtasks, by index. Decoded anew each time. Raise GraphError as `state`."""
        return [self._state(record) for record in self._records]

    @property
    def changes(self) -> list[list[Any]]:
        """For each subtask the whole state and then its deltas, as the hooks of a node with deltas returned them."""
        return [[self._codec.decode_state(body)["state"] for body in self._bodies(record)] for record in self._records]

    def keyedState(self, name: str) -> dict[Any, Any]:
        """Return one keyed state of all subtasks: ``{key: value}``, or a list or dict for each key.

        Raises
        ------
        GraphError
            if no key has a row of this state, or its rows are in a local database only.
        """
        try:
            return keyed_state(list(map(stored_rows, self._records)), name, self._read, self._codec)
        except KeyError as error:
            names = error.args[0]
            raise GraphError(f"node {self._name!r} has no rows of a state {name!r}; there are {names}") from None

    def _state(self, record: SubtaskRecord) -> Any:
        if record.own:
            raise GraphError(f"node {self._name!r} keeps its state in deltas: take .changes")
        return NodeState.decode(self._read(record.state), self._codec).state

    def _bodies(self, record: SubtaskRecord) -> list[memoryview]:
        if not record.own:
            raise GraphError(f"node {self._name!r} keeps its state whole: take .state")
        changes = [each for handle in record.own for each in decode_changes(self._read(handle), handle.name)]
        newest_whole = max(number for number, (is_whole, _) in enumerate(changes) if is_whole)
        return [body for _, body in changes[newest_whole:]]

    def __repr__(self) -> str:
        size = sum(record.state_size for record in self._records)
        return f"<state of {self._name}, {size} bytes>"


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
