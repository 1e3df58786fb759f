"""Read and decode the stored parts that the subtasks of one worker restore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.rerouting import ChannelEnd, ReroutedCount, reroute
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.undecodable import unbound_messages
from cutline.snapshot.coordinator.control import Deploy, Inheritance, RestoredSubtask
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId, Subtask, renamed_channel
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.stored.keyed_state import StoredSegments
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.stored.part import Handle, PartKind, decode_frames
from cutline.snapshot.subtask.inheritance import Donor, Donors
from cutline.snapshot.subtask.restored import Restored, RestoredChannels
from cutline.snapshot.worker.message_migration import migration_of


@dataclass(frozen=True, slots=True)
class RestoredParts:
    """Contents of all parts of one deployment, with checked checksums."""

    deploy: Deploy
    #: {subtask: body of its state part, or None for a fresh node}
    states: Mapping[Subtask, memoryview | None]
    channels: Mapping[Subtask, RestoredChannels]
    #: {subtask: segments of its keyed rows, in the order of application}
    rows: Mapping[Subtask, Sequence[Segment]] = field(default_factory=dict)
    #: {subtask: what it takes over from several}; its own state part is None
    donors: Mapping[Subtask, Donors] = field(default_factory=dict)
    #: messages of reshaped edges, as they were read and taken
    rerouted: tuple[ReroutedCount, ...] = ()
    #: {subtask: (is whole, encoded change) of its own state, oldest first}
    own: Mapping[Subtask, tuple[tuple[bool, memoryview], ...]] = field(default_factory=dict)
    #: {subtask: steps of the log that it repeats, oldest first}
    steps: Mapping[Subtask, tuple[memoryview, ...]] = field(default_factory=dict)

    def restored(self, at: RestoredSubtask, run: str) -> Restored:
        """Return what a subtask of the deployment restores in a run."""
        subtask = at.subtask
        return Restored(
            state=self.donors.get(subtask, self.states[subtask]),
            rows=self.rows.get(subtask, ()),
            own=self.own.get(subtask, ()),
            snapshot_id=0 if at.origin is None else at.origin.snapshot_id,
            needs_base=at.needs_base or (at.origin is not None and at.origin.run != run),
            steps=self.steps.get(subtask, ()),
            base=None if at.base is None else at.base.snapshot_id,
            version=at.version,
            lists_rows=at.groups is not None,
        )


#: ways out for a user whose messages are of classes that are gone
_WAYS_OUT: Final = (
    "Bring the class back, give it the old name (graph.alias), drop or replace the messages by number "
    "(SnapshotEditor.messages lists them), or give the edge onError="
)


def read_parts(
    deploy: Deploy,
    read: Callable[[Handle], memoryview],
    compiled: CompiledGraph,
    codec: Codec,
    *,
    reads_rows: bool = True,
) -> RestoredParts:
    """Read every part that `deploy` names.

    Parameters
    ----------
    deploy : Deploy
        The whole deployment, assembled from its deploy chunks.
    read : callable
        Returns the checked body of a part. Errors of `read` pass through.
    compiled : CompiledGraph
        The graph of the program.
    codec : Codec
        Decodes messages that are put on other channels by their keys.
    reads_rows : bool
        Whether keyed rows are read now. False: each piece is read when the restore takes it, because all rows together
        may exceed memory.

    Raises
    ------
    RestoreRefused
        if messages in flight have no place on the channels of the graph, or refer to classes that the program does not
        have and no dead-letter edge takes them.
    """
    subtasks = deploy.subtasks
    states = {each.subtask: None if each.state is None else read(each.state) for each in subtasks}
    counts: list[ReroutedCount] = []
    channels = {each.subtask: _channels(each, read, compiled, codec, counts) for each in subtasks}
    stored = {each.subtask: StoredSegments(each.rows, read) for each in subtasks if each.rows and each.version is None}
    rows = {subtask: tuple(segments) if reads_rows else segments for subtask, segments in stored.items()}
    donors = {each.subtask: _donors(each, each.inheritance, read) for each in subtasks if each.inheritance is not None}
    own = {each.subtask: tuple(_changes(each.own, read)) for each in subtasks if each.own}
    steps = {each.subtask: tuple(step for _, step in _changes(each.steps, read)) for each in subtasks if each.steps}
    for subtask, (first, *_) in steps.items():
        channels[subtask] = replace(channels[subtask], first_step=first)
    return RestoredParts(deploy, states, channels, rows, donors, tuple(counts), own, steps)


def _changes(handles: Iterable[Handle], read: Callable[[Handle], memoryview]) -> Iterator[tuple[bool, memoryview]]:
    for handle in handles:
        yield from decode_changes(read(handle), handle.name)


def _donors(restored: RestoredSubtask, inheritance: Inheritance, read: Callable[[Handle], memoryview]) -> Donors:
    states = [handle for handle in restored.donor_parts if handle.kind is PartKind.STATE]
    donors = []
    for state in states:
        own = [each for each in restored.donor_parts if each.kind is PartKind.OWN and each.subtask == state.subtask]
        is_inherited = state.subtask.index in inheritance.heir_of
        donors.append(Donor(state.subtask, read(state), tuple(_changes(own, read)), is_inherited))
    return Donors(tuple(donors), inheritance.is_ended, inheritance.is_exhausted, inheritance.seed)


def _check_classes(channel: ChannelId, frames: Iterable[Frame], codec: Codec) -> None:
    """Raise RestoreRefused if messages refer to classes or functions that the program does not have."""
    unbound = unbound_messages(frames, codec)
    if unbound:
        number, error = unbound[0]
        more = f"; {len(unbound) - 1:,} messages more cannot be read either" if len(unbound) > 1 else ""
        raise RestoreRefused(f"{channel}: message {number} in flight cannot be read here: {error}{more}. {_WAYS_OUT}")


def _channels(
    restored: RestoredSubtask,
    read: Callable[[Handle], memoryview],
    compiled: CompiledGraph,
    codec: Codec,
    counts: list[ReroutedCount],
) -> RestoredChannels:
    contents: dict[ChannelId, tuple[Frame, ...]] = {}
    names = dict(restored.renames)
    for handle in restored.channel_parts:
        assert handle.channel is not None
        channel = renamed_channel(handle.channel, names)
        contents[channel] = (*contents.get(channel, ()), *decode_frames(handle, read(handle)))
    old = {each.channel for edge in restored.reshaped for each in edge.old}
    for channel, frames_of in contents.items():
        if not compiled.has_dead_letters(channel.source.node, channel.target.node):
            _check_classes(channel, frames_of, codec)
        if restored.message_version is not None:
            migration = migration_of(compiled, channel, restored.message_version, is_kept=channel not in old)
            contents[channel] = frames_of if migration is None else migration.frames(frames_of, codec)
    frames = {channel: each for channel, each in contents.items() if channel not in old}
    processed, waves = dict(restored.processed), dict(restored.waves)
    is_closed: dict[ChannelId, bool] = {}
    for edge in restored.reshaped:
        found = reroute(edge, contents, compiled.key_of(edge.source, edge.target), codec)
        frames.update(found.frames)
        processed.update(found.processed)
        waves.update(found.waves)
        counts.extend(found.counts)
        is_closed.update((new.channel, new.end is ChannelEnd.CLOSED) for new in edge.new)
    return RestoredChannels(
        processed=processed,
        frames=frames,
        sent=dict(restored.sent),
        partitions=restored.partitions,
        suspects=restored.suspects,
        missing_ends=restored.missing_ends,
        waves=waves,
        reshaped=is_closed,
        fresh_outputs=restored.fresh_outputs,
        renames=names,
        state_version=restored.state_version,
    )
