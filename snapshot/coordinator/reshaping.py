"""Plan the channels of edges whose nodes have another parallelism than in a snapshot, or that are divided otherwise.

Owns which old channels each new subtask reads, the numbers with which new channels begin, and which of them have ended
(PROTOCOL 6.8 to 6.10). Must not read messages. `snapshot.channel.rerouting` puts the messages on the channels.

Old subtasks are i at the edge's source and j at its target, new subtasks m and k. Subtask k takes over from its
*donors*, whose key groups it owns now. The *heir* of an old subtask owns its first key group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from cutline.snapshot.channel.partitioning import donors_of, heir_of
from cutline.snapshot.channel.rerouting import (
    ChannelEnd,
    NewChannel,
    OldChannel,
    ReroutedCount,
    ReshapedEdge,
    Route,
    Waves,
)
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import EdgeSpec, Partitioning, Topology
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.renaming import renames, with_present_names
from cutline.snapshot.stored.topology_record import topology_of_record

_WAY_OUT: Final = "Submit it with the parallelism of the snapshot, or restore an older snapshot"
_WAY_OUT_OF_MESSAGES: Final = (
    f'{_WAY_OUT}, or one that was taken with alignment="aligned", which has no messages in flight'
)


def carries_end(topology: Topology, edge: EdgeSpec) -> bool:
    """Return whether the end of the sender is a message of the edge. A cycle ends as a whole (PROTOCOL 5)."""
    return edge.target not in topology.component_of(edge.source).nodes


class StoredChannels:
    """Numbers, waves and statuses of a snapshot, by channel and by subtask."""

    def __init__(self, manifest: Manifest) -> None:
        self.where = f"run {manifest.run!r}, snapshot {manifest.snapshot_id}"
        self.statuses: dict[Subtask, SubtaskStatus] = {each.subtask: each.status for each in manifest.records}
        sent = {entry.channel: entry.sent for record in manifest.records for entry in record.sent}
        #: {channel: (p, S)}
        self.numbers: dict[ChannelId, tuple[int, int]] = {
            entry.channel: (entry.processed, sent[entry.channel])
            for record in manifest.records
            for entry in record.received
        }
        self.waves: dict[ChannelId, Waves] = {
            each.channel: each.waves for record in manifest.records for each in record.waves or ()
        }

    def ended(self, subtask: Subtask) -> bool:
        """Return whether a subtask of the snapshot had ended."""
        return self.statuses[subtask].ended

    def in_flight(self, channel: ChannelId, *, carries_end: bool) -> int:
        """Return the number of messages in flight, without the end of the stream."""
        processed, sent = self.numbers[channel]
        has_end = carries_end and self.ended(channel.source) and processed < sent
        return sent - processed - has_end

    def has_processed_end(self, channel: ChannelId) -> bool:
        """Return whether the receiver of a channel that carries an end has processed it."""
        processed, sent = self.numbers[channel]
        return self.ended(channel.source) and processed == sent


@dataclass(frozen=True)
class Reshaping:
    """The plan of one edge.

    Parameters
    ----------
    topology, before : Topology
        The graph now, and that of the snapshot.
    edge, old_edge : EdgeSpec
        The edge in each.
    stored : StoredChannels
    """

    topology: Topology
    before: Topology
    edge: EdgeSpec
    old_edge: EdgeSpec
    stored: StoredChannels
    _channels: dict[tuple[int, int], ChannelId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for channel in self.before.channels:
            if (channel.source.node, channel.target.node) == (self.old_edge.source, self.old_edge.target):
                self._channels[channel.source.index, channel.target.index] = channel

    # ---------------------------------------------------------------- geometry

    @cached_property
    def _sources(self) -> tuple[int, int]:
        return _parallelisms(self.before, self.old_edge.source, self.topology, self.edge.source)

    @cached_property
    def _targets(self) -> tuple[int, int]:
        return _parallelisms(self.before, self.old_edge.target, self.topology, self.edge.target)

    def _donors(self, k: int) -> list[int]:
        return self._donors_of[k]

    @cached_property
    def _donors_of(self) -> list[list[int]]:
        return [donors_of(k, *self._targets) for k in range(self._targets[1])]

    @cached_property
    def _takers_of(self) -> list[list[int]]:
        """Subtasks that take over from each old receiver."""
        takers: list[list[int]] = [[] for _ in range(self._targets[0])]
        for k, donors in enumerate(self._donors_of):
            for j in donors:
                takers[j].append(k)
        return takers

    @cached_property
    def _is_forward(self) -> bool:
        return self.edge.partitioning is Partitioning.FORWARD

    @property
    def is_reshaped(self) -> bool:
        """True if the channels of the edge are other channels now, or hold other messages."""
        is_alike = (self.edge.partitioning, self.edge.key) == (self.old_edge.partitioning, self.old_edge.key)
        return not is_alike or self._sources[0] != self._sources[1] or self._targets[0] != self._targets[1]

    @property
    def _has_new_key(self) -> bool:
        """True if a key decides the receiver now that did not decide it in the snapshot."""
        kept = (Partitioning.HASH, self.edge.key)
        return self.edge.partitioning is Partitioning.HASH and (self.old_edge.partitioning, self.old_edge.key) != kept

    @cached_property
    def _in_flight(self) -> dict[tuple[int, int], int]:
        """{(i, j): number of messages in flight without the end}."""
        has_end = carries_end(self.before, self.old_edge)
        return {at: self.stored.in_flight(channel, carries_end=has_end) for at, channel in self._channels.items()}

    @property
    def in_flight(self) -> dict[ChannelId, tuple[int, bool]]:
        """{old channel: number of messages in flight, and whether each reader takes a copy of all}."""
        copies = self._route is Route.COPIES
        return {self._channels[at]: (count, copies) for at, count in self._in_flight.items()}

    # ---------------------------------------------------------------- the plan

    def plan(self, k: int) -> ReshapedEdge:
        """Return what subtask k of the target restores."""
        ends = self.ends()
        return ReshapedEdge(
            source=self.edge.source,
            target=self.edge.target,
            index=k,
            route=self._route,
            parallelism_before=self._targets[0],
            parallelism=self._targets[1],
            wave=self._wave,
            old=tuple(self._old.get(k, ())),
            new=tuple(
                NewChannel(channel, self.sent(channel.source.index), ends[channel.source.index, k])
                for channel in self.topology.inputs_of(Subtask(self.edge.target, k))
                if channel.source.node == self.edge.source
            ),
        )

    def sent(self, m: int) -> int:
        """Return the number of the last message of subtask m of the source: B of PROTOCOL 6.8, alike for each k."""
        return self._sent[m]

    @cached_property
    def _sent(self) -> list[int]:
        sent = [1] * self._sources[1]
        for (i, _), channel in self._channels.items():
            processed, last = self.stored.numbers[channel]
            sent[heir_of(i, *self._sources)] += last - processed
        return sent

    @cached_property
    def _old(self) -> dict[int, list[OldChannel]]:
        """{k: old channels that k reads}."""
        found: dict[int, list[OldChannel]] = {}
        for (i, j), channel in self._channels.items():
            old = OldChannel(channel, heir_of(i, *self._sources), self.stored.waves.get(channel, ()))
            for k in self._readers(i, j):
                found.setdefault(k, []).append(old)
        return found

    @cached_property
    def _wave(self) -> int:
        waves = [wave for channel in self._channels.values() for _, wave in self.stored.waves.get(channel, ())]
        return 1 + max(waves, default=0)

    @cached_property
    def _route(self) -> Route:
        match self.old_edge.partitioning:
            case Partitioning.BROADCAST:
                return Route.COPIES
            case _ if self._targets[1] == 1:
                return Route.WHOLE
            case _ if self._has_new_key:
                return Route.BY_NEW_KEY
            case Partitioning.HASH if self._targets[0] != self._targets[1]:
                return Route.BY_KEY
            case _:
                return Route.WHOLE

    def _readers(self, i: int, j: int) -> Iterable[int]:
        """Return the subtasks that may get messages of the old channel (i, j)."""
        parallelism = self._targets[1]
        if parallelism == 1:
            return [0]
        if self._route is Route.BY_NEW_KEY:
            return range(parallelism)
        match self.old_edge.partitioning:
            case Partitioning.HASH if self._targets[0] == parallelism:
                return [j]
            case Partitioning.HASH:  # and the subtask that the sender may have named
                return dict.fromkeys([*self._takers_of[j], j] if j < parallelism else self._takers_of[j])
            case Partitioning.DIRECTED:
                return [j] if j < parallelism else []
            case Partitioning.BROADCAST:
                return self._takers_of[j]
            case Partitioning.FORWARD | Partitioning.REBALANCE:
                return [heir_of(i, *self._sources) if self._is_forward else heir_of(j, *self._targets)]

    # ---------------------------------------------------------------- ends

    def ends(self) -> dict[tuple[int, int], ChannelEnd]:
        """Return whether each new channel (m, k) has ended (PROTOCOL 6.10, ends of reshaped edges)."""
        return self._ends

    @cached_property
    def _ends(self) -> dict[tuple[int, int], ChannelEnd]:
        sources, targets = range(self._sources[1]), range(self._targets[1])
        return {(m, k): self._end(m, k) for m in sources for k in targets if not self._is_forward or m == k}

    def _end(self, m: int, k: int) -> ChannelEnd:
        if not carries_end(self.topology, self.edge):
            return ChannelEnd.OPEN
        keeps_sources = self._sources[0] == self._sources[1]
        ended = [m] if keeps_sources else list(range(self._sources[0]))
        if not all(self.stored.ended(Subtask(self.old_edge.source, i)) for i in ended):
            return ChannelEnd.OPEN
        if not all(self._has_closed(i, k) for i in ended):
            return ChannelEnd.ENDING
        if any(self._in_flight.get((i, j), 0) for i in ended for j in self._strays(k)):
            return ChannelEnd.ENDING
        return ChannelEnd.CLOSED

    def _strays(self, k: int) -> Iterable[int]:
        """Return old receivers whose messages may go to k although k takes over nothing from them."""
        if self._route is Route.BY_NEW_KEY:
            return range(self._targets[0])
        return [k] if self.old_edge.partitioning is Partitioning.DIRECTED else []

    def _has_closed(self, i: int, k: int) -> bool:
        """Return whether all from which k takes over have processed the end of the old sender i."""
        channels = (self._channels.get((i, j)) for j in self._donors(k))
        return all(channel is None or self.stored.has_processed_end(channel) for channel in channels)

    @cached_property
    def _had_end(self) -> set[int]:
        """Old subtasks of the target at which `onEnd` of this edge was called."""
        waiting = {j for (_, j), channel in self._channels.items() if not self.stored.has_processed_end(channel)}
        return {j for _, j in self._channels} - waiting

    # ---------------------------------------------------------------- refusals

    def check(self, *, has_divided_state: bool) -> None:
        """Refuse what cannot be mapped.

        Parameters
        ----------
        has_divided_state : bool
            Whether the target keeps own state by partitions.

        Raises
        ------
        RestoreRefused
        """
        reason, way_out = self._cycle_refusal() or self._end_refusal(), _WAY_OUT
        if reason is None and any(self._in_flight.values()):
            reason, way_out = self._message_refusal(has_divided_state), _WAY_OUT_OF_MESSAGES
        if reason is not None:
            raise RestoreRefused(f"{self.stored.where}: edge {self.edge}: {reason}. {way_out}")

    def _cycle_refusal(self) -> str | None:
        is_inside = [not carries_end(self.topology, self.edge), not carries_end(self.before, self.old_edge)]
        if not any(is_inside):
            return None
        nodes = ((self.old_edge.source, self._sources[0]), (self.old_edge.target, self._targets[0]))
        ended = [s for node, count in nodes for i in range(count) if self.stored.ended(s := Subtask(node, i))]
        return f"{ended[0]} has ended, and with it the cycle of the edge" if ended else None

    def _end_refusal(self) -> str | None:
        if not carries_end(self.topology, self.edge) or not self.topology.node(self.edge.target).acts_on_end:
            return None
        open_receivers = {k for (_, k), end in self.ends().items() if end is not ChannelEnd.CLOSED}
        for k in range(self._targets[1]):
            donors = self._donors(k)
            had = [j for j in donors if j in self._had_end]
            if had and k in open_receivers:
                return (
                    f"onEnd({self.edge.source}) was called at {_named(self.old_edge.target, had)}, and would be called "
                    f"again at {self.edge.target}[{k}], which takes over from {_named(self.old_edge.target, donors)}"
                )
        return None

    def _message_refusal(self, has_divided_state: bool) -> str | None:
        """Return why the messages in flight have no place in the new graph, with their number, or None."""
        count = sum(self._in_flight.values())
        flight = f"{count:,} messages are in flight"
        old, targets = self.old_edge.partitioning, self._targets
        if self._route is Route.BY_NEW_KEY:
            return None
        if old is Partitioning.DIRECTED:
            lost = sum(n for (_, j), n in self._in_flight.items() if j >= targets[1])
            if lost:
                return f"{lost:,} messages are in flight to subtasks above {targets[1] - 1}, which the graph has not"
        if old is Partitioning.BROADCAST:
            return self._copies_refusal()
        if old is Partitioning.FORWARD and has_divided_state and targets[0] != targets[1]:
            return f"{flight}, and {self.edge.target} keeps its own state by key groups, which do not decide their way"
        if targets[1] == 1:
            return None
        if self._is_forward and old in (Partitioning.HASH, Partitioning.DIRECTED):
            return f"{flight}, which were divided ({old.value}), and a forward edge has one way for each sender"
        if old is Partitioning.HASH and self.edge.key is None:
            return f"{flight}, which were divided by the key {self.old_edge.key}, and the edge has no key now"
        return None

    def _copies_refusal(self) -> str | None:
        if self._targets[1] > 1 and (self._is_forward or self._has_new_key):
            ways = "a forward edge has one way for each sender" if self._is_forward else "a keyed edge one for each key"
            return f"{sum(self._in_flight.values()):,} messages are in flight to all subtasks, and {ways}"
        if self._targets[0] == self._targets[1]:
            return None
        for k in range(self._targets[1]):
            donors = self._donors(k)
            for i in range(self._sources[0]):
                counts = [self._in_flight[i, j] for j in donors if (i, j) in self._in_flight]
                if len(dict.fromkeys(counts)) > 1:
                    return (
                        f"{self.edge.target}[{k}] takes over from {_named(self.old_edge.target, donors)}, for which "
                        f"{self.old_edge.source}[{i}] has {_listed(counts)} messages in flight, and not the same"
                    )
        return None


def _parallelisms(before: Topology, old: str, now: Topology, new: str) -> tuple[int, int]:
    return before.node(old).parallelism, now.node(new).parallelism


def _named(node: str, indexes: Sequence[int]) -> str:
    return _listed([f"{node}[{index}]" for index in indexes])


def _listed(values: Iterable[object]) -> str:
    texts = list(map(str, values))
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def reshaped_edges(topology: Topology, before: Topology, stored: StoredChannels) -> dict[tuple[str, str], Reshaping]:
    """Return the plans of the reshaped edges, by source and target. Refuses nothing: see `Reshaping.check`."""
    old_edges: Mapping[tuple[str, str], EdgeSpec] = {(edge.source, edge.target): edge for edge in before.edges}
    found: dict[tuple[str, str], Reshaping] = {}
    for edge in topology.edges:
        old = old_edges.get((edge.source, edge.target))
        if old is None:
            continue
        plan = Reshaping(topology, before, edge, old, stored)
        if plan.is_reshaped:
            found[edge.source, edge.target] = plan
    return found


def rerouting_problems(topology: Topology, manifest: Manifest, counts: Iterable[ReroutedCount]) -> list[str]:
    """Return the faults of a restore's messages in flight. Empty when each message has its one place (PROTOCOL 6.12).

    Parameters
    ----------
    topology : Topology
        The graph now.
    manifest : Manifest
        The restored snapshot.
    counts : iterable of ReroutedCount
        What all workers have read and taken.
    """
    manifest = with_present_names(manifest, renames(topology, topology_of_record(manifest.topology)))
    stored = StoredChannels(manifest)
    found: dict[ChannelId, list[ReroutedCount]] = {}
    for count in counts:
        found.setdefault(count.channel, []).append(count)
    problems = []
    for plan in reshaped_edges(topology, topology_of_record(manifest.topology), stored).values():
        for channel, (due, is_copied) in plan.in_flight.items():
            readers = found.get(channel, [])
            read = {count.messages for count in readers}
            if read - {due} or (due and not readers):
                problems.append(
                    f"{channel}: {due:,} messages were in flight, but {_listed(sorted(read) or [0])} were read"
                )
            taken = [count.taken for count in readers]
            if any(each != due for each in taken) if is_copied else sum(taken) != due:
                problems.append(
                    f"{channel}: {due:,} messages were in flight, but {_listed(taken or [0])} were restored"
                )
    return problems
