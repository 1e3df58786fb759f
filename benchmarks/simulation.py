"""The simulator itself: events per second of a small ring, and a whole snapshot of up to ten thousand subtasks.

No Spark and no Ray. Beside the time it prints what grows: messages, markers, steps of the coordinator.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.effort import Effort
from benchmarks.result import Result, metric
from benchmarks.session import Place
from snapshot import Context, Graph, Node
from snapshot.testing import History, Odds, Simulator
from snapshot.testing.steps import Answer, Arrive, Listen, Think, Transmit, Wake
from snapshot.trace import Kind

#: Nodes of the large graphs; each has `PARALLELISM` subtasks and a channel from each of them to each of the next node.
NODES = (10, 100, 1_000)
PARALLELISM = 10
WORKERS = 16

RING_NODES = 10
RING_TOKENS = 10
RING_HOPS = 100


class Hop(Node):
    """Passes tokens on until they have hopped often enough."""

    def __init__(self, tokens: int, hops: int) -> None:
        self.tokens, self.hops = tokens, hops
        self.handled = 0

    def onStart(self, context: Context) -> None:
        for _ in range(self.tokens):
            context.send(self.hops)

    def onMessage(self, message: Any, context: Context) -> None:
        self.handled += 1
        if message:
            context.send(message - 1)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.handled

    def restoreState(self, state: Any) -> None:
        self.handled = state


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for the ring, one for each size."""
    yield _ring(effort)
    for nodes in effort.choose(NODES, NODES[:1]):
        yield _scale(nodes, effort)


def _ring(effort: Effort) -> Result:
    rates, steps = [], []
    for seed in range(effort.repeats):
        graph = _graph(RING_NODES, 1, Hop(RING_TOKENS, RING_HOPS))
        began_at = time.perf_counter()
        history = Simulator(graph, seed, snapshotInterval=1.0).run()
        seconds = time.perf_counter() - began_at
        _require(history, RING_NODES * RING_TOKENS * (RING_HOPS + 1))
        # What happens in a subtask is in the history; what moves between two of them is a step.
        moved = sum(isinstance(step, Transmit | Arrive) for step in history.schedule)
        rates.append((len(history.events) + moved) / seconds)
        steps.append(len(history.schedule) / seconds)
    return Result(
        "simulation",
        {"graph": "ring", "subtasks": RING_NODES, **effort.configuration()},
        {"events_per_s": metric("events/s", rates), "steps_per_s": metric("steps/s", steps)},
        {},
    )


def _scale(nodes: int, effort: Effort) -> Result:
    graph = _graph(nodes, PARALLELISM, Hop(1, 0))
    gc.collect()
    gc.freeze()
    gc.disable()  # millions of objects live to the end: looking through them again and again would be most of the time
    try:
        began_at = time.perf_counter()
        history = Simulator(graph, 1, workers=WORKERS, snapshotTimeout=1e9, maxSteps=10**9, odds=Odds(orders=0)).run()
        seconds = time.perf_counter() - began_at
    finally:
        gc.enable()
        gc.unfreeze()
    _require(history, nodes * PARALLELISM)
    channels, snapshots = len(history.topology.channels), len(history.snapshots)
    markers = sum(event.kind is Kind.MARKER for event in history.events)
    if markers != channels * snapshots:
        raise RuntimeError(f"simulation: {markers} markers for {snapshots} snapshots of {channels} channels")
    work = sum(isinstance(step, Think | Listen | Answer | Wake) for step in history.schedule)
    return Result(
        "simulation",
        {"graph": "layers", "subtasks": nodes * PARALLELISM, "channels": channels, **effort.configuration()},
        {
            "seconds": metric("s", [seconds]),
            "messages": metric("messages", [float(nodes * PARALLELISM)]),
            "markers": metric("markers", [float(markers)]),
            "snapshots": metric("snapshots", [float(snapshots)]),
            "coordinator_steps": metric("steps", [float(work)]),
            "us_per_marker": metric("us", [seconds / markers * 1e6]),
        },
        {},
    )


def _graph(nodes: int, parallelism: int, node: Node) -> Graph:
    graph = Graph("simulated")
    for number in range(nodes):
        graph.add(f"n{number}", node, parallelism=parallelism)
    for number in range(nodes):
        spread: Any = None if parallelism == 1 else "rebalance"
        graph.connect(f"n{number}", f"n{(number + 1) % nodes}", spread=spread)
    return graph


def _require(history: History, messages: int) -> None:
    """All messages were handled, and the run is over."""
    handled = sum(event.kind is Kind.RECEIVE for event in history.events)
    if history.outcome is None or handled != messages:
        raise RuntimeError(f"simulation: {handled} of {messages} messages were handled; {history.reason}")
