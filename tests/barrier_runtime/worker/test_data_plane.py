"""The subtasks of one worker: messages arrive, credit comes back, the loop knows when it may sleep, all is measured."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

from cutline import END, Context, Graph, Node, Source
from cutline.barrier_runtime import clock
from cutline.barrier_runtime.worker.data_plane import DataPlane
from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.events import Started
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import FRESH, RestoredChannels


class _Rarely(Source):
    """Sends one message, and wants to be asked again in a day."""

    def poll(self, context: Context) -> float:
        context.send("news")
        return 86_400.0


class _Count(Source):
    """Sends numbers as fast as it is asked."""

    def __init__(self, count: int) -> None:
        self.left = count

    def poll(self, context: Context) -> Any:
        if not self.left:
            return END
        self.left -= 1
        context.send("x" * 1000)
        return None


class _Gather(Node):
    def __init__(self) -> None:
        self.seen = 0

    def onMessage(self, message: str, context: Context) -> None:
        self.seen += 1
        context.increment("seen")


def _plane(source: Source) -> DataPlane:
    graph = Graph("plane")
    graph.add("source", source).add("gather", _Gather())
    graph.connect("source", "gather")
    compiled = build(graph, "unaligned")
    environment = SubtaskEnvironment(
        "plane", 1, Codec(), SubtaskLimits(), lambda _: None,
        lambda _: logging.LoggerAdapter(logging.getLogger("plane"), {}), lambda _: Random(1), lambda: 0.0,
    )  # fmt: skip
    machines = {
        subtask: SubtaskMachine(assemble(subtask, compiled, environment, RestoredChannels()))
        for subtask in compiled.topology.subtasks
    }
    for machine in machines.values():
        machine.restore(FRESH, 0.0)
    plane = DataPlane(0, 1, compiled.topology, compiled.topology.place(1), machines)
    for machine in machines.values():
        machine.step(Started(), 0.0)
    plane.flush(0.0)
    return plane


def test_a_message_arrives_before_the_loop_may_sleep() -> None:
    """Low latency when idle: a turn that did something is followed by one that flushes."""
    plane = _plane(_Rarely())
    plane.turn(0.0)
    while plane.has_work:
        plane.turn(0.0)
    assert plane.meter.report({}, {}).metrics == {"seen": 1}
    assert plane.next_wake() == 86_400.0


def test_more_than_a_window_passes_and_the_end_arrives() -> None:
    """Credit is given back inside a worker too: ten windows of messages pass, then nothing is left to do."""
    plane = _plane(_Count(10_000))
    while not all(machine.status is Status.ENDED for machine in plane.machines.values()):
        plane.turn(0.0)
    assert plane.meter.report({}, {}).metrics == {"seen": 10_000}
    assert plane.meter.report({}, {}).ended == {"source": 1, "gather": 1}
    while plane.has_work:
        plane.turn(0.0)
    assert plane.is_idle


def test_an_edge_without_credit_is_held_up() -> None:
    """The receiver takes nothing: the sender's buffer fills, and data waits that cannot leave. Else nothing does."""
    plane = _plane(_Count(10_000))
    plane.meter.sample(clock.now() + 1.0)
    assert plane.meter.report({}, {}).sent[0].held_up == 0.0
    gather = plane.machines[Subtask("gather")]
    gather.backpressure.closed += 1
    while plane.turn(0.0):
        pass
    plane.meter.sample(clock.now() + 2.0)
    report = plane.meter.report({}, {})
    (sent,), (processed,) = report.sent.values(), report.processed.values()
    assert (sent.ends, sent.held_up) == (1, 1.0)
    assert sent.waiting > 0 and processed.waiting > 0
    assert sent.waiting + processed.waiting == sent.sent - processed.processed
    gather.backpressure.closed -= 1
    while plane.has_work:
        plane.turn(0.0)
    report = plane.meter.report({}, {})
    (sent,), (processed,) = report.sent.values(), report.processed.values()
    assert (sent.waiting, sent.held_up, processed.waiting) == (0, 0.0, 0)
    assert (sent.sent, processed.processed) == (10_001, 10_001), "the end of the stream is numbered too"
    assert processed.bytes > 10_000 * 1000
    assert 0.0 < report.busy["gather"] <= 1.0
