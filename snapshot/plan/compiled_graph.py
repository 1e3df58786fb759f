"""Compile a declared graph: its topology, and the user's code in a form that can be shipped.

Submitting, simulating and explaining a graph all call `build`, so that all refuse the same graphs with the same words.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType

import pyarrow as pa

from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import GraphError
from cutline.snapshot.naming.program_names import Aliases, Name, ProgramNames
from cutline.snapshot.node import MIGRATIONS, Sink, Source, defines, guarantee_of, keeps_totals
from cutline.snapshot.plan.alignment import Granted, Request, grant_alignment, parse_alignment
from cutline.snapshot.plan.components import strong_components
from cutline.snapshot.plan.declarations import (
    AlignmentWish,
    DeclaredGraph,
    EdgeDeclaration,
    Invariant,
    Key,
    NodeDeclaration,
    Transform,
    dead_letter_edges,
)
from cutline.snapshot.plan.mode_needs import mode_problems, mode_refusal
from cutline.snapshot.plan.modes import Mode, row_of
from cutline.snapshot.plan.program_code import ProgramCode
from cutline.snapshot.plan.schemas import to_arrow_schema
from cutline.snapshot.plan.topology import ALIGNED, Component, EdgeSpec, NodeSpec, Partitioning, Topology
from cutline.snapshot.plan.validation import graph_problems


@dataclass(frozen=True, slots=True)
class EdgeCode:
    """The user's code of an edge, which `EdgeSpec` cannot hold."""

    key: Key | None
    schema: pa.Schema | None
    transforms: tuple[Transform, ...]


@dataclass(frozen=True, slots=True)
class GraphCode:
    """The pickled code of a graph. Made once a submission, because a cell that runs again changes the code."""

    nodes: dict[str, bytes]  #: {node: pickle of the added instance}; each start of a subtask unpickles a copy
    edges: bytes  #: pickle of ``{(source node, target node): EdgeCode}``
    #: pickle of the classes and functions that values refer to by name: see `ProgramCode.names`
    names: bytes
    aliases: Aliases


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A checked graph."""

    topology: Topology
    code: GraphCode
    edges: dict[tuple[str, str], EdgeCode]  #: {(source node, target node): code}
    invariants: dict[str, Invariant]
    #: {source: names that its `partitions` hook listed}; empty before `snapshot.plan.partitions` has listed them
    partitions: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def key_of(self, source: str, target: str) -> Key | None:
        """Return the key of an edge, or None without a key."""
        return self.edges[source, target].key

    def has_dead_letters(self, source: str, target: str) -> bool:
        """Return whether messages of an edge that fail go to another node."""
        return self.topology.edge(source, target).on_error is not None

    @property
    def nodes(self) -> dict[str, bytes]:
        """The pickle of each node: see `GraphCode`."""
        return self.code.nodes

    def shipped(self) -> bytes:
        """Return the pickle of the graph for workers, without invariants, which the driver judges."""
        return pickle.dumps(replace(self, edges={}, invariants={}))

    @staticmethod
    def opened(shipped: bytes) -> CompiledGraph:
        """Return the graph of `shipped`. Imports the user's modules. Raises what unpickling raises."""
        graph = pickle.loads(shipped)  # noqa: S301  # trusted like the code, because the driver sent both
        assert isinstance(graph, CompiledGraph)
        return replace(graph, edges=pickle.loads(graph.code.edges))  # noqa: S301

    def program_names(self) -> ProgramNames:
        """Return the names of the program, with classes and functions of this process."""
        return ProgramNames(pickle.loads(self.code.names), self.code.aliases)  # noqa: S301  # trusted like the code, because `build` made both


def build(
    graph: DeclaredGraph, alignment: AlignmentWish, mode: Mode | None = None, code: GraphCode | None = None
) -> CompiledGraph:
    """Check and expand a graph.

    Parameters
    ----------
    alignment : "unaligned", "aligned" or float
        the run's wish. Edges that cannot be aligned stay unaligned.
    mode : Mode or None
        What snapshots store; None: all state, in cuts by markers. All edges are aligned in any other mode.
    code : GraphCode or None
        The code of the same nodes and edges, which were compiled before.

    Raises
    ------
    GraphError
        if the graph has problems. The message lists all of them, by name of node and edge.
    """
    edges = [*graph.edges, *dead_letter_edges(graph.edges)]
    _refuse(graph, graph_problems(graph.name, graph.nodes, edges, graph.invariants))
    try:
        wish = parse_alignment(alignment)
    except ValueError as error:
        raise GraphError(f"graph {graph.name!r}: {error}") from error
    components = _components(graph.nodes, edges)
    requests = [
        Request(edge.source, edge.target, None if edge.alignment is None else parse_alignment(edge.alignment))
        for edge in edges
    ]
    granted = grant_alignment(components, requests, wish)
    edge_code = {(edge.source, edge.target): _code(edge) for edge in edges}
    pickled, problems = (code, []) if code is not None else _graph_code(graph, edge_code)
    _refuse(graph, [*granted.problems, *problems])
    topology = _topology(graph, edges, components, granted)
    if mode is not None:
        refusal = mode_refusal(mode, graph, edges, components)
        if refusal is not None:
            raise GraphError(refusal)
        topology = _aligned(topology, mode) if row_of(mode).is_aligned else replace(topology, mode=mode)
    return CompiledGraph(
        topology=topology,
        code=pickled,
        edges=edge_code,
        invariants=dict(graph.invariants),
    )


def problems_by_mode(graph: DeclaredGraph, modes: Mapping[str, Mode]) -> dict[str, list[str]]:
    """Return what a graph lacks for each of some modes.

    Raises
    ------
    GraphError
        if the graph cannot be built, in whatever mode.
    """
    build(graph, "unaligned")
    edges = [*graph.edges, *dead_letter_edges(graph.edges)]
    components = _components(graph.nodes, edges)
    return {name: mode_problems(mode, graph, edges, components) for name, mode in modes.items()}


def _refuse(graph: DeclaredGraph, problems: Sequence[str]) -> None:
    if len(problems) == 1:
        raise GraphError(f"graph {graph.name!r}: {problems[0]}")
    if problems:
        raise GraphError(f"graph {graph.name!r} has {len(problems)} problems:\n  " + "\n  ".join(problems))


def _components(nodes: Sequence[NodeDeclaration], edges: Sequence[EdgeDeclaration]) -> tuple[Component, ...]:
    numbers = {node.name: number for number, node in enumerate(nodes)}
    successors: list[list[int]] = [[] for _ in nodes]
    for edge in edges:
        successors[numbers[edge.source]].append(numbers[edge.target])
    return tuple(
        Component(
            nodes=tuple(nodes[number].name for number in part),
            cyclic=len(part) > 1 or part[0] in successors[part[0]],
        )
        for part in strong_components(successors)
    )


def _topology(
    graph: DeclaredGraph, declared: Sequence[EdgeDeclaration], components: tuple[Component, ...], granted: Granted
) -> Topology:
    component_of = {name: number for number, part in enumerate(components) for name in part.nodes}
    parallelism = {node.name: node.parallelism for node in graph.nodes}
    nodes = tuple(
        NodeSpec(
            name=node.name,
            parallelism=node.parallelism,
            component=component_of[node.name],
            is_source=isinstance(node.node, Source),
            is_sink=isinstance(node.node, Sink),
            guarantee=guarantee_of(node.node),
            class_name=f"{type(node.node).__module__}.{type(node.node).__qualname__}",
            acts_on_end=(defines(node.node, "onEnd") and not node.node.inherited) or None,
            is_aggregate=keeps_totals(node.node) or None,
            formerly=node.formerly,
            raised_version=node.node.stateVersion if node.node.stateVersion > 1 else None,
            raised_message_version=node.node.messageVersion if node.node.messageVersion > 1 else None,
            migrations=tuple(hook for hook in MIGRATIONS if defines(node.node, hook)) or None,
        )
        for node in graph.nodes
    )
    edges = tuple(
        EdgeSpec(
            source=edge.source,
            target=edge.target,
            partitioning=_partitioning_of(edge, parallelism[edge.source] == parallelism[edge.target]),
            alignment=granted.grants[edge.source, edge.target].alignment,
            in_cycle=component_of[edge.source] == component_of[edge.target],
            reason=granted.grants[edge.source, edge.target].reason,
            key=_key_description(edge.key),
            on_error=edge.on_error,
        )
        for edge in declared
    )
    return Topology(graph.name, nodes, edges, components)


def _aligned(topology: Topology, mode: Mode) -> Topology:
    """Return the topology of a mode whose markers stay after the messages, so that nothing is in flight at a cut."""
    reason = f"mode {mode.name!r}"
    edges = tuple(replace(edge, alignment=ALIGNED, reason=reason) for edge in topology.edges)
    return replace(topology, edges=edges, mode=mode)


def _partitioning_of(edge: EdgeDeclaration, is_equal_parallelism: bool) -> Partitioning:
    if edge.key is not None:
        return Partitioning.HASH
    if edge.partitioning is not None:
        return Partitioning(edge.partitioning)
    return Partitioning.FORWARD if is_equal_parallelism else Partitioning.REBALANCE


def _key_description(key: Key | None) -> str | None:
    if key is None or isinstance(key, str):
        return key
    if callable(key):
        return f"{getattr(key, '__qualname__', type(key).__qualname__)}()"
    return f"({', '.join(key)})"


def _code(edge: EdgeDeclaration) -> EdgeCode:
    schema = None if edge.schema is None else to_arrow_schema(edge.schema)
    return EdgeCode(edge.key, schema, edge.transforms)


def _graph_code(graph: DeclaredGraph, edges: Mapping[tuple[str, str], EdgeCode]) -> tuple[GraphCode, list[str]]:
    """Pickle the code of a graph. Return the problems with it too."""
    code = ProgramCode()
    nodes = [_pickled(node, code) for node in graph.nodes]
    edge_data, problem = _try_pickle(edges, code)
    problems = [each for _, each in nodes if each] + ([] if problem is None else list(_edge_problems(edges, code)))
    aliases, wrong = _aliases(graph, code)
    by_name = {node.name: data for node, (data, _) in zip(graph.nodes, nodes, strict=True)}
    return GraphCode(by_name, edge_data, code.names(), aliases), problems + wrong


def _pickled(declared: NodeDeclaration, code: ProgramCode) -> tuple[bytes, str | None]:
    """Return the pickled instance, and the problem with it, or None without a problem."""
    data, problem = _try_pickle(declared.node, code)
    if problem is None:
        return data, None
    for attribute, value in getattr(declared.node, "__dict__", {}).items():
        _, reason = _try_pickle(value, code)
        if reason is not None:
            problem = f"attribute {attribute!r}: {reason}"
            break
    return b"", f"node {declared.name!r}: cannot be serialised: {problem}; make connections and locks in open"


def _edge_problems(edges: Mapping[tuple[str, str], EdgeCode], code: ProgramCode) -> Iterator[str]:
    for (source, target), edge in edges.items():
        for function in [*(transform.function for transform in edge.transforms), edge.key]:
            _, problem = _try_pickle(function, code)
            if problem is not None:
                yield f"edge {source}->{target}: its function cannot be serialised: {problem}"


def _aliases(graph: DeclaredGraph, code: ProgramCode) -> tuple[Aliases, list[str]]:
    """Return the aliases of a graph, and the problems with them."""
    modules = {stored: now for stored, now in graph.aliases.items() if isinstance(now, str)}
    names: dict[str, Name] = {}
    problems: list[str] = []
    for stored, now in graph.aliases.items():
        if isinstance(now, type | FunctionType):
            problem = _try_pickle(now, code)[1]
            names[stored] = (now.__module__, now.__qualname__)
        else:
            problem = None if stored in modules else f"{shown(now)} is no class, function or name of a module"
        problems += [f"alias {stored!r}: {problem}"] if problem else []
    return Aliases(names, modules), problems


def _try_pickle(value: object, code: ProgramCode) -> tuple[bytes, str | None]:
    """Return the pickled value, and the reason why cloudpickle cannot hold it, or None without a problem."""
    try:
        return code.pickle(value), None
    except Exception as error:  # noqa: BLE001  # pickling runs the value's own code, which may raise anything
        return b"", f"{type(value).__qualname__} ({type(error).__name__}: {error})"
