"""Between a running subtask and its `NodeState`: gathers what a snapshot must hold, and puts it back."""

from __future__ import annotations

from typing import Any

from snapshot.end_of_stream import EndOfStream
from snapshot.node_state import NodeState
from snapshot.subtask_parts import SubtaskParts
from snapshot.two_phase import PreparedOutput


class StateKeeper:
    """Keeps everything of one subtask that is neither the user's state nor channel state.

    Parameters
    ----------
    parts : SubtaskParts
    ends : EndOfStream
    prepared : PreparedOutput
    """

    def __init__(self, parts: SubtaskParts, ends: EndOfStream, prepared: PreparedOutput) -> None:
        self._parts = parts
        self._ends = ends
        self._prepared = prepared

    def collect(self, state: Any, *, is_exhausted: bool, is_ended: bool) -> NodeState:
        """All that the state part holds, `state` being what the node returned."""
        context = self._parts.context
        ended = [channel.end.channel.source for channel in self._parts.inputs if channel.end.ended]
        return NodeState(
            state=state,
            random=context.random_state(),
            timers=self._parts.timers.state(),
            now=context.now,
            ended_inputs=[(source.node, source.index) for source in ended],
            exhausted=is_exhausted,
            ended=is_ended,
            uncommitted=self._prepared.values(),
            partitioners={edge.target: edge.partitioner.state() for edge in self._parts.edges},
        )

    def apply(self, kept: NodeState) -> None:
        """Put back what `collect` gathered, except what the node and the machine keep themselves."""
        context = self._parts.context
        context.now = max(context.now, kept.now)
        context.restore_random(kept.random)
        self._parts.timers.restore(kept.timers)
        self._prepared.restore(kept.uncommitted)
        self._restore_ends(kept)
        for edge in self._parts.edges:
            if edge.target in kept.partitioners:
                edge.partitioner.restore(kept.partitioners[edge.target])

    def _restore_ends(self, kept: NodeState) -> None:
        ended = dict.fromkeys((node, index) for node, index in kept.ended_inputs)
        for channel in self._parts.inputs:
            source = channel.end.channel.source
            if (source.node, source.index) in ended:
                channel.end.ended = True
                self._ends.channel_ended(channel.end.channel)
        context = self._parts.context
        context.inputs = self._ends.open_inputs
        if self._ends.inner_ended:
            context.closed_outputs = self._ends.inner_outputs
        if kept.ended:
            for output in self._parts.outputs.values():
                output.ended = True
