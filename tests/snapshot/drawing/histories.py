"""Histories to draw."""

from __future__ import annotations

from dataclasses import replace

from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Kind
from tests.snapshot import sample
from tests.snapshot.testing.scribe import Scribe


def every_kind() -> History:
    """An event of each kind that moves no message of the graph."""
    scribe = Scribe(sample.TOPOLOGY)
    scribe.deploy(7)
    for kind in (Kind.POLL, Kind.TIMER, Kind.COMMIT, Kind.FAILED, Kind.REFUSED):
        scribe.note_event(sample.Q, kind, snapshot_id=sample.SNAPSHOT_ID if kind is Kind.COMMIT else 0)
    scribe.note_event(sample.Q, Kind.INJECT, payload=b"\x07")
    for kind in (Kind.ABORTED, Kind.REFUSED, Kind.FAILED):
        scribe.note(kind, text="reason")
    return scribe.history


def ring(count: int) -> Topology:
    """A ring of this many nodes."""
    names = [f"n{number}" for number in range(count)]
    node, edge = sample.TOPOLOGY.nodes[0], sample.TOPOLOGY.edges[0]
    pairs = zip(names, [*names[1:], names[0]], strict=True)
    return Topology(
        "ring",
        tuple(replace(node, name=name) for name in names),
        tuple(replace(edge, source=source, target=target) for source, target in pairs),
        sample.TOPOLOGY.components,
    )


def rounds(count: int, messages: int) -> History:
    """A message goes round a ring while a snapshot is taken, and a node after another fails."""
    scribe = Scribe(ring(count))
    scribe.deploy(1)
    channels = scribe.history.topology.channels
    scribe.send(channels[0], 0)
    for number in range(messages):
        scribe.now += 0.25
        scribe.receive(channels[number % count])
        scribe.send(channels[(number + 1) % count], number + 1)
        if number < count:
            scribe.cut(Subtask(f"n{(7 * number) % count}"), 1_000_001)
        if number % 20 == 19:
            scribe.note(Kind.FAULT, text=f"Crash('n{number % count}')")
    return scribe.finish(None)
