"""Graph: the user's declaration of nodes, edges, invariants. `snapshot.plan.compiled_graph` checks and expands it.

A `Stream` is one or more branches that leave nodes of the graph. A stream owns no declaration: `process` and `to` add a
node, and an edge for each branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Never

from cutline.snapshot.errors import GraphError
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import (
    AliasTarget,
    AlignmentWish,
    EdgeDeclaration,
    Invariant,
    Key,
    NodeDeclaration,
    PartitioningName,
    Transform,
    TransformKind,
    shown_name,
)
from cutline.snapshot.plan.topology import EdgeSpec, NodeSpec, Partitioning, Topology

if TYPE_CHECKING:
    import pyarrow as pa

    from cutline.snapshot.node import Node, Sink, Source
    from cutline.snapshot.operators.aggregate_store import AggregateStore
    from cutline.snapshot.operators.monoid import Monoid
    from cutline.snapshot.stored.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Branch:
    """Beginning of an edge: the node that it leaves, its transforms, and its partitioning."""

    node: str
    transforms: tuple[Transform, ...] = ()
    key: Key | None = None
    partitioning: PartitioningName | None = None


class Stream:
    """Messages between nodes of the graph and a node that is not added yet. Immutable: methods return new streams.

    `Graph.source` and `Stream.process` make streams; users do not.
    """

    def __init__(self, graph: Graph, branches: tuple[Branch, ...]) -> None:
        self._graph = graph
        self._branches = branches

    def map(self, f: Callable[[Any], Any]) -> Stream:
        """Replace each message by ``f(message)``, inside the subtask that sends it."""
        return self._transform(TransformKind.MAP, f)

    def flatMap(self, f: Callable[[Any], Iterable[Any]]) -> Stream:
        """Replace each message by the elements of ``f(message)``, inside the subtask that sends it."""
        return self._transform(TransformKind.FLAT_MAP, f)

    def filter(self, f: Callable[[Any], object]) -> Stream:
        """Keep the messages for which ``f(message)`` is true, inside the subtask that sends them."""
        return self._transform(TransformKind.FILTER, f)

    def union(self, *others: Stream) -> Stream:
        """Return a stream of all messages of these streams. Messages of each stream stay in order."""
        for other in others:
            if other._graph is not self._graph:
                raise GraphError(f"union of streams of two graphs, {self._graph.name!r} and {other._graph.name!r}")
        return Stream(self._graph, tuple(branch for stream in (self, *others) for branch in stream._branches))

    def keyBy(self, *key: str | Callable[[Any], Any]) -> Stream:
        """Partition by hash of a column, of several columns, or of a function's result."""
        if len(key) == 1:
            return self._partitioned(key=key[0])
        columns = tuple(each for each in key if isinstance(each, str))
        if not key or len(columns) != len(key):
            raise GraphError(f"keyBy takes names of columns or one function, got {key!r} ({self._where()})")
        return self._partitioned(key=columns)

    def broadcast(self) -> Stream:
        """Send each message to every subtask of the next node."""
        return self._partitioned(partitioning="broadcast")

    def rebalance(self) -> Stream:
        """Send messages to the subtasks of the next node in turn."""
        return self._partitioned(partitioning="rebalance")

    def process(
        self,
        name: str,
        node: Node,
        *,
        parallelism: int = 1,
        formerly: str | None = None,
        schema: str | pa.Schema | None = None,
        onError: str | None = None,
    ) -> Stream:
        """Add `node` after this stream and return the stream that leaves it.

        Parameters as in `Graph.add` and `Graph.connect`.
        """
        self._graph.add(name, node, parallelism=parallelism, formerly=formerly)
        self._end_in(name, schema, onError)
        return Stream(self._graph, (Branch(name),))

    def to(
        self,
        name: str,
        sink: Sink,
        *,
        parallelism: int = 1,
        formerly: str | None = None,
        schema: str | pa.Schema | None = None,
        onError: str | None = None,
    ) -> Graph:
        """Add `sink` after this stream and return the graph."""
        self._graph.add(name, sink, parallelism=parallelism, formerly=formerly)
        self._end_in(name, schema, onError)
        return self._graph

    def persistentAggregate(
        self,
        name: str,
        monoid: Monoid,
        store: AggregateStore,
        *,
        value: Callable[[Any], Any] | None = None,
        parallelism: int = 1,
    ) -> Graph:
        """Add up the values of each key in a store, exactly once, and return the graph. `keyBy` comes right before it.

        Parameters
        ----------
        name : str
            As in `Graph.add`.
        monoid : Monoid
            Operation that adds up: `Sum`, `Count`, …, or any object with ``zero()`` and ``plus(a, b)``.
        store : AggregateStore
            Where the totals are. No other aggregate may use it.
        value : callable or None
            Returns the value of a message; None for the message itself.
        parallelism : int
            Number of subtasks.

        Raises
        ------
        GraphError
            if the stream is not partitioned by key, or `monoid` is none.
        """
        if any(branch.key is None for branch in self._branches):
            raise GraphError(f"persistentAggregate adds up by key ({self._where()}): put keyBy right before it")
        return self.to(name, PersistentAggregate(monoid, store, value), parallelism=parallelism)

    def _end_in(self, name: str, schema: str | pa.Schema | None, on_error: str | None) -> None:
        for branch in self._branches:
            edge = EdgeDeclaration(
                branch.node, name, branch.key, branch.partitioning, schema, None, branch.transforms, on_error
            )
            self._graph.edges.append(edge)

    def _transform(self, kind: TransformKind, function: Callable[[Any], Any]) -> Stream:
        # A transform runs before partitioning, so after keyBy it would change the key that the user asked for.
        self._refuse_if_partitioned(kind.value)
        added = (Transform(kind, function),)
        return Stream(self._graph, tuple(replace(b, transforms=b.transforms + added) for b in self._branches))

    def _partitioned(self, *, key: Key | None = None, partitioning: PartitioningName | None = None) -> Stream:
        self._refuse_if_partitioned(partitioning or "keyBy")
        return Stream(
            self._graph, tuple(replace(branch, key=key, partitioning=partitioning) for branch in self._branches)
        )

    def _refuse_if_partitioned(self, method: str) -> None:
        if any(branch.key is not None or branch.partitioning is not None for branch in self._branches):
            raise GraphError(
                f"{method} after keyBy, broadcast or rebalance ({self._where()}): how a stream is spread is said last, "
                "just before process or to"
            )

    def _where(self) -> str:
        return (
            f"graph {self._graph.name!r}, stream from {', '.join(shown_name(branch.node) for branch in self._branches)}"
        )


class Graph:
    """A directed graph of nodes, cycles included. At most one edge from one node to another; self-edges allowed.

    Methods only store declarations. When the graph is submitted, simulated or explained, all faults are raised at once
    as a `GraphError`. Can be pickled with cloudpickle if its nodes can.

    Parameters
    ----------
    name : str
        name of the graph. Also the name of its run, unless submit gets another.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[NodeDeclaration] = []
        self.edges: list[EdgeDeclaration] = []
        self.invariants: list[tuple[str, Invariant]] = []
        self.aliases: dict[str, AliasTarget] = {}

    def add(self, name: str, node: Node, *, parallelism: int = 1, formerly: str | None = None) -> Graph:
        """Add a node.

        Parameters
        ----------
        name : str
            1 to 200 letters, digits, ``_``, ``-`` or ``.``; unique in the graph.
        node : Node
            an instance, never a class. Submitting the graph pickles the instance, and each subtask is a copy.
        parallelism : int
            number of subtasks.
        formerly : str or None
            name of this node in older snapshots. A restore from such a snapshot takes over its state, its edges and
            their messages. No node of the graph may have the name, and one node at most may claim it.
        """
        self.nodes.append(NodeDeclaration(name, node, parallelism, formerly))
        return self

    def connect(
        self,
        source: str,
        target: str,
        *,
        key: Key | None = None,
        partitioning: PartitioningName | None = None,
        schema: str | pa.Schema | None = None,
        alignment: AlignmentWish | None = None,
        onError: str | None = None,
        **refused: Never,
    ) -> Graph:
        """Add an edge from node `source` to node `target`, which may be added later.

        Parameters
        ----------
        key : str, sequence of str, or function of the message
            key of a hash partitioning: messages with equal keys go to the same subtask.
        partitioning : "forward", "rebalance", "broadcast" or "directed"
            None: forward where both nodes have the same parallelism, else rebalance.
        schema : str or pyarrow.Schema
            DDL such as ``"word string, count long"``, or Arrow. Needed where messages become batches.
        alignment : "unaligned", "aligned" or float
            None: the run's alignment, where it is allowed. A float: aligned for so many seconds, then unaligned.
        onError : str
            name of a node that gets each message of this edge that fails `RestartPolicy.poisonAfter` times in a row,
            as a dict with ``message``, ``error``, ``node``, ``channel`` and ``sequenceNumber``. An edge from `target`
            to that node is added. None: such a message ends the run.

        Raises
        ------
        GraphError
            for a keyword that does not exist. The message names `partitioning` when its former name was given.
        """
        if refused:
            hint = "; its name is partitioning" if "spread" in refused else ""
            raise GraphError(f"graph {self.name!r}: connect has no keyword {', '.join(refused)}{hint}")
        self.edges.append(EdgeDeclaration(source, target, key, partitioning, schema, alignment, (), onError))
        return self

    def addInvariant(self, name: str, holds: Callable[[Snapshot], bool]) -> Graph:
        """Check every published snapshot with `holds`, in the driver."""
        self.invariants.append((name, holds))
        return self

    def alias(self, stored: str, now: AliasTarget) -> Graph:
        """Say what a class, function or module is called now that stored values refer to by another name.

        Parameters
        ----------
        stored : str
            name in the snapshot, with its module: ``"jobs.Basket"``, ``"__main__.Shop.Basket"``; or of a module:
            ``"__main__"``.
        now : class, function or str
            the class or function of the program; for a module its name, such as ``"jobs"``.
        """
        self.aliases[stored] = now
        return self

    def source(self, name: str, source: Source, *, parallelism: int = 1, formerly: str | None = None) -> Stream:
        """Add a source and return the stream that leaves it. Parameters as in `add`."""
        self.add(name, source, parallelism=parallelism, formerly=formerly)
        return Stream(self, (Branch(name),))

    def withParallelism(self, parallelism: Mapping[str, int]) -> Graph:
        """Return a copy of the graph in which the given nodes have another number of subtasks.

        Nodes and functions are shared with this graph. Submitting the copy under the name of a run rescales the run.

        Parameters
        ----------
        parallelism : mapping of str to int
            new number of subtasks, by node. Other nodes keep theirs.

        Raises
        ------
        GraphError
            for a node that the graph does not have, or a number below 1. The message names the nodes that exist.
        """
        known = {node.name: node.parallelism for node in self.nodes}
        problems = [f"there is no node {shown_name(name)}" for name in parallelism if name not in known]
        problems += [
            f"parallelism {number!r} of node {shown_name(name)} is no whole number from 1 on"
            for name, number in parallelism.items()
            if not isinstance(number, int) or isinstance(number, bool) or number < 1
        ]
        if problems:
            nodes = ", ".join(f"{name}={number}" for name, number in known.items())
            raise GraphError(f"graph {self.name!r}: {'; '.join(problems)}. It has {nodes}")
        copy = Graph(self.name)
        copy.nodes = [replace(node, parallelism=parallelism.get(node.name, node.parallelism)) for node in self.nodes]
        copy.edges = list(self.edges)
        copy.invariants = list(self.invariants)
        copy.aliases = dict(self.aliases)
        return copy

    def explain(self, alignment: AlignmentWish = "unaligned") -> None:
        """Print nodes and edges, and each edge's partitioning and alignment with reasons, for the run's `alignment`.

        Raises
        ------
        GraphError
            when the graph cannot be built. The message lists all faults.
        """
        print(explanation(build(self, alignment).topology))  # noqa: T201  # as DataFrame.explain does

    def _repr_html_(self) -> str:
        """Return the drawn graph for notebooks, or the reason why the graph cannot be built."""
        from cutline.snapshot.drawing.graph_picture import html_of_graph  # the drawing room imports this module

        return html_of_graph(self)


def explanation(topology: Topology) -> str:
    """Return the text that `Graph.explain` prints."""
    subtasks, channels = len(topology.subtasks), len(topology.channels)
    lines = [f"Graph {topology.name}: {subtasks} subtasks, {channels} channels", "", "Nodes"]
    lines += _table([_node_cells(topology, node) for node in topology.nodes])
    if topology.edges:
        lines += ["", "Edges"]
        lines += _table([_edge_cells(topology, edge) for edge in topology.edges])
    started_by = ", ".join(str(subtask) for subtask in topology.initiators())
    return "\n".join([*lines, "", f"Snapshots are started at {started_by}"])


def _node_cells(topology: Topology, node: NodeSpec) -> list[str]:
    kinds = [kind for kind, holds in (("source", node.is_source), ("sink", node.is_sink)) if holds] or ["node"]
    remarks = [node.guarantee] if node.guarantee else []
    component = topology.component_of(node.name)
    if component.cyclic:
        remarks.append(f"on the cycle of {', '.join(component.nodes)}")
    return [node.name, " and ".join(kinds), f"x{node.parallelism}", node.class_name, "; ".join(remarks)]


def _edge_cells(topology: Topology, edge: EdgeSpec) -> list[str]:
    partitioning = edge.partitioning.value if edge.key is None else f"{edge.partitioning.value} by {edge.key}"
    alignment = f"{edge.alignment} ({edge.reason})"
    return [
        f"{edge.source} -> {edge.target}",
        f"{partitioning}: {_why_partitioning(topology, edge)}",
        alignment,
        _remarks(topology, edge),
    ]


def _why_partitioning(topology: Topology, edge: EdgeSpec) -> str:
    targets = topology.node(edge.target).parallelism
    match edge.partitioning:
        case Partitioning.FORWARD:
            return "subtask i to subtask i"
        case Partitioning.REBALANCE:
            return f"in turn to {targets} subtasks"
        case Partitioning.HASH:
            return f"equal keys to the same of {targets} subtasks"
        case Partitioning.BROADCAST:
            return f"to all of {targets} subtasks"
        case Partitioning.DIRECTED:
            return f"to the one of {targets} subtasks that the sender names"


def _remarks(topology: Topology, edge: EdgeSpec) -> str:
    facts = [
        "on a cycle: spills instead of blocking" if edge.in_cycle else "",
        "carries messages that failed" if topology.carries_dead_letters(edge) else "",
        f"messages that fail go to {edge.on_error}" if edge.on_error is not None else "",
    ]
    return "; ".join(filter(None, facts))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
