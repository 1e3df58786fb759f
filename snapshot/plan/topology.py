"""Topology: the expanded graph without user code: nodes, edges, subtasks, channels, components.

Coordinator, workers and simulator share the topology, and every manifest holds it. So it must be readable where no
user module can be imported. Knows nothing of node classes, keys' functions or payloads.

``forward`` edges link subtask *i* to subtask *i*. All other edges link every source subtask to every target subtask.
A channel's wire number is its index in `Topology.channels`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.components import mark_reachable, strong_components
from cutline.snapshot.plan.modes import Mode, ModeRow, row_of

#: Number of key groups. A key group is the smallest unit that rescaling moves, so this is also the largest useful
#: parallelism. Flink's upper bound: fine enough for any cluster, and a group's number fits in 16 bits. Stored: never
#: change.
KEY_GROUPS: Final = 32_768


class Partitioning(Enum):
    """Division of an edge's messages among its target's subtasks. Values are stored: never rename."""

    FORWARD = "forward"  #: subtask i to subtask i
    REBALANCE = "rebalance"  #: round robin
    HASH = "hash"  #: by key group (`snapshot.channel.partitioning`)
    BROADCAST = "broadcast"  #: each message to every subtask
    DIRECTED = "directed"  #: to the subtask that the sender names


@dataclass(frozen=True, slots=True)
class Alignment:
    """Alignment of an edge: whether a receiver holds its channels until the markers of all have come (PROTOCOL 4)."""

    aligned: bool
    timeout: float | None  #: seconds after which an aligned edge is cut unaligned; None: never

    def __str__(self) -> str:
        if not self.aligned:
            return "unaligned"
        return "aligned" if self.timeout is None else f"aligned for {self.timeout:g} s"


UNALIGNED = Alignment(aligned=False, timeout=None)
ALIGNED = Alignment(aligned=True, timeout=None)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node of the graph, without its code."""

    name: str
    parallelism: int
    component: int  #: index into `Topology.components`
    is_source: bool
    is_sink: bool
    guarantee: str | None  #: level of a source or sink; None for other nodes
    class_name: str  #: ``module.Class``, for human readers
    acts_on_end: bool | None = None  #: the node has an `onEnd` that must be called once; None: it has not
    formerly: str | None = None  #: name of the node in older snapshots, from which this node takes over; None: none
    raised_version: int | None = None  #: `Node.stateVersion` of the states that the node writes; None: 1
    migrations: tuple[str, ...] | None = None  #: hooks with which the node reads states of older versions; None: none
    raised_message_version: int | None = None  #: `Node.messageVersion` of the messages that it takes; None: 1
    is_aggregate: bool | None = None  #: the node keeps totals in a store (PROTOCOL 13); None: not

    @property
    def state_version(self) -> int:
        """`Node.stateVersion` of the states that the node writes."""
        return self.raised_version or 1

    @property
    def message_version(self) -> int:
        """`Node.messageVersion` of the messages that the node takes."""
        return self.raised_message_version or 1


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """An edge of the graph, without its code."""

    source: str
    target: str
    partitioning: Partitioning
    alignment: Alignment
    in_cycle: bool  #: both ends are in one strongly connected component, so its out-buffers spill (PROTOCOL 9.2)
    reason: str  #: reason for the alignment, for human readers
    key: str | None  #: description of a hash edge's key; None for other partitionings
    on_error: str | None = None  #: node that gets the messages of this edge that fail at `target`; None: none

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Component:
    """A strongly connected part of the graph: the nodes of a cycle, or a node that is on no cycle."""

    nodes: tuple[str, ...]  #: in the order of declaration
    cyclic: bool


@dataclass(frozen=True)
class Topology:
    """All nodes and edges of a graph, expanded. Equal declarations give equal topologies."""

    name: str
    nodes: tuple[NodeSpec, ...]  #: in the order of declaration
    edges: tuple[EdgeSpec, ...]  #: in the order of declaration
    components: tuple[Component, ...]  #: in topological order: every edge leads to the same or a later component
    key_groups: int = KEY_GROUPS  #: number of key groups; another number only in a snapshot of another Cutline
    mode: Mode | None = None  #: what snapshots store; None: all state, in cuts by markers

    @cached_property
    def row(self) -> ModeRow:
        """The rules of the mode."""
        return row_of(self.mode)

    @cached_property
    def subtasks(self) -> tuple[Subtask, ...]:
        """All subtasks: nodes in the order of declaration, each by index."""
        return tuple(Subtask(node.name, index) for node in self.nodes for index in range(node.parallelism))

    @cached_property
    def aggregates(self) -> tuple[Subtask, ...]:
        """All subtasks of nodes that keep totals in a store, in the order of `subtasks`."""
        return tuple(subtask for subtask in self.subtasks if self._nodes[subtask.node].is_aggregate)

    @cached_property
    def channels(self) -> tuple[ChannelId, ...]:
        """All channels: edges in the order of declaration, then by source index, then by target index."""
        return tuple(channel for edge in self.edges for channel in self._expand(edge))

    def node(self, name: str) -> NodeSpec:
        """Return the node called `name`."""
        return self._nodes[name]

    def has_node(self, name: str) -> bool:
        """Return whether there is a node called `name`."""
        return name in self._nodes

    @cached_property
    def former_names(self) -> Mapping[str, str]:
        """{node: its former name}, of the nodes that take over from a node of an older snapshot."""
        return {node.name: node.formerly for node in self.nodes if node.formerly is not None}

    def component_of(self, node: str) -> Component:
        """Return the strongly connected part that `node` belongs to."""
        return self.components[self._nodes[node].component]

    def edge_of(self, channel: ChannelId) -> EdgeSpec:
        """Return the edge that `channel` belongs to."""
        return self.edge(channel.source.node, channel.target.node)

    def edge(self, source: str, target: str) -> EdgeSpec:
        """Return the edge from node `source` to node `target`."""
        return self._edges[source, target]

    def carries_dead_letters(self, edge: EdgeSpec) -> bool:
        """Return whether `edge` was made by `onError`. Only messages that fail are sent along such an edge."""
        return (edge.source, edge.target) in self._dead_letter_edges

    def inputs_of(self, subtask: Subtask) -> tuple[ChannelId, ...]:
        """Return the channels into `subtask`, in the order of `channels`."""
        return self._inputs[subtask]

    def outputs_of(self, subtask: Subtask) -> tuple[ChannelId, ...]:
        """Return the channels out of `subtask`, in the order of `channels`."""
        return self._outputs[subtask]

    def initiators(self) -> tuple[Subtask, ...]:
        """Return the subtasks that start a snapshot: those without inputs, and one in each part they do not reach.

        No initiator has an aligned input, because its inputs, if any, are on a cycle (PROTOCOL 3.5, 4.1, 4.2).
        """
        chosen: list[int] = []
        reached = [False] * len(self.subtasks)
        for component in strong_components(self._successors):
            if not reached[component[0]]:  # no edge leads here from an earlier component
                chosen.append(component[0])
                mark_reachable(self._successors, component[:1], reached)
        return tuple(self.subtasks[number] for number in sorted(chosen))

    def reachable(self, start: Iterable[Subtask]) -> tuple[Subtask, ...]:
        """Return the subtasks of `start` and all that their markers reach, in the order of `subtasks`."""
        reached = [False] * len(self.subtasks)
        mark_reachable(self._successors, [self._numbers[subtask] for subtask in start], reached)
        return tuple(subtask for subtask, is_reached in zip(self.subtasks, reached, strict=True) if is_reached)

    def place(self, worker_count: int) -> dict[Subtask, int]:
        """Return the worker number of each subtask.
        A node with at least `worker_count` subtasks puts subtask *i* on worker *i* mod `worker_count`, because its
        forward edges then stay inside workers. Smaller nodes take the next workers in turn, because they would
        otherwise crowd on the first worker.
        """
        placed: dict[Subtask, int] = {}
        turn = 0
        for node in self.nodes:
            start = 0 if node.parallelism >= worker_count else turn
            for index in range(node.parallelism):
                placed[Subtask(node.name, index)] = (start + index) % worker_count
            if node.parallelism < worker_count:
                turn = (turn + node.parallelism) % worker_count
        return placed

    def _expand(self, edge: EdgeSpec) -> Iterable[ChannelId]:
        targets = range(self._nodes[edge.target].parallelism)
        for index in range(self._nodes[edge.source].parallelism):
            for target in (index,) if edge.partitioning is Partitioning.FORWARD else targets:
                yield ChannelId(Subtask(edge.source, index), Subtask(edge.target, target))

    @cached_property
    def _nodes(self) -> dict[str, NodeSpec]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _edges(self) -> dict[tuple[str, str], EdgeSpec]:
        return {(edge.source, edge.target): edge for edge in self.edges}

    @cached_property
    def _dead_letter_edges(self) -> frozenset[tuple[str, str]]:
        return frozenset((edge.target, edge.on_error) for edge in self.edges if edge.on_error is not None)

    @cached_property
    def _numbers(self) -> dict[Subtask, int]:
        return {subtask: number for number, subtask in enumerate(self.subtasks)}

    @cached_property
    def _successors(self) -> list[list[int]]:
        return [[self._numbers[channel.target] for channel in self._outputs[subtask]] for subtask in self.subtasks]

    @cached_property
    def _inputs(self) -> dict[Subtask, tuple[ChannelId, ...]]:
        return self._by_subtask((channel.target, channel) for channel in self.channels)

    @cached_property
    def _outputs(self) -> dict[Subtask, tuple[ChannelId, ...]]:
        return self._by_subtask((channel.source, channel) for channel in self.channels)

    def _by_subtask(self, pairs: Iterable[tuple[Subtask, ChannelId]]) -> dict[Subtask, tuple[ChannelId, ...]]:
        gathered: dict[Subtask, list[ChannelId]] = {subtask: [] for subtask in self.subtasks}
        for subtask, channel in pairs:
            gathered[subtask].append(channel)
        return {subtask: tuple(channels) for subtask, channels in gathered.items()}
