"""Find what a graph lacks for a mode, by name of node, as many faults as possible at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cutline.snapshot.node import Sink, Source, defines, keeps_totals
from cutline.snapshot.plan.declarations import DeclaredGraph, EdgeDeclaration
from cutline.snapshot.plan.modes import Mode, row_of
from cutline.snapshot.plan.topology import Component
from cutline.snapshot.replayable_source import ReplayableSource


def mode_problems(
    mode: Mode, graph: DeclaredGraph, edges: Sequence[EdgeDeclaration], components: Sequence[Component]
) -> list[str]:
    """Return what a graph lacks for a mode. The list is empty when the mode can run the graph.

    Parameters
    ----------
    mode : Mode
    graph : DeclaredGraph
        A graph that can be built.
    edges : sequence of EdgeDeclaration
        All edges, those of messages that fail too.
    components : sequence of Component
    """
    problems, row = [*_cycle_problems(components)], row_of(mode)
    if row.has_steps or row.divides:
        problems += _source_problems(graph)
    if row.has_steps:
        problems += _step_problems(graph, edges)
    if row.divides:
        problems += _clock_problems(graph, edges)
    else:
        problems += _aggregate_problems(graph)
    if row.needs_parts:
        problems += _state_problems(graph)
    if row.makes_versions:
        problems += _own_state_problems(graph)
    if row.hashes_states:
        problems += _hash_problems(graph)
    return problems


def mode_refusal(
    mode: Mode, graph: DeclaredGraph, edges: Sequence[EdgeDeclaration], components: Sequence[Component]
) -> str | None:
    """Return why a mode cannot run a graph, or None if it can. Parameters as in `mode_problems`."""
    problems = mode_problems(mode, graph, edges, components)
    head = f"mode {mode.name!r} cannot run graph {graph.name!r}: "
    if len(problems) > 1:
        return f"{head}{len(problems)} problems:\n  " + "\n  ".join(problems)
    return head + problems[0] if problems else None


def _cycle_problems(components: Sequence[Component]) -> Iterator[str]:
    for component in components:
        if component.cyclic:
            yield f"node {component.nodes[0]!r} is on a cycle; mode 'markers' can"


def _source_problems(graph: DeclaredGraph) -> Iterator[str]:
    for each in graph.nodes:
        if isinstance(each.node, Source) and not isinstance(each.node, ReplayableSource):
            yield f"source {each.name!r} is no ReplayableSource: its input cannot be read again by offsets"


def _clock_problems(graph: DeclaredGraph, edges: Sequence[EdgeDeclaration]) -> Iterator[str]:
    """Yield what totals by clocks need: aggregates at all ends, and no state between sources and aggregates."""
    aggregates = [each.name for each in graph.nodes if keeps_totals(each.node)]
    if not aggregates:
        yield "it has no persistentAggregate"
    for each in graph.nodes:
        node = each.node
        if isinstance(node, Sink) and not keeps_totals(node):
            yield f"sink {each.name!r} is no aggregate"
        elif not isinstance(node, Sink | Source) and (defines(node, "snapshotState") or defines(node, "onTimer")):
            behind = f"aggregate {', '.join(map(repr, aggregates))}" if aggregates else "aggregates"
            yield f"node {each.name!r} between sources and {behind} keeps state or timers"
    for edge in edges:
        if edge.on_error is not None:
            yield f"edge {edge} sets messages aside that fail (onError), which have no clock; mode 'markers' can"


def _aggregate_problems(graph: DeclaredGraph) -> Iterator[str]:
    """Yield the aggregates, whose differences belong to cuts by markers or by clocks."""
    for each in graph.nodes:
        if keeps_totals(each.node):
            yield f"aggregate {each.name!r} has its totals in a store; modes 'markers' and 'monoidClocks' can"


def _step_problems(graph: DeclaredGraph, edges: Sequence[EdgeDeclaration]) -> Iterator[str]:
    """Yield what a replay of steps needs: sources that read again, and nodes that do the same again."""
    senders = {edge.source for edge in edges}
    for each in graph.nodes:
        node = each.node
        if not isinstance(node, Sink | Source) and not node.deterministic:
            yield f"node {each.name!r} does not declare deterministic = True"
        if isinstance(node, Sink) and each.name in senders:
            yield f"sink {each.name!r} sends messages, which a replay would not send again, because it repeats no sink"
    for edge in edges:
        if edge.on_error is not None:
            yield f"edge {edge} sets messages aside that fail (onError), which a replay would not; mode 'markers' can"


def _state_problems(graph: DeclaredGraph) -> Iterator[str]:
    """Yield the nodes whose own state has no deltas by partitions. What several subtasks unite says nothing of keys."""
    for each in graph.nodes:
        node = each.node
        is_exempt = isinstance(node, Sink | Source) or hasattr(node, "united_state")
        if defines(node, "snapshotState") and not node.partitioned and not is_exempt:
            yield f"node {each.name!r} has state that is neither keyed nor partitioned"


def _own_state_problems(graph: DeclaredGraph) -> Iterator[str]:
    """Yield the nodes with state of their own. That of sinks and of sources is stored with each snapshot."""
    for each in graph.nodes:
        if defines(each.node, "snapshotState") and not isinstance(each.node, Sink | Source):
            yield f"node {each.name!r} has state outside keyed state, which a local database cannot hold"


def _hash_problems(graph: DeclaredGraph) -> Iterator[str]:
    """Yield the nodes with attributes that no `snapshotState` gives, because such attributes have no hash."""
    for each in graph.nodes:
        attributes = ", ".join(vars(each.node))
        if attributes and not isinstance(each.node, Sink | Source) and not defines(each.node, "snapshotState"):
            yield f"node {each.name!r} has attributes ({attributes}) that no snapshotState gives, so they have no hash"
