"""The pipeline sugar over `Graph`: a `Stream` is one or more branches that leave nodes of the graph.

Owns no declaration of its own: `process` and `to` add a node and one edge a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from snapshot.errors import GraphError
from snapshot.plan.declarations import EdgeDeclaration, Key, PartitioningName
from snapshot.plan.transforms import Transform, TransformKind

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot.graph import Graph
    from snapshot.node import Node, Sink


@dataclass(frozen=True, slots=True)
class Branch:
    """What will become one edge: the node it leaves, what happens to its messages there, how they are spread."""

    node: str
    transforms: tuple[Transform, ...] = ()
    key: Key | None = None
    partitioning: PartitioningName | None = None


class Stream:
    """Messages on their way from nodes that are in the graph to one that will be. Immutable: methods return new ones.

    Made by `Graph.source` and `Stream.process`, not by users.
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
        """All messages of this stream and the others; in order within each, merged in any order."""
        for other in others:
            if other._graph is not self._graph:
                raise GraphError(f"union of streams of two graphs, {self._graph.name!r} and {other._graph.name!r}")
        return Stream(self._graph, tuple(branch for stream in (self, *others) for branch in stream._branches))

    def keyBy(self, *key: str | Callable[[Any], Any]) -> Stream:
        """Spread by hash of a column, of several columns, or of what a function returns."""
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

    def process(self, name: str, node: Node, *, parallelism: int = 1, schema: str | pa.Schema | None = None) -> Stream:
        """Add `node` behind this stream and return the stream that leaves it.

        Parameters as in `Graph.add` and `Graph.connect`.
        """
        self._end_in(name, node, parallelism, schema)
        return Stream(self._graph, (Branch(name),))

    def to(self, name: str, sink: Sink, *, parallelism: int = 1, schema: str | pa.Schema | None = None) -> Graph:
        """Add `sink` behind this stream and return the graph."""
        self._end_in(name, sink, parallelism, schema)
        return self._graph

    def _end_in(self, name: str, node: Node, parallelism: int, schema: str | pa.Schema | None) -> None:
        self._graph.add(name, node, parallelism=parallelism)
        for branch in self._branches:
            edge = EdgeDeclaration(branch.node, name, branch.key, branch.partitioning, schema, None, branch.transforms)
            self._graph.edges.append(edge)

    def _transform(self, kind: TransformKind, function: Callable[[Any], Any]) -> Stream:
        # It runs before the message is spread, so behind keyBy it would change the key that was asked for.
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
        return f"graph {self._graph.name!r}, stream from {', '.join(branch.node for branch in self._branches)}"
