"""Measure the simulator: events per second of a small ring, and a snapshot of up to ten thousand subtasks.

Spark and Ray are not needed. The results also count what grows with the graph: messages, markers, and steps of the
coordinator.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.result import Result, metric
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place
from cutline import Context, Graph, Node
from cutline.snapshot.testing.steps import Answer, Arrive, Listen, Think, Transmit, Wake
from cutline.snapshot.trace_events import Kind
from cutline.testing import History, Odds, Simulator

#: numbers of nodes of large graphs; each node has `PARALLELISM` subtasks, with a channel to every subtask of the next
NODES = (10, 100, 1_000)
PARALLELISM = 10
WORKERS = 16

RING_NODES = 10
RING_TOKENS = 10
RING_HOPS = 100
QUICK_RING_HOPS = 20


class Hop(Node):
    """Sends tokens on until they have made `hops` hops. State: tokens received."""

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


def configurations(size: RunSize) -> Cases:
    """Return one case for the ring (0 nodes), one for each number of nodes of a large graph."""
    cases: dict[int, Configuration] = {0: {"graph": "ring", "subtasks": RING_NODES, **size.configuration()}}
    for nodes in size.choose(NODES, NODES[:1]):
        subtasks = nodes * PARALLELISM
        channels = subtasks * PARALLELISM
        cases[nodes] = {"graph": "layers", "subtasks": subtasks, "channels": channels, **size.configuration()}
    return cases


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case."""
    for nodes, configuration in cases.items():
        show_progress("simulation", configuration, 1, 1)
        yield _layers(nodes, configuration) if nodes else _ring(configuration, size)


def _ring(configuration: Configuration, size: RunSize) -> Result:
    rates, steps, hops = [], [], size.choose(RING_HOPS, QUICK_RING_HOPS)
    for seed in range(size.repeats):
        graph = _graph(RING_NODES, 1, Hop(RING_TOKENS, hops))
        began_at = time.perf_counter()
        history = Simulator(graph, seed, snapshotInterval=1.0).run()
        seconds = time.perf_counter() - began_at
        _require(history, RING_NODES * RING_TOKENS * (hops + 1))
        # Events of a subtask are in the history. A move between two subtasks is a step of the schedule.
        moved = sum(isinstance(step, Transmit | Arrive) for step in history.schedule)
        rates.append((len(history.events) + moved) / seconds)
        steps.append(len(history.schedule) / seconds)
    return Result(
        "simulation",
        configuration,
        {"events_per_s": metric("events/s", rates), "steps_per_s": metric("steps/s", steps)},
    )


def _layers(nodes: int, configuration: Configuration) -> Result:
    graph = _graph(nodes, PARALLELISM, Hop(1, 0))
    gc.collect()
    gc.freeze()
    gc.disable()  # because millions of objects stay to the end, and each collection would visit them all
    try:
        began_at = time.perf_counter()
        history = Simulator(graph, 1, workers=WORKERS, snapshotTimeout=1e9, maxSteps=10**9, odds=Odds(requests=0)).run()
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
        configuration,
        {
            "seconds": metric("s", [seconds]),
            "messages": metric("messages", [float(nodes * PARALLELISM)]),
            "markers": metric("markers", [float(markers)]),
            "snapshots": metric("snapshots", [float(snapshots)]),
            "coordinator_steps": metric("steps", [float(work)]),
            "us_per_marker": metric("us", [seconds / markers * 1e6]),
        },
    )


def _graph(nodes: int, parallelism: int, node: Node) -> Graph:
    graph = Graph("simulated")
    for number in range(nodes):
        graph.add(f"n{number}", node, parallelism=parallelism)
    for number in range(nodes):
        partitioning: Any = None if parallelism == 1 else "rebalance"
        graph.connect(f"n{number}", f"n{(number + 1) % nodes}", partitioning=partitioning)
    return graph


def _require(history: History, messages: int) -> None:
    """Check that all messages were handled, and that the run is over."""
    handled = sum(event.kind is Kind.RECEIVE for event in history.events)
    if history.outcome is None or handled != messages:
        raise RuntimeError(f"simulation: {handled} of {messages} messages were handled; {history.reason}")
