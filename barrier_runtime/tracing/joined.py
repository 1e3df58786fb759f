"""Join the traces of a run's submissions, between which the run was rescaled, to one trace.

Events refer to subtasks and channels of the topology at that time. The joined trace has the topology with the largest
parallelism of each node, which has all these subtasks and channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cutline.barrier_runtime.tracing.chunks import events_in
from cutline.barrier_runtime.tracing.trace_store import KeptTrace
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.plan.topology import EdgeSpec, NodeSpec, Partitioning, Topology
from cutline.snapshot.trace import Trace
from cutline.snapshot.trace_events import Event, Kind, counts_of, pack_counts


def opened(kept: Sequence[tuple[Topology, KeptTrace]]) -> Trace:
    """Decode the kept traces, each with the topology of its submission, and return the trace of the run."""
    topology = _widest([each for each, _ in kept])
    return Trace.gathered(topology, _events(kept, topology), Codec(safe=True))


def _events(kept: Sequence[tuple[Topology, KeptTrace]], widest: Topology) -> Iterator[Event]:
    for own, trace in kept:
        yield from trace.events
        for event in events_in(trace.chunks, own):
            yield event if own == widest else _recounted(event, own, widest)


def _recounted(event: Event, own: Topology, widest: Topology) -> Event:
    """Return an event with its counts in the order of the channels of `widest`, where its channels are some of many."""
    if event.kind not in (Kind.RESTORED, Kind.CUT) or not event.payload:
        return event
    assert event.subtask is not None
    counts = counts_of(event, own)
    sent = (counts.sent.get(channel, 0) for channel in widest.outputs_of(event.subtask))
    processed = (counts.processed.get(channel, 0) for channel in widest.inputs_of(event.subtask))
    return event._replace(payload=pack_counts(sent, processed))


def _widest(topologies: Sequence[Topology]) -> Topology:
    newest = topologies[-1]
    return replace(
        newest,
        nodes=tuple(_widest_node([each.node(node.name) for each in topologies]) for node in newest.nodes),
        edges=tuple(_widest_edge([each.edge(e.source, e.target) for each in topologies]) for e in newest.edges),
    )


def _widest_node(nodes: Sequence[NodeSpec]) -> NodeSpec:
    return max(nodes, key=lambda node: node.parallelism)


def _widest_edge(edges: Sequence[EdgeSpec]) -> EdgeSpec:
    """Return the edge with the most channels: only a forward edge does not lead from each subtask to each."""
    return next((edge for edge in edges if edge.partitioning is not Partitioning.FORWARD), edges[-1])
