"""Machines of a declared graph, driven by hand: for tests that say every step themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import Spill
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.events import MarkerArrived, Started
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.reports import Report
from cutline.snapshot.subtask.restored import FRESH, RestoredChannels
from cutline.snapshot.subtask.strand import ChangeCaptured

CODEC = Codec()


class Hosted:
    """All machines of a graph, fresh and started."""

    #: whether the machines are in one worker, whose links take messages by reference
    are_together = False

    def __init__(
        self,
        graph: Graph,
        alignment: AlignmentWish = "unaligned",
        *,
        limits: SubtaskLimits | None = None,
        spill_of: Callable[[ChannelId], Spill | None] = lambda channel: None,
        tier_of: Callable[[Subtask], Tier] = lambda _: HeapTier(),
        started: bool = True,
    ) -> None:
        self.compiled = build(graph, alignment)
        self.limits = limits or SubtaskLimits()
        self.spill_of, self.tier_of = spill_of, tier_of
        self.nodes: dict[Subtask, Any] = {}
        #: what the stopwatch of snapshots shows
        self.now = 0.0
        self.machines = {subtask: self.machine(subtask) for subtask in self.compiled.topology.subtasks}
        for machine in self.machines.values():
            machine.restore(FRESH, 0.0)
            if started:
                machine.step(Started(), 0.0)

    def machine(self, subtask: Subtask, channels: RestoredChannels | None = None, seed: int = 1) -> SubtaskMachine:
        """A machine that is not restored yet."""
        environment = SubtaskEnvironment(
            run="hosted",
            incarnation=1,
            codec=CODEC,
            limits=self.limits,
            spill_of=self.spill_of,
            tier_of=self.tier_of,
            logger_of=lambda _: logging.LoggerAdapter(logging.getLogger("tests.hosted"), {}),
            chance_of=lambda _: Random(seed),
            stopwatch=lambda: self.now,
        )
        components = assemble(subtask, self.compiled, environment, channels or RestoredChannels())
        self.nodes[subtask] = components.core.node
        for end in components.core.outputs.values():
            if self.are_together:
                end.take_objects()
        return SubtaskMachine(components)

    def __getitem__(self, name: str) -> SubtaskMachine:
        return self.machines[Subtask(name)]

    def node(self, name: str) -> Any:
        """The user's object."""
        return self.nodes[Subtask(name)]

    def carry(self, source: str, target: str, count: int | None = None) -> list[AnyFrame | Marker]:
        """Move what waits from subtask 0 of `source` to subtask 0 of `target`; `count` items, or all."""
        channel = ChannelId(Subtask(source), Subtask(target))
        end, receiver = self[source].outputs[channel], self[target]
        carried: list[AnyFrame | Marker] = []
        while end.buffer.has_data and len(carried) != count:
            item = end.buffer.take()
            assert item is not None
            carried.append(item)
            if isinstance(item, Marker):
                receiver.step(MarkerArrived(channel, item), 0.0)
            else:
                receiver.deliver(channel, item)
        self[source].validate()
        receiver.validate()
        return carried

    def seal_and_carry(self, source: str, target: str) -> list[AnyFrame | Marker]:
        """Close the open frame too, then move all."""
        self[source].seal()
        return self.carry(source, target)


def taken(machine: SubtaskMachine) -> list[Contribution]:
    """The snapshots that a machine hands out now."""
    return [report for report in machine.take_reports() if isinstance(report, Contribution)]


def only(reports: list[Report], kind: type) -> Any:
    """The one report of a kind."""
    (found,) = [report for report in reports if isinstance(report, kind)]
    return found


def changes_of(reports: list[Report], kind: type) -> list[Any]:
    """The changes of a kind that were reported."""
    changes = [report.change for report in reports if isinstance(report, ChangeCaptured)]
    return [change for change in changes if isinstance(change, kind)]


def state_of(snapshot: Contribution) -> NodeState:
    """What a machine recorded of its node."""
    return NodeState.decode(b"".join(snapshot.state), CODEC)


def values(cut: SentCut | ReceivedCut | tuple[Frame, ...]) -> list[Any]:
    """The messages of a cut."""
    found: list[Any] = []
    for frame in cut if isinstance(cut, tuple) else cut.frames:
        messages = messages_of(frame, CODEC)
        found += messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages
    return found


def moved(sender: ChannelSender, receiver: ChannelReceiver) -> None:
    """All that waits at one end goes to the other."""
    while (item := sender.buffer.take()) is not None:
        if isinstance(item, Marker):
            receiver.deliver_marker(item)
        else:
            receiver.deliver(item)
