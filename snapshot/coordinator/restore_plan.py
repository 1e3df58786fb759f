"""Show what a restore does, as data that prints: a line for each node and each edge of the graph and of the snapshot.

Owns which nodes and edges are the same in a graph and in a snapshot. `snapshot.coordinator.recovery` plans the restore
itself, and refuses by these lines.

::

    = as in the snapshot    + not in the snapshot    - only in the snapshot    ~ an edge that divides messages otherwise
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from cutline.snapshot.channel.partitioning import groups_of
from cutline.snapshot.coordinator.reshaping import StoredChannels, carries_end
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.plan.topology import EdgeSpec, NodeSpec, Partitioning, Topology
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.manifest import Manifest


class Change(StrEnum):
    """Difference between a graph and a snapshot. All but SAME need ``allow={"changedGraph"}``."""

    SAME = "="
    ADDED = "+"
    REMOVED = "-"
    CHANGED = "~"


@dataclass(frozen=True, slots=True)
class NodeLine:
    """Effect of a restore on one node."""

    change: Change
    name: str
    formerly: str | None  #: name of the node in the snapshot, where it is another
    parallelism_before: int | None  #: number of subtasks in the snapshot; None for a new node
    parallelism: int | None  #: number of subtasks now; None for a removed node
    version_before: int | None  #: `stateVersion` in the snapshot; None for a new node
    version: int | None  #: `stateVersion` now; None for a removed node
    message_version_before: int | None  #: `messageVersion` in the snapshot; None for a new node
    message_version: int | None  #: `messageVersion` now; None for a removed node
    state_bytes: int  #: stored bytes of all state but rows of keyed state
    row_bytes: int  #: stored bytes of keyed state, with older values of rows that changed
    rows: int  #: stored rows in these bytes
    moved_bytes: int  #: about so many of `row_bytes` go to another subtask
    moved_rows: int  #: about so many of `rows` go to another subtask

    def __str__(self) -> str:
        facts = [
            _WORDS.get(self.change, ""),
            f"parallelism {_both(self.parallelism_before, self.parallelism)}",
            f"formerly {self.formerly}" if self.formerly else "",
            self._change_of("version", self.version_before, self.version),
            self._change_of("messages of version", self.message_version_before, self.message_version),
            f"state of {self.state_bytes:,} bytes" if self.state_bytes else "",
            f"keyed state of {_amount(self.rows, self.row_bytes)}" if self.row_bytes else "",
            f"{_amount(self.moved_rows, self.moved_bytes)} move to other subtasks" if self.moved_bytes else "",
        ]
        return f"{self.change} node {self.name}: {', '.join(filter(None, facts))}"

    def _change_of(self, what: str, before: int | None, now: int | None) -> str:
        return f"{what} {before} -> {now}" if self.change is Change.SAME and before != now else ""


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """Effect of a restore on the messages in flight of one edge."""

    change: Change
    source: str
    target: str
    partitioning_before: str | None  #: division of the messages in the snapshot; None for a new edge
    partitioning: str | None  #: division of the messages now; None for a removed edge
    kept: int  #: messages that stay on their channels
    rerouted: int  #: messages that are put on other channels
    dropped: int  #: messages of a removed edge

    def __str__(self) -> str:
        counts = [
            f"{count:,} messages {what}"
            for count, what in ((self.kept, "kept"), (self.rerouted, "rerouted"), (self.dropped, "dropped"))
            if count
        ]
        facts = [_WORDS.get(self.change, ""), _both(self.partitioning_before, self.partitioning), *counts]
        if {self.partitioning_before, self.partitioning} == {_FORWARD, _REBALANCE}:
            facts.append("the default is forward between nodes of equal parallelism, else rebalance")
        return f"{self.change} edge {self.source}->{self.target}: {', '.join(filter(None, facts))}"


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Effect of a restore of a snapshot into a graph. Nothing is changed by the plan."""

    run: str  #: run of the snapshot
    snapshot_id: int | None  #: None: a fresh start
    lines: tuple[NodeLine | EdgeLine, ...]  #: nodes of the graph, removed nodes, edges of the graph, removed edges
    reason: str | None  #: why the restore is refused, as `RestoreRefused` has it; None: it is not

    @property
    def isRefused(self) -> bool:
        """True if `submit` refuses the restore."""
        return self.reason is not None

    def __str__(self) -> str:
        origin = "a fresh start" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        refusal = [] if self.reason is None else [f"refused: {self.reason}"]
        return "\n".join([f"run {self.run!r}, {origin}", *(f"  {line}" for line in self.lines), *refusal])

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON."""
        return {
            "run": self.run,
            "snapshot": self.snapshot_id,
            "isRefused": self.isRefused,
            "reason": self.reason,
            "lines": [{"kind": _KINDS[type(line)], **asdict(line)} for line in self.lines],
        }


_WORDS: Mapping[Change, str] = {Change.ADDED: "not in the snapshot", Change.REMOVED: "not in the graph"}

_KINDS: Mapping[type, str] = {NodeLine: "node", EdgeLine: "edge"}

_FORWARD, _REBALANCE = Partitioning.FORWARD.value, Partitioning.REBALANCE.value


def _both(before: object, now: object) -> str:
    """Return a fact before and now, or the only one."""
    if before is None or now is None or before == now:
        return str(before if now is None else now)
    return f"{before} -> {now}"


def _amount(rows: int, size: int) -> str:
    return f"{rows:,} rows ({size:,} bytes)"


# ---------------------------------------------------------------- lines


def is_another_graph(topology: Topology, stored: Topology) -> bool:
    """Return whether a line is not SAME. Parallelism is no difference, because a restore divides the state anew.

    Neither are alignment, class names and the graph's name, because they do not change stored state.
    """
    nodes = [{node.name for node in each.nodes} for each in (topology, stored)]
    edges = [{(edge.source, edge.target): division(edge) for edge in each.edges} for each in (topology, stored)]
    return nodes[0] != nodes[1] or edges[0] != edges[1]


def division(edge: EdgeSpec) -> str:
    """Return how an edge divides its messages, for human readers."""
    return edge.partitioning.value if edge.key is None else f"{edge.partitioning.value} by {edge.key}"


def plan_lines(
    topology: Topology,
    stored: Topology,
    manifest: Manifest,
    names: Mapping[str, str],
    reshaped: Collection[tuple[str, str]],
) -> tuple[NodeLine | EdgeLine, ...]:
    """Return the lines of a restore.

    Parameters
    ----------
    topology, stored : Topology
        The graph now, and that of the snapshot.
    manifest : Manifest
        Like `stored` with the present names of nodes.
    names : mapping of str to str
        {name in the snapshot: name now} of renamed nodes.
    reshaped : collection of (str, str)
        Source and target of the edges whose messages are put on other channels.
    """
    records: dict[str, list[SubtaskRecord]] = {}
    for record in manifest.records:
        records.setdefault(record.subtask.node, []).append(record)
    former = {now: before for before, now in names.items()}
    nodes = [*topology.nodes, *(node for node in stored.nodes if not topology.has_node(node.name))]
    lines = [
        _node_line(
            topology.node(node.name) if topology.has_node(node.name) else None,
            stored.node(node.name) if stored.has_node(node.name) else None,
            former.get(node.name),
            records.get(node.name, []),
        )
        for node in nodes
    ]
    return (*lines, *_edge_lines(topology, stored, StoredChannels(manifest), reshaped))


def fresh_lines(topology: Topology) -> tuple[NodeLine | EdgeLine, ...]:
    """Return the lines of a fresh start."""
    nodes = [_node_line(node, None, None, []) for node in topology.nodes]
    edges = [EdgeLine(Change.ADDED, edge.source, edge.target, None, division(edge), 0, 0, 0) for edge in topology.edges]
    return (*nodes, *edges)


def _node_line(
    now: NodeSpec | None, before: NodeSpec | None, formerly: str | None, records: list[SubtaskRecord]
) -> NodeLine:
    change = Change.ADDED if before is None else Change.REMOVED if now is None else Change.SAME
    name = now.name if now is not None else before.name if before is not None else ""
    handles = [handle for record in records for handle in (record.state, *(record.own or ()))]
    entries = [(record.subtask.index, entry) for record in records for entry in record.rows or ()]
    counts = [_counts(entry) for _, entry in entries]
    moved: list[tuple[int, int]] = []
    if now is not None and before is not None and now.parallelism != before.parallelism:
        moved = [_moved(index, entry, now.parallelism) for index, entry in entries]
    return NodeLine(
        change=change,
        name=name,
        formerly=formerly,
        parallelism_before=None if before is None else before.parallelism,
        parallelism=None if now is None else now.parallelism,
        version_before=None if before is None else before.state_version,
        version=None if now is None else now.state_version,
        message_version_before=None if before is None else before.message_version,
        message_version=None if now is None else now.message_version,
        state_bytes=sum(handle.size for handle in handles),
        row_bytes=sum(size for _, size in counts),
        rows=sum(rows for rows, _ in counts),
        moved_bytes=sum(size for _, size in moved),
        moved_rows=sum(rows for rows, _ in moved),
    )


def _counts(entry: ListEntry, groups: int | None = None) -> tuple[int, int]:
    """Return rows and bytes of `groups` key groups of an entry, or of its clip. Rows lie evenly in key groups."""
    assert entry.handle.groups is not None and entry.handle.rows is not None
    lo, hi = entry.handle.groups
    share = ((entry.hi - entry.lo) if groups is None else groups) / (hi - lo)
    return round(entry.handle.rows * share), round(entry.handle.size * share)


def _moved(index: int, entry: ListEntry, parallelism: int) -> tuple[int, int]:
    """Return about how much of an entry goes to a subtask of another index."""
    groups = groups_of(index, parallelism) if index < parallelism else range(0)
    stays = max(0, min(entry.hi, groups.stop) - max(entry.lo, groups.start))
    return _counts(entry, entry.hi - entry.lo - stays)


def _edge_lines(
    topology: Topology, stored: Topology, channels: StoredChannels, reshaped: Collection[tuple[str, str]]
) -> Iterator[EdgeLine]:
    in_flight: dict[tuple[str, str], int] = {}
    for channel in stored.channels:
        at = (channel.source.node, channel.target.node)
        in_flight[at] = in_flight.get(at, 0) + messages_in_flight(stored, channels, channel)
    before = {(edge.source, edge.target): division(edge) for edge in stored.edges}
    now = {(edge.source, edge.target): division(edge) for edge in topology.edges}
    for at in dict.fromkeys([*now, *before]):
        count = in_flight.get(at, 0)
        change = _edge_change(before.get(at), now.get(at))
        counts = (count, 0, 0) if at not in reshaped else (0, count, 0)
        yield EdgeLine(change, *at, before.get(at), now.get(at), *(counts if at in now else (0, 0, count)))


def _edge_change(before: str | None, now: str | None) -> Change:
    if before is None:
        return Change.ADDED
    if now is None:
        return Change.REMOVED
    return Change.SAME if before == now else Change.CHANGED


def messages_in_flight(stored: Topology, channels: StoredChannels, channel: ChannelId) -> int:
    """Return the number of messages in flight on a channel of a snapshot, without the end of the stream."""
    return channels.in_flight(channel, carries_end=carries_end(stored, stored.edge_of(channel)))
