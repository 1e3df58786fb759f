"""What a user declares: nodes, edges, invariants. `snapshot.plan.compiled_graph` checks and expands the declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from snapshot.errors import GraphError
from snapshot.plan.compiled_graph import build
from snapshot.plan.declarations import AlignmentWish, EdgeDeclaration, Invariant, Key, NodeDeclaration, PartitioningName
from snapshot.plan.explain import explanation
from snapshot.stream import Branch, Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot.node import Node, Source


class Graph:
    """A directed graph of nodes, cycles included. At most one edge from one node to another; self-edges allowed.

    Methods only write down what they are told. All that is wrong is said at once, as a `GraphError`, when the
    graph is submitted, simulated or explained. Can be pickled with cloudpickle where its nodes can.

    Parameters
    ----------
    name : str
        also the name of its run, unless another is given at submit.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[NodeDeclaration] = []
        self.edges: list[EdgeDeclaration] = []
        self.invariants: list[tuple[str, Invariant]] = []

    def add(self, name: str, node: Node, *, parallelism: int = 1) -> Graph:
        """Add a node.

        Parameters
        ----------
        name : str
            1 to 200 letters, digits, ``_``, ``-`` or ``.``; unique in the graph.
        node : Node
            an instance, never a class. Each subtask is a pickled copy of it, made when the graph is submitted.
        parallelism : int
            number of subtasks.
        """
        self.nodes.append(NodeDeclaration(name, node, parallelism))
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
        **refused: Never,
    ) -> Graph:
        """Add an edge from node `source` to node `target`, which may be added later.

        Parameters
        ----------
        key : str, sequence of str, or function of the message
            spread by hash: messages with equal keys go to the same subtask.
        partitioning : "forward", "rebalance", "broadcast" or "directed"
            None: forward where both nodes have the same parallelism, else rebalance.
        schema : str or pyarrow.Schema
            DDL such as ``"word string, count long"``, or Arrow. Needed where messages become batches.
        alignment : "unaligned", "aligned" or float
            None: what the run asks for, where it can be. A float: aligned for so many seconds, then unaligned.

        Raises
        ------
        GraphError
            for a keyword that does not exist; names `partitioning` where its former name was given.
        """
        if refused:
            hint = "; its name is partitioning" if "spread" in refused else ""
            raise GraphError(f"graph {self.name!r}: connect has no keyword {', '.join(refused)}{hint}")
        self.edges.append(EdgeDeclaration(source, target, key, partitioning, schema, alignment, ()))
        return self

    def addInvariant(self, name: str, holds: Invariant) -> Graph:
        """Have `holds` judge every published snapshot, in the driver."""
        self.invariants.append((name, holds))
        return self

    def source(self, name: str, source: Source, *, parallelism: int = 1) -> Stream:
        """Add a source and return the stream that leaves it."""
        self.add(name, source, parallelism=parallelism)
        return Stream(self, (Branch(name),))

    def explain(self, alignment: AlignmentWish = "unaligned") -> None:
        """Print nodes and edges, how each edge spreads and aligns, and why, in a run with this wish of alignment.

        Raises
        ------
        GraphError
            when the graph cannot be built; says everything that is wrong with it.
        """
        print(explanation(build(self, alignment).topology))  # noqa: T201  # as DataFrame.explain does

    def _repr_svg_(self) -> str:
        """The graph, drawn, for notebooks; where it cannot be built, why."""
        from snapshot.drawing.graph_picture import svg_of_graph  # draws graphs, so it imports this

        return svg_of_graph(self)
